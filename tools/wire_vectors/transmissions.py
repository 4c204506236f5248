"""Requests, responses, events and batches, through the sessions of both sides."""

from __future__ import annotations

from typing import Final

from tocsin.crypto.keys import AuthPublicKey, Ed25519PrivateKey, X25519PrivateKey, X25519PublicKey
from tocsin.errors import RemoteProtocolError
from tocsin.protocol.authorization import AuthorizationCheck, Authorizer
from tocsin.protocol.error_codes import CommandFault, ErrorCode, RouterError, decode_error, encode_error
from tocsin.protocol.messages import Command, EntityRule, Response, ServiceSigning
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.sessions import (
    ReceivedCommand,
    RefusedCommand,
    ServicePeer,
    ServiceRole,
    ServiceSession,
)
from tocsin.protocol.smp.queue_information import QueueInformation
from tocsin.protocol.smp.responses import QueueCreated, QueueInspected, Subscribed
from tocsin.protocol.smp.sender_commands import SendMessage, max_message_bytes
from tocsin.protocol.smp.services import role_allows, service_fault
from tocsin.wire.reader import WireReader
from tocsin.wire.transmissions import RawTransmission, join_transmission, signed_tail, split_transmission
from tocsin.wire.writer import short
from tools.wire_vectors.commands import check_command
from tools.wire_vectors.comparison import Mismatch, holds, same
from tools.wire_vectors.files import BadVector, Fields, Vector
from tools.wire_vectors.recorded_sessions import (
    RecordedSession,
    ed25519_private_key,
    ed25519_public_key,
    picked,
    private_key,
    public_key,
    recorded_session,
)

DECIDED_BY_SESSION: Final = frozenset(
    {
        ErrorCode.BLOCK,
        ErrorCode.SESSION,
        CommandFault.UNKNOWN,
        CommandFault.SYNTAX,
        CommandFault.NO_AUTH,
        CommandFault.HAS_AUTH,
        CommandFault.NO_ENTITY,
    }
)
"""Errors that a router answers with before it looks at its store."""

Received = ReceivedCommand | RefusedCommand


def check_request(vector: Vector) -> Received:
    session = recorded_session(vector)
    request = vector.fields.object("request")
    content = request.octets("content")
    received = session.router().read_block(session.block(content))
    item = session.item(content, request)
    return check_item(session, request, item, received[request.integer("index")])


def check_answered_request(vector: Vector) -> None:
    """A request, and the answer to it."""
    session = recorded_session(vector)
    received = check_request(vector)
    response = vector.fields.object("response")
    answer = check_response(session, response, response.octets("content"))
    check_answer(session, received, vector.fields.object("request"), response, answer)


def check_malformed_request(vector: Vector) -> None:
    """A whole block, and the one answer to it."""
    session = recorded_session(vector)
    response = vector.fields.object("response")
    answer = check_response(session, response, response.octets("content"))
    received = session.router().read_block(session.block(vector.fields.octets("request_content")))
    same("the number of answers", len(received), 1)
    check_answer(session, received[0], None, response, answer)


def check_batch(vector: Vector) -> None:
    """Several requests in one block, and the answers in the blocks in which they arrived."""
    session = recorded_session(vector)
    content = vector.fields.octets("request_content")
    items = session.split(content)
    received = session.router().read_block(session.block(content))
    requests = vector.fields.objects("requests") if "requests" in vector.fields else None
    for request in requests or ():
        same(f"{request.where}.count", len(items), request.integer("count"))
        check_item(session, request, picked(items, request), received[request.integer("index")])
    for number, block in enumerate(vector.fields.items("response_blocks")):
        holder = Fields(f"{vector.name}.response_blocks[{number}]", {"items": block})
        for item, answer in check_events(session, holder.objects("items")):
            if item.has("answers"):
                index = item.integer("answers")
                asked = None if requests is None else requests[index]
                check_answer(session, received[index], asked, item, answer)


def check_events(session: RecordedSession, items: list[Fields]) -> list[tuple[Fields, Response | None]]:
    """The items of one received block. Without its content only tags and error texts can be looked at."""
    for index, item in enumerate(items):
        same(f"{item.where}.index", index, item.integer("index"))
        same(f"{item.where}.count", len(items), item.integer("count"))
    contents = {item.octets("content") for item in items if item.has("content")}
    holds("the items of one block have different contents", len(contents) <= 1)
    for content in contents:
        return [(item, check_response(session, item, content)) for item in items]
    return [(item, _answer_without_content(session, item)) for item in items]


def _answer_without_content(session: RecordedSession, item: Fields) -> Response | None:
    command = item.object("command")
    kinds = {kind.tag.decode(): kind for kind in session.dialect.responses.kinds}
    holds(f"{item.where}: unknown response {command.text('tag')}", command.text("tag") in kinds)
    fault = kinds[command.text("tag")].entity.fault(entity=bool(item.octets("entity")))
    holds(f"{item.where}: {fault}", fault is None)
    if command.text("tag") != "ERR":
        return None
    body = WireReader(command.text("error").encode())
    error = decode_error(body)
    body.expect_end()
    same("the error text", encode_error(error, session.version), command.text("error").encode())
    return Refused(error)


def check_response(session: RecordedSession, response: Fields, content: bytes) -> Response:
    """Read as a client does, compare, write as a router does."""
    item = session.item(content, response)
    all_received = session.client().read_block(session.block(content))
    for other in all_received:
        if isinstance(other.response, RemoteProtocolError):
            raise Mismatch(f"{response.where}: our client refuses {other.response}")
    received = all_received[response.integer("index")]
    same(f"{response.where}: the correlation id", received.corr_id, response.octets("corr"))
    same(f"{response.where}: the entity id", received.entity_id, response.octets("entity"))
    assert isinstance(received.response, Response)
    built = check_command(received.response, session.version, response.object("command"))
    if not isinstance(built, Response):
        raise Mismatch(f"{response.where} is not a response")
    same(f"{response.where}: the message", built, received.response)
    written = session.router().response(received.corr_id, received.entity_id, built)
    same(f"{response.where}: the transmission", written, item)
    if isinstance(built, QueueInspected):
        same("the JSON of INFO", QueueInformation.from_json(built.json).to_json(), built.json)
    return built


def check_item(session: RecordedSession, request: Fields, item: bytes, received: Received) -> Received:
    raw = split_transmission(item, session.layout)
    same(f"{request.where}: the correlation id", raw.corr_id, request.octets("corr"))
    same(f"{request.where}: the entity id", raw.entity_id, request.octets("entity"))
    same(f"{request.where}: the authorization", raw.auth, request.octets("authorization"))
    recorded = request.octets("service_signature") if request.has("service_signature") else b""
    same(f"{request.where}: the service signature", raw.service_signature, recorded)
    authorized = raw.signed_tail if session.layout.session_id else short(session.session_id) + raw.signed_tail
    _check_signed(session, request, raw, authorized, received)
    same(f"{request.where}: the transmission", _written(session, request, raw, authorized), item)
    return received


def _check_signed(
    session: RecordedSession, request: Fields, raw: RawTransmission, authorized: bytes, received: Received
) -> None:
    """The signed bytes, and both signatures over them."""
    service = request.object("service") if request.has("service") else None
    covered = authorized
    if service is not None and raw.service_signature:
        covered = service.octets("fp") + authorized
        genuine = ed25519_public_key(service.object("key")).verifies(raw.service_signature, authorized)
        holds(f"{request.where}: the service signature does not verify", genuine)
    if request.has("signed"):
        same(f"{request.where}: the signed bytes", covered, request.octets("signed"))
    if isinstance(received, ReceivedCommand):
        same(f"{request.where}: the authorized bytes", received.authorized, authorized)
    auth = request.object("auth")
    _check_type(auth, service)
    if not auth.has("key"):
        return
    session_key, key = _verification(session, auth.object("key"))
    genuine = AuthorizationCheck(session_key).verifies(key, raw.auth, raw.corr_id, covered)
    holds(f"{request.where}: the authorization does not verify", genuine)
    if isinstance(received, ReceivedCommand):
        peer = None if service is None else _service_peer(service, ServiceRole.NOTIFIER)
        genuine = session.router(session_key, peer).verifies(received, key)
        holds(f"{request.where}: our router does not accept the authorization", genuine)


def _check_type(auth: Fields, service: Fields | None) -> None:
    match auth.text("type"):
        case "none" | "raw":
            holds(f"{auth.where} has a key", not auth.has("key"))
        case "service-key":
            holds(f"{auth.where} is by a service key outside a service session", service is not None)
        case kind:
            same(f"{auth.where}: the algorithm", auth.object("key").text("alg"), kind)


def _verification(
    session: RecordedSession, recorded: Fields
) -> tuple[X25519PrivateKey | None, AuthPublicKey]:
    """The router's session key, and the key to verify with.

    Where the router's private key was not recorded, the same secret is agreed from the other side.
    """
    key, private = public_key(recorded), private_key(recorded)
    if not isinstance(key, X25519PublicKey) or session.router_private_key is not None:
        return session.router_private_key, key
    if not isinstance(private, X25519PrivateKey) or session.router_key is None:
        raise BadVector(f"{recorded.where}: an authenticator needs a private key of one side")
    return private, session.router_key


def _written(session: RecordedSession, request: Fields, raw: RawTransmission, authorized: bytes) -> bytes:
    """The transmission as our client writes it, from the recorded command and keys."""
    kind = request.object("auth").text("type")
    command = _recorded_command(session, request, raw)
    if kind == "raw" or not _can_sign(request):
        message = raw.command if command is None else command.encode(session.version)
        tail = signed_tail(session.layout, session.session_id, raw.corr_id, raw.entity_id, message)
        return join_transmission(session.layout, raw.auth, raw.service_signature, tail)
    key = None if kind in ("none", "service-key") else private_key(request.object("auth").object("key"))
    if command is not None:
        client = session.client(_service_session(request))
        return client.request(raw.corr_id, raw.entity_id, command, key)
    auth = b"" if key is None else Authorizer(session.router_key).authorize(key, raw.corr_id, authorized)
    return join_transmission(session.layout, auth, raw.service_signature, raw.signed_tail)


def _recorded_command(session: RecordedSession, request: Fields, raw: RawTransmission) -> Command | None:
    """The command, or none where it was malformed on purpose."""
    if not request.has("command"):
        same(f"{request.where}: the command", raw.command, request.octets("command_hex"))
        return None
    decoded = session.dialect.commands.decode(raw.command, session.version)
    built = check_command(decoded, session.version, request.object("command"))
    same(f"{request.where}: the message", built, decoded)
    if not isinstance(built, Command):
        raise Mismatch(f"{request.where} is not a command")
    same(f"{request.where}: the command", built.encode(session.version), raw.command)
    return built


def _can_sign(request: Fields) -> bool:
    """Whether all private keys were recorded; those of the reference as client were not."""
    keys = [request.object("auth")] if request.object("auth").has("key") else []
    if request.has("service"):
        keys.append(request.object("service"))
    return all(holder.object("key").has("priv") for holder in keys)


def _service_session(request: Fields) -> ServiceSession | None:
    if not request.has("service"):
        return None
    service = request.object("service")
    key: Ed25519PrivateKey | None = ed25519_private_key(service.object("key"))
    if key is None:
        raise BadVector(f"{service.where}: the private key is missing")
    return ServiceSession(_service_id(service), service.octets("fp"), key)


def _service_peer(service: Fields, role: ServiceRole, service_id: bytes = b"") -> ServicePeer:
    """The service as the router knows it; `service_id` stands in where the id was not recorded."""
    key = ed25519_public_key(service.object("key"))
    return ServicePeer(_service_id(service) or service_id, service.octets("fp"), role, key)


def _service_id(service: Fields) -> bytes:
    return service.octets("id") if service.has("id") else b""


def check_answer(
    session: RecordedSession,
    received: Received,
    request: Fields | None,
    response: Fields,
    answer: Response | None,
) -> None:
    """The recorded answer against what our router decides without a store."""
    error = answer.error if isinstance(answer, Refused) else None
    same("the correlation id of the answer", response.octets("corr"), received.corr_id)
    if isinstance(received, RefusedCommand):
        same("the error our router answers with", received.error, error)
        same("the entity id of the answer", response.octets("entity"), received.entity_id)
        return
    holds(f"our router accepts what was refused with {error}", error not in DECIDED_BY_SESSION)
    if response.octets("entity") or (answer is not None and answer.entity is not EntityRule.EMPTY):
        same("the entity id of the answer", response.octets("entity"), received.entity_id)
    _check_size(received.command, error, session.version)
    _check_service_rules(received, request, error)
    _check_service_id(answer, request)


def _check_size(command: Command, error: RouterError | None, version: int) -> None:
    if isinstance(command, SendMessage) and error in (None, ErrorCode.LARGE_MSG):
        too_large = len(command.body) > max_message_bytes(version)
        same("whether the message is too large", too_large, error is ErrorCode.LARGE_MSG)


def _check_service_rules(
    received: ReceivedCommand, request: Fields | None, error: RouterError | None
) -> None:
    """Whether our router would find the same fault in a service session (smp.md 5.4). Its role is not recorded."""
    if request is None or not request.has("service"):
        if error is ErrorCode.SERVICE:
            same("the fault of a service command", _fault_without_service(received), error)
        return
    service = request.object("service")
    peers = [_service_peer(service, role, received.entity_id) for role in ServiceRole]
    faults = {service_fault(received, peer) for peer in peers}
    expected = error if error in (ErrorCode.SERVICE, CommandFault.PROHIBITED) else None
    holds(f"in a service session our router finds {faults}, recorded is {error}", expected in faults)


def _check_service_id(answer: Response | None, request: Fields | None) -> None:
    """A service session's answers name the service."""
    if isinstance(answer, QueueCreated | Subscribed) and request is not None and request.has("service"):
        service = request.object("service")
        if service.has("id"):
            same("the service id of the answer", answer.service_id, service.octets("id"))


def _fault_without_service(received: ReceivedCommand) -> RouterError | None:
    """The fault outside a service session, or, for what is right there, in the session of some service."""
    fault = service_fault(received, None)
    if fault is not None or received.command.service_signing is ServiceSigning.NEVER:
        return fault
    role = next(role for role in ServiceRole if role_allows(role, received.command))
    stranger = ServicePeer(b"", bytes(32), role, Ed25519PrivateKey(bytes(32)).public)
    return service_fault(received, stranger)
