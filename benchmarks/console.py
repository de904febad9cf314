"""The console in headless Chromium on a broker with very much that is pending: first paint, and what looking costs.

It needs Chromium (Debian: ``apt-get install chromium``) and the development extra: ``make bench ONLY=console``. Another
number of messages: ``python -m benchmarks.console --rows 1000000``.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time

import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.harness import Result, Server, benchmark, messages, now_ms, server
from tarry import Client
from tarry.base.errors import NotFoundError

ROWS = 5_000_000
BATCH_ROWS = 50_000
DAY_MS = 86_400_000
DUE_FROM_MS, DUE_UNTIL_MS = 3_600_000, 30 * DAY_MS
"""Nothing falls due meanwhile: what the broker does is for the console."""
SETTLE_S, LOOK_S, VISITS = 10.0, 60.0, 5
PAGES = {
    "overview": "/",
    "topics & groups": "/console/topics",
    "pending": "/console/pending",
    "pending of a topic within a day": "/console/pending?topic=bench-3&within=1d",
    "system": "/console/system",
}
TOPICS = 20
PAINTED = """() => {
  const [entry] = performance.getEntriesByName("first-contentful-paint");
  return entry ? entry.startTime : null;
}"""


@benchmark(opt_in=True)
def console() -> list[Result]:
    """With 5 million messages pending."""
    return measure(ROWS)


def measure(rows: int) -> list[Result]:
    """Fill a broker, then look at it."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        raise NotFoundError("no chromium; install it (Debian: apt-get install chromium)")
    with server(http="127.0.0.1:0") as broker, sync_playwright() as playwright:
        _fill(broker, rows)
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        painted = [
            Result(f"console, {rows:,} pending: first paint, {name}", _first_paint_ms(browser, url), "ms", "≤ 1000")
            for name, url in ((name, f"http://{broker.http}{path}") for name, path in PAGES.items())
        ]
        return [*painted, *_costs(broker, browser, rows)]


def _fill(broker: Server, rows: int) -> None:
    chance = np.random.default_rng(5)
    with Client(broker.address) as client:
        for first in range(0, rows, BATCH_ROWS):
            count = min(BATCH_ROWS, rows - first)
            due_ms = chance.integers(now_ms() + DUE_FROM_MS, now_ms() + DUE_UNTIL_MS, count)
            topic = f"bench-{first // BATCH_ROWS % TOPICS}"
            client.schedule_batch(messages(count, due_ms, topic=topic, seed=first))
            print(f"  {first + count:,} of {rows:,} messages scheduled", end="\r", flush=True)
    print()


def _first_paint_ms(browser: Browser, url: str) -> float:
    """The median of some visits, each with nothing in the browser's cache."""
    found = []
    for _ in range(VISITS):
        page = browser.new_page()
        page.goto(url)
        found.append(float(page.wait_for_function(PAINTED).json_value()))
        page.close()
        # Longer than the broker's answers are kept for the next viewer.
        time.sleep(2)
    print(f"  {url}: first paint after {found} ms", flush=True)
    return statistics.median(found)


def _costs(broker: Server, browser: Browser, rows: int) -> list[Result]:
    """Processor time of the broker, of a core, beyond what it takes when nobody looks."""
    time.sleep(SETTLE_S)
    alone = _percent(broker)
    text = f"console, {rows:,} pending: of a core"
    found = []
    for name, unit in (("by hour", "hour"), ("by minute", "minute")):
        page = _open_overview(browser, broker, unit)
        time.sleep(SETTLE_S)
        found.append(Result(f"{text}, overview open, {name}", _percent(broker) - alone, "%", "≤ 2"))
        page.close()
    return [Result(f"{text}, nobody looks", alone, "%"), *found]


def _open_overview(browser: Browser, broker: Server, unit: str) -> Page:
    page = browser.new_page()
    page.goto(f"http://{broker.http}/")
    page.click(f"#unit-{unit}")
    page.wait_for_selector("#chart-load canvas, #chart-load .nothing")
    return page


def _percent(broker: Server) -> float:
    began_s, cpu_s = time.perf_counter(), broker.cpu_s()
    time.sleep(LOOK_S)
    return 100 * (broker.cpu_s() - cpu_s) / (time.perf_counter() - began_s)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    for result in measure(parser.parse_args().rows):
        print(f"{result.name}: {result.value:,.4g} {result.unit}  {result.bar}", flush=True)
