"""The browser of the tests: a chromium that is already installed; nothing is downloaded."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = os.environ.get("MEMGUARD_CHROME", "/usr/bin/chromium")
needs_chromium = pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="no chromium; set MEMGUARD_CHROME to one")

_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Visit:
    """A page, and everything it complained about."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("console", self._heard)
        page.on("requestfailed", self._failed)
        page.add_init_script(
            "document.addEventListener('securitypolicyviolation', event => "
            "console.error('CSP ' + event.violatedDirective + ' ' + event.blockedURI))"
        )

    def _failed(self, request: Any) -> None:
        if request.failure != "net::ERR_ABORTED" and "/data/plugin" in request.url:  # aborted: the page was left
            self.complaints.append(f"failed: {request.url} {request.failure}")

    def _heard(self, message: Any) -> None:
        if message.type == "error" and not self._of_tensorboard(message.location.get("url", ""), message.text):
            self.complaints.append(f"console: {message.text}")

    def _of_tensorboard(self, url: str, text: str) -> bool:
        """Whether TensorBoard's own page failed to load something (its fonts, behind a path prefix)."""
        return text.startswith("Failed to load resource") and "/data/plugin" not in url

    def alone(self, url: str) -> Any:
        """The Memory tab's frame opened by itself, without TensorBoard's own page around it, once it is ready."""
        self.page.goto(f"{url}/data/plugin_entry.html?name=memguard")
        self.page.wait_for_selector("body[data-ready]:not([data-ready=''])")
        return self.page.main_frame

    def tab(self, url: str) -> Any:
        """The frame of the Memory tab at a TensorBoard's address, once it is ready."""
        self.page.goto(f"{url}/#memguard")
        self.page.wait_for_selector("iframe", state="attached")
        for _ in range(2400):  # a minute
            frames = [frame for frame in self.page.frames if "plugin_entry.html?name=memguard" in frame.url]
            if frames:
                frames[0].wait_for_selector("body[data-ready]:not([data-ready=''])")
                return frames[0]
            self.page.wait_for_timeout(25)
        raise AssertionError("TensorBoard did not open the Memory tab")

    def file(self, path: Path) -> Any:
        """The page of a report on disk, once it is ready."""
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("body[data-ready]:not([data-ready=''])")
        return self.page


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """A running chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=_FLAGS)
        try:
            yield chromium
        finally:
            chromium.close()


def ink(frame: Any, selector: str) -> int:
    """How many different colours a canvas shows: one if it is blank."""
    return int(
        frame.evaluate(
            """selector => {
                const canvas = document.querySelector(selector);
                const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
                return new Set(new Uint32Array(data.buffer)).size;
            }""",
            selector,
        )
    )
