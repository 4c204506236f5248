"""`python -m tools.walk`: follows one message on its way to a push, and counts what it passes through.

An SMP router, an NTF router and a fake APNs run in this process, with stores in files and event logs. A message with a
notification is sent once to warm up, and once more under a profiler until its push arrives. The script prints how many
modules and functions of the package ran, and which records these functions make; `--modules` lists the modules in the
order in which the message first reaches them. The sender's client and the fake provider are not counted.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import inspect
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, is_dataclass
from enum import Enum
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeGuard

import msgspec

import tocsin
from tests.doubles.ntf_harness import Device
from tests.doubles.ntf_world import Chat, World, folder_of, kept, subscribed_chat
from tests.doubles.smp_harness import SmpTestClient, smp_router
from tocsin.events.event_log import EventLog
from tocsin.events.pseudonyms import PseudonymKeys
from tocsin.ntf_router.event_recorder import NtfEventRecorder
from tocsin.ntf_router.statistics.counters import NtfLatencies
from tocsin.ntf_router.store.logs.store_files import open_ntf_store
from tocsin.protocol.ntf.statuses import SubscriptionState
from tocsin.push.fake.server import running_fake_apns
from tocsin.smp_router.event_recorder import SmpEventRecorder
from tocsin.smp_router.store.logs.store_files import open_smp_store

PACKAGE = Path(tocsin.__file__).parent
CORE = ("wire", "crypto", "protocol", "transport", "clients")
LEFT_OUT = (PACKAGE / "push" / "fake",)


@dataclass
class Walk:
    """The functions that ran, in the order of their first call."""

    codes: dict[CodeType, dict[str, Any]] = field(default_factory=dict)

    def note(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code not in self.codes:
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(PACKAGE) and not any(path.is_relative_to(each) for each in LEFT_OUT):
                self.codes[frame.f_code] = frame.f_globals

    def above_the_core(self) -> Walk:
        """The part of the walk outside the folders that every program of the network needs as they are."""
        core = tuple(str(PACKAGE / folder) + "/" for folder in CORE)
        return Walk(
            {code: names for code, names in self.codes.items() if not code.co_filename.startswith(core)}
        )

    @property
    def modules(self) -> list[str]:
        paths = dict.fromkeys(Path(code.co_filename) for code in self.codes)
        return [str(path.relative_to(PACKAGE).with_suffix("")).replace("/", ".") for path in paths]

    @property
    def functions(self) -> list[str]:
        return [code.co_qualname for code in self.codes if not code.co_name.startswith("<")]

    @property
    def records(self) -> list[str]:
        """Records of the package that the functions make."""
        called = ((names, name) for code, names in self.codes.items() for name in _called_names(code))
        values = (names.get(name) for names, name in called)
        found = {value.__qualname__ for value in values if _is_record(value)}
        return sorted(found)


def _is_record(value: object) -> TypeGuard[type]:
    if not isinstance(value, type) or not value.__module__.startswith(f"{tocsin.__name__}."):
        return False
    if issubclass(value, BaseException | Enum):
        return False
    return is_dataclass(value) or issubclass(value, msgspec.Struct) or hasattr(value, "_fields")


def _called_names(code: CodeType) -> set[str]:
    """The names that a function calls; patterns of `match` are no calls."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, SyntaxError):
        return set()
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {function.id for function in calls if isinstance(function, ast.Name)}


@contextmanager
def profiled(walk: Walk) -> Iterator[None]:
    threading.setprofile(walk.note)
    sys.setprofile(walk.note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[tuple[Chat, Device, SmpTestClient]]:
    """Both routers with everything that a deployment has, and a device with one subscribed chat."""
    keys = PseudonymKeys(folder_of(folder, "keys"), 7, time.time)
    async with AsyncExitStack() as stack:
        apns = await stack.enter_async_context(running_fake_apns(folder_of(folder, "apns")))
        ntf_store = open_ntf_store(folder_of(folder, "ntf"))
        stack.push_async_callback(ntf_store.close)
        smp_store, smp_files = open_smp_store(folder_of(folder, "smp"), now=time.time())
        stack.push_async_callback(smp_files.close)
        ntf_log, smp_log = EventLog(folder_of(folder, "ntf-log")), EventLog(folder_of(folder, "smp-log"))
        stack.callback(ntf_log.close)
        stack.callback(smp_log.close)
        routers = World(apns, kept(ntf_store))
        recorder = NtfEventRecorder(ntf_log, keys, "ntf", NtfLatencies())
        ntf = await stack.enter_async_context(routers.ntf(events=recorder))
        smp = await stack.enter_async_context(
            smp_router(
                smp_store,
                events=SmpEventRecorder(smp_log, keys, "smp", "127.0.0.1"),
                notification_interval=0.0,
                message_quota=100,
            )
        )
        device = await Device(await ntf.connect(), routers.pushes, b"abcd").activate()
        recipient, sender = await smp.connect(), await smp.connect()
        yield await subscribed_chat(smp, device, recipient, SubscriptionState.ACTIVE), device, sender


async def follow_a_message() -> Walk:
    walk = Walk()
    with tempfile.TemporaryDirectory() as name:
        async with world(Path(name)) as (chat, device, sender):
            await chat.send(sender)
            await device.notifications()
            with profiled(walk):
                await chat.send(sender)
                await device.notifications()
    return walk


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.walk", description=__doc__)
    parser.add_argument("--modules", action="store_true", help="list the modules in the order of the walk")
    parser.add_argument("--records", action="store_true", help="list the records")
    options = parser.parse_args()
    walk = asyncio.run(follow_a_message())
    if options.modules:
        print("\n".join(walk.modules))
    if options.records:
        print("\n".join(walk.records))
    above = walk.above_the_core()
    for title, part in (("in all", walk), ("above the protocol core", above)):
        numbers = (
            f"{len(part.modules)} modules, {len(part.functions)} functions, {len(part.records)} record types"
        )
        print(f"{numbers} {title}")


if __name__ == "__main__":
    main()
