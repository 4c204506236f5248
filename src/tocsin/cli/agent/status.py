"""`tocsin agent status`: shows the store's contents, without asking a router."""

from __future__ import annotations

import argparse
import time
from typing import Any, Final

from tocsin.agent.diagnosis.subscription import due
from tocsin.agent.store.records import (
    AgentConnection,
    AgentSubscription,
    AgentToken,
    CheckDue,
    NextAction,
    RegistrationDue,
    TokenAction,
    TokenToDelete,
    VerificationDue,
)
from tocsin.agent.store.sqlite.store import AgentSqliteStore
from tocsin.cli.agent.folder import AgentFile, agent_folder
from tocsin.cli.agent.output import Output, address_text, time_text, token_status
from tocsin.cli.agent.session import add_common_arguments, opened_store, run_command
from tocsin.protocol.addresses import RouterAddress, Scheme
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.ntf.statuses import subscription_status_text

NAME = "status"
SUMMARY = "show token, connections and next actions"
DESCRIPTION = (
    "Shows the token, its mode, and every connection with the state of its notifications, the next action and its "
    "time. It only reads the store; `doctor` asks the routers."
)
EXAMPLE = "tocsin agent status --json"

ACTIONS: Final = {
    NextAction.CREATE_KEYS: "create credentials",
    NextAction.CREATE_OLD_KEYS: "create credentials",
    NextAction.ASK_FATE: "ask about the packet",
    NextAction.SEND_PACKET: "send another packet",
    NextAction.DELETE_KEYS: "delete credentials",
    NextAction.SUBSCRIBE: "subscribe",
    NextAction.CHECK: "check",
}
_NOTIFICATIONS: Final = {(False, False): "off", (True, False): "on", (True, True): "mentions"}
_TOKEN_ACTIONS: Final[dict[type[TokenAction], str]] = {
    RegistrationDue: "register",
    VerificationDue: "verify",
    CheckDue: "check",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common_arguments(parser)


def run(options: argparse.Namespace) -> int:
    return run_command(options, lambda output: _status(options, output))


async def _status(options: argparse.Namespace, output: Output) -> int:
    async with opened_store(options) as (store, file):
        token, deleting = await store.token(), await store.tokens_to_delete()
        connections = [await _connection(store, each) for each in await store.connections()]
    known = {
        "folder": str(agent_folder(options)),
        "smp_servers": _servers(file.smp_servers),
        "ntf_servers": _servers(file.ntf_servers),
        "token": None if token is None else _token(token),
        "tokens_to_delete": [
            {"ntf_server": address_text(Scheme.NTF, each.router), "since": each.created_at}
            for each in deleting
        ],
        "connections": connections,
    }
    output.result(known)
    _say(output, file, token, deleting, connections)
    return 0


def _servers(addresses: tuple[RouterAddress, ...]) -> list[str]:
    return [address_text(each.scheme, each.location) for each in addresses]


def _token(token: AgentToken) -> dict[str, Any]:
    return {
        "provider": token.device_token.provider.text,
        "ntf_server": address_text(Scheme.NTF, token.router),
        "status": token_status(token.status),
        "mode": token.mode.lower(),
        "registered": token.token_id is not None,
        "action": None if token.action is None else _TOKEN_ACTIONS[type(token.action)],
    }


async def _connection(store: AgentSqliteStore, connection: AgentConnection) -> dict[str, Any]:
    name = connection.connection_id
    row = await store.subscription(name)
    queue = next(iter(await store.primary_queues([name])), None)
    return {
        "connection": name,
        "notifications": connection.notifications,
        "mentions_only": connection.wanted > MinimumPriority.ALL,
        "can_send": any(each.secured for each in await store.send_queues(name)),
        "smp_server": None if queue is None else address_text(Scheme.SMP, queue.router),
        "last_message_at": None if queue is None else queue.last_message_at,
        "credentials": queue is not None and queue.notifier is not None,
        "direct": queue is not None and queue.notifier is not None and queue.notifier.direct,
        **_subscription(row),
    }


def _subscription(row: AgentSubscription | None) -> dict[str, Any]:
    now = time.time()
    return {
        "phase": None if row is None else row.phase.value,
        "status": None if row is None or row.status is None else subscription_status_text(row.status),
        "action": None if row is None or row.action is None else ACTIONS[row.action],
        "due_at": None if row is None or row.action is None else (row.due_at or now),
        "due": None if row is None or row.action is None else due(row, now),
        "given_up": row is not None and row.action is None,
    }


def _say(
    output: Output,
    file: AgentFile,
    token: AgentToken | None,
    deleting: list[TokenToDelete],
    connections: list[dict[str, Any]],
) -> None:
    if token is None:
        output.say("No token. Next: run `tocsin agent register`")
    else:
        known = _token(token)
        action = f", next: {known['action']}" if known["action"] else ""
        output.say(
            f"Token of {known['provider']} at {known['ntf_server']}: {known['status']}, mode {known['mode']}{action}"
        )
    for each in deleting:
        output.say(
            f"The agent tries to delete a former token at {address_text(Scheme.NTF, each.router)}, "
            f"since {time_text(each.created_at)}"
        )
    if not file.smp_servers:
        output.say("No SMP router is configured: write smp_servers into agent.ini, or use --smp-server")
    if connections:
        columns = ("connection", "can send", "notifications", "phase", "status", "next", "due")
        output.table(columns, [_row(each) for each in connections])
    else:
        output.say("No connections. Next: run `tocsin agent connect`")


def _row(known: dict[str, Any]) -> list[str]:
    return [
        known["connection"],
        "yes" if known["can_send"] else "not yet",
        _NOTIFICATIONS[known["notifications"], known["mentions_only"]],
        known["phase"] or "–",
        known["status"] or "–",
        "given up: see doctor" if known["given_up"] else known["action"] or "–",
        known["due"] or "–",
    ]
