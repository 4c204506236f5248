from __future__ import annotations

from tocsin.pipeline.report.markup import Markup, joined, prose, section, table, tag

HOSTILE = "<script>alert('x')</script>\""


def test_text_and_attributes_are_escaped() -> None:
    made = tag("p", HOSTILE, title=HOSTILE)
    assert "<script" not in made
    assert made == (
        '<p title="&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&quot;">'
        "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&quot;</p>"
    )


def test_what_was_made_here_is_not_escaped_again() -> None:
    assert tag("p", tag("b", "a & b")) == "<p><b>a &amp; b</b></p>"
    assert joined(["<", Markup("<i></i>")]) == "&lt;<i></i>"


def test_attributes_are_named_as_in_html_and_left_out_if_none() -> None:
    assert tag("i", class_="x", aria_label="y", fill_opacity=0.125, width=3.0, hidden=None) == (
        '<i class="x" aria-label="y" fill-opacity="0.12" width="3"></i>'
    )


def test_words_between_backticks_are_code_and_escaped() -> None:
    assert prose("run `a < b` now") == "run <code>a &lt; b</code> now"


def test_table_has_a_caption_scopes_and_a_region_that_the_keyboard_scrolls() -> None:
    made = table(("name", "n", "why"), [("a", "1", "because")], caption="All", words=frozenset({2}))
    assert "<caption>All</caption>" in made
    assert '<th scope="col">name</th>' in made
    assert '<th scope="row">a</th><td>1</td><td class="words">because</td>' in made
    assert 'tabindex="0" role="region" aria-label="All"' in made


def test_section_says_what_it_means_and_what_to_do() -> None:
    made = section("x", "Title", "Meaning.", bad="run `y`.")
    assert '<section id="x" aria-labelledby="x-title">' in made
    assert "If this looks bad: </strong>run <code>y</code>." in made
