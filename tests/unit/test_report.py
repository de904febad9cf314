"""Reports: well-formed, whole in one file, and with nothing in them that was put there by a message's name."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.spark.reports.audit.page import audit_page
from tarry.spark.reports.audit.result import FAILURES, Audit, Counts, Example, GroupRow, Late, TopicRow, UnitRow
from tarry.spark.reports.forecast.page import forecast_page
from tarry.spark.reports.forecast.result import DayLoad, HerdLoad, Needs, Outlook, Sources, TopicLoad, UnitLoad
from tarry.spark.reports.pages import plots, render

H = 3_600_000
DAY = 24 * H
T = 1_790_000_000_000 // DAY * DAY
VOID = {"meta", "br", "hr", "img", "link", "input"}
NASTY = "<script>alert('x')</script>&\"'"


class Checker(HTMLParser):
    """Every element is closed by its own end tag, and nothing is fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        assert not {"src", "href", "onclick", "onload", "xlink:href"} & {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def checked(html: str) -> Checker:
    checker = Checker()
    checker.feed(html)
    checker.close()
    assert checker.open == []
    assert html.startswith("<!doctype html>")
    assert {"script", "link", "img", "iframe", "object"}.isdisjoint(checker.seen)
    assert "@import" not in html
    assert "url(" not in html
    for svg in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        ElementTree.fromstring(svg)
    return checker


LATE = Late(10, {"p50": 1.0, "p90": 2.0, "p99": 30.0, "p99.9": 400.0, "max": 5000.0})
AUDIT = Audit(
    by="id",
    until_ms=T + 50 * H + 0.25,
    skew_ms=0,
    grace_ms=0,
    every_group=False,
    unit="hour",
    counts=Counts(accepted=100, accepted_rows=101, delivered=100, handouts=102, duplicated=2, retried=1),
    late=LATE,
    early_most_ms=0.0,
    histogram=[(0.1, 1.0, 50), (1.0, 10.0, 49), (1000.0, 10_000.0, 1)],
    topics=[TopicRow("orders", Counts(accepted=100, delivered=100), LATE), TopicRow("", Counts(), Late())],
    topics_count=2,
    groups=[GroupRow("orders", "g", 100, 2, 0), GroupRow("orders", "", 1, 0, 99)],
    units=[UnitRow(T + i * H, i, i, i, 0, 0, LATE if i % 3 else Late()) for i in range(48)],
    units_left_out=0,
    examples={"duplicated": [Example("orders", "7", None, T, None, T + 0.5, "2 times, to g")]},
)


def outlook(*, herd: int = 1000, units: int = 48) -> Outlook:
    herds = [HerdLoad(T, 1000, herd, herd * 256, herd * 400, round(herd / 500))]
    days = [DayLoad(T + i * DAY, 10 * i, 2560 * i, 4000 * i) for i in (0, 1, 2, 9)]
    settings = {"horizon_ms": 60_000, "wheel_bytes_max": 1 << 20, "retention_ms": 3 * DAY, "rate": 500_000.0}
    needs = Needs.of(herds=herds, horizon=herds[0], days=days, **settings)  # type: ignore[arg-type]
    return Outlook(
        T + 5, T + units * H, "hour", Sources("/s", 3, 2, 9000, 1 << 30, True, 5), 8000, 2_000_000, 3_000_000,
        T, T + DAY, 1, [TopicLoad("orders", 8000, 2_000_000, T, T + DAY)], ["orders"],
        [UnitLoad(T + i * H, i, i * 256, {"orders": i} if i else {}) for i in range(units)],
        {"instant": herds, "second": herds}, days, needs,
    )  # fmt: skip


# -- pages -------------------------------------------------------------------------------------------------------------


def test_a_good_audit_says_so_first() -> None:
    checker = checked(audit_page(AUDIT))
    text = " ".join(checker.texts)
    assert "Good" in text
    assert text.index("All 100 messages that were due were delivered") < text.index("Lateness")
    assert "2 hand-outs were repeats" in text
    assert checker.seen.count("svg") >= 3
    assert checker.seen.count("h1") == 1


@pytest.mark.parametrize("name", FAILURES)
def test_each_failure_is_in_the_verdict_and_named(name: str) -> None:
    bad = replace(
        AUDIT,
        counts=replace(AUDIT.counts, **{name: 3}),
        examples={name: [Example("orders", "the-one", "the-one", T, T, T - 1.5, "here")]},
    )
    assert not bad.good
    assert bad.to_json()["failures"] == {name: 3}
    words = {"cancelled_delivered": "cancelled", "mixed_up": "mixed up"}.get(name, name)
    assert bad.verdict()[0] == f"3 {words}: {FAILURES[name]}."
    checker = checked(audit_page(bad))
    text = " ".join(checker.texts)
    assert "Not good" in text
    assert FAILURES[name] in text
    assert "the-one" in text
    assert "1 of 3" in text


def test_what_counts_as_late_is_a_failure_and_how_late_the_latest_was_is_said_in_any_case() -> None:
    good = " ".join(checked(audit_page(AUDIT)).texts)
    assert "The latest was handed out 5,000 ms after its due time, 99 of 100 within 30 ms; no limit was said" in good
    bad = replace(AUDIT, late_max_ms=1000, late_over=1)
    assert not bad.good
    assert bad.failures == {"late": 1}
    assert bad.verdict()[0] == "1 late: handed out more than 1,000 ms after the due time."
    text = " ".join(checked(audit_page(bad)).texts)
    assert "Not good" in text
    assert "over 1,000 ms" in text
    assert replace(AUDIT, late_max_ms=5000).good


def test_one_message_far_away_does_not_press_the_days_into_a_sliver() -> None:
    near = [DayLoad(T + i * DAY, 1000, 1, 1) for i in range(30)]
    html = forecast_page(replace(outlook(), days=[*near, DayLoad(T + 1500 * DAY, 1, 1, 1)]))
    assert "1 message from" in html
    assert html.count("1,000</title>") == 30
    widths = [float(w) for w in re.findall(r'width="([0-9.]+)" height="[0-9.]+"><title>[^<]*: 1,000<', html)]
    assert min(widths) > 15, "of 30 days each has its place"
    assert "not in the plot" not in forecast_page(replace(outlook(), days=near))
    assert "not in the plot" not in forecast_page(outlook()), "what is not few stays"


def test_names_of_messages_are_text(tmp_path: Path) -> None:
    nasty = replace(
        AUDIT,
        topics=[TopicRow(NASTY, Counts(accepted=1), LATE)],
        groups=[GroupRow(NASTY, NASTY, 1, 0, 0)],
        examples={"lost": [Example(NASTY, NASTY, NASTY, T, T, None, NASTY)]},
    )
    checker = checked(audit_page(nasty))
    assert checker.texts.count(NASTY) >= 5
    changed = outlook()
    changed = replace(
        changed,
        topics=[TopicLoad(NASTY, 1, 1, T, T)],
        shown_topics=[NASTY],
        units=[UnitLoad(T, 1, 1, {NASTY: 1, "(others)": 5})],
    )
    assert NASTY in checked(forecast_page(changed)).texts
    path = tmp_path / "new" / "r.html"
    render.write(path, audit_page(nasty))
    assert [p.name for p in path.parent.iterdir()] == ["r.html"]


def test_an_audit_of_nothing_is_a_page() -> None:
    nothing = replace(
        AUDIT, counts=Counts(), late=Late(), histogram=[], topics=[], topics_count=0, groups=[], units=[], examples={}
    )
    checker = checked(audit_page(nothing))
    text = " ".join(checker.texts)
    assert "Nothing to judge yet" in text
    assert text.count("no data") == 3


def test_a_forecast_says_what_it_takes() -> None:
    text = " ".join(checked(forecast_page(outlook())).texts)
    assert "In time, at 500,000 messages a second" in text
    assert "measure yours" in text
    assert "1,000 msg/s" in text
    late = " ".join(checked(forecast_page(outlook(herd=2_000_000))).texts)
    assert "Some will be late" in late
    assert "about 4.0 s late" in late
    empty = replace(outlook(), rows=0, units=[], days=[], herds={"instant": [], "second": []}, first_ms=None)
    assert "Nothing is pending." in " ".join(checked(forecast_page(empty)).texts)


# -- what it takes -----------------------------------------------------------------------------------------------------


def test_the_wheel_is_bounded_and_its_horizon_shrinks() -> None:
    small, large = outlook(herd=1000).needs, outlook(herd=10_000).needs
    assert (small.wheel_bytes, small.wheel_horizon_ms) == (400_000, 60_000)
    assert large.wheel_bytes == 1 << 20
    assert large.wheel_horizon_ms == 60_000 * (1 << 20) // 4_000_000
    assert outlook(herd=500_001).needs.seconds_too_full == 1


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 1000)), max_size=20), st.integers(1, 5))
def test_the_fullest_days_of_the_retention(loads: list[tuple[int, int]], days: int) -> None:
    by_day = dict(sorted(dict(loads).items()))
    rows = [DayLoad(T + day * DAY, 1, 1, size) for day, size in by_day.items()]
    needs = Needs.of(
        herds=[], horizon=None, horizon_ms=1, wheel_bytes_max=1, days=rows, retention_ms=days * DAY, rate=1.0
    )
    most = max((sum(by_day.get(at + i, 0) for i in range(days)) for at in range(-5, 31)), default=0)
    assert needs.ready_bytes == round(most * 1.02)


# -- plots -------------------------------------------------------------------------------------------------------------

_values = st.lists(st.none() | st.floats(0.001, 1e9), min_size=1, max_size=40)


@given(_values, st.integers(-H, 10**12), st.integers(1, 10 * DAY), st.booleans())
def test_lines_of_anything_stay_within_the_plot(values: list[float | None], start: int, step: int, log: bool) -> None:
    moments = [T + start + i * step for i in range(len(values))]
    drawn = plots.lines("t", moments, [plots.Line(NASTY, values, "a", area=True)], unit="u", log=log)
    for svg in re.findall(r"<svg.*?</svg>", drawn, re.DOTALL):
        root = ElementTree.fromstring(svg)
        for path in root.iter("path"):
            numbers = [float(n) for n in re.findall(r"-?[0-9.]+", path.get("d") or "")]
            assert all(math.isfinite(n) and 0 <= n <= plots.WIDTH for n in numbers)


@given(
    st.lists(st.tuples(st.integers(-10, 30), st.integers(1, 10**9)), min_size=1, max_size=30, unique_by=lambda b: b[0])
)
def test_histograms_of_anything(bins: list[tuple[int, int]]) -> None:
    spans = [(10 ** (k / 5), 10 ** ((k + 1) / 5), count) for k, count in sorted(bins)]
    drawn = plots.histogram("t", spans, marks=[("p50", spans[0][0]), ("max", spans[-1][1])])
    root = ElementTree.fromstring(str(drawn))[0]
    rects = list(root.iter("rect"))
    assert len(rects) == len(spans)
    assert all(float(r.get("height") or 0) > 0 for r in rects)
    assert f"{sum(count for _, _, count in spans):,} values" in (root.findtext("desc") or "")


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0.1, "0.1 ms"), (20, "20 ms"), (3000, "3 s"), (120_000, "2 min"), (5 * H, "5 h"), (3 * DAY, "3 d")],
)
def test_lengths_of_time(ms: float, text: str) -> None:
    assert plots.milliseconds(ms) == text


def test_numbers_of_an_axis() -> None:
    assert [plots.number(v) for v in (0, 0.5, 1200, 12_000, 3_500_000)] == ["0", "0.5", "1,200", "12 k", "3.5 M"]
    assert plots.moment(1e17) == "100000000000000000"
