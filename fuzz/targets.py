"""The table of targets: one for each family of decoders."""

from __future__ import annotations

import importlib
from typing import Final

from fuzz import (
    agent_targets,
    certificate_targets,
    handshake_targets,
    message_targets,
    push_targets,
    sealed_targets,
    session_targets,
    settings_targets,
    text_targets,
)
from fuzz.contract import Target

TARGETS: Final = {
    target.name: target
    for target in (
        Target("block", message_targets.block),
        Target("transmission", message_targets.transmission, longest=1024),
        Target("command", message_targets.command),
        Target("response", message_targets.response),
        Target("error_code", message_targets.error_code, longest=512),
        Target("hello", handshake_targets.hello, longest=4096),
        Target("handshake", handshake_targets.handshake, longest=4096),
        Target("address", text_targets.address, longest=1024),
        Target("push", text_targets.push, longest=4096),
        Target("queue_information", text_targets.queue_information, longest=1024),
        Target("stored_text", text_targets.stored_text, longest=256),
        Target("certificate_chain", certificate_targets.certificate_chain, longest=4096),
        Target("key", certificate_targets.key, longest=512),
        Target("proxy_envelope", sealed_targets.proxy_envelope, longest=1024),
        Target("delivered_message", sealed_targets.delivered_message, longest=1024),
        Target("direct_packet", sealed_targets.direct_packet, longest=512),
        Target("web_push", sealed_targets.web_push, longest=4200),
        Target("agent_message", agent_targets.agent_message, longest=1024),
        Target("push_answer", push_targets.push_answer, longest=2048),
        Target("settings_file", settings_targets.settings_file, longest=1024),
        Target("router_session", session_targets.router_session),
        Target("client_session", session_targets.client_session),
    )
}


class UnknownTarget(LookupError):
    """No target has this name."""


def find(name: str) -> Target:
    """A target of the table, or `package.module:function` for one that is not (yet) in it."""
    module, colon, function = name.partition(":")
    try:
        return Target(name, getattr(importlib.import_module(module), function)) if colon else TARGETS[name]
    except (ImportError, AttributeError, KeyError) as error:
        raise UnknownTarget(f"no target is named {name!r}; there are {', '.join(TARGETS)}") from error
