"""Ids of pushes."""

from __future__ import annotations

import os

from tocsin.ntf_router.delivery.pushes import code_push_id, message_push_id, periodic_push_id


def test_push_ids_are_uuids_that_repeat_with_their_content() -> None:
    nonces = [os.urandom(24), os.urandom(24)]
    assert message_push_id(b"ab", nonces) == message_push_id(b"ab", nonces)
    different = {
        message_push_id(b"ab", nonces),
        message_push_id(b"abab", nonces),
        message_push_id(b"ab", nonces[::-1]),
        message_push_id(b"ab", nonces[:1]),
        code_push_id(b"ab", b"code"),
        code_push_id(b"ab", b"other"),
        periodic_push_id(b"ab", 1),
        periodic_push_id(b"ab", 2),
    }
    assert len(different) == 8
    for push_id in different:
        assert [len(part) for part in push_id.split("-")] == [8, 4, 4, 4, 12]
        assert push_id[14] == "8"
