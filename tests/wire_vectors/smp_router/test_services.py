"""Service sessions, those of the reference as client included."""

from __future__ import annotations

from tests.wire_vectors.smp_router.recorded import (
    OURS,
    answered,
    content,
    entity,
    key_der,
    new_ids,
    notifier,
    part,
    queue,
    received_in,
    replays,
    send_notified,
)
from tests.wire_vectors.smp_router.stage import VECTORS, Stage, service_peer
from tocsin.crypto.keys import Ed25519PrivateKey
from tocsin.protocol.sessions import ServicePeer, ServiceRole, ServiceSession
from tocsin.protocol.smp.notifier_commands import SubscribeNotifications
from tocsin.protocol.smp.responses import NotificationReceived
from tocsin.smp_router.store.records import NotifierRecord, StoredNotification
from tools.wire_vectors.recorded_sessions import private_key


def service_of(name: str, role: ServiceRole = ServiceRole.NOTIFIER) -> ServicePeer:
    return service_peer(part(name, "request", "service"), role)


@replays(
    "smp-svc-nsub-plain",
    "smp-svc-nsub-ed25519",
    "smp-svc-nsub-x25519",
    "smp-svc-nsub-nofp",
    "smp-svc-role-prohibited",
    "smp-svc-nmsg",
    "smp-svc-nsubs",
    "smp-svc-ends",
    "smp-svc-nsubs-badkey",
    "smp-svc-subs",
)
async def test_a_notifier_service(on: Stage) -> None:
    """One service in two sessions, and three notifiers. The third one's subscription was not recorded: it is ours."""
    decrypted = part("smp-svc-nmsg", "decrypted")
    first_service, second_service = service_of("smp-svc-nsub-ed25519"), service_of("smp-svc-nsubs")
    first = on.actor(VECTORS["smp-svc-nsub-ed25519"], first_service)
    earlier = received_in(first, content("smp-svc-nmsg", "event"))[0]
    third = NotifierRecord(earlier.entity_id, OURS.public.der, bytes(32))
    on.add_queue(queue(notifier=notifier("smp-svc-nsub-ed25519", decrypted.octets("secret"))))
    on.add_queue(queue(b"R" * 24, b"S" * 24, notifier=notifier("smp-svc-nsub-x25519")))
    on.add_queue(queue(b"Q" * 24, b"q" * 24, notifier=third))
    prohibited = "smp-svc-role-prohibited"
    on.add_queue(queue(entity(prohibited), b"T" * 24, keys=(key_der(prohibited),)))
    for name in ("plain", "ed25519", "x25519", "nofp"):
        await answered(first, f"smp-svc-nsub-{name}")
    await answered(first, prohibited)
    first.client.service = _service_session("smp-svc-nsub-ed25519")
    await first.ask(SubscribeNotifications(), third.notifier_id, OURS)

    # Two notifications in one block. The secret of the first was not recorded: it is given as it was stored.
    assert isinstance(earlier.response, NotificationReceived)
    on.store.add_notification(
        third.notifier_id,
        StoredNotification(b"m" * 24, 0, earlier.response.nonce, earlier.response.sealed_meta),
    )
    await send_notified(on, decrypted)
    await on.notify()
    assert await first.content() == content("smp-svc-nmsg", "event")

    second = on.actor(VECTORS["smp-svc-nsubs"], second_service)
    await answered(second, "smp-svc-nsubs")
    await on.flush()
    assert await first.content() == content("smp-svc-ends", "event")
    await answered(second, "smp-svc-nsubs-badkey")
    await answered(second, "smp-svc-subs")


def _service_session(name: str) -> ServiceSession:
    service = part(name, "request", "service")
    key = private_key(service.object("key"))
    assert isinstance(key, Ed25519PrivateKey)
    return ServiceSession(service.octets("id"), service.octets("fp"), key)


@replays("smp-nosvc-ssig")
async def test_a_service_signature_outside_a_service_session(on: Stage) -> None:
    on.add_queue(queue(notifier=notifier("smp-svc-nsub-ed25519")))
    await answered(on.actor(VECTORS["smp-nosvc-ssig"]), "smp-nosvc-ssig")


@replays("smp-svcm-new")
async def test_a_queue_of_a_messaging_service(on: Stage) -> None:
    new_ids(on, "smp-svcm-new")
    service = service_of("smp-svcm-new", ServiceRole.MESSAGING)
    await answered(on.actor(VECTORS["smp-svcm-new"], service), "smp-svcm-new")


@replays("ntfclient-nsub-ed25519-v18")
async def test_the_reference_as_client_subscribes(on: Stage) -> None:
    await _reference_subscribes(on, "ntfclient-nsub-ed25519-v18")


@replays("ntfclient-nsub-x25519-v18")
async def test_the_reference_as_client_subscribes_with_an_authenticator(on: Stage) -> None:
    await _reference_subscribes(on, "ntfclient-nsub-x25519-v18")


async def _reference_subscribes(on: Stage, name: str) -> None:
    service_id = part(name, "response", "command").octets("service_id")
    service = service_peer(part(name, "request", "service"), ServiceRole.NOTIFIER, service_id)
    on.add_queue(queue(notifier=notifier(name)))
    await answered(on.actor(VECTORS[name], service), name)


@replays("ntfclient-nsubs")
async def test_the_reference_as_client_subscribes_to_all(on: Stage) -> None:
    name = "ntfclient-nsubs"
    service_id = entity(name)
    service = service_peer(part(name, "request", "service"), ServiceRole.NOTIFIER, service_id)
    for number in range(part(name, "response", "command").integer("count")):
        own_id = bytes([number]) * 24
        recorded = NotifierRecord(own_id, OURS.public.der, bytes(32), service_id)
        on.add_queue(queue(own_id, own_id, notifier=recorded))
    await answered(on.actor(VECTORS[name], service), name)
