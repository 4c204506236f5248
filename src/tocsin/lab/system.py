"""The system of `tocsin up`, started in order: push provider, routers, phones that know each other."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.console import Console

from tocsin.errors import ConfigError
from tocsin.lab.deliver_job import ENTRANCE, DeliverJob
from tocsin.lab.figures import read_account
from tocsin.lab.phone_engines import PhoneEngines
from tocsin.lab.phones import Observer, Phone, introduce, phones
from tocsin.lab.processes import HOST, QUICK_JAVA, ChildProcess, LabRouter, Ports, ports_of
from tocsin.ntf_router.settings.settings import DeliveryEngine
from tocsin.pipeline.report.figures import DeliveryAccount
from tocsin.push.fake.server import FakeApns, running_fake_apns
from tocsin.web.page_server import PagePlace

PATIENCE: Final = 60.0
PHONES: Final = "phones"
JOB_PATIENCE: Final = 10
"""Seconds after which the router pushes what the job has not answered: viewers do not wait as long as operators."""
PUSHES_KEPT: Final = 1000
ROOM: Final = 500 * 1024**2
"""Disk space for a PostgreSQL, logs, and the tables of some hours, in bytes."""


@dataclass(frozen=True, slots=True)
class UpOptions:
    folder: Path
    once: bool
    phones: int
    messages: int
    pipeline: bool
    engine: DeliveryEngine = DeliveryEngine.INLINE
    """Which engines push: INLINE starts no job."""
    page: PagePlace | None = None
    """None serves it on a port that is chosen once and kept in the folder."""
    no_page: bool = False


@dataclass
class System:
    """Everything that is running."""

    options: UpOptions
    ports: Ports
    smp: LabRouter
    ntf: LabRouter
    apns: FakeApns
    job: DeliverJob
    password: str = field(repr=False)
    """The password of the NTF router's control port."""
    people: list[Phone] = field(default_factory=list)
    sent: int = 0

    @property
    def has_job(self) -> bool:
        return self.options.engine is not DeliveryEngine.INLINE

    def engines(self) -> PhoneEngines:
        return PhoneEngines(self.people, self.options.engine, self.ports.control, self.password)

    @property
    def lake(self) -> Path:
        return self.options.folder / "lake"

    async def account(self) -> DeliveryAccount:
        return await read_account(HOST, self.ports.metrics)

    async def start_pipeline(self, *options: object) -> ChildProcess:
        process = ChildProcess("pipeline", self.options.folder)
        folders = ("--events", self.smp.events, "--events", self.ntf.events)
        # Three simulated phones are a small group but need no privacy: name their routers.
        await process.start(
            "pipeline",
            "ingest",
            *folders,
            "--lake",
            self.lake,
            "--build",
            "--smallest-group",
            1,
            *options,
            settings=QUICK_JAVA,
        )
        return process


def make_folder(folder: Path) -> None:
    """Raises ConfigError."""
    try:
        (folder / PHONES).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be created ({error.strerror}): choose another --folder"
        ) from error
    try:
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
    except OSError as error:
        raise ConfigError(f"{folder} is not writable ({error.strerror}): choose another --folder") from error
    if free < ROOM:
        raise ConfigError(
            f"{folder} has {free // 1024**2} MB of free space, but {ROOM // 1024**2} MB are needed: "
            "free some space, or choose another --folder"
        )


@asynccontextmanager
async def started_system(options: UpOptions, console: Console, observer: Observer) -> AsyncIterator[System]:
    """Start everything but the pipeline: routers serve, phones are registered and know each other."""
    ports = ports_of(options.folder)
    async with AsyncExitStack() as stack:
        status = stack.enter_context(console.status("push provider"))
        apns = await stack.enter_async_context(
            running_fake_apns(options.folder / "push", port=ports.push, keep=PUSHES_KEPT)
        )
        smp, ntf = (
            LabRouter(kind, options.folder, port) for kind, port in (("smp", ports.smp), ("ntf", ports.ntf))
        )
        job = DeliverJob(options.folder, ports, ntf)
        system = System(options, ports, smp, ntf, apns, job, secrets.token_urlsafe(16))
        await apns.open_entrance(ENTRANCE, ports.spark_push)
        status.update("SMP router")
        stack.push_async_callback(smp.stop)
        await smp.serve(**_smp_settings(system))
        status.update("NTF router and its PostgreSQL")
        stack.push_async_callback(ntf.stop)
        await ntf.serve("--embedded", **_ntf_settings(system))
        if system.has_job:  # it starts while phones register, and finds the router's folder and key
            stack.push_async_callback(job.stop)
            await job.begin()
        status.update(f"{options.phones} phones")
        folder = options.folder / PHONES
        system.people = await stack.enter_async_context(
            phones(folder, options.phones, smp.address, ntf.address, apns, observer)
        )
        await _set_up(system.people, folder)
        status.stop()
        for line in _addresses(system):
            console.print(line, highlight=False, soft_wrap=True)
        yield system


def _smp_settings(system: System) -> dict[str, object]:
    return {
        "direct_public_ntf_routers_only": "off",
        "prometheus_port": system.ports.smp_metrics,
        "control_port": "off",
    }


def _ntf_settings(system: System) -> dict[str, object]:
    return {
        "host": HOST,
        "apns_test_host": "localhost",
        "apns_test_port": system.ports.push,
        "apns_test_ca_file": system.apns.ca_file,
        "apns_prod_host": "off",
        "apns_dev_host": "off",
        "allow_private_hosts": "on",
        "prometheus_port": system.ports.metrics,
        **(_handover_settings(system) if system.has_job else {"control_port": "off"}),
    }


def _handover_settings(system: System) -> dict[str, object]:
    return {
        "control_port": system.ports.control,
        "control_port_admin_password": system.password,
        "delivery_engine": DeliveryEngine.BOTH.value,
        "delivery_share": 0,  # `phone_engines` chooses for each phone
        "delivery_handover": system.job.handover,
        "delivery_patience": JOB_PATIENCE,
    }


def _addresses(system: System) -> list[str]:
    return [
        f"SMP router    {system.smp.address}",
        f"NTF router    {system.ntf.address}",
        f"metrics       http://{HOST}:{system.ports.metrics}/metrics",
        f"data and logs {system.options.folder}",
    ]


async def _set_up(people: list[Phone], folder: Path) -> None:
    new = await introduce(people, folder)
    await asyncio.gather(*(phone.register() for phone in people))
    for phone in new:
        async with asyncio.timeout(PATIENCE):
            while not phone.agent.at_rest:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.05)
    for phone in people:
        await phone.agent.connections.unsubscribe()


@asynccontextmanager
async def awake(system: System) -> AsyncIterator[None]:
    """Let phones sleep until a push wakes them."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(phone.sleep_and_wake()) for phone in system.people]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
