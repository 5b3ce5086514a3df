"""A page in a real Chromium, driven by Playwright; every wait has an end."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
PATIENCE = 60_000  # [ms] for one action of the browser, on a busy machine


def executable() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass
class Tab:
    """A page, what it complained of, and what it asked for."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def evaluate(self, expression: str) -> Any:
        return self.page.evaluate(expression)

    def wait_until(self, expression: str) -> None:
        """Ask from outside until it is true: the page's own security policy forbids to evaluate strings inside it."""
        end = time.monotonic() + PATIENCE / 1000
        while not self.evaluate(expression):
            assert time.monotonic() < end, f"never true: {expression}"
            self.page.wait_for_timeout(50)


@contextlib.contextmanager
def opened(url: str, width: int, height: int = 900, scripts: bool = True) -> Iterator[Tab]:
    """The page at `url`, loaded, with all its images decoded, in a window of this width [px]."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=list(FLAGS), timeout=PATIENCE)
        window = {"width": width, "height": height}
        page = browser.new_page(viewport=window, is_mobile=width < 600, java_script_enabled=scripts)
        page.set_default_timeout(PATIENCE)
        tab = Tab(page)
        page.on("console", lambda message: tab.complaints.append(message.text))
        page.on("pageerror", lambda error: tab.complaints.append(str(error)))
        page.on("request", lambda request: tab.requests.append(request.url))
        page.goto(url, wait_until="load")
        if scripts:
            page.evaluate("Promise.all([...document.images].map(image => image.decode().catch(() => null)))")
        yield tab
        browser.close()
