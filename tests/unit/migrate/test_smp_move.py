"""`tocsin migrate smp`: folders as the reference writes them, to Tocsin and back."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from tests.doubles.positional_statistics import PositionalReader
from tests.unit.smp_router.store.postgres.opened_stores import contents, stored
from tests.unit.smp_router.store.samples import a_message, a_queue
from tocsin.cli.main import run
from tocsin.smp_router.settings.files import load_smp_settings
from tocsin.smp_router.store.logs.log_reading import CHANGE_LOG, LOCK, STORE_LOG
from tocsin.smp_router.store.logs.store_files import fill_folder, read_smp_store
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.transport.credential_files import read_fingerprint

TOTALS = "0 services, 3 queues, 3 messages, 0 notifications"

# As `smp-server init` writes it, with what operators uncomment.
INI = """\
[INFORMATION]
# AGPLv3 license requires that you make any source code modifications available.
source_code: https://github.com/simplex-chat/simplexmq
operator: somebody

[STORE_LOG]
enable: on
store_queues: memory
store_messages: memory
restore_messages: on
expire_messages_days: 7
log_stats: off

[AUTH]
new_queues: on
create_password: hidden-password

[TRANSPORT]
host: smp.example
port: 15223
log_tls_errors: off
websockets: off
control_port: 15224

[PROXY]
socks_mode: onion
client_concurrency: 32

[INACTIVE_CLIENTS]
disconnect: on
ttl: 21600
check_interval: 3600

[WEB]
static_path: /var/opt/simplex/www
https: 443
cert: /etc/opt/simplex/web.crt
"""


@pytest.fixture(autouse=True)
def no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("TOCSIN_"):
            monkeypatch.delenv(name)


class Reference:
    """A server of the reference that was stopped."""

    def __init__(self, folder: Path) -> None:
        self.config = folder / "etc"
        self.data = folder / "var"
        assert (
            run(["smp", "init", "--host", "x", "--folder", str(self.config), "--store", str(self.data)]) == 0
        )
        (self.config / "smp-server.ini").write_text(INI)
        for path in self.config.iterdir():
            path.chmod(0o644)  # as the reference leaves them
        store = SmpMemoryStore()
        for _ in range(3):
            queue = a_queue()
            store.add_queue(queue)
            store.write_message(queue.recipient_id, a_message(), 5)
        fill_folder(self.data, store, lambda _count: None)
        (self.data / LOCK).unlink()
        (self.data / "smp-server-stats.log").write_text("fromTime=2026-01-01T00:00:00Z\n")

    def files(self) -> dict[str, bytes]:
        folders = (self.config, self.data)
        return {str(path): path.read_bytes() for folder in folders for path in folder.iterdir()}

    def arguments(self, *more: object) -> list[str]:
        return ["migrate", "smp", "--from", str(self.config), "--from-data", str(self.data), *map(str, more)]


@pytest.fixture
def reference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Reference:
    made = Reference(tmp_path / "reference")
    capsys.readouterr()
    return made


def to(folder: Path) -> list[str]:
    return ["--to", str(folder / "etc"), "--to-data", str(folder / "var")]


def use_memory_web(reference: Reference) -> None:
    ini = reference.config / "smp-server.ini"
    ini.write_text(ini.read_text().replace("https: 443", "https: off"))


def test_a_dry_run_says_what_would_happen_and_writes_nothing(
    reference: Reference, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = reference.files()
    assert run(reference.arguments(*to(tmp_path / "ours"), "--dry-run")) == 0
    shown = capsys.readouterr().out
    assert f"store {reference.data}: {TOTALS}" in shown
    assert "smp.example" in shown
    assert "[WEB] https: Tocsin serves no web pages; commented out" in shown
    assert "accepted without effect: [INFORMATION] source_code, [INFORMATION] operator" in shown
    assert "1. create " in shown
    assert "Nothing was changed" in shown
    assert "hidden-password" not in shown
    assert reference.files() == before
    assert not (tmp_path / "ours").exists()


def test_everything_is_copied_with_its_identity_and_counted(
    reference: Reference, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = reference.files()
    ours = tmp_path / "ours"
    assert run(reference.arguments(*to(ours))) == 0
    shown = capsys.readouterr().out
    assert f"Done and verified: same identity, {TOTALS}" in shown
    assert f"tocsin smp start --folder {ours / 'etc'}" in shown
    assert "tocsin migrate smp --back" in shown
    assert reference.files() == before
    assert read_fingerprint(ours / "etc") == read_fingerprint(reference.config)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (ours / "etc").iterdir()}
    assert {name for name, mode in modes.items() if mode == 0o600} == {
        "ca.key",
        "server.key",
        "smp-server.ini",
    }
    settings = load_smp_settings(ours / "etc" / "smp-server.ini", {})
    assert settings.store == ours / "var"
    assert (settings.create_password, settings.control_port) == ("hidden-password", 15224)
    assert contents(read_smp_store(ours / "var")[0]) == contents(read_smp_store(reference.data)[0])
    assert (ours / "var" / "smp-server-stats.log").exists()
    assert run(["smp", "config", "check", "--config", str(ours / "etc")]) == 0


def test_the_folders_of_the_reference_can_be_used_as_they_are(
    reference: Reference, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(reference.arguments()) == 1
    assert "[WEB] https" in capsys.readouterr().err
    use_memory_web(reference)
    before = reference.files()
    assert run(reference.arguments()) == 0
    shown = capsys.readouterr().out
    assert "write nothing" in shown
    assert f"--set store_path={reference.data}" in shown
    assert reference.files() == before


async def test_logs_go_into_a_database_and_back_into_logs(
    reference: Reference, tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, back = tmp_path / "ours", tmp_path / "back"
    assert await asyncio.to_thread(run, reference.arguments(*to(ours), "--database", url)) == 0
    assert f"verified: same identity, {TOTALS}" in capsys.readouterr().out
    source = contents(read_smp_store(reference.data)[0])
    assert await stored(url) == source
    arguments = ["migrate", "smp", "--back", "--from", str(ours / "etc"), *to(back)]
    assert await asyncio.to_thread(run, [*arguments, "--dry-run"]) == 0
    assert not back.exists()
    assert await asyncio.to_thread(run, arguments) == 0
    shown = capsys.readouterr().out
    assert f"same identity, {TOTALS} in the reference's store" in shown
    assert f"SMP_SERVER_CFG_PATH={back / 'etc'} SMP_SERVER_LOG_PATH={back / 'var'} smp-server start" in shown
    assert "[TOCSIN] database_url" in shown
    assert url not in shown
    assert contents(read_smp_store(back / "var")[0]) == source
    assert await stored(url) == source, "nothing is removed"


OLD_STATISTICS = [
    "fromTime=2026-01-01T00:00:00Z",
    *("qCreated=7", "qSecured=5", "qDeletedAll=3", "qCount=4", "ntfCreated=2", "ntfDeleted=1"),
    *("ntfCount=1", "msgSent=9", "msgRecv=8", "activeQueues:", "dayHashes=1,2"),
    *("weekHashes=1,2", "monthHashes=1,2"),
]
"""As versions of Tocsin before wrote some lines, which the reference does not read."""


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("\n".join(OLD_STATISTICS) + "\n", {"qCreated": 7, "qCount": 4, "ntfCreated": 2, "msgRecv": 8}),
        ("not statistics\n", None),
    ],
)
def test_statistics_are_written_as_the_reference_reads_them(
    text: str, values: dict[str, int] | None, reference: Reference, tmp_path: Path
) -> None:
    """It does not start on a file with other lines."""
    ours, back = tmp_path / "ours", tmp_path / "back"
    assert run(reference.arguments(*to(ours))) == 0
    (ours / "var" / "smp-server-stats.log").write_text(text)
    assert run(["migrate", "smp", "--back", "--from", str(ours / "etc"), *to(back)]) == 0
    file = back / "var" / "smp-server-stats.log"
    assert (ours / "var" / "smp-server-stats.log").read_text() == text
    if values is None:
        assert not file.exists()
        return
    found = PositionalReader(file.read_text().splitlines(), knows_names=False).values
    assert {key: value for key, value in found.items() if key in values} == values
    assert file.stat().st_mode & 0o777 == 0o600


def test_settings_in_toml_become_an_ini_file_for_the_reference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, back = tmp_path / "ours", tmp_path / "back"
    folders = ["--folder", str(ours / "etc"), "--store", str(ours / "var")]
    init = [
        "smp",
        "init",
        "--no-event-log",
        "--host",
        "smp.example",
        "--port",
        "15223",
        "--password",
        "secret",
        "--format",
        "toml",
    ]
    assert run([*init, *folders]) == 0
    fill_folder(ours / "var", SmpMemoryStore(), lambda _count: None)
    assert run(["migrate", "smp", "--back", "--from", str(ours / "etc"), *to(back)]) == 0
    assert "without comments" in capsys.readouterr().out
    toml, ini = ours / "etc" / "smp-server.toml", back / "etc" / "smp-server.ini"
    written = load_smp_settings(ini, {}, [f"store_path={ours / 'var'}", f"credentials={ours / 'etc'}"])
    assert written == load_smp_settings(toml, {})
    assert "TOCSIN" not in ini.read_text()
    assert run(["migrate", "smp", "--back", "--from", str(ours / "etc")]) == 1
    assert "name new folders" in capsys.readouterr().err


def test_back_in_place_needs_a_stop_that_was_graceful(
    reference: Reference, capsys: pytest.CaptureFixture[str]
) -> None:
    use_memory_web(reference)
    assert run(reference.arguments("--back")) == 0
    assert f"the reference finds {TOTALS}" in capsys.readouterr().out
    statistics = reference.data / "smp-server-stats.log"
    before = statistics.read_text()
    statistics.write_text("\n".join(OLD_STATISTICS))
    assert run(reference.arguments("--back")) == 1
    assert "of an older Tocsin" in capsys.readouterr().err
    statistics.write_text(before)
    (reference.data / CHANGE_LOG).write_bytes(b"")
    assert run(reference.arguments("--back")) == 1
    assert "--maintenance" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("was", "becomes", "says"),
    [
        ("store_messages: memory", "store_messages: journal", "`smp-server journal export`"),
        ("store_queues: memory", "store_queues: database", "`smp-server database export`"),
        ("enable: on", "enable: off", "no store to move"),
        ("port: 15223", "port: x", "smp-server.ini, line 20: [TRANSPORT] port"),
    ],
)
def test_what_cannot_be_moved_is_told_with_the_next_step(
    was: str,
    becomes: str,
    says: str,
    reference: Reference,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ini = reference.config / "smp-server.ini"
    ini.write_text(ini.read_text().replace(was, becomes))
    assert run(reference.arguments(*to(tmp_path / "ours"))) == 1
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
    assert not (tmp_path / "ours").exists()


def test_wrong_calls_are_told(
    reference: Reference, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use_memory_web(reference)
    full = tmp_path / "full"
    full.mkdir()
    (full / "x").write_text("")
    for more, says in (
        (["--to", tmp_path / "a"], "go together"),
        (["--to", full, "--to-data", tmp_path / "b"], "is not empty"),
        (["--database", "postgresql://x"], "needs --to"),
        (["--back", "--database", "postgresql://x"], "needs --to"),
        (["--from-data", tmp_path / "nowhere", *to(tmp_path / "c")], "does not exist"),
        (["--back", "--from-data", tmp_path / "nowhere"], "does not exist"),
        (["--back", "--from-data", tmp_path / "nowhere", *to(tmp_path / "c")], "does not exist"),
    ):
        assert run(reference.arguments(*more)) == 1
        assert says in capsys.readouterr().err


def test_a_server_that_runs_is_not_moved(
    reference: Reference, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as running:
        port = running.getsockname()[1]
        ini = reference.config / "smp-server.ini"
        ini.write_text(ini.read_text().replace("15223", str(port)))
        assert run(reference.arguments(*to(tmp_path / "ours"))) == 1
        assert "stop the server first" in capsys.readouterr().err
        assert run(reference.arguments(*to(tmp_path / "ours"), "--dry-run")) == 0
        assert "counts may change" in capsys.readouterr().out
        assert run(reference.arguments(*to(tmp_path / "ours"), "--ignore-running")) == 0


def test_broken_lines_stop_a_move_unless_they_are_left_out(
    reference: Reference, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (reference.data / STORE_LOG).open("a") as file:
        file.write("NONSENSE x\n")
    before = reference.files()
    assert run(reference.arguments(*to(tmp_path / "ours"))) == 1
    error = capsys.readouterr().err
    assert "--skip-broken-lines" in error
    assert f"leaves them in {reference.data / STORE_LOG}" in error
    assert run(reference.arguments(*to(tmp_path / "ours"), "--skip-broken-lines")) == 0
    assert "1 unreadable lines" in capsys.readouterr().out
    assert reference.files() == before


def test_broken_lines_are_left_out_on_the_way_back_but_not_in_place(
    reference: Reference, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In place nothing is written: the reference would find the lines where they were."""
    use_memory_web(reference)
    with (reference.data / STORE_LOG).open("a") as file:
        file.write("NONSENSE x\n")
    before, back = reference.files(), tmp_path / "back"
    for more in ([], ["--skip-broken-lines"]):
        assert run(reference.arguments("--back", *more)) == 1
        assert (
            "name new folders with --to and --to-data, and add --skip-broken-lines" in capsys.readouterr().err
        )
    assert run(reference.arguments("--back", *to(back))) == 1
    assert "with --skip-broken-lines: it continues" in capsys.readouterr().err
    assert run(reference.arguments("--back", *to(back), "--skip-broken-lines")) == 0
    shown = capsys.readouterr().out
    assert "1 unreadable lines" in shown
    assert f"same identity, {TOTALS} in the reference's store" in shown
    assert reference.files() == before
