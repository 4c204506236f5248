"""Prometheus reads the metrics of the last check from the service."""

from __future__ import annotations

import socket
import urllib.request
from pathlib import Path

import pytest

from tocsin.errors import ConnectFailed
from tocsin.pipeline.service.metrics_port import metrics_port

HOST = "127.0.0.1"


def read(port: int) -> str:
    with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text: str = answer.read().decode()
        return text


def test_the_file_is_served_as_it_is_now(tmp_path: Path) -> None:
    file = tmp_path / "x.prom"
    with metrics_port(HOST, 0, file) as port:
        assert read(port) == ""
        for text in ("a 1\n", "a 2\n"):
            file.write_text(text)
            assert read(port) == text
    with pytest.raises(OSError, match="refused"):
        read(port)


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(ConnectFailed, match=f"cannot listen on {HOST} port {port}"),
            metrics_port(HOST, port, tmp_path / "x.prom"),
        ):
            pass
