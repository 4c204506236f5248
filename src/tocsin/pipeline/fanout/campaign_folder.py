"""A campaign's tokens on disk, in parts: written before the first push, deleted once their outcomes are recorded.

Lines are sealed like hand-overs: a copy of the lake reveals keyed hashes of tokens, but no device token.
"""

from __future__ import annotations

import binascii
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from tocsin.crypto.boxes import NONCE_BYTES, BoxKey, seal, unseal
from tocsin.errors import StoreError

PLANNED: Final = "planned.json"
SOURCE: Final = "source.box"
PART_TOKENS: Final = 20_000


class CampaignPlan(msgspec.Struct, frozen=True):
    """The content of a campaign, and the number of its tokens."""

    counts: dict[str, int]
    """Tokens by provider."""
    kind: str
    """`reminder`, or `notice` with a hash of its text, and the providers. Another kind is another campaign."""


class CampaignToken(msgspec.Struct, frozen=True, array_like=True, gc=False):
    token_id: bytes
    provider: str
    device_token: bytes
    registered_at: int

    def __repr__(self) -> str:
        """Shows no id."""
        return f"CampaignToken({self.provider})"


class CampaignLine(msgspec.Struct, frozen=True, gc=False):
    """A token's line, whose box is still sealed."""

    token: str
    """A keyed hash."""
    box: bytes
    """Base64 in the file."""

    def shard(self, shards: int) -> int:
        """Return the shard of the token."""
        return int(self.token, 16) % shards


_LINES: Final = msgspec.json.Decoder(CampaignLine)


class CampaignFolder:
    def __init__(self, folder: Path, key: BoxKey) -> None:
        self.folder = folder
        self._key = key

    @property
    def planned(self) -> CampaignPlan | None:
        """None until all tokens are written. Raises StoreError for a plan of another version."""
        try:
            return msgspec.json.decode((self.folder / PLANNED).read_bytes(), type=CampaignPlan)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise StoreError(
                f"{self.folder / PLANNED} has another format: start a campaign with another name"
            ) from error

    def names(self) -> list[str]:
        """Names of the parts whose outcomes are not recorded yet."""
        return sorted(path.name for path in self.folder.glob("part-*.jsonl"))

    def begin(self, source: bytes) -> None:
        """Clears the folder and seals `source` in it, which executors read with `opened_source`."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(mode=0o700, parents=True)
        _write(self.folder / SOURCE, self._sealed(source))

    def opened_source(self) -> bytes:
        """Raises BadBox if it was sealed with another key."""
        box = (self.folder / SOURCE).read_bytes()
        return unseal(self._key, box[:NONCE_BYTES], box[NONCE_BYTES:])

    def write_share(
        self, share: int, pages: Iterable[Iterable[CampaignToken]], part_tokens: int = PART_TOKENS
    ) -> dict[str, int]:
        """Writes a share of the tokens in parts, replacing an earlier attempt. Returns counts by provider."""
        for left in self.folder.glob(f"part-{share:04d}-*.jsonl"):
            left.unlink()
        counts: dict[str, int] = {}
        lines: list[bytes] = []
        number = 0
        for page in pages:
            for token in page:
                counts[token.provider] = counts.get(token.provider, 0) + 1
                lines.append(self._line(token))
                if len(lines) == part_tokens:
                    number = self._write(share, number, lines)
                    lines = []
        self._write(share, number, lines)
        return counts

    def finish(self, counts: Mapping[str, int], kind: str) -> None:
        """Records that all shares are written: later runs continue with the parts that are left."""
        (self.folder / SOURCE).unlink(missing_ok=True)
        _write(self.folder / PLANNED, msgspec.json.encode(CampaignPlan(dict(counts), kind)))

    def tokens(self, name: str) -> Iterator[tuple[CampaignLine, CampaignToken]]:
        """Raises StoreError or BadBox for a damaged part."""
        for text in (self.folder / name).read_bytes().splitlines():
            try:
                line = _LINES.decode(text)
                packed = unseal(self._key, line.box[:NONCE_BYTES], line.box[NONCE_BYTES:])
                yield line, msgspec.msgpack.decode(packed, type=CampaignToken)
            except msgspec.MsgspecError as error:
                raise StoreError(f"{name} has another format: start a campaign with another name") from error

    def done(self, name: str) -> None:
        (self.folder / name).unlink()

    def _line(self, token: CampaignToken) -> bytes:
        box = binascii.b2a_base64(self._sealed(msgspec.msgpack.encode(token)), newline=False)
        hashed = hashlib.blake2b(token.token_id, digest_size=8, key=self._key).hexdigest()
        return b'{"token":"%b","box":"%b"}\n' % (hashed.encode(), box)

    def _sealed(self, data: bytes) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return nonce + seal(self._key, nonce, data)

    def _write(self, share: int, number: int, lines: list[bytes]) -> int:
        if not lines:
            return number
        _write(self.folder / f"part-{share:04d}-{number:06d}.jsonl", b"".join(lines))
        return number + 1


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
