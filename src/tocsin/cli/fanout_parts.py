"""The tokens of a campaign on disk, in parts: written before the first push, deleted when their outcomes are recorded.

Lines are sealed as hand-overs are: whoever copies the lake gets keyed hashes of tokens, and no device token.
"""

from __future__ import annotations

import binascii
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from tocsin.crypto.boxes import NONCE_BYTES, BoxKey, seal, unseal
from tocsin.errors import StoreError
from tocsin.routers.ntf.handover_lines import HandedLine, read_line
from tocsin.stores.ntf_records import TokenRecord

PLANNED: Final = "planned.json"
PART_TOKENS: Final = 20_000


class CampaignToken(msgspec.Struct, frozen=True, array_like=True, gc=False):
    token_id: bytes
    provider: str
    device_token: bytes
    registered_at: int

    def __repr__(self) -> str:
        """Without ids."""
        return f"CampaignToken({self.provider})"


class CampaignParts:
    def __init__(self, folder: Path, key: BoxKey) -> None:
        self.folder = folder
        self._key = key

    @property
    def planned(self) -> dict[str, int] | None:
        """How many tokens each provider has; None if it is not written to the end."""
        try:
            return msgspec.json.decode((self.folder / PLANNED).read_bytes(), type=dict[str, int])
        except FileNotFoundError:
            return None

    def names(self) -> list[str]:
        """Of parts whose outcomes are not recorded."""
        return sorted(path.name for path in self.folder.glob("part-*.jsonl"))

    def plan(self, pages: Iterable[Iterable[TokenRecord]], part_tokens: int = PART_TOKENS) -> dict[str, int]:
        """Writes all parts; what an interrupted attempt left is removed first."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(mode=0o700, parents=True)
        counts: dict[str, int] = {}
        lines: list[bytes] = []
        number = 0
        for page in pages:
            for token in page:
                name = token.device_token.provider.text
                counts[name] = counts.get(name, 0) + 1
                lines.append(self._line(token))
                if len(lines) == part_tokens:
                    number = self._write(number, lines)
                    lines = []
        self._write(number, lines)
        _write(self.folder / PLANNED, msgspec.json.encode(counts))
        return counts

    def tokens(self, name: str) -> Iterator[tuple[HandedLine, CampaignToken]]:
        """Raises StoreError or BadBox for a damaged part."""
        for text in (self.folder / name).read_bytes().splitlines():
            line = read_line(text)
            packed = unseal(self._key, line.box[:NONCE_BYTES], line.box[NONCE_BYTES:])
            try:
                yield line, msgspec.msgpack.decode(packed, type=CampaignToken)
            except msgspec.MsgspecError as error:
                raise StoreError(f"{name} is of another version: begin another campaign") from error

    def done(self, name: str) -> None:
        (self.folder / name).unlink()

    def _line(self, token: TokenRecord) -> bytes:
        device = token.device_token
        packed = msgspec.msgpack.encode(
            CampaignToken(token.token_id, device.provider.text, device.token, token.registered_at)
        )
        nonce = os.urandom(NONCE_BYTES)
        box = binascii.b2a_base64(nonce + seal(self._key, nonce, packed), newline=False)
        hashed = hashlib.blake2b(token.token_id, digest_size=8, key=self._key).hexdigest()
        return b'{"id":"","token":"%b","box":"%b"}\n' % (hashed.encode(), box)

    def _write(self, number: int, lines: list[bytes]) -> int:
        if not lines:
            return number
        _write(self.folder / f"part-{number:06d}.jsonl", b"".join(lines))
        return number + 1


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
