"""Every recorded vector goes through our code in both directions, and the tool that does it notices what is wrong."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.smp.dialect import SMP
from tools.wire_vectors.__main__ import main
from tools.wire_vectors.commands import CONVERSIONS
from tools.wire_vectors.files import Fields, Vector, read_folder
from tools.wire_vectors.replay import replay

FOLDER = Path(__file__).parent
VECTORS = {vector.name: vector for vector in read_folder(FOLDER)}


@pytest.mark.parametrize("name", VECTORS)
def test_vector_replays(name: str) -> None:
    assert replay(VECTORS[name]) is None


def test_every_message_with_parameters_can_be_compared() -> None:
    tables = (SMP.commands, SMP.responses, NTF.commands, NTF.responses)
    kinds = {kind for table in tables for kind in table.kinds if kind.has_body}
    assert kinds == set(CONVERSIONS)


def _flipped(value: str) -> str:
    """Another hex digit in the middle."""
    at = len(value) // 2
    return value[:at] + ("0" if value[at] != "0" else "1") + value[at + 1 :]


def _tampered(vector: Vector, *path: str | int) -> Vector:
    values = copy.deepcopy(vector.fields.values)
    inner: Any = values
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = _flipped(inner[path[-1]])
    return dataclasses.replace(vector, fields=Fields(vector.name, values))


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("smp-new-v18", ("request", "content")),
        ("smp-new-v18", ("request", "authorization")),
        ("smp-new-v18", ("request", "signed")),
        ("smp-new-v18", ("request", "auth", "key", "priv")),
        ("smp-new-v18", ("response", "content")),
        ("smp-new-v18", ("response", "command", "rcv_id")),
        ("smp-sub-ed448", ("request", "authorization")),
        ("smp-sub-x25519", ("request", "authorization")),
        ("smp-sub-x25519", ("session", "server_dh")),
        ("smp-svc-nsub-ed25519", ("request", "service_signature")),
        ("smp-svc-nsub-ed25519", ("request", "service", "fp")),
        ("smp-svc-nsub-ed25519", ("request", "service", "id")),
        ("ntfclient-nsub-ed25519-v18", ("request", "service_signature")),
        ("smp-err-unknown", ("response", "command", "error")),
        ("smp-msg-event", ("event", "content")),
        ("smp-msg-event", ("decrypted", "plain")),
        ("smp-nmsg-ed25519", ("event", "command", "enc_meta")),
        ("smp-nmsg-ed25519", ("matches", "msg_id")),
        ("smp-nmsg-batch3", ("events", 1, "decrypted", "meta")),
        ("smp-block-v18-c2s-2", ("raw",)),
        ("smp-block-v18-s2c-1", ("content",)),
        ("smp-block-v18-s2c-2", ("chain", "nonce")),
        ("smp-hello-v18", ("server_hello", "fields", "certs", 0)),
        ("smp-hello-v18", ("server_hello", "fields", "certs", 1)),
        ("smp-hello-v18", ("server_hello", "content")),
        ("smp-hello-v18", ("server_hello", "fields", "signed_key", "signature")),
        ("smp-hello-v18", ("client_hello", "content")),
        ("smp-hello-v18", ("chains", "s2c")),
        ("smp-hello-service-v18", ("client_hello", "fields", "service", "certs", 0)),
        ("smp-hello-service-v18", ("client_hello", "fields", "service", "fp")),
        ("smp-hello-service-v18", ("service_response", "content")),
        ("ntf-hello-v3", ("server_hello", "content")),
        ("smp-prxy", ("response", "command", "certs", 0)),
        ("smp-pfwd-send", ("inner_request", "enc_sha256")),
        ("smp-pfwd-send", ("inner_response", "content")),
        ("smp-pfwd-send", ("outer_response", "content_sha256")),
        ("smp-batch-6", ("request_content",)),
        ("ntf-batch-5", ("response_blocks", 1, 0, "content")),
        ("push-message", ("http", "body")),
        ("push-message", ("jwt", "signature")),
        ("push-message", ("decrypted", "items", 0, "enc_meta")),
        ("push-verification-v3-ed25519", ("decrypted", "code")),
    ],
)
def test_one_flipped_digit_is_reported(name: str, path: tuple[str | int, ...]) -> None:
    assert replay(_tampered(VECTORS[name], *path)) is not None


def test_a_certificate_altered_in_the_bytes_and_in_the_fields_alike_is_reported() -> None:
    """The leaf's signature no longer fits, although decoding and encoding agree."""
    vector = VECTORS["smp-hello-v18"]
    certificate = vector.fields.object("server_hello").object("fields").items("certs")[0]
    text = json.dumps(vector.fields.values).replace(
        certificate, certificate[:-2] + _flipped(certificate[-2:])
    )
    difference = replay(dataclasses.replace(vector, fields=Fields(vector.name, json.loads(text))))
    assert difference is not None
    assert "BadCertificateChain" in difference


def test_a_router_answer_that_ours_would_not_give_is_reported() -> None:
    vector = VECTORS["smp-err-noauth-sub"]
    text = json.dumps(vector.fields.values).replace("CMD NO_AUTH", "CMD PROHIBITED")
    text = text.replace(b"CMD NO_AUTH".hex(), b"CMD PROHIBITED".hex())
    values = json.loads(text)
    content = bytes.fromhex(values["response"]["content"])
    longer = content[:1] + (len(content) - 3).to_bytes(2, "big") + content[3:]
    values["response"]["content"] = longer.hex()
    difference = replay(dataclasses.replace(vector, fields=Fields(vector.name, values)))
    assert difference is not None
    assert "our router" in difference


def _vector_of(**fields: object) -> dict[str, object]:
    return {"name": "x", "protocol": "smp", "version": 18, "direction": "both", "description": "", **fields}


def _write(folder: Path, content: object) -> None:
    (folder / "some.json").write_text(json.dumps(content))


def _file_with(*vectors: object) -> dict[str, object]:
    return {"topic": "x", "recorded": "2026-11-15", "servers": "x", "vectors": list(vectors)}


def _whole(name: str) -> dict[str, object]:
    return VECTORS[name].fields.values


def test_the_tool_prints_one_line_per_vector_and_counts_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tampered = _tampered(VECTORS["smp-key"], "request", "content").fields.values
    _write(tmp_path, _file_with(_whole("smp-ping-v18"), tampered))
    assert main([str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ok  smp-ping-v18"
    assert lines[1].startswith("FAIL smp-key: ")
    assert lines[2:] == ["1 passed, 1 failed"]


def test_the_tool_succeeds_on_our_own_copies(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(FOLDER)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{len(VECTORS)} passed, 0 failed"


def test_a_file_without_vectors_is_no_success(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _write(tmp_path, _file_with())
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().out == "0 passed, 0 failed\n"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"session": {"id": "00"}},
        {"wisdom": "42"},
        {**_whole("smp-ping-v18"), "name": "x", "wisdom": "42"},
        {**_whole("smp-ping-v18"), "name": "x", "protocol": "xftp"},
    ],
)
def test_a_vector_of_unknown_kind_fails(
    fields: dict[str, object], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    _write(tmp_path, _file_with(_vector_of(**fields)))
    assert main([str(tmp_path)]) == 1
    assert "FAIL x: not in the format: a vector of " in capsys.readouterr().out


def _folder_missing(folder: Path) -> Path:
    return folder / "nowhere"


def _folder_empty(folder: Path) -> Path:
    return folder


def _not_json(folder: Path) -> Path:
    (folder / "some.json").write_text("{")
    return folder


def _not_an_object(folder: Path) -> Path:
    _write(folder, [])
    return folder


def _without_date(folder: Path) -> Path:
    _write(folder, {"vectors": []})
    return folder


def _with_bad_date(folder: Path) -> Path:
    _write(folder, {**_file_with(), "recorded": "yesterday"})
    return folder


def _nameless(folder: Path) -> Path:
    _write(folder, _file_with({"protocol": "smp"}))
    return folder


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_folder_missing, "There is no folder"),
        (_folder_empty, "has no *.json files."),
        (_not_json, "is not a file of vectors"),
        (_not_an_object, "is not a file of vectors: the file is not an object"),
        (_without_date, "is not a file of vectors: the file has no field recorded"),
        (_with_bad_date, "is not a file of vectors"),
        (_nameless, "is not a file of vectors: the file.vectors[0] has no field name"),
    ],
)
def test_a_folder_that_cannot_be_replayed_is_one_clear_sentence(
    make: Callable[[Path], Path], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([str(make(tmp_path))]) == 2
    output = capsys.readouterr()
    assert message in output.err
    assert output.err.count("\n") == 1
    assert output.out == ""


def test_fields_of_a_command_may_have_other_names_in_the_same_order() -> None:
    vector = VECTORS["smp-nkey"]
    values = copy.deepcopy(vector.fields.values)
    command = values["request"]["command"]
    values["request"]["command"] = {"tag": "NKEY", "first": command["auth"], "second": command["dh"]}
    assert replay(dataclasses.replace(vector, fields=Fields(vector.name, values))) is None
    values["request"]["command"] = {"tag": "NKEY", "first": command["dh"], "second": command["auth"]}
    assert replay(dataclasses.replace(vector, fields=Fields(vector.name, values))) is not None
