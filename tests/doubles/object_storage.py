"""A server on loopback that speaks the protocol of S3, in a process of its own, since clients block meanwhile."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Final

BUCKET: Final = "lake"
USER: Final = (
    "AWS4-HMAC-SHA256 Credential=someone/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
)
"""Only a user may replace an object. The signature is not checked."""
SERVER: Final = """
import logging, sys, threading
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
server.stop()
"""


@contextmanager
def object_storage() -> Iterator[dict[str, str]]:
    """Yields the settings with which the library `object_store` reaches it."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            port = int(server.stdout.readline())
            _put(port, BUCKET, b"")
            yield {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
                "AWS_ALLOW_HTTP": "true",
                "AWS_ACCESS_KEY_ID": "someone",
                "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_REGION": "us-east-1",
            }
        finally:
            server.stdin.close()  # it ends then


def put_object(options: dict[str, str], address: str, data: bytes) -> None:
    """Stores what another program copied there, at `s3://BUCKET/…`."""
    _put(int(options["AWS_ENDPOINT_URL"].rpartition(":")[2]), address.removeprefix("s3://"), data)


def _put(port: int, path: str, data: bytes) -> None:
    connection = HTTPConnection("127.0.0.1", port)
    connection.request("PUT", f"/{path}", data, {"Authorization": USER})
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    connection.close()
