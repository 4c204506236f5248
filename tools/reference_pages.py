"""Pages of docs/reference, made from the code by `python -m tools.reference_pages`; a test keeps them current."""

from __future__ import annotations

import argparse
import ast
import asyncio
import inspect
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from enum import Enum
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple, cast

from tocsin.cli.main import build_parser
from tocsin.crypto.boxes import BoxKey
from tocsin.crypto.certificates import issue_leaf, make_authority, new_serial
from tocsin.crypto.credentials import CertificateAlgorithm, Credentials
from tocsin.events import delivery_events
from tocsin.ntf_router.delivery.channels.folder_channel import FolderChannel
from tocsin.ntf_router.delivery.handover import HandOver
from tocsin.ntf_router.metrics import fleet_metrics
from tocsin.ntf_router.operator import About, NtfOperator
from tocsin.ntf_router.running_router import running_ntf_router
from tocsin.ntf_router.settings.keys import NTF_KEYS
from tocsin.ntf_router.settings.settings import NtfSettings
from tocsin.ntf_router.snapshots import LEASE_KINDS, FleetSnapshot
from tocsin.ntf_router.statistics.statistics import NtfStatistics
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.operate.metrics import exposition
from tocsin.operate.randomness import SystemRandomness
from tocsin.operate.settings.keyed_settings import default_text
from tocsin.operate.settings.setting_keys import SettingKey
from tocsin.pipeline.lake import tables
from tocsin.pipeline.report.verdict import DeliveryLosses, metrics_text
from tocsin.pipeline.schemas import meanings
from tocsin.protocol import error_codes
from tocsin.protocol.direct.packets import PacketFate
from tocsin.smp_router.operator import SmpOperator
from tocsin.smp_router.running_router import running_smp_router
from tocsin.smp_router.settings.keys import SMP_KEYS
from tocsin.smp_router.settings.settings import SmpSettings
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tools.limits import NTF_LIMITS, SMP_LIMITS, Limit, Scope

FOLDER: Final = Path(__file__).resolve().parents[1] / "docs" / "reference"
_MADE: Final = "Made by `python -m tools.reference_pages` from the code; a test keeps it current."


class MetricLine(NamedTuple):
    name: str
    kind: str
    about: str


# Metrics


def metrics() -> dict[str, list[MetricLine]]:
    """By router, in the order in which it tells them."""
    smp, ntf = asyncio.run(_expositions())
    pipeline = metrics_text(DeliveryLosses(), checked_at=0, built_at=0, failed=False)
    return {
        "SMP router": list(_metric_lines(smp)),
        "NTF router": list(_metric_lines(ntf)),
        "Pipeline": list(_metric_lines(pipeline)),
    }


async def _expositions() -> tuple[str, str]:
    """Of routers that have done nothing yet."""
    credentials = _credentials()
    smp_settings = SmpSettings(hosts=("127.0.0.1",), ports=(0,), store=None)
    smp_store, ntf_store = SmpMemoryStore(), NtfMemoryStore()
    ntf_settings = NtfSettings(hosts=("127.0.0.1",), ports=(0,), store=None)
    with TemporaryDirectory() as folder:
        job = HandOver(FolderChannel(Path(folder)), BoxKey(bytes(32)), SystemRandomness())
    async with (
        running_smp_router(smp_settings, credentials, smp_store) as smp,
        running_ntf_router(ntf_settings, credentials, ntf_store, {}, job=job) as ntf,
    ):
        smp_operator = SmpOperator(smp, smp_store, None, cast(Any, None))
        statistics = NtfStatistics(ntf.state.counters, since=datetime.now(UTC))
        ntf_operator = NtfOperator(ntf, ntf_store, statistics, About("0"))
        fleet = exposition(fleet_metrics(FleetSnapshot(None, (), dict.fromkeys(LEASE_KINDS, 0), 0)))
        return await smp_operator.metrics(), await ntf_operator.metrics() + fleet


def _credentials() -> Credentials:
    now, kind = datetime.now(UTC), CertificateAlgorithm.ED25519
    return issue_leaf(
        make_authority(kind, now=now, serial=new_serial()), "localhost", kind, now=now, serial=new_serial()
    )


def _metric_lines(exposition: str) -> Iterator[MetricLine]:
    abouts: dict[str, str] = {}
    for line in exposition.splitlines():
        if line.startswith("# HELP "):
            _, _, name, about = line.split(" ", 3)
            abouts[name] = about
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            yield MetricLine(name, kind, abouts[name])


def metrics_page() -> str:
    parts = ["# Metrics", "", _MADE]
    parts += [
        "",
        "Both routers serve them on `prometheus_port`, in Prometheus' text format. `simplex_ntf_…` names are the",
        "reference's where it has them. Dashboards and alerts for them are in `deploy/`. The pipeline's are in",
        "`_status/tocsin_pipeline.prom` of the lake, for the textfile collector of Prometheus' node exporter, and what "
        "`tocsin pipeline run` serves at its `prometheus_port`.",
    ]
    for router, lines in metrics().items():
        parts += ["", f"## {router}", ""]
        parts += _table(
            ("Metric", "Kind", "Meaning"), ((f"`{each.name}`", each.kind, each.about) for each in lines)
        )
    return _page(parts)


# Events, tables, errors


def events_page() -> str:
    fields = _documented_fields(delivery_events.DeliveryEvent)
    parts = ["# Delivery events", "", _MADE, "", _first_paragraphs(delivery_events.__doc__)]
    parts += ["", "## Stages", ""]
    parts += _table(("Stage", "Meaning", "Ends a received notification"), _stages())
    parts += ["", "## Fields", ""]
    parts += _table(("Field", "Type", "Meaning"), fields)
    return _page(parts)


def _stages() -> Iterator[tuple[str, str, str]]:
    abouts = _member_docs(delivery_events.Stage)
    for stage in delivery_events.Stage:
        yield f"`{stage.value}`", abouts[stage.name], "yes" if stage in delivery_events.ENDS else ""


def tables_page() -> str:
    parts = ["# Tables of the pipeline", "", _MADE]
    found = [each for each in vars(tables).values() if isinstance(each, tables.TableSpec)]
    for table in found:
        parts += ["", f"## {table.name}", ""]
        parts += [
            meanings.TABLES[table.name],
            "",
            f"Partitioned by {', '.join(table.partitioned_by)}; kept "
            + (
                "as long as the segment"
                if table.retention_days is None
                else f"for {table.retention_days} days"
            )
            + ("; one row for each notification or event." if table.per_notification else "."),
            "",
        ]
        columns = (
            (f"`{field.name}`", field.dataType.simpleString(), meanings.meaning(table.name, field.name))
            for field in table.schema.fields
        )
        parts += _table(("Column", "Type", "Meaning"), columns)
    return _page(parts)


def errors_page() -> str:
    parts = ["# Errors on the wire", "", _MADE, "", "What a router answers after `ERR`."]
    kinds: list[tuple[str, type[Enum]]] = [
        ("ERR …", error_codes.ErrorCode),
        ("ERR CMD …", error_codes.CommandFault),
        ("ERR BLOCKED reason=…", error_codes.BlockReason),
        ("ERR PROXY …", error_codes.ProxyFault),
        ("ERR PROXY BROKER …", error_codes.BrokerFault),
        ("ERR PROXY BROKER NETWORK …", error_codes.NetworkFaultKind),
        ("Handshake faults", error_codes.TransportFault),
        ("Fates of packets (direct notifications)", PacketFate),
    ]
    for title, kind in kinds:
        parts += ["", f"## {title}", ""]
        if about := _own_doc(kind):
            parts += [about, ""]
        members = _member_docs(kind)
        parts += _table(
            ("Word", "Meaning"), ((f"`{_word(each)}`", members.get(each.name, "")) for each in kind)
        )
    return _page(parts)


def _word(member: Enum) -> str:
    return member.value.decode() if isinstance(member.value, bytes) else str(member.value)


# Settings


def settings_page() -> str:
    parts = ["# Settings", "", _MADE]
    parts += [
        "",
        "Every key of both routers. [Configuration](../configuration.md) says where they may stand and which one",
        "counts; `tocsin smp config show` and `tocsin ntf config show` say which one does.",
    ]
    routers = (("SMP router", SMP_KEYS, SmpSettings()), ("NTF router", NTF_KEYS, NtfSettings()))
    for router, keys, defaults in routers:
        for section, members in groupby((key for key in keys if key.about), attrgetter("section")):
            parts += ["", f"## {router}, [{section}]", ""]
            parts += _table(
                ("INI, TOML, environment", "Default", "Meaning, and what is expected"),
                (_setting(key, default_text(key, defaults)) for key in members),
            )
    return _page(parts)


def _setting(key: SettingKey, default: str) -> tuple[str, ...]:
    several = f"; several separated by `{key.kind.separator}`" if key.kind.separator.strip() else ""
    names = [f"`{name}`" for name in (key.name, key.toml_name, key.variable, key.also) if name]
    return (
        "<br>".join(dict.fromkeys(names)),
        f"`{default}`" if default else "",
        f"{key.about}<br>*{key.kind.expected.rstrip(',')}{several}*",
    )


# Commands


def commands_page() -> str:
    parts = ["# Commands", "", _MADE, "", "Every command has `--help`."]
    for words, parser in _commands(build_parser(), ("tocsin",)):
        parts += ["", f"## {' '.join(words)}", "", _one_line(parser.description)]
        rows = list(_options(parser))
        if rows:
            parts += ["", *_table(("Option", "Meaning"), rows)]
        if parser.epilog:
            parts += ["", f"`{_one_line(parser.epilog).removeprefix('example: ')}`"]
    return _page(parts)


def _commands(
    parser: argparse.ArgumentParser, words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                yield (*words, name), command
                yield from _commands(command, (*words, name))


def _options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction | argparse._HelpAction):
            continue
        value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
        name = (
            ", ".join(action.option_strings) + value
            if action.option_strings
            else str(action.metavar or action.dest)
        )
        yield f"`{name}`", _one_line(parser._get_formatter()._expand_help(action) if action.help else "")


# Words of the code


def _documented_fields(kind: type) -> Iterator[tuple[str, str, str]]:
    for name, annotation, about in _annotated(kind):
        yield f"`{name}`", annotation, about


def _annotated(kind: type) -> Iterator[tuple[str, str, str]]:
    body = _class_body(kind)
    for place, node in enumerate(body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, ast.unparse(node.annotation), _doc_after(body, place)


def _member_docs(kind: type[Enum]) -> dict[str, str]:
    body, found = _class_body(kind), {}
    for place, node in enumerate(body):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = _doc_after(body, place)
    return found


def _class_body(kind: type) -> list[ast.stmt]:
    [definition] = ast.parse(inspect.getsource(kind)).body
    assert isinstance(definition, ast.ClassDef)
    return definition.body


def _doc_after(body: Sequence[ast.stmt], place: int) -> str:
    match body[place + 1 : place + 2]:
        case [ast.Expr(value=ast.Constant(value=str(text)))]:
            return _one_line(text)
    return ""


def _own_doc(kind: type) -> str:
    return _one_line(kind.__doc__ or "")


def _first_paragraphs(text: str | None) -> str:
    return "\n\n".join(_one_line(part) for part in (text or "").strip().split("\n\n"))


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(heading) + " |"
    yield "|" + "---|" * len(heading)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def _page(parts: Iterable[str]) -> str:
    return "\n".join(parts) + "\n"


# Limits


def limits_page() -> str:
    parts = ["# Limits", "", _MADE, ""]
    parts += [
        "What a client, a queue, a device token, a host and everybody together can take from a router, and what",
        "happens beyond it. A limit with a setting can be changed; the others are constants. A test floods both",
        "routers and finds no collection that grew and is not here.",
    ]
    for router, limits in (("SMP router", SMP_LIMITS), ("NTF router", NTF_LIMITS)):
        parts += ["", f"## {router}", ""]
        heading = ("For each", "What", "Default", "Setting", "Beyond it", "Metrics")
        rows = sorted(limits, key=lambda limit: list(Scope).index(limit.scope))
        parts += _table(heading, map(_limit_row, rows))
    return _page(parts)


def _limit_row(limit: Limit) -> tuple[str, ...]:
    setting = f"`{limit.setting}`" if limit.setting else ""
    metrics = ", ".join(f"`{metric}`" for metric in limit.metrics)
    return (limit.scope, limit.what, limit.default, setting, limit.beyond, metrics)


PAGES: Final = {
    "settings.md": settings_page,
    "limits.md": limits_page,
    "metrics.md": metrics_page,
    "events.md": events_page,
    "tables.md": tables_page,
    "errors.md": errors_page,
    "commands.md": commands_page,
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, make in PAGES.items():
        (FOLDER / name).write_text(make())
        print(f"docs/reference/{name} was written")


if __name__ == "__main__":
    main()
