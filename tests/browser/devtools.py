"""A browser without a window, driven over the pipe of its DevTools protocol: no package, no port.

https://chromedevtools.github.io/devtools-protocol/ ; messages are JSON, each ended by a zero byte.
"""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

PATIENCE: Final = 20.0
FLAGS: Final = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # continuous integration runs as root
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)
_KEYS: Final = {
    "Tab": (9, ""),
    "Enter": (13, "\r"),
    " ": (32, " "),
    "ArrowDown": (40, ""),
    "ArrowUp": (38, ""),
}


# The protocol is spoken on descriptors 3 and 4. The copies are made apart from them, which may be 4 and 3.
_EXEC: Final = """
import fcntl, os, sys
copies = [fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3]]
for copy, wanted in zip(copies, (3, 4)):
    os.dup2(copy, wanted)
os.execv(sys.argv[3], sys.argv[3:])
"""


class BrowserError(AssertionError):
    """The browser, or a script in it, says no."""


class Connection:
    """Commands and events of the whole browser."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading = reading
        self._writing = writing
        self._received = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + PATIENCE
        while True:
            answer = self._next(until)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _next(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._received:
            ready, _, _ = select.select([self._reading], [], [], max(until - time.monotonic(), 0))
            part = os.read(self._reading, 1 << 20) if ready else b""
            if not part:
                raise BrowserError("the browser does not answer")
            self._received += part
        message, _, self._received = self._received.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found


class Tab:
    """One page, of a browser profile of its own."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._context = connection.call("Target.createBrowserContext")["browserContextId"]
        target = connection.call("Target.createTarget", url="about:blank", browserContextId=self._context)
        attached = connection.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.emulate()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._connection.call(method, self._session, **parameters)

    def emulate(
        self, width: int = 1280, height: int = 900, *, dark: bool = False, still: bool = False
    ) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if still else "no-preference"},
        ]
        self.call("Emulation.setEmulatedMedia", features=features)

    def open(self, address: str) -> None:
        self.call("Page.navigate", url=address)
        self.until("document.readyState === 'complete'")

    def evaluate(self, script: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def until(self, script: str, patience: float = PATIENCE) -> None:
        """Until the value of the script is true, as scripts see it."""
        end = time.monotonic() + patience
        while True:
            with suppress(BrowserError):  # the page is on its way
                if self.evaluate(f"Boolean({script})"):
                    return
            if time.monotonic() > end:
                text = self.evaluate("document.body.innerText")
                raise BrowserError(f"it did not become true: {script}\n{text[:3000]}")
            time.sleep(0.05)

    def text(self, selector: str) -> str:
        found = self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")
        return str(found)

    def click(self, selector: str) -> None:
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    def press(self, key: str, *, shift: bool = False) -> None:
        """As a person does it, on whatever has the focus."""
        code, text = _KEYS[key]
        event = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **event)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def focus_by_keyboard(self, script: str, most: int = 80) -> None:
        """Presses Tab until the element that has the focus is such a one: `e` in the script."""
        for _ in range(most):
            self.press("Tab")
            if self.evaluate(f"(e => Boolean({script}))(document.activeElement)"):
                return
        raise BrowserError(f"Tab never came to {script}")

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def complaints(self) -> list[str]:
        """Errors in the console, and scripts that failed."""
        found = []
        for event in self._events():
            parameters = event["params"]
            match event["method"]:
                case "Runtime.exceptionThrown":
                    found.append(str(parameters["exceptionDetails"]))
                case "Runtime.consoleAPICalled" if parameters["type"] in ("error", "warning", "assert"):
                    found.append(str(parameters["args"]))
                case "Log.entryAdded" if parameters["entry"]["level"] in ("error", "warning"):
                    found.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")
        return found

    def hosts(self) -> set[str]:
        """That anything was asked of."""
        return {
            urlsplit(event["params"]["request"]["url"]).netloc
            for event in self._events()
            if event["method"] == "Network.requestWillBeSent"
        }

    def _events(self) -> list[dict[str, Any]]:
        self.evaluate("1")  # all that was told before its answer is here now
        return [event for event in self._connection.events if event.get("sessionId") == self._session]

    def close(self) -> None:
        self._connection.call("Target.disposeBrowserContext", browserContextId=self._context)


@contextmanager
def running_browser(path: str) -> Iterator[Connection]:
    its_input, writing = os.pipe()
    reading, its_output = os.pipe()
    with tempfile.TemporaryDirectory(prefix="tocsin-browser-", ignore_cleanup_errors=True) as profile:
        command = [path, *FLAGS, f"--user-data-dir={profile}"]
        process = subprocess.Popen(
            [sys.executable, "-c", _EXEC, str(its_input), str(its_output), *command],
            pass_fds=(its_input, its_output),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(its_input)
        os.close(its_output)
        connection = Connection(reading, writing)
        try:
            yield connection
        finally:
            with suppress(BrowserError, OSError):
                connection.call("Browser.close")
            os.close(writing)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(reading)
