"""The view `Live`: real messages between simulated phones, watched and disturbed."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import pytest

from tests.browser.tabs import Tab


@pytest.fixture
def page(tab: Tab, address: str) -> Tab:
    """The phones are silent and online, and every message wakes them."""
    tab.open(f"{address}#live")
    tab.until("document.querySelectorAll('#phones select').length > 0")
    tab.until("document.querySelector('[data-part=smp]').dataset.level === 'good'")
    if tab.evaluate("document.getElementById('chatter').checked"):
        tab.click("#chatter")
    return tab


def row(text: str) -> str:
    """An expression for the list's row of a message."""
    return f"[...document.querySelectorAll('#messages li')].find((e) => e.innerText.includes({json.dumps(text)}))"


def send(page: Tab, *, sender: str = "Alice", receiver: str = "Bob", mention: bool = False) -> str:
    """Returns the text, which no other message has, after the SMP router's answer."""
    text = f"bell {secrets.token_hex(4)}"
    form = "document.getElementById('write').elements"
    for name, value in (("from", sender), ("to", receiver), ("text", text)):
        page.evaluate(f"{form}.{name}.value = {json.dumps(value)}")
    page.evaluate(f"{form}.mention.checked = {json.dumps(mention)}")
    page.click("#write button")
    page.until(f"!{row(text)}.querySelector('.state').innerText.includes('on its way')", patience=60)
    return text


def until_state(page: Tab, text: str, words: str, patience: float = 30.0) -> None:
    page.until(f"{row(text)}.querySelector('.state').innerText.includes({json.dumps(words)})", patience)


def want(page: Tab, phone: str, peer: str, level: str) -> None:
    """Waits for the answer."""
    asked = json.dumps({"phone": phone, "peer": peer, "level": level})
    page.evaluate(f"import('/dom.js').then((dom) => dom.act('notify', {asked}))")
    page.until(f"document.querySelector('[data-phone={phone}] [data-peer={peer}]').value === '{level}'")


def test_a_message_is_sent_and_its_layers_are_opened_with_the_keyboard_alone(page: Tab) -> None:
    page.focus_by_keyboard("e.name === 'text'")
    ring = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert ring == "solid"
    text = f"typed {secrets.token_hex(4)}"
    page.evaluate("document.activeElement.select()")
    page.type(text)
    page.focus_by_keyboard("e.type === 'submit'")
    page.press("Enter")
    until_state(page, text, "fetched after")
    page.until(f"document.querySelector('#detail .title')?.innerText.includes('{text}')")
    page.until("document.querySelector('[data-layer=raw]')")
    for layer in ("raw", "one", "two", "message"):
        page.focus_by_keyboard(f"e.tagName === 'SUMMARY' && e.parentElement.dataset.layer === '{layer}'")
        page.press("Enter")
        page.until(f"document.querySelector('[data-layer={layer}]').open")
    assert text in page.text("[data-layer=message]")
    assert page.complaints() == []


def test_one_notification_is_shown_by_time_and_by_who_sees_what(page: Tab, screenshots: Path) -> None:
    text = send(page)
    until_state(page, text, "fetched after")
    page.until("document.querySelectorAll('.timeline li').length === 7")
    page.until("document.querySelectorAll('.timeline .not-yet').length === 0")
    steps = page.evaluate("[...document.querySelectorAll('.timeline li')].map((e) => e.dataset.station)")
    assert steps == ["sender", "smp", "smp", "ntf", "provider", "device", "device"]
    page.evaluate("document.querySelectorAll('[data-layer]').forEach((e) => (e.open = true))")
    raw, one, two = (page.text(f"[data-layer={name}]") for name in ("raw", "one", "two"))
    assert "NTF_CAT_CHECK_MESSAGE" in raw
    assert text not in raw + one + two
    assert "127.0.0.1" not in raw
    assert "127.0.0.1" in one
    assert "Alice" in two
    parties = page.evaluate("[...document.querySelectorAll('.visibility tbody tr')].map((e) => e.innerText)")
    assert [line.split("\t")[0] for line in parties] == [
        "Alice’s phone",
        "SMP router",
        "NTF router",
        "push provider",
        "Bob’s phone",
    ]
    assert [text in line for line in parties] == [True, False, False, False, True]
    page.screenshot(screenshots / "layers.png")


def test_a_muted_chat_wakes_nobody_and_a_mention_does(page: Tab, screenshots: Path) -> None:
    want(page, "Bob", "Alice", "none")
    silent = send(page, mention=True)
    page.evaluate("document.querySelectorAll('[data-phone=Bob] button')[1].click()")
    until_state(page, silent, "without its own push")
    page.until("document.querySelector('#detail').innerText.includes('did not want a push')")
    want(page, "Bob", "Alice", "mentions")
    plain, mention = send(page), send(page, mention=True)
    page.until(f"/^fetched after [^,]*$/.test({row(mention)}.querySelector('.state').innerText)", 30.0)
    assert page.evaluate(f"{row(plain)}.querySelector('.state').innerText").endswith("without its own push")
    for text, is_mention in ((mention, True), (plain, False)):
        page.evaluate(f"{row(text)}.querySelector('button').click()")
        page.until(f"document.querySelector('#detail .title')?.innerText.includes('{text}')")
        page.until(f"document.querySelector('{'[data-layer=message]' if is_mention else '#detail .empty'}')")
        page.evaluate("document.querySelectorAll('[data-layer]').forEach((e) => (e.open = true))")
        if is_mention:
            # The details are drawn again for each event of the message, and the list may be ahead of them.
            page.until(
                "document.querySelector('#detail').innerText.includes('The phone shows it as a mention')"
            )
            assert "a mention" in page.text("[data-layer=two]")
            page.screenshot(screenshots / "mention.png")
        else:
            assert "The phone shows it as a mention" not in page.text("#detail")
    want(page, "Bob", "Alice", "all")
    until_state(page, send(page), "fetched after")


def test_a_phone_that_is_offline_gets_its_messages_later(page: Tab) -> None:
    page.evaluate("document.querySelector('[data-phone=Carol] button').click()")
    page.until("document.querySelector('[data-phone=Carol] .badge').innerText.includes('offline')")
    pushes = "Number(document.querySelector('[data-station=provider] b').innerText.replaceAll(',', ''))"
    before = page.evaluate(pushes)
    text = send(page, receiver="Carol")
    page.until(f"{pushes} > {before}")
    until_state(page, text, "waiting for a push")
    form = "document.getElementById('write').elements"
    page.evaluate(f"{form}.from.value = 'Carol', {form}.to.value = 'Bob'")
    page.click("#write button")
    page.until("document.getElementById('problem').innerText.includes('offline')")
    page.evaluate("document.querySelector('[data-phone=Carol] button').click()")
    until_state(page, text, "fetched after")


@pytest.mark.parametrize("router", ["smp", "ntf"])
def test_a_router_that_is_killed_comes_back_and_nothing_is_lost(
    page: Tab, router: str, screenshots: Path
) -> None:
    page.click(f"[data-kill={router}]")
    badge = f"document.querySelector('[data-part={router}]').innerText"
    page.until(f"/restarting|restarted/.test({badge})")
    page.screenshot(screenshots / f"killed-{router}.png")
    text = send(page, sender="Carol", receiver="Alice")
    page.until(f"{badge}.includes('restarted')", patience=60)
    if router == "smp":  # what it did not take, it did not promise
        text = send(page, sender="Carol", receiver="Alice")
    until_state(page, text, "fetched after", patience=60)
    assert "fetched" in page.text("#said")
