"""`tocsin agent doctor`: finds out why a connection does not notify."""

from __future__ import annotations

import argparse
import time
from typing import Any, Final

from tocsin.agent.diagnosis.diagnosis import diagnosis, repair, repairs, worst
from tocsin.agent.diagnosis.evidence import gather
from tocsin.agent.diagnosis.findings import FindingVerdict, NotificationFinding
from tocsin.cli.agent.output import Output, event_fields
from tocsin.cli.agent.session import (
    add_common_arguments,
    connection_named,
    opened_session,
    opened_store,
    run_command,
)

NAME = "doctor"
SUMMARY = "find out why a connection does not notify"
DESCRIPTION = (
    "Checks everything that a notification of one connection needs (token, NTF router, push provider, SMP router, "
    "credentials, subscription), asks both routers, and says for each whether it is in order and what to do. "
    "Changes nothing without --fix, which reports what it did. Exits with 1 if something is wrong."
)
EXAMPLE = "tocsin agent doctor Zm9vYmFyYmF6cXV4 --fix"

_STYLES: Final = {
    FindingVerdict.OK: "green",
    FindingVerdict.WRONG: "bold red",
    FindingVerdict.UNKNOWN: "yellow",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("connection", metavar="CONNECTION", help="its id, or the beginning of it")
    parser.add_argument("--fix", action="store_true", help="repair what can be repaired, and check again")
    add_common_arguments(parser)


def run(options: argparse.Namespace) -> int:
    return run_command(options, lambda output: _doctor(options, output))


async def _doctor(options: argparse.Namespace, output: Output) -> int:
    name, findings = await _look(options, options.connection)
    _say(output, findings)
    done: list[str] = []
    events: list[dict[str, Any]] = []
    if options.fix and (wanted := repairs(findings)):
        async with opened_session(options) as session:
            for what in wanted:
                done.append(await repair(session.agent, session.store, name, what, now=time.time()))
                output.say(f"Repair: {what}. {done[-1]}", "bold")
            await session.at_rest()
        events = [event_fields(event) for event in session.events]
        output.say_events(session.events)
        _, findings = await _look(options, name)
        output.say("After the repair:")
        _say(output, findings)
    elif options.fix:
        output.say("There is nothing that the agent can repair.")
    verdict = worst(findings)
    output.result(
        {
            "connection": name,
            "verdict": verdict.value,
            "findings": [_fields(each) for each in findings],
            "repairs": done,
            "events": events,
        }
    )
    return 1 if verdict is FindingVerdict.WRONG else 0


async def _look(options: argparse.Namespace, text: str) -> tuple[str, list[NotificationFinding]]:
    """Open only the store: a running agent would start to repair by itself."""
    async with opened_store(options) as (store, file):
        name = await connection_named(store, text)
        evidence = await gather(store, file.settings(options.timeout), name, now=time.time())
    return name, diagnosis(evidence)


def _fields(finding: NotificationFinding) -> dict[str, Any]:
    return {
        "subject": finding.subject.value,
        "verdict": finding.verdict.value,
        "text": finding.text,
        "next_step": finding.next_step or None,
        "repair": None if finding.repair is None else finding.repair.value,
    }


def _say(output: Output, findings: list[NotificationFinding]) -> None:
    for finding in findings:
        output.say(f"{finding.verdict:7}  {finding.subject}: {finding.text}", _STYLES[finding.verdict])
        if finding.next_step:
            output.say(f"         → {finding.next_step}")
