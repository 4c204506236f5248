"""The table of targets: one for each family of decoders."""

from __future__ import annotations

from typing import Final

from fuzz.contract import Target

TARGETS: Final = {
    target.name: target
    for target in (
        Target("block", "fuzz.message_targets:block"),
        Target("transmission", "fuzz.message_targets:transmission", longest=1024),
        Target("command", "fuzz.message_targets:command"),
        Target("response", "fuzz.message_targets:response"),
        Target("error_code", "fuzz.message_targets:error_code", longest=512),
        Target("hello", "fuzz.handshake_targets:hello", longest=4096),
        Target("handshake", "fuzz.handshake_targets:handshake", longest=4096),
        Target("address", "fuzz.text_targets:address", longest=1024),
        Target("push", "fuzz.text_targets:push", longest=4096),
        Target("queue_information", "fuzz.text_targets:queue_information", longest=1024),
        Target("name", "fuzz.text_targets:name", longest=1024),
        Target("stored_text", "fuzz.text_targets:stored_text", longest=256),
        Target("certificate_chain", "fuzz.certificate_targets:certificate_chain", longest=4096),
        Target("key", "fuzz.certificate_targets:key", longest=512),
        Target("proxy_envelope", "fuzz.sealed_targets:proxy_envelope", longest=1024),
        Target("delivered_message", "fuzz.sealed_targets:delivered_message", longest=1024),
        Target("direct_packet", "fuzz.sealed_targets:direct_packet", longest=512),
        Target("web_push", "fuzz.sealed_targets:web_push", longest=4200),
        Target("agent_message", "fuzz.agent_targets:agent_message", longest=1024),
        Target("router_session", "fuzz.session_targets:router_session"),
        Target("client_session", "fuzz.session_targets:client_session"),
        Target("push_answer", "fuzz.http_targets:push_answer", longest=4096),
        Target("header_block", "fuzz.header_targets:header_block", longest=1024),
        Target("store_logs", "fuzz.file_targets:store_logs", longest=4096),
        Target("exchanged_file", "fuzz.file_targets:exchanged_file", longest=1024),
        Target("settings", "fuzz.file_targets:settings", longest=4096),
        Target("smp_router", "fuzz.router_targets:smp_router"),
        Target("ntf_router", "fuzz.router_targets:ntf_router"),
    )
}


class UnknownTarget(LookupError):
    """No target has this name."""


def find(name: str) -> Target:
    """A target of the table, or `package.module:function` for one that is not (yet) in it."""
    try:
        found = Target(name, name) if ":" in name else TARGETS[name]
        assert callable(found.check)
        return found
    except (ImportError, AttributeError, KeyError) as error:
        raise UnknownTarget(f"no target is named {name!r}; there are {', '.join(TARGETS)}") from error
