"""The thread that writes for an event loop."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

from tocsin.durable.writing_thread import WritingThread


async def test_work_is_done_in_its_order_in_another_thread_and_reported_in_the_loop() -> None:
    writing, done = WritingThread("writer"), list[tuple[int, BaseException | None]]()
    began, finished = list[tuple[int, str]](), asyncio.Event()

    def report(number: int, error: BaseException | None) -> None:
        assert threading.current_thread() is threading.main_thread()
        done.append((number, error))
        if number == 2:
            finished.set()

    def work(number: int) -> None:
        began.append((number, threading.current_thread().name))

    for number in range(3):
        writing.do(partial(work, number), partial(report, number))
    await finished.wait()
    assert done == [(0, None), (1, None), (2, None)]
    assert began == [(0, "writer"), (1, "writer"), (2, "writer")]
    writing.close()


async def test_a_failure_is_reported_and_the_next_work_is_done() -> None:
    writing, errors = WritingThread("writer"), asyncio.Queue[BaseException | None]()

    def fail() -> None:
        raise OSError("no space")

    writing.do(fail, errors.put_nowait)
    writing.do(lambda: None, errors.put_nowait)
    assert str(await errors.get()) == "no space"
    assert await errors.get() is None
    writing.close()


async def test_closing_waits_for_the_work() -> None:
    writing, written = WritingThread("writer"), list[str]()
    may_write = threading.Event()

    def write() -> None:
        may_write.wait()
        written.append("line")

    writing.do(write, lambda _error: None)
    asyncio.get_running_loop().call_soon(may_write.set)
    closing = asyncio.create_task(asyncio.to_thread(writing.close))
    await closing
    assert written == ["line"]
    writing.close()
    WritingThread("never used").close()
