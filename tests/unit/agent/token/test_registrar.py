"""The token API at a real NTF router: "managing tokens" of ntf.md 8.3, and what the reference gets wrong."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.doubles.agent_harness import (
    INSTANT,
    PERIODIC,
    NtfPlace,
    RunningAgent,
    connected,
    ntf_address,
    running_agent,
)
from tests.doubles.ntf_harness import TEST_PROVIDER
from tests.doubles.smp_harness import PATIENCE, smp_router
from tocsin.agent import TokenVerified
from tocsin.agent.runtime.events import TokenRecreated
from tocsin.agent.store.records import CheckDue, RegistrationDue, VerificationDue
from tocsin.agent.token.router_inquiries import TrialStep
from tocsin.clients import RouterRefused
from tocsin.errors import AgentError, BadBox, ConnectFailed, PeerIdentityMismatch, StoreError, TransportError
from tocsin.ntf_router.store.interface import Replaced
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.statuses import InvalidReason, TokenState, TokenStatus

ACTIVE = TokenStatus(TokenState.ACTIVE)
REGISTERED = TokenStatus(TokenState.REGISTERED)
INVALID = TokenStatus(TokenState.INVALID, InvalidReason.UNREGISTERED)
OTHER = DeviceToken(TEST_PROVIDER, b"0123abcd")


@pytest.fixture
def place() -> NtfPlace:
    return NtfPlace()


def agent_at(
    place: NtfPlace, path: Path, *, device_token: bytes | None = None
) -> AbstractAsyncContextManager[RunningAgent]:
    return running_agent(path, [], [place.known], place.provider, device_token=device_token)


async def test_register_and_verify(place: NtfPlace, tmp_path: Path) -> None:
    async with place.running(), agent_at(place, tmp_path / "a") as device:
        with pytest.raises(AgentError):
            await device.agent.tokens.current()
        await device.activate(PERIODIC)
        assert await device.agent.tokens.check() == ACTIVE
        token = await device.agent.tokens.current()
        assert (token.device_token, token.mode, token.action) == (device.device, PERIODIC, CheckDue())
        await device.agent.tokens.delete()
        with pytest.raises(AgentError):
            await device.agent.tokens.check()


async def test_registering_twice_with_the_same_keys_brings_a_second_push(
    place: NtfPlace, tmp_path: Path
) -> None:
    async with place.running(), agent_at(place, tmp_path / "a") as device:
        await device.agent.tokens.register(device.device, PERIODIC)
        first = await device.push()
        assert await device.agent.tokens.register(device.device, PERIODIC) == REGISTERED
        await device.push()
        assert await device.agent.wake(first) == TokenVerified(ACTIVE)


async def test_code_is_good_after_restarts_of_both(place: NtfPlace, tmp_path: Path) -> None:
    async with place.running(), agent_at(place, tmp_path / "a") as device:
        await device.agent.tokens.register(device.device, PERIODIC)
        push = await device.push()
    async with place.running(), agent_at(place, tmp_path / "a") as device:
        assert await device.agent.wake(push) == TokenVerified(ACTIVE)


async def test_verification_without_the_router_is_repeated_by_the_next_registration(
    place: NtfPlace, tmp_path: Path
) -> None:
    """And it starts periodic pushes and subscriptions, unlike in the reference (Appendix B item 10)."""
    async with smp_router() as smp:
        async with (
            place.running(),
            running_agent(tmp_path / "b", [smp], [], place.provider) as bob,
            running_agent(tmp_path / "a", [smp], [place.known], place.provider) as device,
        ):
            await connected(device, bob)
            await device.agent.tokens.register(device.device, INSTANT)
            push = await device.push()
        async with running_agent(tmp_path / "a", [smp], [place.known], place.provider) as device:
            with pytest.raises(TransportError):
                await device.agent.wake(push)
            assert isinstance((await device.agent.tokens.current()).action, VerificationDue)
        async with (
            place.running(),
            running_agent(tmp_path / "a", [smp], [place.known], place.provider) as device,
        ):
            assert await device.agent.tokens.register(device.device, INSTANT) == ACTIVE
            await device.subscribed(1)
            token = await device.agent.tokens.current()
            assert token.token_id is not None
            await until_cron(place, token.token_id, 20)


async def until_cron(place: NtfPlace, token_id: bytes, minutes: int) -> None:
    async def cron() -> int:
        record = await place.store.token(token_id)
        assert record is not None
        return record.cron_minutes

    async with asyncio.timeout(PATIENCE):
        while await cron() != minutes:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)


async def test_verification_whose_answer_was_lost_is_repeated(place: NtfPlace, tmp_path: Path) -> None:
    async with place.running(), agent_at(place, tmp_path / "a") as device:
        await device.agent.tokens.register(device.device, PERIODIC)
        token = await device.agent.tokens.current()
        push = await device.push()
        await device.agent.wake(push)
        record = await place.store.token(token.token_id or b"")
        assert record is not None
        waiting = replace(
            token, status=TokenStatus(TokenState.CONFIRMED), action=VerificationDue(record.code)
        )
        await device.store.save_token(waiting)
    async with place.running(), agent_at(place, tmp_path / "a") as device:
        assert await device.agent.tokens.register(device.device, PERIODIC) == ACTIVE


async def test_registration_whose_answer_was_lost_finds_itself_again(place: NtfPlace, tmp_path: Path) -> None:
    async with place.running(), agent_at(place, tmp_path / "a") as device:
        await device.agent.tokens.register(device.device, PERIODIC)
        await device.push()
        known = await device.agent.tokens.current()
        lost = replace(
            known, token_id=None, secret=None, status=TokenStatus(TokenState.NEW), action=RegistrationDue()
        )
        await device.store.save_token(lost)
    async with place.running(), agent_at(place, tmp_path / "a") as device:
        assert await device.agent.tokens.register(device.device, PERIODIC) == REGISTERED
        assert (await device.agent.tokens.current()).token_id == known.token_id
        await device.verify()


async def test_token_stays_at_its_router_until_it_is_deleted(tmp_path: Path) -> None:
    old, new = NtfPlace(), NtfPlace()
    async with old.running(), new.running() as new_router, agent_at(old, tmp_path / "a") as device:
        await device.activate(PERIODIC)
        device.agent.tokens.set_routers([ntf_address(new_router)])
        assert await device.agent.tokens.register(OTHER, PERIODIC) == REGISTERED
        await old.provider.next_push(OTHER.token)
        assert (await device.agent.tokens.current()).router == old.location
        await device.agent.tokens.delete()
        assert await device.agent.tokens.register(OTHER, PERIODIC) == REGISTERED
        await new.provider.next_push(OTHER.token)
        assert (await device.agent.tokens.current()).router == new.location


async def test_registration_at_a_router_that_is_down_succeeds_when_it_is_up(
    place: NtfPlace, tmp_path: Path
) -> None:
    async with place.running():
        pass
    async with agent_at(place, tmp_path / "a") as device:
        with pytest.raises(ConnectFailed):
            await device.agent.tokens.register(device.device, PERIODIC)
        assert (await device.agent.tokens.current()).router == place.location
    async with place.running(), agent_at(place, tmp_path / "a") as device:
        assert await device.agent.tokens.register(device.device, PERIODIC) == REGISTERED
        await device.verify()


async def test_device_token_that_changed_before_registration_is_not_stuck(
    place: NtfPlace, tmp_path: Path
) -> None:
    """Appendix B item 6."""
    async with place.running():
        pass
    async with agent_at(place, tmp_path / "a") as device:
        for token in (device.device, OTHER):
            with pytest.raises(ConnectFailed):
                await device.agent.tokens.register(token, INSTANT)
    async with place.running(), agent_at(place, tmp_path / "a", device_token=OTHER.token) as device:
        assert await device.agent.tokens.register(OTHER, INSTANT) == REGISTERED
        await device.verify()


async def test_mode_is_kept_with_a_new_device_token(place: NtfPlace, tmp_path: Path) -> None:
    """Appendix B item 7."""
    async with place.running(), agent_at(place, tmp_path / "a", device_token=OTHER.token) as device:
        first = DeviceToken(TEST_PROVIDER, b"beef")
        await device.agent.tokens.register(first, PERIODIC)
        request = await place.provider.next_request(first.token)
        await device.agent.wake(request.payload)
        assert await device.agent.tokens.register(OTHER, INSTANT) == REGISTERED
        await device.verify()
        token = await device.agent.tokens.current()
        assert (token.device_token, token.mode, token.status) == (OTHER, INSTANT, ACTIVE)


@pytest.mark.parametrize("by_check", [True, False])
async def test_invalid_token_is_registered_again(place: NtfPlace, tmp_path: Path, by_check: bool) -> None:
    async with place.running(), agent_at(place, tmp_path / "a") as device:
        await device.activate(PERIODIC)
        token = await device.agent.tokens.current()
        assert await place.store.invalidate_token(token.token_id or b"", device.device, INVALID)
        if by_check:
            assert await device.agent.tokens.check() == INVALID
        else:
            assert await device.agent.tokens.register(device.device, PERIODIC) == INVALID
        assert (await device.agent.tokens.current()).action is None
        assert await device.agent.tokens.register(device.device, PERIODIC) == REGISTERED
        await device.verify()


async def test_D10_second_agent_with_the_device_token_makes_the_first_register_again(
    place: NtfPlace, tmp_path: Path
) -> None:
    """D10: where the reference gets AUTH for ever."""
    async with (
        place.running(),
        agent_at(place, tmp_path / "a") as first,
        agent_at(place, tmp_path / "b", device_token=first.device_token) as second,
    ):
        await first.activate(PERIODIC)
        await second.agent.tokens.register(second.device, PERIODIC)
        assert await first.agent.tokens.check() == ACTIVE
        await second.verify()
        assert await first.agent.tokens.check() == REGISTERED
        await first.event(TokenRecreated)
        assert await second.agent.tokens.check() == ACTIVE


@pytest.mark.parametrize("how", ["register", "check", "verify", "replace"])
async def test_D10_token_that_the_router_forgot_is_registered_again(
    place: NtfPlace, tmp_path: Path, how: str
) -> None:
    """D10: and the app is told (Appendix B item 28)."""
    async with place.running(), agent_at(place, tmp_path / "a") as device:
        await device.agent.tokens.register(device.device, PERIODIC)
        push = await device.push()
        if how != "verify":
            await device.agent.wake(push)
        before = await device.agent.tokens.current()
    place.forget_everything()
    wanted = OTHER.token if how == "replace" else None
    async with place.running(), agent_at(place, tmp_path / "a", device_token=wanted) as device:
        match how:
            case "check":
                status = await device.agent.tokens.check()
            case "verify":
                verified = await device.agent.wake(push)
                assert isinstance(verified, TokenVerified)
                status = verified.status
            case _:
                status = await device.agent.tokens.register(device.device, PERIODIC)
        assert status == REGISTERED
        await device.event(TokenRecreated)
        await device.verify()
        after = await device.agent.tokens.current()
        assert (after.key, after.token_id) != (before.key, before.token_id)
        assert after.device_token == device.device


async def test_token_survives_a_replacement_that_the_router_could_not_store(
    place: NtfPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As 7.0 (v7.md 7.2): STORE to TRPL made the agent give the token up, with all its subscriptions."""

    async def fails(*_arguments: object) -> Replaced:
        raise StoreError("the disk is full")

    async with place.running(), agent_at(place, tmp_path / "a") as device:
        await device.activate(PERIODIC)
        before = await device.agent.tokens.current()
    with monkeypatch.context() as patch:
        async with (
            place.running() as ntf,
            agent_at(place, tmp_path / "a", device_token=OTHER.token) as device,
        ):
            patch.setattr(ntf.store, "replace_token", fails)
            with pytest.raises(RouterRefused):
                await device.agent.tokens.register(device.device, PERIODIC)
    async with place.running(), agent_at(place, tmp_path / "a", device_token=OTHER.token) as device:
        await device.agent.tokens.register(device.device, PERIODIC)
        await device.verify()
        after = await device.agent.tokens.current()
        assert (after.key, after.token_id) == (before.key, before.token_id)


async def test_deleted_token_is_deleted_at_its_router_however_long_that_takes(
    place: NtfPlace, tmp_path: Path
) -> None:
    async with place.running(), agent_at(place, tmp_path / "a") as device:
        await device.activate(PERIODIC)
        token_id = (await device.agent.tokens.current()).token_id or b""
    async with agent_at(place, tmp_path / "a") as device:
        await device.agent.tokens.delete()
        assert await device.store.token() is None
        assert len(await device.store.tokens_to_delete()) == 1
    async with place.running(), agent_at(place, tmp_path / "a") as device:
        await device.at_rest()
        assert await device.store.tokens_to_delete() == []
        assert await place.store.token(token_id) is None


async def test_push_of_another_token_verifies_nothing(place: NtfPlace, tmp_path: Path) -> None:
    async with (
        place.running(),
        agent_at(place, tmp_path / "a") as device,
        agent_at(place, tmp_path / "b") as other,
    ):
        await device.agent.tokens.register(device.device, PERIODIC)
        await other.agent.tokens.register(other.device, PERIODIC)
        with pytest.raises(BadBox):
            await device.agent.wake(await other.push())
        assert (await device.agent.tokens.current()).status == REGISTERED
        await device.verify()


async def test_without_a_router_no_token_is_made(tmp_path: Path, place: NtfPlace) -> None:
    async with running_agent(tmp_path / "a", [], [], place.provider) as device:
        with pytest.raises(AgentError, match="no NTF router"):
            await device.agent.tokens.register(device.device, PERIODIC)
        assert await device.store.token() is None


async def test_ntf_router_is_tried(place: NtfPlace, tmp_path: Path) -> None:
    async with place.running() as ntf, agent_at(place, tmp_path / "a") as device:
        assert await device.agent.try_ntf_router(ntf_address(ntf)) is None
        stranger = ntf_address(replace(ntf.location, key_hash=bytes(32)))
        failed = await device.agent.try_ntf_router(stranger)
        assert failed is not None
        assert failed.step is TrialStep.CONNECT
        assert isinstance(failed.reason, PeerIdentityMismatch)
