"""Notes of the sink of `deliver` for its source: when to repeat a push, and state that the job carries.

Spark keeps the state of shards in its checkpoint, which executors write themselves. Where they share no folder with the
driver, the state is rows instead: it comes to the sink with the outcomes, lies in files here, and the source sends it
with the rows of the next batch. The offset of a batch names the file, so a batch that runs again has the same state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from tocsin.ntf_router.delivery.channels.folder_channel import replace_file

NOTES_FILE: Final = "tocsin-wake"
_STATE_FILE: Final = "tocsin-state-"


class SinkNote(msgspec.Struct, frozen=True):
    due_at: float | None = None
    """When the next push is to be repeated."""
    state: int = 0
    """The number of the file with the newest state. 0 before the first one."""


@dataclass(frozen=True, slots=True)
class SinkNotes:
    folder: Path
    """A folder of the driver's machine, in which the source's process is too."""

    def read(self) -> SinkNote:
        try:
            return _NOTES.decode((self.folder / NOTES_FILE).read_bytes())
        except (FileNotFoundError, msgspec.MsgspecError):
            return SinkNote()

    def write(self, note: SinkNote) -> None:
        """Without anything to say, no file stays."""
        if note == SinkNote():
            (self.folder / NOTES_FILE).unlink(missing_ok=True)
        else:
            replace_file(self.folder / NOTES_FILE, msgspec.json.encode(note))

    def keep_state(self, number: int, state: Mapping[int, bytes]) -> None:
        replace_file(self._path(number), msgspec.msgpack.encode(dict(state)))

    def state(self, number: int) -> dict[int, bytes]:
        """Without its file, shards begin anew: routers hand over again what has no outcome."""
        try:
            return _STATES.decode(self._path(number).read_bytes())
        except (FileNotFoundError, msgspec.MsgspecError):
            return {}

    def forget_before(self, number: int) -> None:
        for path in self.folder.glob(f"{_STATE_FILE}*"):
            if path.name < self._path(number).name:
                path.unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self.folder / f"{_STATE_FILE}{number:020d}"


_NOTES: Final = msgspec.json.Decoder(SinkNote)
_STATES: Final = msgspec.msgpack.Decoder(dict[int, bytes])
