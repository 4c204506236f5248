"""An agent whose pushes come by Web Push: endpoints, their secrets, and bodies good and hostile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from tests.doubles.agent_harness import INSTANT, PERIODIC, NtfPlace, RunningAgent, connected, running_agent
from tests.doubles.agent_samples import agent_token
from tests.doubles.smp_harness import smp_router
from tests.doubles.web_push_bodies import (
    endpoint_token,
    next_body,
    running_with_web_push,
    sealed_body,
    web_push_body,
)
from tests.unit.agent.wake.test_waking import TOKEN_KEY, device, item, names
from tocsin.agent import Fetched, TokenVerified, Woken
from tocsin.agent.runtime.events import MessageArrived, TokenRecreated
from tocsin.agent.store.records import EndpointSecret
from tocsin.agent.token.registrar import KEPT_ENDPOINTS
from tocsin.crypto.boxes import box_key
from tocsin.crypto.web_push import MAX_BODY_BYTES, WebPushReceiver, WebPushSecret, seal_web_push
from tocsin.errors import AgentError, BadBox, ConnectFailed, DecodeError
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.pushes import CheckMessagesPush, parse_push_json, seal_code, seal_notifications
from tocsin.protocol.ntf.statuses import TokenState, TokenStatus
from tocsin.protocol.ntf.web_push_tokens import WebPushAddress, WebPushForm

ACTIVE = TokenStatus(TokenState.ACTIVE)
REGISTERED = TokenStatus(TokenState.REGISTERED)
ENDPOINT = "https://push.example.net/up/alice?up=1"
OTHER = "https://other.example.net:8443/up/2"
NONCE = b"n" * 24


@pytest.fixture
def place() -> NtfPlace:
    return NtfPlace()


def agent_at(place: NtfPlace, path: Path) -> AbstractAsyncContextManager[RunningAgent]:
    return running_agent(path, [], [place.known], place.provider)


async def body_for(alice: RunningAgent, endpoint: str = ENDPOINT) -> bytes:
    """The next one that the NTF router sends there."""
    return await next_body(alice.provider, await endpoint_token(alice.store, endpoint))


async def activate(alice: RunningAgent, endpoint: str = ENDPOINT) -> None:
    assert await alice.agent.tokens.register_endpoint(endpoint, INSTANT) == REGISTERED
    assert await alice.agent.wake_by_web_push(await body_for(alice, endpoint)) == TokenVerified(ACTIVE)


async def kept_urls(alice: RunningAgent) -> list[str]:
    kept = await alice.store.endpoint_secrets()
    return [WebPushAddress.parse(each.device_token.token).url for each in kept]


# Registration


async def test_endpoint_is_registered_and_verified_and_its_pushes_lead_to_messages(
    place: NtfPlace, tmp_path: Path
) -> None:
    async with (
        smp_router() as smp,
        running_with_web_push(place) as ntf,
        running_agent(tmp_path / "alice", [smp], [place.known], place.provider) as alice,
        running_agent(tmp_path / "bob", [smp], [], place.provider) as bob,
    ):
        await activate(alice)
        token = await alice.agent.tokens.current()
        assert token.device_token.provider is PushProvider.WEBPUSH
        at_alice, at_bob = await connected(alice, bob)
        await alice.subscribed(1)
        await ntf.subscribed_queues(1)
        await alice.agent.connections.unsubscribe()
        await bob.agent.connections.send(at_bob, b"by Web Push")
        woken = await alice.agent.wake_by_web_push(await body_for(alice))
        assert isinstance(woken, Woken)
        assert names(woken) == at_alice
        [fetched] = await alice.agent.fetch(woken.to_fetch)
        assert bodies(fetched) == [b"by Web Push"]
        alice.no_trouble()


def bodies(fetched: Fetched) -> list[bytes]:
    return [each.body for each in fetched.messages if isinstance(each, MessageArrived)]


async def test_same_endpoint_is_the_same_device_token(place: NtfPlace, tmp_path: Path) -> None:
    async with running_with_web_push(place), agent_at(place, tmp_path / "a") as alice:
        assert await alice.agent.tokens.register_endpoint(ENDPOINT, PERIODIC) == REGISTERED
        token = await alice.agent.tokens.current()
        first = await body_for(alice)
        again = ENDPOINT.replace("push.example.net", "PUSH.example.net:443")
        assert await alice.agent.tokens.register_endpoint(again, PERIODIC) == REGISTERED
        await body_for(alice)
        assert await alice.agent.tokens.current() == token
    async with running_with_web_push(place), agent_at(place, tmp_path / "a") as alice:
        assert await alice.agent.wake_by_web_push(first) == TokenVerified(ACTIVE)
        assert await alice.agent.tokens.register_endpoint(ENDPOINT, PERIODIC) == ACTIVE
        assert len(await alice.store.endpoint_secrets()) == 1


async def test_a_registration_keeps_its_form_unless_another_is_chosen(
    place: NtfPlace, tmp_path: Path
) -> None:
    async with running_with_web_push(place), agent_at(place, tmp_path / "a") as alice:
        for chosen, form in (
            (None, WebPushForm.REFERENCE),
            (WebPushForm.COMPACT, WebPushForm.COMPACT),
            (None, WebPushForm.COMPACT),
            (WebPushForm.REFERENCE, WebPushForm.REFERENCE),
        ):
            await alice.agent.tokens.register_endpoint(ENDPOINT, PERIODIC, chosen)
            token = await alice.agent.tokens.current()
            assert WebPushAddress.parse(token.device_token.token).form is form
        long = "https://updates.push.example/wpush/v2/".ljust(8 + 226, "x")
        await alice.agent.tokens.register_endpoint(long, PERIODIC)
        token = await alice.agent.tokens.current()
        assert WebPushAddress.parse(token.device_token.token).form is WebPushForm.COMPACT


async def test_pushes_to_the_former_endpoint_that_come_late_are_opened(
    place: NtfPlace, tmp_path: Path
) -> None:
    async with (
        smp_router() as smp,
        running_with_web_push(place) as ntf,
        running_agent(tmp_path / "bob", [smp], [], place.provider) as bob,
    ):
        async with running_agent(tmp_path / "alice", [smp], [place.known], place.provider) as alice:
            await activate(alice)
            at_alice, at_bob = await connected(alice, bob)
            await alice.subscribed(1)
            await ntf.subscribed_queues(1)
            await alice.agent.connections.unsubscribe()
            await bob.agent.connections.send(at_bob, b"to the former endpoint")
            late = await body_for(alice)
            former = await alice.agent.tokens.current()
            await activate(alice, OTHER)
            token = await alice.agent.tokens.current()
            assert token.token_id == former.token_id, "TRPL"
            assert token.device_token != former.device_token
        async with running_agent(tmp_path / "alice", [smp], [place.known], place.provider) as alice:
            woken = await alice.agent.wake_by_web_push(late)
            assert isinstance(woken, Woken)
            assert names(woken) == at_alice
            [fetched] = await alice.agent.fetch(woken.to_fetch)
            assert bodies(fetched) == [b"to the former endpoint"]


async def test_verification_that_comes_late_to_the_former_endpoint_changes_nothing(
    place: NtfPlace, tmp_path: Path
) -> None:
    """Its code is not that of the new registration, so the router would say AUTH and the token be made anew."""
    async with running_with_web_push(place), agent_at(place, tmp_path / "a") as alice:
        assert await alice.agent.tokens.register_endpoint(ENDPOINT, PERIODIC) == REGISTERED
        late = await body_for(alice)
        assert await alice.agent.tokens.register_endpoint(OTHER, PERIODIC) == REGISTERED
        token = await alice.agent.tokens.current()
        for _ in range(2):
            with pytest.raises(AgentError, match="former Web Push endpoint"):
                await alice.agent.wake_by_web_push(late)
            assert await alice.agent.tokens.current() == token
            await alice.agent.wake_by_web_push(await verification(alice))
            token = await alice.agent.tokens.current()
            assert token.status == ACTIVE


async def verification(alice: RunningAgent) -> bytes:
    """Of the endpoint that was registered last; the same when it is asked for again."""
    kept = await endpoint_token(alice.store, OTHER)
    sent = [request for request in alice.provider.sent if request.device_token == kept]
    return web_push_body(parse_push_json(sent[0].payload), WebPushAddress.parse(kept).receiver)


async def test_every_endpoint_has_a_secret_of_its_own(place: NtfPlace, tmp_path: Path) -> None:
    async with running_with_web_push(place), agent_at(place, tmp_path / "a") as alice:
        await activate(alice)
        await activate(alice, OTHER)
        newest, former = await alice.store.endpoint_secrets()
        assert newest.secret != former.secret
        assert newest.device_token == (await alice.agent.tokens.current()).device_token


async def test_endpoint_that_comes_back_has_the_secret_that_it_had(place: NtfPlace, tmp_path: Path) -> None:
    async with running_with_web_push(place), agent_at(place, tmp_path / "a") as alice:
        await activate(alice)
        [first] = await alice.store.endpoint_secrets()
        await activate(alice, OTHER)
        await activate(alice)
        assert (await alice.store.endpoint_secrets())[0] == first


async def test_secret_is_kept_before_the_router_hears_of_it(place: NtfPlace, tmp_path: Path) -> None:
    async with running_with_web_push(place):
        pass
    async with agent_at(place, tmp_path / "a") as alice:
        with pytest.raises(ConnectFailed):
            await alice.agent.tokens.register_endpoint(ENDPOINT, PERIODIC)
        [kept] = await alice.store.endpoint_secrets()
    async with running_with_web_push(place), agent_at(place, tmp_path / "a") as alice:
        await activate(alice)
        assert await alice.store.endpoint_secrets() == [kept]


async def test_former_endpoints_are_forgotten_but_not_the_one_in_use(place: NtfPlace, tmp_path: Path) -> None:
    async with running_with_web_push(place), agent_at(place, tmp_path / "a") as alice:
        await activate(alice)
    async with agent_at(place, tmp_path / "a") as alice:
        tried = [f"https://push{number}.example.net/" for number in range(KEPT_ENDPOINTS + 2)]
        for endpoint in tried:
            with pytest.raises(ConnectFailed):
                await alice.agent.tokens.register_endpoint(endpoint, INSTANT)
        assert await kept_urls(alice) == [*reversed(tried[-KEPT_ENDPOINTS:]), ENDPOINT]


async def test_router_that_forgot_the_token_gets_the_same_endpoint_again(
    place: NtfPlace, tmp_path: Path
) -> None:
    async with running_with_web_push(place), agent_at(place, tmp_path / "a") as alice:
        await activate(alice)
        device_token = (await alice.agent.tokens.current()).device_token
    place.forget_everything()
    async with running_with_web_push(place), agent_at(place, tmp_path / "a") as alice:
        await activate(alice)
        await alice.event(TokenRecreated)
        assert (await alice.agent.tokens.current()).device_token == device_token
        assert len(await alice.store.endpoint_secrets()) == 1


async def test_deleting_the_token_forgets_all_endpoints(place: NtfPlace, tmp_path: Path) -> None:
    async with running_with_web_push(place), agent_at(place, tmp_path / "a") as alice:
        assert await alice.agent.tokens.register_endpoint(ENDPOINT, PERIODIC) == REGISTERED
        body = await body_for(alice)
        await alice.agent.tokens.delete()
        assert await alice.store.endpoint_secrets() == []
        with pytest.raises(AgentError, match="no Web Push endpoint"):
            await alice.agent.wake_by_web_push(body)


@pytest.mark.parametrize(
    "endpoint", ["", "http://push.example.net/", "https://push.example.net/#", "https://"]
)
async def test_what_is_no_endpoint_is_refused_and_leaves_nothing(
    place: NtfPlace, tmp_path: Path, endpoint: str
) -> None:
    async with running_with_web_push(place), agent_at(place, tmp_path / "a") as alice:
        with pytest.raises(DecodeError, match="Web Push endpoint"):
            await alice.agent.tokens.register_endpoint(endpoint, PERIODIC)
        assert await alice.store.endpoint_secrets() == []
        assert await alice.store.token() is None


# Bodies


SECRET = WebPushSecret(b"s" * 48)
FORMER = WebPushSecret(b"f" * 48)


@asynccontextmanager
async def web_push_device(path: Path) -> AsyncIterator[RunningAgent]:
    """An agent that reaches nobody, with an active token, three connections and two endpoints."""
    async with device(path) as alice:
        for secret, endpoint in ((FORMER, OTHER), (SECRET, ENDPOINT)):
            token = WebPushAddress.from_url(endpoint, secret.receiver).token()
            kept = EndpointSecret(DeviceToken(PushProvider.WEBPUSH, token), secret.raw)
            await alice.store.keep_endpoint_secret(kept, KEPT_ENDPOINTS)
        await alice.store.save_token(agent_token(device_token=kept.device_token))
        yield alice


def message_body(*letters: str, to: WebPushReceiver = SECRET.receiver, sent_at: int = 5) -> bytes:
    items = [item(letter, sent_at) for letter in letters]
    return web_push_body(seal_notifications(TOKEN_KEY, NONCE, items), to)


async def woken_by(alice: RunningAgent, body: bytes) -> str:
    result = await alice.agent.wake_by_web_push(body)
    assert isinstance(result, Woken)
    return names(result)


async def test_body_for_any_kept_endpoint_is_opened(tmp_path: Path) -> None:
    async with web_push_device(tmp_path) as alice:
        assert await woken_by(alice, message_body("a", "b")) == "ab"
        assert await woken_by(alice, message_body("c", to=FORMER.receiver)) == "c"


async def test_body_that_asks_to_check_means_all_connections(tmp_path: Path) -> None:
    async with web_push_device(tmp_path) as alice:
        assert await woken_by(alice, web_push_body(CheckMessagesPush(), SECRET.receiver)) == "abc"


async def test_body_can_be_opened_without_acting_upon_it(tmp_path: Path) -> None:
    async with web_push_device(tmp_path) as alice:
        push = seal_code(TOKEN_KEY, NONCE, b"code")
        assert await alice.agent.open_web_push(web_push_body(push, SECRET.receiver)) == push


async def test_replayed_body_leads_to_one_more_look_at_most(tmp_path: Path) -> None:
    async with web_push_device(tmp_path) as alice:
        body = message_body("a", "b")
        assert await woken_by(alice, body) == "ab"
        await alice.store.message_received("a", 1, 5, b"id-a")
        await alice.store.message_received("b", 1, 5, b"id-b")
        assert await woken_by(alice, body) == "b"


GOOD = message_body("a")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "body of 0 bytes"),
        (GOOD[:85], "body of 85 bytes"),
        (GOOD[:-1], "does not open"),
        (GOOD + b"\0", "does not open"),
        (GOOD.ljust(MAX_BODY_BYTES + 1, b"\0"), "body of 4097 bytes"),
        (bytes(1_000_000), "body of 1000000 bytes"),
        (GOOD[:16] + (17).to_bytes(4, "big") + GOOD[20:], "not one record"),
        (GOOD[:16] + (1000).to_bytes(4, "big") + GOOD[20:], "not one record"),
        (GOOD[:20] + b"\0" + GOOD[21:], "without a P-256 key"),
        (GOOD[:22] + bytes(64) + GOOD[86:], "no point"),
        (GOOD[:-20] + bytes((GOOD[-20] ^ 1,)) + GOOD[-19:], "does not open"),
        (message_body("a", to=WebPushSecret(b"x" * 48).receiver), "does not open"),
        (message_body("a", to=WebPushReceiver(SECRET.receiver.public_key, bytes(16))), "does not open"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",  # bodies are random
)
async def test_hostile_body_is_refused(tmp_path: Path, body: bytes, reason: str) -> None:
    async with web_push_device(tmp_path) as alice:
        with pytest.raises(BadBox, match=reason):
            await alice.agent.wake_by_web_push(body)
        assert await woken_by(alice, GOOD) == "a", "and the next one is opened"


@pytest.mark.parametrize(
    "content", [b"", b"X", b"V", b"M" + bytes(39), b"CC", b"{}", b'{"notificationData":{}}']
)
async def test_content_that_is_no_push_is_refused(tmp_path: Path, content: bytes) -> None:
    async with web_push_device(tmp_path) as alice:
        with pytest.raises(DecodeError, match=r"Web Push|not a push of an NTF router"):
            await alice.agent.wake_by_web_push(sealed_body(content, SECRET.receiver))


async def test_content_longer_than_a_router_makes_is_refused(tmp_path: Path) -> None:
    async with web_push_device(tmp_path) as alice:
        body = seal_web_push(b"M" * 3900, SECRET.receiver, b"e" * 32, b"s" * 16, padded_to=3994)
        with pytest.raises(DecodeError, match="3900 bytes"):
            await alice.agent.wake_by_web_push(body)


async def test_body_with_a_list_for_another_token_is_refused(tmp_path: Path) -> None:
    async with web_push_device(tmp_path) as alice:
        for push in (
            seal_notifications(box_key(b"x" * 32), NONCE, [item("a", 5)]),
            seal_code(box_key(b"x" * 32), NONCE, b"code"),
        ):
            with pytest.raises(BadBox):
                await alice.agent.wake_by_web_push(web_push_body(push, SECRET.receiver))


async def test_body_without_an_endpoint_is_refused(tmp_path: Path) -> None:
    async with device(tmp_path) as alice:
        with pytest.raises(AgentError, match="no Web Push endpoint"):
            await alice.agent.wake_by_web_push(GOOD)


def test_secrets_of_endpoints_do_not_show() -> None:
    token = WebPushAddress.from_url("https://push.example.net/capability", SECRET.receiver).token()
    shown = repr(EndpointSecret(DeviceToken(PushProvider.WEBPUSH, token), SECRET.raw))
    assert "ssss" not in shown
    assert "capability" not in shown
