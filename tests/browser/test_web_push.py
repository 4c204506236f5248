"""Chromium at the receiving end of Web Push: it makes the keys of a subscription, opens our bodies, and reads them.

Its push service cannot be reached, so it has no `PushSubscription`. A page makes the same keys by hand and opens bodies
with the browser's cryptography (RFC 8291, 3.4). Its service worker gets the plaintext as a push.
"""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.browser.tabs import Tab
from tests.unit.push.webpush.stage import CHECK, MESSAGES, VERIFICATION
from tests.unit.push.webpush.test_request import sized
from tocsin.crypto.web_push import WebPushReceiver
from tocsin.protocol.ntf.pushes import CheckMessagesPush, Push, parse_push_json
from tocsin.protocol.ntf.web_push_contents import parse_web_push_content
from tocsin.protocol.ntf.web_push_tokens import WebPushAddress, WebPushForm
from tocsin.push.webpush.request import pushed_content, sealed_body

PAGE = """<!doctype html><title>push</title><script>
const bytes = text => Uint8Array.from(atob(text), each => each.charCodeAt(0));
const text = buffer => btoa(String.fromCharCode(...new Uint8Array(buffer)));
const word = each => new TextEncoder().encode(each);
const joined = async (...parts) => new Uint8Array(await new Blob(parts).arrayBuffer());
const told = [];

async function subscribed() {
  window.keys = await crypto.subtle.generateKey({name: "ECDH", namedCurve: "P-256"}, false, ["deriveBits"]);
  window.auth = crypto.getRandomValues(new Uint8Array(16));
  window.p256dh = await crypto.subtle.exportKey("raw", keys.publicKey);
  return {p256dh: text(p256dh), auth: text(auth)};
}

async function derived(secret, salt, info, size) {
  const key = await crypto.subtle.importKey("raw", secret, "HKDF", false, ["deriveBits"]);
  return crypto.subtle.deriveBits({name: "HKDF", hash: "SHA-256", salt, info}, key, size * 8);
}

async function opened(encoded) {
  const body = bytes(encoded), salt = body.slice(0, 16), size = body[20], sender = body.slice(21, 21 + size);
  const theirs = await crypto.subtle.importKey("raw", sender, {name: "ECDH", namedCurve: "P-256"}, true, []);
  const agreed = await crypto.subtle.deriveBits({name: "ECDH", public: theirs}, keys.privateKey, 256);
  const secret = await derived(agreed, auth, await joined(word("WebPush: info\\0"), p256dh, sender), 32);
  const raw = await derived(secret, salt, word("Content-Encoding: aes128gcm\\0"), 16);
  const iv = await derived(secret, salt, word("Content-Encoding: nonce\\0"), 12);
  const key = await crypto.subtle.importKey("raw", raw, "AES-GCM", false, ["decrypt"]);
  const record = new Uint8Array(await crypto.subtle.decrypt({name: "AES-GCM", iv}, key, body.slice(21 + size)));
  const end = record.findLastIndex(each => each !== 0);
  if (record[end] !== 2) throw Error("not the last record");
  return text(record.slice(0, end));
}

async function working() {
  navigator.serviceWorker.addEventListener("message", event => told.push(event.data));
  await navigator.serviceWorker.register("worker.js");
  return (await navigator.serviceWorker.ready).active !== null;
}
</script>"""
WORKER = """
self.addEventListener("activate", event => event.waitUntil(self.clients.claim()));
self.addEventListener("push", event => event.waitUntil((async () => {
  for (const each of await self.clients.matchAll()) each.postMessage(JSON.stringify(event.data.json()));
})()));
"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_arguments: Any) -> None:
        pass


@pytest.fixture
def origin(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "index.html").write_text(PAGE)
    (tmp_path / "worker.js").write_text(WORKER)
    (tmp_path / "favicon.ico").touch()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(tmp_path))) as server:
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        serving.join()


def receiver_of(tab: Tab) -> WebPushReceiver:
    """What the page's subscription would tell our router."""
    keys = tab.evaluate("subscribed()")
    return WebPushReceiver(public_key=base64.b64decode(keys["p256dh"]), auth=base64.b64decode(keys["auth"]))


def opened_by(tab: Tab, body: bytes) -> bytes:
    return base64.b64decode(tab.evaluate(f"opened({base64.b64encode(body).decode()!r})"))


@pytest.mark.parametrize("form", WebPushForm)
def test_chromium_opens_what_we_seal_to_its_keys(tab: Tab, origin: str, form: WebPushForm) -> None:
    tab.open(origin)
    address = WebPushAddress(receiver_of(tab), "push.example.org", 443, "/up", form)
    for push in (MESSAGES, VERIFICATION, CHECK):
        expected = sized(push, form)
        body = sealed_body(pushed_content(expected, form), address, os.urandom(32), os.urandom(16))
        assert parse_web_push_content(opened_by(tab, body)) == expected


def test_a_service_worker_reads_the_json_of_every_push(tab: Tab, origin: str) -> None:
    """In the reference's form. Chromium hands it the text, as it does with a push that it has opened itself."""
    tab.open(origin)
    found: list[str] = []
    devtools = tab.page.context.new_cdp_session(tab.page)
    devtools.on(
        "ServiceWorker.workerRegistrationUpdated",
        lambda event: found.extend(each["registrationId"] for each in event["registrations"]),
    )
    devtools.send("ServiceWorker.enable")
    assert tab.evaluate("working()")
    tab.until("navigator.serviceWorker.controller")
    for _ in range(100):  # events of DevTools are read while the page is asked
        if found:
            break
        tab.until("navigator.serviceWorker.controller")
    address = WebPushAddress(receiver_of(tab), "push.example.org", 443, "/up", WebPushForm.REFERENCE)
    pushes: list[Push] = [
        *(sized(push, WebPushForm.REFERENCE) for push in (MESSAGES, VERIFICATION)),
        CheckMessagesPush(),
    ]
    for number, push in enumerate(pushes, start=1):
        body = sealed_body(pushed_content(push, address.form), address, os.urandom(32), os.urandom(16))
        data = opened_by(tab, body).decode()
        arguments = {"origin": origin, "registrationId": found[-1], "data": data}
        devtools.send("ServiceWorker.deliverPushMessage", arguments)
        tab.until(f"told.length === {number}")
        assert parse_push_json(tab.evaluate("told.at(-1)").encode()) == push
