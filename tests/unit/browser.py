"""A real Chromium, spoken to over a pipe (DevTools protocol): no driver, no port, nothing to install."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
    "--remote-debugging-pipe",
)


def executable():
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page. `events` collects what the browser tells by itself."""

    def __init__(self, to_browser, from_browser):
        self.out, self.inn = to_browser, from_browser
        self.buffer, self.count, self.events = b"", 0, []
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        self.count += 1
        number = self.count
        message = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self.events.append(answer)

    def read(self):
        while b"\0" not in self.buffer:
            block = os.read(self.inn, 1 << 16)
            assert block, "the browser ended"
            self.buffer += block
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def open(self, url, width, height=900):
        phone = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.events.clear()
        self.call("Page.navigate", url=url)
        while self.evaluate("document.readyState + location.href") != "complete" + url:
            time.sleep(0.05)
        self.evaluate("Promise.all([...document.images].map(image => image.decode().catch(() => null))).then(() => 1)")

    def of(self, name):
        return [event["params"] for event in self.events if event.get("method") == name]


@contextlib.contextmanager
def browser():
    with tempfile.TemporaryDirectory(prefix="browser-") as profile:
        their_in, our_out = os.pipe()
        our_in, their_out = os.pipe()

        def place_pipes():
            """DevTools reads from 3 and writes to 4; by way of high numbers, lest one overwrites another."""
            os.dup2(their_in, 103)
            os.dup2(their_out, 104)
            os.dup2(103, 3)
            os.dup2(104, 4)

        spare = [os.open(os.devnull, os.O_RDONLY)]
        while spare[-1] <= 4:  # else subprocess might use 3 or 4 for itself, and lose it to place_pipes
            spare.append(os.open(os.devnull, os.O_RDONLY))
        process = subprocess.Popen(
            [executable(), *FLAGS, f"--user-data-dir={profile}"],
            preexec_fn=place_pipes,
            pass_fds=(3, 4),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": profile},
        )
        for descriptor in (their_in, their_out, *spare):
            os.close(descriptor)
        try:
            yield Browser(our_out, our_in)
        finally:
            process.terminate()
            process.wait(20)
            os.close(our_out)
            os.close(our_in)


def screenshot(page, path: Path):
    import base64

    data = page.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
    path.write_bytes(base64.b64decode(data))
