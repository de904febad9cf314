"""The console in headless Chromium on a broker with very much that is pending: first paint, and what looking costs.

It needs Chromium (Debian: ``apt-get install chromium``) and Java: ``make bench ONLY=console``. Another
number of messages: ``python -m benchmarks.console --rows 1000000``.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from benchmarks.bulk import PARTITIONS, session
from benchmarks.harness import Result, Server, benchmark, now_ms, server, workspace
from tarry.base.errors import NotFoundError

ROWS = 5_000_000
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
OPEN = {
    "overview by hour": "/?unit=hour",
    "overview by minute": "/?unit=minute",
    "topics & groups": "/console/topics",
    "history": "/console/past",
    "pending": "/console/pending",
    "system": "/console/system",
}
"""Pages that are left open."""
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
    with workspace() as directory, server(http="127.0.0.1:0") as broker, sync_playwright() as playwright:
        _fill(broker, directory, rows)
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        painted = [
            Result(f"console, {rows:,} pending: first paint, {name}", _first_paint_ms(browser, url), "ms", "≤ 1000")
            for name, url in ((name, f"http://{broker.http}{path}") for name, path in PAGES.items())
        ]
        return [*painted, *_costs(broker, browser, rows)]


def _fill(broker: Server, directory: Path, rows: int) -> None:
    """In bulk, as a load of this size would come: what is far away is in the store."""
    with session(directory) as spark:
        span_ms = DUE_UNTIL_MS - DUE_FROM_MS
        frame = spark.range(0, rows, 1, PARTITIONS).selectExpr(
            f"concat('bench-', pmod(id, {TOPICS})) AS topic",
            f"{now_ms() + DUE_FROM_MS} + pmod(xxhash64(id), {span_ms}) AS due_ms",
            "cast(repeat(hex(xxhash64(id, 7)), 4) AS binary) AS body",
        )
        writer = frame.write.format("tarry").mode("append").option("endpoint", broker.address)
        writer.option("mode", "bulk").save()
    print(f"  {rows:,} messages are loaded", flush=True)


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
    """Processor time of a core: of the broker beyond what it takes when nobody looks, and of the page."""
    time.sleep(SETTLE_S)
    alone, _ = _percents(broker, browser)
    text = f"console, {rows:,} pending: of a core"
    found = [Result(f"{text}, nobody looks", alone, "%")]
    for name, path in OPEN.items():
        page = browser.new_page()
        page.goto(f"http://{broker.http}{path}")
        time.sleep(SETTLE_S)
        of_broker, of_browser = _percents(broker, browser)
        found.append(Result(f"{text}, {name} open", of_broker - alone, "%", "≤ 2"))
        found.append(Result(f"{text}, {name} open, the page", of_browser, "%", "≤ 2"))
        page.close()
    return found


def _percents(broker: Server, browser: Browser) -> tuple[float, float]:
    """Return what the broker and the pages' processes take while nothing is done but looking."""
    began_s, cpu_s, browsed_s = time.perf_counter(), broker.cpu_s(), _browser_cpu_s(browser)
    time.sleep(LOOK_S)
    took_s = time.perf_counter() - began_s
    return 100 * (broker.cpu_s() - cpu_s) / took_s, 100 * (_browser_cpu_s(browser) - browsed_s) / took_s


def _browser_cpu_s(browser: Browser) -> float:
    session = browser.new_browser_cdp_session()
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    session.detach()
    return float(sum(process["cpuTime"] for process in processes if process["type"] == "renderer"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    for result in measure(parser.parse_args().rows):
        print(f"{result.name}: {result.value:,.4g} {result.unit}  {result.bar}", flush=True)
