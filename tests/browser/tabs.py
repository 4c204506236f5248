"""A page in the browser as these tests use it: a thin layer over Playwright."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Error, Request

PATIENCE: Final = 20.0
_TROUBLE: Final = frozenset({"error", "warning", "assert"})


class Tab:
    """One page, with a browser profile of its own."""

    def __init__(self, browser: Browser) -> None:
        self._context = browser.new_context()
        self.page = self._context.new_page()
        self._complaints: list[str] = []
        self._hosts: set[str] = set()
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self._complaints.append(str(error)))
        self.page.on("request", self._on_request)
        self.emulate()

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in _TROUBLE:
            self._complaints.append(f"{message.text} {message.location.get('url', '')}")

    def _on_request(self, request: Request) -> None:
        self._hosts.add(urlsplit(request.url).netloc)

    def emulate(
        self, width: int = 1280, height: int = 900, *, dark: bool = False, still: bool = False
    ) -> None:
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.emulate_media(
            color_scheme="dark" if dark else "light", reduced_motion="reduce" if still else "no-preference"
        )

    def open(self, address: str) -> None:
        # Not "load" alone: an address that differs only in its fragment loads nothing.
        self.page.goto(address, wait_until="commit")
        self.until("document.readyState === 'complete'")

    def evaluate(self, script: str) -> Any:
        return self.page.evaluate(script)

    def until(self, script: str, patience: float = PATIENCE) -> None:
        """Waits until the script's value is truthy.

        Not `wait_for_function`: it evaluates inside the page, which the page's Content-Security-Policy forbids.
        """
        for _ in range(int(patience / 0.05)):
            try:
                if self.evaluate(f"Boolean({script})"):
                    return
            except Error:
                pass  # the page is still loading
            self.page.wait_for_timeout(50)
        text = self.evaluate("document.body.innerText")
        raise AssertionError(f"this did not become true: {script}\n{text[:3000]}")

    def text(self, selector: str) -> str:
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def click(self, selector: str) -> None:
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    def press(self, key: str) -> None:
        """Presses a key for the element that has the focus, as a person does."""
        self.page.keyboard.press(key)

    def type(self, text: str) -> None:
        self.page.keyboard.insert_text(text)

    def focus_by_keyboard(self, script: str, most: int = 80) -> None:
        """Presses Tab until the script, in which `e` is the focused element, is truthy."""
        for _ in range(most):
            self.press("Tab")
            if self.evaluate(f"(e => Boolean({script}))(document.activeElement)"):
                return
        raise AssertionError(f"Tab never reached {script}")

    def screenshot(self, path: Path) -> None:
        self.page.screenshot(path=path, full_page=True)

    def accessibility_nodes(self) -> list[dict[str, Any]]:
        """The tree that screen readers get."""
        found = self._context.new_cdp_session(self.page).send("Accessibility.getFullAXTree")
        nodes: list[dict[str, Any]] = found["nodes"]
        return nodes

    def complaints(self) -> list[str]:
        """Errors and warnings in the console, and scripts that failed."""
        self.evaluate("1")  # everything that happened before this answer has been reported by now
        return self._complaints

    def hosts(self) -> set[str]:
        """Every host that the page sent a request to."""
        self.evaluate("1")
        return self._hosts

    def close(self) -> None:
        self._context.close()
