"""One self-contained HTML file, for the report and for the simulation."""

from __future__ import annotations

from typing import Final

from tocsin.pipeline.report.markup import Markup, joined, tag

# Nothing may be loaded or run, neither through a mistake of ours nor through a hostile host name.
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def document(title: str, *content: Markup) -> str:
    """A complete HTML file."""
    head = joined(
        [
            Markup('<meta charset="utf-8">'),
            Markup('<meta name="viewport" content="width=device-width,initial-scale=1">'),
            Markup(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
            Markup('<meta name="referrer" content="no-referrer">'),
            tag("title", title),
            tag("style", Markup(STYLE)),
        ]
    )
    skip = tag("a", "Skip to the figures", href="#main", class_="skip")
    return f"<!doctype html>\n{tag('html', tag('head', head), tag('body', skip, *content), lang='en')}\n"


def tile(name: str, value: str, note: str, *, alarm: bool = False) -> Markup:
    figures = (tag("dt", name), tag("dd", value), tag("dd", note, class_="note"))
    return tag("div", *figures, class_="tile alarm" if alarm else "tile")


STYLE: Final = """
:root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--ink:#15202b;--soft:#55626f;--rule:#dde2e8;
--track:#eceff3;
--accepted:#0072b2;--superseded:#6b7785;--on:#fff;
--failed:#d55e00;--shed:#e69f00;--pending:#a85a8a;--difference:#c1121f;
--second:#009e73;--heat:#0072b2;--loss:#d55e00;--good:#006b4e;--worse:#a63c00;--link:#005a8f;--alarm:#fdeceb}
@media (prefers-color-scheme:dark){:root{--page:#0e1319;--on:#0e1319;--card:#171e26;--ink:#e8edf2;--soft:#a3b0bd;
--rule:#2b3540;--track:#222b35;--accepted:#56b4e9;--superseded:#7d8a98;--failed:#ee7733;--shed:#f0c04a;--pending:#d88ab8;
--difference:#ff7b72;--second:#2fbf97;--heat:#56b4e9;--loss:#ee7733;--good:#4fd0a5;--worse:#ff9a62;--link:#7cc4f2;
--alarm:#3a1d1d}}
*{box-sizing:border-box}
html{scroll-behavior:smooth;scroll-padding-top:1rem}
@media (prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",sans-serif;font-variant-numeric:tabular-nums;-webkit-text-size-adjust:100%}
header,main,footer{max-width:64rem;margin:0 auto;padding:0 1.5rem}
header{padding-top:2.25rem}
h1{font-size:1.9rem;line-height:1.15;margin:0 0 .35rem;letter-spacing:-.02em}
h2{font-size:1.25rem;line-height:1.25;margin:0 0 .25rem;letter-spacing:-.01em}
h3{font-size:1rem;margin:1.5rem 0 .25rem}
p{margin:.35rem 0;max-width:46rem;overflow-wrap:anywhere}
a{color:var(--link)}
a:focus-visible,summary:focus-visible,.scroll:focus-visible{outline:3px solid var(--link);outline-offset:2px;
border-radius:4px}
.skip{position:absolute;left:-999px}.skip:focus{position:static}
.when,.meaning,footer,.advice{color:var(--soft)}
.when{margin:0}
.verdict{font-weight:600;margin:.6rem 0 0}.verdict.bad{color:var(--difference)}
nav ul{display:flex;flex-wrap:wrap;gap:.4rem;list-style:none;padding:0;margin:1.1rem 0 0}
nav a{display:block;padding:.25rem .7rem;border:1px solid var(--rule);border-radius:99px;background:var(--card);
text-decoration:none;font-size:.875rem}
nav a:hover{border-color:var(--link)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.75rem;margin:1.25rem 0 0;
padding:0}
.tile{background:var(--card);border:1px solid var(--rule);border-radius:12px;padding:.8rem 1rem}
.tile dt{font-size:.8125rem;color:var(--soft)}
.tile dd{margin:0;font-size:1.6rem;font-weight:650;line-height:1.2;letter-spacing:-.02em}
.tile dd.note{font-size:.8125rem;font-weight:400;color:var(--soft);letter-spacing:0;line-height:1.35}
.tile.alarm{background:var(--alarm);border-color:var(--difference)}.tile.alarm dd{color:var(--difference)}
.tile.alarm dd.note{color:var(--ink)}
section{background:var(--card);border:1px solid var(--rule);border-radius:14px;padding:1.35rem 1.5rem 1.25rem;
margin:1rem 0}
.meaning{margin:0 0 1rem}
.advice{font-size:.9rem;margin:1rem 0 0;padding-left:.8rem;border-left:3px solid var(--rule)}
.advice strong{color:var(--ink);font-weight:600}
figure{margin:1.5rem 0 .25rem}
figcaption{font-size:.9rem;font-weight:600;color:var(--ink);margin:0 0 .6rem}
svg{display:block;width:100%;height:auto;overflow:visible}
svg.narrow{display:none}
svg text{font-size:12.5px;fill:var(--soft);font-family:inherit}
svg text.strong{fill:var(--ink);font-weight:600}
svg text.ink{fill:var(--ink)}
svg text.on{fill:var(--on);font-weight:600}
svg text.small{font-size:11px}
.axis{stroke:var(--rule);stroke-width:1}
.track{fill:var(--track)}
.accepted{fill:var(--accepted)}.superseded{fill:var(--superseded)}.failed{fill:var(--failed)}.shed{fill:var(--shed)}
.pending{fill:var(--pending)}.difference{fill:var(--difference)}.second{fill:var(--second)}
.heat{fill:var(--heat)}.loss{fill:var(--loss)}
.soft{fill:var(--accepted);fill-opacity:.22}
.whisker{stroke:var(--accepted);stroke-width:1.5}
.mark{stroke:var(--ink);stroke-width:2.5}
.tail{stroke:var(--failed);stroke-width:2.5}
.curve{fill:none;stroke:var(--accepted);stroke-width:2.5;stroke-linejoin:round}
.curve2{fill:none;stroke:var(--second);stroke-width:2.5;stroke-dasharray:9 4;stroke-linejoin:round}
.curve3{fill:none;stroke:var(--failed);stroke-width:2.5;stroke-dasharray:2 4;stroke-linecap:round;
stroke-linejoin:round}
.earlier{fill:none;stroke:var(--superseded);stroke-width:2;stroke-dasharray:5 4}
.cone{fill:var(--track)}
.equation{display:flex;flex-wrap:wrap;align-items:stretch;gap:.4rem;margin:.5rem 0;padding:0;list-style:none}
.equation li{display:flex;align-items:center;gap:.4rem}
.term{border-top:4px solid var(--c,var(--ink));background:var(--track);border-radius:6px;padding:.35rem .6rem;
line-height:1.25}
.term b{display:block;font-size:1.1rem}.term span{font-size:.8125rem;color:var(--soft)}
.op{color:var(--soft);font-size:1.1rem}
.alarm .term,.term.alarm{background:var(--alarm);outline:2px solid var(--difference)}
.term.alarm b{color:var(--difference)}
.legend{display:flex;flex-wrap:wrap;gap:.15rem 1rem;list-style:none;margin:.4rem 0 0;padding:0;font-size:.8125rem;
color:var(--soft)}
.legend i{display:inline-block;width:.75rem;height:.75rem;border-radius:3px;margin-right:.35rem;
background:var(--c);vertical-align:-1px}
.changes{list-style:none;margin:0;padding:0}
.changes li{padding:.45rem 0 .45rem 5.2rem;position:relative;border-top:1px solid var(--rule)}
.changes li:first-child{border-top:0}
.badge{font-size:.75rem;font-weight:650;border:1.5px solid currentColor;border-radius:99px;padding:.02rem .5rem;
white-space:nowrap}
.changes .badge{position:absolute;left:0;top:.55rem}
.badge.bad{color:var(--worse)}.badge.good{color:var(--good)}.badge.plain{color:var(--soft)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.875rem}
caption{text-align:left;color:var(--soft);padding:.5rem 0;font-size:.8125rem}
th,td{padding:.32rem .6rem;text-align:right;border-bottom:1px solid var(--rule);vertical-align:top;
white-space:nowrap}
th:first-child,.words{text-align:left}
th:first-child{padding-left:0;font-weight:500}
td.words{white-space:normal;min-width:12rem}
thead th{color:var(--soft);font-weight:600;vertical-align:bottom;white-space:normal}
details{margin:.75rem 0 0}
summary{cursor:pointer;color:var(--link);font-size:.9rem}
.advices{display:grid;grid-template-columns:max-content 1fr;gap:.35rem 1.25rem;margin:.25rem 0;font-size:.9rem}
.advices dt{font-weight:600;overflow-wrap:anywhere}.advices dd{margin:0;color:var(--soft)}
.empty{padding:1rem;border:1px dashed var(--rule);border-radius:10px;color:var(--soft)}
code{font:.875em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;background:var(--track);padding:.1em .35em;
border-radius:4px;overflow-wrap:anywhere}
footer{padding-bottom:3rem;font-size:.875rem}
@media (min-width:44rem) and (max-width:60rem){.tiles{grid-template-columns:repeat(3,1fr)}}
@media (max-width:44rem){header,main,footer{padding-left:.75rem;padding-right:.75rem}
header{padding-top:1.25rem}h1{font-size:1.55rem}.tile dd{font-size:1.35rem}
section{padding:1rem .55rem .9rem;border-radius:10px}.tiles{grid-template-columns:1fr 1fr;gap:.5rem}
.advices{display:block}.advices dd{margin:0 0 .6rem}td.words{min-width:8rem}th,td{padding:.32rem .4rem}
svg.wide{display:none}svg.narrow{display:block}
.changes li{padding:.45rem 0}.changes .badge{position:static;margin-right:.4rem}}
@media print{:root{--page:#fff;--on:#fff;--card:#fff;--ink:#000;--soft:#444;--rule:#bbb;--track:#eee;--accepted:#0072b2;
--superseded:#6b7785;--on:#fff;--failed:#d55e00;--shed:#e69f00;--pending:#a85a8a;--difference:#c1121f;--second:#009e73;--heat:#0072b2;
--loss:#d55e00;--good:#006b4e;--worse:#a63c00;--alarm:#fdeceb}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}
body{font-size:11pt}nav,.skip{display:none}section,.tile{break-inside:avoid;border-color:#bbb}
header,main,footer{max-width:none;padding-left:0;padding-right:0}.scroll{overflow:visible}}
"""
