"""The process of a worker. The router's process starts it; people do not."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys

from tocsin.errors import TocsinError
from tocsin.operate.log_lines import log_to_stderr
from tocsin.operate.process import STOP_SIGNALS, freeze_loaded_objects
from tocsin.smp_router.workers.messages import WorkerTask
from tocsin.smp_router.workers.worker import run_worker
from tocsin.transport.process_channel import ChannelEnd


def main() -> int:
    # These are for the router's process: a service manager sends them to all processes at once.
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    try:
        asyncio.run(run_worker(ChannelEnd.inherited(int(sys.argv[1])), _prepare))
    except TocsinError as error:
        print(f"worker: {error}", file=sys.stderr)
        return 1
    return 0


def _prepare(task: WorkerTask) -> None:
    log_to_stderr(task.log_level)
    if task.log_tls_errors:
        logging.getLogger("tocsin.transport.listener").setLevel(logging.DEBUG)
    freeze_loaded_objects()


if __name__ == "__main__":
    sys.exit(main())
