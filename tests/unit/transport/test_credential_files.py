"""The folder with a router's certificates."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tocsin.crypto.certificates import (
    CertificateAlgorithm,
    Credentials,
    issue_leaf,
    make_authority,
)
from tocsin.transport.credential_files import (
    CredentialFileError,
    read_authority,
    read_credentials,
    read_fingerprint,
    write_authority,
    write_credentials,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ED25519 = CertificateAlgorithm.ED25519
AUTHORITY = make_authority(CertificateAlgorithm.ED448, now=NOW, serial=1)
CREDENTIALS = issue_leaf(AUTHORITY, "localhost", ED25519, now=NOW, serial=2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "etc" / "tocsin"
    write_authority(folder, AUTHORITY)
    write_credentials(folder, CREDENTIALS)
    return folder


def test_what_is_written_is_read_again(folder: Path) -> None:
    assert read_authority(folder) == AUTHORITY
    assert read_credentials(folder) == CREDENTIALS
    assert read_fingerprint(folder) == AUTHORITY.fingerprint
    assert sorted(path.name for path in folder.iterdir()) == [
        "ca.crt",
        "ca.key",
        "fingerprint",
        "server.crt",
        "server.key",
    ]


def test_private_keys_are_for_their_owner_only(folder: Path) -> None:
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert (modes["ca.key"], modes["server.key"]) == (0o600, 0o600)
    assert modes["ca.crt"] == 0o644
    assert folder.stat().st_mode & 0o777 == 0o700


def test_server_certificate_file_holds_only_the_leaf_as_the_reference_wants_it(folder: Path) -> None:
    assert (folder / "server.crt").read_bytes().count(b"BEGIN CERTIFICATE") == 1
    assert (folder / "fingerprint").read_text().endswith("=\n")


def test_server_certificate_file_with_the_whole_chain_is_read_too(folder: Path) -> None:
    (folder / "server.crt").write_bytes(CREDENTIALS.chain_pem)
    (folder / "ca.crt").unlink()
    assert read_credentials(folder) == CREDENTIALS


def test_issuers_of_the_identity_are_kept_with_it(tmp_path: Path) -> None:
    identity = make_authority(ED25519, parent=AUTHORITY, now=NOW, serial=3)
    credentials = issue_leaf(identity, "localhost", ED25519, now=NOW, serial=4)
    write_authority(tmp_path, identity)
    write_credentials(tmp_path, credentials)
    assert len(credentials.chain) == 3
    assert read_credentials(tmp_path) == credentials
    assert read_authority(tmp_path) == identity


def test_rotation_needs_no_authority_key_to_be_left_behind(folder: Path) -> None:
    (folder / "ca.key").unlink()
    rotated = issue_leaf(AUTHORITY, "localhost", ED25519, now=NOW, serial=9)
    write_credentials(folder, rotated)
    assert read_credentials(folder) == rotated
    assert not (folder / "ca.key").exists()


@pytest.mark.parametrize("name", ["server.crt", "server.key", "ca.crt"])
def test_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(CredentialFileError, match=rf"{name}: the file is missing") as refused:
        read_credentials(folder)
    assert refused.value.path == folder / name


@pytest.mark.parametrize("name", ["ca.crt", "ca.key"])
def test_missing_file_of_the_authority_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(CredentialFileError, match=rf"{name}: the file is missing"):
        read_authority(folder)


def test_fingerprint_of_another_identity_is_refused(folder: Path) -> None:
    (folder / "fingerprint").write_text("LcJUMfVhwD8yxjAiSaDzzGF3-kLG4Uh0Fl_ZIjrRwjI=\n")
    with pytest.raises(CredentialFileError, match="saved fingerprint"):
        read_credentials(folder)


@pytest.mark.parametrize("text", ["", "not base64!", "AAAA", "ü"])
def test_fingerprint_file_that_holds_none_is_refused(folder: Path, text: str) -> None:
    (folder / "fingerprint").write_text(text)
    with pytest.raises(CredentialFileError, match="fingerprint"):
        read_fingerprint(folder)


def test_key_of_another_certificate_is_refused(folder: Path) -> None:
    (folder / "server.key").write_bytes(AUTHORITY.private_key_pem)
    with pytest.raises(CredentialFileError, match=r"server\.crt: .*does not belong.*server\.key"):
        read_credentials(folder)


@pytest.mark.parametrize("content", [b"", b"\xff" * 100, b"x" * (1 << 20) + b"x"])
def test_file_that_holds_no_certificate_is_refused(folder: Path, content: bytes) -> None:
    (folder / "server.crt").write_bytes(content)
    with pytest.raises(CredentialFileError, match=r"server\.crt"):
        read_credentials(folder)


def test_readable_key_is_warned_about_but_used(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "server.key").chmod(0o644)
    with caplog.at_level(logging.WARNING):
        read_credentials(folder)
    assert "chmod 600" in caplog.text
    assert "PRIVATE KEY" not in caplog.text


def test_failed_write_leaves_the_old_file_and_no_other(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(CredentialFileError, match=r"server\.key: the file cannot be written: No space"):
        write_credentials(folder, Credentials(CREDENTIALS.chain, AUTHORITY.private_key))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
