"""What each party can see of one notification."""

from __future__ import annotations

from tests.unit.web.test_live_history import pushed, sent
from tocsin.web.live_history import LiveHistory
from tocsin.web.visibility import visibility_table


def test_only_the_phones_see_the_content_and_the_provider_not_even_the_queue() -> None:
    history = LiveHistory()
    message = sent(history, "a secret")
    push = pushed(history, b"m1")
    history.fetched("Bob", "Alice", "a secret", b"m1", 10, 10.7)
    rows = visibility_table(message, push)["rows"]
    content = {row["party"]: row["cells"][2]["visibility"] for row in rows}
    assert content == {
        "Alice’s phone": "all",
        "SMP router": "nothing",
        "NTF router": "nothing",
        "push provider": "nothing",
        "Bob’s phone": "all",
    }
    assert rows[2]["cells"][0]["text"] == "the notifier ID abcdefgh… at smp.example"
    assert rows[3]["cells"][0]["visibility"] == "nothing"


def test_beyond_the_smp_router_nobody_sees_anything_of_an_unfetched_message() -> None:
    rows = visibility_table(sent(LiveHistory()), None)["rows"]
    assert {cell["visibility"] for row in rows[2:] for cell in row["cells"]} == {"nothing"}
