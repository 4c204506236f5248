"""`tocsin pipeline compact`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tocsin.cli.pipeline.job_options import add_job_options, job_options
from tocsin.errors import ConfigError
from tocsin.pipeline.compaction.compactors import NTF_SECTIONS, SMP_SECTIONS, compacted_ntf, compacted_smp
from tocsin.stores.memory import ntf_store_folder, store_folder
from tocsin.stores.memory.log_files import FolderLock

NAME = "compact"
SUMMARY = "make a router's store log compact, of any size"
DESCRIPTION = (
    "Makes of the store log of an NTF or SMP router, ours or the reference's, the log that its router would make at "
    "its next start: one line for each token, subscription, service or queue. The log may be larger than memory, and "
    "stays as it is. Put the result in its place while the router is stopped, or import it into PostgreSQL with "
    "`tocsin ntf store import` or `tocsin smp store import`."
)
EXAMPLE = "tocsin pipeline compact ntf-server-store.log --out compact/ntf-server-store.log"

NTF: Final = "ntf"
SMP: Final = "smp"
LOCKS: Final = {NTF: ntf_store_folder.LOCK, SMP: store_folder.LOCK}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", type=Path, metavar="LOG", help="ntf-server-store.log or smp-server-store.log")
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FILE",
        help="the compact log; it has keys, so only its owner may read it",
    )
    parser.add_argument("--router", choices=(NTF, SMP), help="whose log it is (default: by its name)")
    parser.add_argument(
        "--skip-broken-lines", action="store_true", help="go on without lines that cannot be read"
    )
    add_job_options(parser, dry_run=True)


def run(options: argparse.Namespace) -> int:
    job = job_options(options)
    from tocsin.pipeline.compaction.store_logs import StoreLogKind
    from tocsin.pipeline.jobs.compact import CompactOptions, run_compact
    from tocsin.pipeline.transforms.log_lines import ntf_parts, smp_parts

    chosen = CompactOptions(options.log, options.out, options.skip_broken_lines)
    router = options.router or _router_of(options.log)
    kind = (
        StoreLogKind(ntf_parts, compacted_ntf, NTF_SECTIONS)
        if router == NTF
        else StoreLogKind(smp_parts, compacted_smp, SMP_SECTIONS)
    )
    with _stopped(options.log.parent / LOCKS[router]):
        run_compact(job, chosen, kind)
    return 0


def _router_of(log: Path) -> str:
    for router in (NTF, SMP):
        if log.name.startswith(f"{router}-server-store.log"):
            return router
    raise ConfigError(f"{log.name} does not say whose log it is: say --router ntf or --router smp")


@contextmanager
def _stopped(lock: Path) -> Iterator[None]:
    """Raises StoreError if the router of this folder runs: it would go on writing to its log."""
    held = FolderLock(lock) if lock.exists() else None
    try:
        yield
    finally:
        if held is not None:
            held.release()
