"""Whole blocks: encrypted, malformed, and with several commands."""

from __future__ import annotations

from tests.wire_vectors.smp_router.recorded import OURS, content, message, queue, received_in, replays
from tests.wire_vectors.smp_router.stage import VECTORS, Actor, Stage
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.recipient_commands import Subscribe
from tocsin.protocol.smp.responses import MessageReceived
from tocsin.wire.batches import split_batch
from tocsin.wire.transmissions import split_transmission
from tools.wire_vectors.files import Fields, Vector
from tools.wire_vectors.recorded_sessions import public_key


@replays("smp-block-v18-c2s-1", "smp-block-v18-s2c-1", "smp-block-v18-c2s-2", "smp-block-v18-s2c-2")
async def test_encrypted_blocks(on: Stage) -> None:
    """As they were on the wire, encryption included."""
    connection = on.encrypted(VECTORS["smp-block-v18-c2s-1"])
    for step in ("1", "2"):
        connection.feed(VECTORS[f"smp-block-v18-c2s-{step}"].fields.octets("raw"))
        assert await connection.block() == VECTORS[f"smp-block-v18-s2c-{step}"].fields.octets("raw")


@replays("smp-err-block-count0")
async def test_an_empty_batch(on: Stage) -> None:
    await _malformed(on, "smp-err-block-count0")


@replays("smp-err-session-v6")
async def test_another_session_id(on: Stage) -> None:
    await _malformed(on, "smp-err-session-v6")


async def _malformed(on: Stage, name: str) -> None:
    request = VECTORS[name].fields.octets("request_content")
    assert await on.actor(VECTORS[name]).replay(request) == content(name, "response")


@replays("smp-batch-errors")
async def test_a_block_with_errors(on: Stage) -> None:
    """The key of the one valid SUB was not recorded: any key is taken for it, so the block is not changed."""
    vector = VECTORS["smp-batch-errors"]
    blocks = _response_blocks(vector)
    [subscribed] = [each for each in blocks[1] if each.integer("answers") == 6]
    request = split_batch(vector.fields.octets("request_content"))
    raw = split_transmission(request[6], SMP.layout(18))
    actor = on.actor(vector)
    on.add_queue(queue(subscribed.octets("entity")))
    request[6] = actor.client.request(raw.corr_id, raw.entity_id, Subscribe(), OURS)
    actor.connection.feed(actor.client.to_block(request))
    for block in blocks:
        assert await actor.content() == block[0].octets("content")


@replays("smp-batch-6")
async def test_a_block_of_subscriptions(on: Stage) -> None:
    """The secrets of these queues were not recorded: blocks with MSG are compared without the ciphertext."""
    vector = VECTORS["smp-batch-6"]
    blocks = _response_blocks(vector)
    for request in vector.fields.objects("requests"):
        if request.object("command").text("tag") == "SUB" and request.integer("index") != 3:
            own_id = request.octets("entity")
            recorded_queue = queue(
                own_id, own_id[::-1], keys=(public_key(request.object("auth").object("key")).der,)
            )
            on.add_queue(recorded_queue)
            [delivered] = [
                each.object("command").octets("msg_id")
                for block in blocks
                for each in block
                if each.object("command").text("tag") == "MSG" and each.octets("entity") == own_id
            ]
            on.store.write_message(own_id, message(delivered, on.clock.time, b""), 128)
    actor = on.actor(vector)
    answer = await actor.replay(vector.fields.octets("request_content"))
    for number, block in enumerate(blocks):
        answer = answer if number == 0 else await actor.content()
        if block[0].has("content"):
            assert answer == block[0].octets("content")
        else:
            _same_structure(actor, answer, block)


def _response_blocks(vector: Vector) -> list[list[Fields]]:
    blocks = vector.fields.items("response_blocks")
    return [Fields(vector.name, {"items": block}).objects("items") for block in blocks]


def _same_structure(actor: Actor, answer: bytes, block: list[Fields]) -> None:
    received = received_in(actor, answer)
    assert len(received) == len(block)
    for each, recorded in zip(received, block, strict=True):
        assert each.corr_id == recorded.octets("corr")
        assert each.entity_id == recorded.octets("entity")
        command = recorded.object("command")
        assert not isinstance(each.response, Exception)
        assert each.response.tag.decode() == command.text("tag")
        if isinstance(each.response, MessageReceived):
            assert each.response.message_id == command.octets("msg_id")
            assert len(each.response.sealed) == command.integer("body_len")
