"""Data behind short links (smp-tests.md 11, smp.md 6.6)."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace

from tests.doubles.smp_harness import (
    AUTH,
    HAS_AUTH,
    NO_AUTH,
    OK,
    PROHIBITED,
    SIG0,
    create_command,
    ed25519,
    opened,
    smp_router,
    x25519,
)
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.smp.queue_modes import LinkData, LinkRequest, QueueMode
from tocsin.protocol.smp.recipient_commands import (
    DeleteLinkData,
    SecureQueue,
    SetLinkData,
)
from tocsin.protocol.smp.responses import LinkContent, QueueCreated
from tocsin.protocol.smp.sender_commands import GetLinkData, SecureLinkedQueue


def sender_id_for(corr_id: bytes) -> bytes:
    return hashlib.sha3_384(corr_id).digest()[:24]


async def test_l1_a_one_time_invitation() -> None:
    data, updated = LinkData(b"fixed", b"user"), LinkData(b"fixed", b"user, updated")
    async with smp_router() as router:
        recipient, sender = await router.connect(), await router.connect()
        key, dh_key, corr_id = ed25519(), x25519(), os.urandom(24)
        command = create_command(key, dh_key, link=LinkRequest(None, sender_id_for(corr_id), data))
        assert await recipient.ask(command, key=key, corr_id=b"1") == PROHIBITED
        queue = opened(dh_key, key, await recipient.ask(command, key=key, corr_id=corr_id))
        link_id = queue.created.link_id
        assert link_id is not None
        assert queue.sender_id == sender_id_for(corr_id)
        assert queue.created.mode is QueueMode.MESSAGING
        assert queue.created.service_id is None
        assert queue.created.notifier is None
        assert await recipient.ask(command, key=key, corr_id=corr_id) == AUTH  # the ids are taken
        assert await sender.ask(GetLinkData(), link_id) == AUTH
        assert await recipient.ask(SetLinkData(link_id, updated), queue.recipient_id, key) == OK
        sender_key, other_key = ed25519(), ed25519()
        secure = SecureLinkedQueue(sender_key.public)
        assert await sender.ask(secure, link_id) == NO_AUTH
        assert await sender.ask(secure, link_id, SIG0) == AUTH
        assert await sender.ask(secure, queue.recipient_id, sender_key) == AUTH
        content = LinkContent(queue.sender_id, updated)
        assert await sender.ask(secure, link_id, sender_key) == content
        assert await sender.ask(SecureLinkedQueue(other_key.public), link_id, other_key) == AUTH
        assert await sender.ask(secure, link_id, sender_key) == content
        assert await recipient.ask(SetLinkData(link_id, updated), queue.recipient_id, key) == AUTH
        assert await recipient.ask(DeleteLinkData(), queue.recipient_id, key) == OK
        assert await sender.ask(secure, link_id, sender_key) == AUTH


async def test_l2_a_contact_address() -> None:
    data = LinkData(b"fixed", b"user")
    async with smp_router() as router:
        recipient, sender = await router.connect(), await router.connect()
        key, dh_key, corr_id, link_id = ed25519(), x25519(), os.urandom(24), os.urandom(24)
        command = create_command(
            key,
            dh_key,
            mode=QueueMode.CONTACT,
            link=LinkRequest(link_id, sender_id_for(corr_id), data),
        )
        assert await recipient.ask(command, key=key, corr_id=b"1") == PROHIBITED
        queue = opened(dh_key, key, await recipient.ask(command, key=key, corr_id=corr_id))
        assert queue.created.link_id == link_id
        assert queue.created.mode is QueueMode.CONTACT
        assert queue.sender_id == sender_id_for(corr_id)
        sender_key = ed25519()
        assert await sender.ask(SecureLinkedQueue(sender_key.public), link_id, sender_key) == AUTH
        assert await sender.ask(GetLinkData(), link_id, SIG0) == HAS_AUTH
        assert await sender.ask(GetLinkData(), queue.recipient_id) == AUTH
        for _ in range(2):
            assert await sender.ask(GetLinkData(), link_id) == LinkContent(queue.sender_id, data)
        updated = LinkData(b"fixed", b"other user")
        assert await recipient.ask(SetLinkData(link_id, updated), queue.recipient_id, key) == OK
        assert await sender.ask(GetLinkData(), link_id) == LinkContent(queue.sender_id, updated)
        assert await recipient.ask(SetLinkData(os.urandom(24), updated), queue.recipient_id, key) == AUTH
        changed = SetLinkData(link_id, LinkData(b"changed", b"user"))
        assert await recipient.ask(changed, queue.recipient_id, key) == AUTH
        for _ in range(2):
            assert await recipient.ask(DeleteLinkData(), queue.recipient_id, key) == OK
        assert await sender.ask(GetLinkData(), link_id) == AUTH


async def test_the_first_message_of_a_secured_queue_removes_its_link() -> None:
    async with smp_router() as router:
        client, key, dh_key, corr_id = await router.connect(), ed25519(), x25519(), os.urandom(24)
        link = LinkRequest(None, sender_id_for(corr_id), LinkData(b"fixed", b"user"))
        created = await client.ask(create_command(key, dh_key, link=link), key=key, corr_id=corr_id)
        queue, sender_key = opened(dh_key, key, created), ed25519()
        link_id = queue.created.link_id
        assert link_id is not None
        assert await client.send_message(queue, b"unsecured") == OK
        secure = SecureLinkedQueue(sender_key.public)
        assert isinstance(await client.ask(secure, link_id, sender_key), LinkContent)
        assert await client.send_message(replace(queue, sender_key=sender_key), b"secured") == OK
        assert await client.ask(secure, link_id, sender_key) == AUTH


async def test_link_data_can_be_set_later_but_not_with_a_link_that_exists() -> None:
    async with smp_router() as router:
        client, link_id, data = await router.connect(), os.urandom(24), LinkData(b"fixed", b"user")
        first = await client.new_queue(mode=QueueMode.CONTACT)
        second = await client.new_queue(mode=QueueMode.CONTACT)
        assert await client.ask(GetLinkData(), link_id) == AUTH
        assert await client.ask(SetLinkData(link_id, data), first.recipient_id, first.key) == OK
        assert await client.ask(GetLinkData(), link_id) == LinkContent(first.sender_id, data)
        assert await client.ask(SetLinkData(link_id, data), second.recipient_id, second.key) == AUTH


async def test_a_secured_contact_queue_keeps_its_link() -> None:
    async with smp_router() as router:
        client, link_id, data = await router.connect(), os.urandom(24), LinkData(b"fixed", b"user")
        queue, sender_key = await client.new_queue(mode=QueueMode.CONTACT), ed25519()
        assert await client.ask(SecureQueue(sender_key.public), queue.recipient_id, queue.key) == OK
        assert await client.ask(SetLinkData(link_id, data), queue.recipient_id, queue.key) == OK
        assert await client.send_message(replace(queue, sender_key=sender_key), b"hello") == OK
        assert await client.ask(GetLinkData(), link_id) == LinkContent(queue.sender_id, data)


async def test_a_queue_that_does_not_say_what_it_is_for_shows_its_link_until_it_is_secured() -> None:
    async with smp_router() as router:
        client, link_id, data = await router.connect(), os.urandom(24), LinkData(b"fixed", b"user")
        queue, sender_key = await client.new_queue(mode=None), ed25519()
        assert await client.ask(SetLinkData(link_id, data), queue.recipient_id, queue.key) == OK
        assert await client.ask(GetLinkData(), link_id) == LinkContent(queue.sender_id, data)
        assert await client.ask(SecureLinkedQueue(sender_key.public), link_id, sender_key) == AUTH
        assert await client.ask(SecureQueue(sender_key.public), queue.recipient_id, queue.key) == OK
        assert await client.ask(GetLinkData(), link_id) == AUTH
        assert await client.ask(SetLinkData(link_id, data), queue.recipient_id, queue.key) == AUTH


async def test_an_invitation_can_get_its_link_later() -> None:
    async with smp_router() as router:
        client, link_id, data = await router.connect(), os.urandom(24), LinkData(b"fixed", b"user")
        queue, sender_key = await client.new_queue(), ed25519()
        assert await client.ask(SetLinkData(link_id, data), queue.recipient_id, queue.key) == OK
        assert await client.ask(GetLinkData(), link_id) == AUTH
        secure = SecureLinkedQueue(sender_key.public)
        assert await client.ask(secure, link_id, sender_key) == LinkContent(queue.sender_id, data)


async def test_a_link_that_exists_cannot_be_chosen_for_a_new_queue() -> None:
    """The client chose the id, so there is no second attempt (smp.md 6.6)."""
    async with smp_router() as router:
        client, link_id = await router.connect(), os.urandom(24)
        for answer in (QueueCreated, Refused):
            key, corr_id = ed25519(), os.urandom(24)
            link = LinkRequest(link_id, sender_id_for(corr_id), LinkData(b"fixed", b"user"))
            command = create_command(key, x25519(), mode=QueueMode.CONTACT, link=link)
            created = await client.ask(command, key=key, corr_id=corr_id)
            assert isinstance(created, answer)
        assert created == AUTH


async def test_link_id_of_another_queue_is_refused() -> None:
    """Release 6.5.5 moved the link to the other queue (v7.md 4)."""
    async with smp_router() as router:
        recipient = await router.connect()
        first, second = [await recipient.new_queue(mode=QueueMode.CONTACT) for _ in range(2)]
        link_id, data, other = os.urandom(24), LinkData(b"fixed", b"user"), LinkData(b"other", b"data")
        assert await recipient.ask(SetLinkData(link_id, data), first.recipient_id, first.key) == OK
        assert await recipient.ask(SetLinkData(link_id, other), second.recipient_id, second.key) == AUTH
        assert await recipient.ask(SetLinkData(link_id, data), second.recipient_id, second.key) == AUTH
        assert await recipient.ask(GetLinkData(), link_id) == LinkContent(first.sender_id, data)
