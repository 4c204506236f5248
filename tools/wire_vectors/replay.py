"""Chooses the checks of a vector by its fields. A field that no check covers makes the vector fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from tocsin.errors import TocsinError
from tools.wire_vectors.blocks import check_block
from tools.wire_vectors.comparison import Mismatch
from tools.wire_vectors.deliveries import check_delivery
from tools.wire_vectors.files import BadVector, Fields, Vector
from tools.wire_vectors.handshakes import check_ntf_handshake, check_smp_handshake
from tools.wire_vectors.proxying import check_forwarding, check_proxy_session
from tools.wire_vectors.pushes import check_push
from tools.wire_vectors.recorded_sessions import recorded_session
from tools.wire_vectors.transmissions import (
    check_answered_request,
    check_batch,
    check_events,
    check_malformed_request,
    check_request,
    check_response,
)


class Kind(NamedTuple):
    """One kind of vector."""

    protocols: frozenset[str]
    needed: frozenset[str]
    allowed: frozenset[str]
    check: Callable[[Vector], None]


def replay(vector: Vector) -> str | None:
    """What differs, or nothing."""
    try:
        _kind_of(vector).check(vector)
    except Mismatch as difference:
        return str(difference)
    except BadVector as error:
        return f"not in the format: {error}"
    except TocsinError as error:
        return f"our code refuses it: {type(error).__name__}: {error}"
    except Exception as error:
        # A key of a wrong length in the recording, or a bug of ours: either way this vector failed, the others go on.
        return f"cannot be replayed: {type(error).__name__}: {error}"
    return None


def _kind_of(vector: Vector) -> Kind:
    """The kind that needs most of the vector's fields and leaves none of them unchecked."""
    fields = vector.kind
    fitting = [
        kind
        for kind in KINDS
        if vector.protocol in kind.protocols and kind.needed <= fields <= kind.needed | kind.allowed
    ]
    if not fitting:
        raise BadVector(
            f"a vector of {vector.protocol} with the fields {', '.join(sorted(fields))} is of no known kind"
        )
    return max(fitting, key=lambda kind: len(kind.needed))


def _request(vector: Vector) -> None:
    check_request(vector)


def _answered_request(vector: Vector) -> None:
    check_answered_request(vector)
    session = recorded_session(vector)
    response = vector.fields.object("response")
    answer = check_response(session, response, response.octets("content"))
    check_proxy_session(vector, answer)
    if "decrypted" in vector.fields:
        check_delivery(answer, vector.fields.object("decrypted"), _matches(vector.fields))


def _response(vector: Vector) -> None:
    _one_response(vector, vector.fields.object("response"))


def _event(vector: Vector) -> None:
    _one_response(vector, vector.fields.object("event"))


def _one_response(vector: Vector, item: Fields) -> None:
    answer = check_response(recorded_session(vector), item, item.octets("content"))
    if "decrypted" in vector.fields:
        check_delivery(answer, vector.fields.object("decrypted"), _matches(vector.fields))


def _events(vector: Vector) -> None:
    session, items = recorded_session(vector), vector.fields.objects("events")
    content = vector.fields.value("content")
    shared = [Fields(item.where, {"content": content, **item.values}) for item in items]
    for item, answer in check_events(session, shared):
        if answer is not None and item.has("decrypted"):
            check_delivery(answer, item.object("decrypted"), _matches(item))


def _matches(fields: Fields) -> Fields | None:
    return fields.object("matches") if fields.has("matches") else None


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SESSIONS: Final = _names("smp ntf")
_SMP: Final = _names("smp")

KINDS: Final = (
    Kind(
        _SMP,
        _names("server_hello client_hello key_hash"),
        _names("alpn tls chains client service_response"),
        check_smp_handshake,
    ),
    Kind(
        _names("ntf"),
        _names("server_hello client_hello key_hash"),
        _names("alpn tls"),
        check_ntf_handshake,
    ),
    Kind(_SMP, _names("session chain raw content"), _names("client"), check_block),
    Kind(_SESSIONS, _names("session request"), _names("client"), _request),
    Kind(
        _SESSIONS, _names("session request response"), _names("client decrypted matches"), _answered_request
    ),
    Kind(_SESSIONS, _names("session response"), _names("client decrypted matches"), _response),
    Kind(_SESSIONS, _names("session event"), _names("client decrypted matches"), _event),
    Kind(_SESSIONS, _names("session events content"), _names("client"), _events),
    Kind(_SESSIONS, _names("session request_content response"), _names("client"), check_malformed_request),
    Kind(
        _SESSIONS,
        _names("session request_content response_blocks"),
        _names("client requests"),
        check_batch,
    ),
    Kind(
        _SMP,
        _names("session relay inner_request outer_response"),
        _names("client inner_response"),
        check_forwarding,
    ),
    Kind(_names("apns"), _names("http"), _names("jwt decrypted matches"), check_push),
)
