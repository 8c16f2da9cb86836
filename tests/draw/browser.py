"""Drives headless Chromium over its debugging pipe, so that tests can click, type and look like a person does."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = "/usr/bin/chromium"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
DEADLINE = 60.0


class Page:
    """One open page: what it logged, and ways to ask and to touch it."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.problems: list[str] = []
        """Console errors and warnings, uncaught exceptions, blocked or failed loads."""
        self.requests: list[str] = []
        """Every address the page asked for."""

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send one command of the DevTools protocol to the page."""
        return self._browser.call(method, params, self._session)

    def eval(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(json.dumps(answer["exceptionDetails"], indent=1))
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """Click the middle of the first element that matches, as a mouse would."""
        spot = self.eval(
            f"(e => {{ e.scrollIntoView({{block: 'center', behavior: 'instant'}}); const r = e.getBoundingClientRect();"
            f" return [r.x + r.width / 2, r.y + r.height / 2]; }})(document.querySelector({json.dumps(selector)}))"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=spot[0], y=spot[1], button="left", clickCount=1)

    def type(self, selector: str, text: str) -> None:
        """Focus an input, empty it and type."""
        self.eval(f"(e => {{ e.focus(); e.select && e.select(); }})(document.querySelector({json.dumps(selector)}))")
        self.call("Input.insertText", text=text)

    def look(self, width: int, height: int, *, dark: bool = False, phone: bool = False, paper: bool = False) -> None:
        """Change the window and the colour scheme."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.call(
            "Emulation.setEmulatedMedia",
            media="print" if paper else "screen",
            features=[
                {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
                # A page that still scrolls when it is clicked is clicked in the wrong place.
                {"name": "prefers-reduced-motion", "value": "reduce"},
            ],
        )

    def wait(self, condition: str) -> None:
        """Wait until a JavaScript expression is true; if that takes too long, say what it was."""
        self.eval(
            "new Promise((done, fail) => { const end = Date.now() + 15000;"
            f" const look = () => ({condition}) ? done() :"
            f" Date.now() > end ? fail({json.dumps(condition)}) : setTimeout(look, 20); look(); }})"
        )

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Save what is seen as PNG."""
        params: dict[str, Any] = {"format": "png"}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            params |= {"captureBeyondViewport": True, "clip": {**size, "scale": 1}}
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", **params)["data"]))

    def hear(self, message: dict[str, Any]) -> None:
        """Take notice of an event."""
        params = message.get("params", {})
        match message["method"]:
            case "Runtime.exceptionThrown":
                self.problems.append(json.dumps(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.problems.append(json.dumps(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.problems.append(json.dumps(params["entry"]))
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case _:
                return


class Browser:
    """A running Chromium."""

    def __init__(self, process: subprocess.Popen[bytes], to: int, back: int) -> None:
        self._process, self._to, self._back = process, to, back
        self._buffer = b""
        self._last = 0
        self._pages: dict[str, Page] = {}
        self._targets: list[str] = []

    def call(self, method: str, params: dict[str, Any] | None = None, session: str = "") -> dict[str, Any]:
        """Send a command and wait for its answer; events that come in between reach their pages."""
        self._last += 1
        command: dict[str, Any] = {"id": self._last, "method": method, "params": params or {}}
        if session:
            command["sessionId"] = session
        os.write(self._to, json.dumps(command).encode() + b"\0")
        while True:
            message = self._read()
            if message.get("id") == self._last:
                if "error" in message:
                    raise AssertionError(f"{method}: {message['error']}")
                result: dict[str, Any] = message["result"]
                return result

    def _read(self) -> dict[str, Any]:
        end = time.monotonic() + DEADLINE
        while b"\0" not in self._buffer:
            readable, _, _ = select.select([self._back], [], [], max(0.0, end - time.monotonic()))
            piece = os.read(self._back, 1 << 20) if readable else b""
            if not piece:
                raise AssertionError("Chromium does not answer")
            self._buffer += piece
        raw, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        page = self._pages.get(message.get("sessionId", ""))
        if page and "method" in message:
            page.hear(message)
        return message

    def open(
        self, path: Path, *, width: int = 1280, height: int = 800, dark: bool = False, phone: bool = False
    ) -> Page:
        """Open a file in a new page and wait until it is loaded; pages that were open before are closed."""
        for old in self._targets:
            self.call("Target.closeTarget", {"targetId": old})
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        self._targets = [target]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.call("Page.bringToFront")  # a page behind another one draws nothing
        page.look(width, height, dark=dark, phone=phone)
        page.call("Page.navigate", url=path.as_uri())
        while not page.eval("document.readyState === 'complete' && location.href !== 'about:blank'"):
            continue
        return page

    def close(self) -> None:
        """End the browser."""
        with contextlib.suppress(OSError, AssertionError):
            self.call("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """A browser of its own, with a profile that is thrown away."""
    profile = tempfile.mkdtemp(prefix="kubexm-browser-")
    read_command, write_command = os.pipe()
    read_answer, write_answer = os.pipe()

    def wire() -> None:
        # Chromium talks on exactly these two descriptors; first out of the way, for a pipe may already be 3 or 4.
        command, answer = os.dup(read_command), os.dup(write_answer)
        high_command, high_answer = os.dup2(command, 100), os.dup2(answer, 101)
        os.dup2(high_command, 3)
        os.dup2(high_answer, 4)

    process = subprocess.Popen(
        [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=wire,
        close_fds=False,
        start_new_session=True,
    )
    os.close(read_command)
    os.close(write_answer)
    browser = Browser(process, write_command, read_answer)
    try:
        yield browser
    finally:
        browser.close()
        os.close(write_command)
        os.close(read_answer)
        shutil.rmtree(profile, ignore_errors=True)
