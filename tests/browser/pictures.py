"""The pictures of the documentation, of a console that is served: ``python -m tests.browser.pictures URL OUT``."""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.chromium import launch
from tests.browser.visit import PHONE, WIDE

LIVE_MS = 24_000
"""How long the overview is open before its picture is taken, so that its charts have something."""
AREAS = 128
"""Colours of areas: those of the most pixels."""
LOOKS = (("light", "light", WIDE), ("dark", "dark", WIDE), ("phone", "light", PHONE))
PAGES = {
    "topics": "/console/topics",
    "topic": "/console/topic?topic=orders.reminder",
    "group": "/console/group?topic=orders.reminder&group=billing",
    "pending": "/console/pending?topic=orders.reminder",
    "dead": "/console/dead?topic=emails&group=mailer",
    "series": "/console/series",
    "schedule": "/console/schedule?repeat=cron&cron=0+9+*+*+MON-FRI",
    "push": "/console/push",
    "push-one": "/console/push?name=shop-events",
    "jobs": "/console/jobs",
    "system": "/console/system",
}


def take(url: str, out: Path, *, every_page: bool) -> None:
    """Take those of the documentation, or of every page."""
    with sync_playwright() as playwright:
        browser = launch(playwright)
        pages = {name: _page(browser, scheme, size) for name, scheme, size in LOOKS}
        for page in pages.values():
            page.goto(url)
        page.wait_for_timeout(LIVE_MS)
        for name, page in pages.items():
            page.screenshot(path=out / f"console-{name}.png", full_page=name != "phone")
            page.goto(url.rstrip("/") + "/console/pending?id=mail-17")
            page.click("tbody a.mono")
            page.screenshot(path=out / f"console-message-{name}.png")
            for place, path in PAGES.items() if every_page else ():
                page.goto(url.rstrip("/") + path)
                page.screenshot(path=out / f"console-{place}-{name}.png")
        browser.close()
    for picture in out.glob("console-*.png"):
        _shrink(picture)


def _shrink(picture: Path) -> None:
    """Keep 256 colours, a third of the size: those of areas as they are, and enough of what lies between."""
    image = Image.open(picture).convert("RGB")
    by_count = sorted(image.getcolors(1 << 24) or [], reverse=True)
    colours = [part for _, colour in by_count[:AREAS] for part in colour]  # type: ignore[union-attr]
    colours += (image.quantize(256 - AREAS, Image.Quantize.MAXCOVERAGE).getpalette() or [])[: 3 * (256 - AREAS)]
    palette = Image.new("P", (1, 1))
    palette.putpalette(colours)
    image.quantize(palette=palette, dither=Image.Dither.NONE).save(picture, optimize=True)


def _page(browser: Browser, scheme: str, size: dict[str, int]) -> Page:
    page = browser.new_page(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
    page.on("console", lambda message: print(message.type, message.text))
    page.on("pageerror", lambda error: print("error", error))
    return page


if __name__ == "__main__":
    take(sys.argv[1], Path(sys.argv[2]), every_page="--every-page" in sys.argv)
