"""What the sink leaves for the source: a note, and state that is kept until no batch needs it."""

from __future__ import annotations

from pathlib import Path

from tocsin.pipeline.delivery.sink_notes import NOTES_FILE, SinkNote, SinkNotes


def test_a_note_is_there_until_there_is_nothing_to_say(tmp_path: Path) -> None:
    notes = SinkNotes(tmp_path)
    assert notes.read() == SinkNote()
    notes.write(SinkNote(2.5, 3))
    assert notes.read() == SinkNote(2.5, 3)
    notes.write(SinkNote())
    assert list(tmp_path.iterdir()) == []
    (tmp_path / NOTES_FILE).write_text("0")  # as before there was state
    assert notes.read() == SinkNote()


def test_state_is_for_its_owner_only_and_missing_state_is_none(tmp_path: Path) -> None:
    notes = SinkNotes(tmp_path)
    for number in (2, 11):
        notes.keep_state(number, {number: b"sealed"})
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    notes.forget_before(11)
    assert (notes.state(2), notes.state(11), notes.state(0)) == ({}, {11: b"sealed"}, {})
    next(tmp_path.iterdir()).write_bytes(b"torn")
    assert notes.state(11) == {}
