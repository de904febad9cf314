"""A visit of the console in Chromium, and what the browser complains of meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Page, sync_playwright

from tests.browser.chromium import launch

WIDE, PHONE = {"width": 1280, "height": 860}, {"width": 375, "height": 780}
WAIT_MS = 60_000
"""Far beyond what anything takes."""


class Visit:
    """One browser window. ``complaints``: errors of scripts, and violations of the content security policy."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self.address = address
        self.complaints: list[str] = []
        page.set_default_timeout(WAIT_MS)
        page.on("console", lambda said: self._note(said.type, said.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _note(self, kind: str, text: str) -> None:
        # A page that says that there is no such thing is answered with 404, which the browser notes as well.
        if kind in ("error", "warning") and "status of 404" not in text:
            self.complaints.append(text)

    def go(self, path: str) -> Page:
        """Open a page of the console."""
        self.page.goto(self.address + path)
        return self.page

    def resize(self, size: dict[str, int]) -> None:
        """Have the window another size."""
        self.page.set_viewport_size(size)  # type: ignore[arg-type]

    @property
    def hangs_over_px(self) -> int:
        """How much wider the page is than the window."""
        found: Any = self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        return int(found)


@contextmanager
def visiting(address: str) -> Iterator[Visit]:
    """A browser of one's own."""
    with sync_playwright() as playwright:
        browser = launch(playwright)
        try:
            yield Visit(browser.new_page(viewport=WIDE), address)  # type: ignore[arg-type]
        finally:
            browser.close()
