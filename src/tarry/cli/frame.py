"""One frame of ``tarry top``, made of a broker's figures now and some time before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tarry.base.delay import format_ms
from tarry.base.histogram import Histogram
from tarry.base.printable import printable

PUT_DOLLARS, GET_DOLLARS = 5e-6, 0.4e-6
"""Price of a request at S3 (us-east-1, standard): PUT and LIST, GET."""
MONTH_MS = 30 * 86_400_000

Figures = Mapping[str, Any]
PLACES_MAX = 5
"""So many damaged places are named; `tarry status` has all of them."""
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000))


def frame(now: Figures, before: Figures | None, *, rows_max: int = 1000) -> RenderableType:
    """Render rates and lateness since ``before``; without it, since the broker began.

    ``rows_max``: lines of the two tables together.
    """
    topics = sorted(now["topics"]["listed"], key=lambda t: (-t["pending"] - t["ready"], t["topic"]))
    groups = sorted(now["groups"]["listed"], key=lambda g: (-g["lag"], g["topic"], g["group"]))
    groups_max = min(len(groups), max(rows_max // 2, rows_max - len(topics)))
    return Group(
        _title(now),
        _totals(now, before),
        Text(),
        _topics(now, before, topics[: max(0, rows_max - groups_max)]),
        Text(),
        _groups(now, groups[:groups_max]),
        Text(),
        *_parts(now),
        *damage(now),
    )


def damage(now: Figures) -> list[Text]:
    """Render what is damaged, by the broker's status; nothing if all is sound."""
    found = now.get("damage") or {}
    places, unreadable = found.get("places", ()), found.get("unreadable_messages", 0)
    if not places and not unreadable:
        return []
    count = f"{len(places):,} {'place' if len(places) == 1 else 'places'}"
    lines = [f"damage    {count}, {unreadable:,} messages due soon or before cannot be read"]
    lines += [f"          {place}" for place in places[:PLACES_MAX]]
    if len(places) > PLACES_MAX:
        lines.append(f"          and {len(places) - PLACES_MAX:,} more: tarry status")
    return [_text(line, style="bold red") for line in lines]


def _text(line: str, style: str = "") -> Text:
    """Render what others wrote, such as names and errors, which must not steer the terminal."""
    return Text(printable(line, keep="\n"), style=style)


def plain(lines: Iterable[str]) -> RenderableType:
    """Render lines of text."""
    return _text("\n".join(lines))


def lost(text: str) -> RenderableType:
    """In place of a frame, while the broker does not answer."""
    return _text(f"{text}\ntrying again", "bold red")


def _title(now: Figures) -> Text:
    state = now["state"]
    title = Text(f"tarry {now['version']}  ")
    title.append(state, style="green" if state == "serving" else "bold red")
    title.append(f"  up {span(now['uptime_ms'])}  {format_ms(now['now_ms'])}")
    if now.get("fatal"):
        title.append(printable(f"  {now['fatal']}"), style="bold red")
    return title


def _totals(now: Figures, before: Figures | None) -> Text:
    sums, past = now["topics"]["sums"], None if before is None else before["topics"]["sums"]
    spent_ms = now["uptime_ms"] if before is None else now["now_ms"] - before["now_ms"]

    def per_second(name: str, value: int, then: int | None) -> str:
        return f"{name} {rate(value - (then or 0), spent_ms)}/s"

    # Counts of the past outlive a restart, so "since the broker began" is known of what was handed out alone.
    rates = [] if past is None else [
        per_second("accepted", sums["accepted"], past["accepted"]),
        per_second("due", sums["fired"], past["fired"]),
    ]  # fmt: skip
    rates.append(per_second("handed out", now["handed_out"], None if before is None else before["handed_out"]))
    counts = f"pending {sums['pending']:,}  ready {sums['ready']:,}"
    late = [f"{name} {late_text(now, before, *path)}" for name, path in _LATENESS.items()]
    overdue = now["lateness"].get("overdue", 0) - (0 if before is None else before["lateness"].get("overdue", 0))
    late += [f"came overdue {overdue:,}"] if overdue > 0 else []
    return Text("  ".join([*rates, counts, *late]))


_LATENESS = {"late into the queue": ("queued",), "to waiting consumers": ("delivered",)}


def late_text(now: Figures, before: Figures | None, *path: str) -> str:
    """ "p50/p99 ms" of the histogram at a path below "lateness"; "-" where nothing was counted."""
    histogram = since(now["lateness"], None if before is None else before["lateness"], path)
    low, high = (None, None) if histogram is None else histogram.percentiles([50, 99])
    return "-" if low is None else f"{low}/{high} ms"


def since(now: Figures, before: Figures | None, path: Iterable[str]) -> Histogram | None:
    """Return what was counted between two moments; None: there is no such histogram."""
    one: Any = now
    other: Any = before
    for name in path:
        one = one.get(name)
        other = None if other is None else other.get(name)
        if one is None:
            return None
    later = Histogram.from_json(one)
    return later if other is None else later.since(Histogram.from_json(other))


def _topics(now: Figures, before: Figures | None, listed: list[Figures]) -> Table:
    table = _table("TOPIC", "PENDING", "NEXT DUE", "READY", "IN/S", "DUE/S", "LATE P50/P99")
    past = {} if before is None else {t["topic"]: t for t in before["topics"]["listed"]}
    spent_ms = 0 if before is None else now["now_ms"] - before["now_ms"]
    for row in listed:
        name, then = row["topic"], past.get(row["topic"])
        rates = ["-" if then is None else rate(row[count] - then[count], spent_ms) for count in ("accepted", "fired")]
        late = late_text(now, before, "topics", name)
        due = _due(row["next_due_ms"], now["now_ms"]) if row["pending"] else "-"
        table.add_row(_text(name), f"{row['pending']:,}", due, f"{row['ready']:,}", *rates, late)
    _more(table, now["topics"]["count"] - len(listed), "topics")
    return table


def _groups(now: Figures, listed: list[Figures]) -> Table:
    table = _table("GROUP", "TOPIC", "LAG", "LEASED", "WAITING", "DEAD", "OLDEST")
    for row in listed:
        oldest = row["oldest_due_ms"]
        age = "-" if oldest is None else span(now["now_ms"] - oldest)
        name = f"{row['group']} (paused)" if row["paused"] else row["group"]
        counts = [f"{row[count]:,}" for count in ("lag", "leased", "waiting", "dead")]
        table.add_row(_text(name), _text(row["topic"]), *counts, age)
    _more(table, now["groups"]["count"] - len(listed), "groups")
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first, no_wrap=True)
    for head in others:
        table.add_column(head, justify="left" if head == "TOPIC" else "right", no_wrap=True)
    return table


def _more(table: Table, count: int, what: str) -> None:
    if count > 0:
        table.add_row(f"and {count:,} more {what}", style="dim")


def _parts(now: Figures) -> Iterable[Text]:
    wheel, intake, store, disk, pipeline = (now[n] for n in ("wheel", "intake", "store", "disk", "pipeline"))
    ahead = span(wheel["loaded_until_ms"] - now["now_ms"]) if wheel["loaded_until_ms"] > 0 else "0s"
    yield _text(f"wheel     {wheel['rows']:,} messages, {size(wheel['bytes'])}, {ahead} ahead")
    waiting = f"{intake['waiting_rows']:,} messages ({size(intake['waiting_bytes'])}) wait for the store"
    yield _text(f"intake    {size(intake['bytes'])}, {waiting}")
    yield _text(f"store     version {store['version']}, {store['files']:,} files, {size(store['bytes'])}")
    if logs := now.get("log"):
        yield _text(log_line(logs, now["uptime_ms"]), style="" if logs["leased"] else "red")
    state = pipeline.get("state", "unknown")
    supervisor = pipeline.get("supervisor") or {}
    restarts = f", restarted {supervisor['restarts']} times" if supervisor.get("restarts") else ""
    failed = state in ("waiting", "stopped") or bool(pipeline.get("error"))
    error = f": {pipeline['error']}" if pipeline.get("error") else ""
    yield _text(f"pipeline  {state}{restarts}{error}", style="red" if failed else "")
    if now.get("test_clock"):
        yield Text(f"clock     a test clock, which stands at {now['test_clock']}", style="bold red")
    for listener, address in (now.get("insecure_open") or {}).items():
        yield _text(f"open      {listener} on {address} asks nobody who they are", style="red")
    for port in now.get("clear_ports") or ():
        yield _text(f"clear     {port['listener']} on {port['address']} takes clients without TLS", style="red")
    low = disk["free_bytes"] < disk["free_bytes_min"]
    limit = f"producers are refused below {size(disk['free_bytes_min'])}"
    yield _text(f"disk      {size(disk['free_bytes'])} free, {limit}", style="bold red" if low else "")


def log_line(logs: Figures, uptime_ms: int) -> str:
    """Owner's epoch, lease, and costs at the present rate since the start."""
    requests = logs["requests"]
    dollars = (requests["put"] + requests["list"]) * PUT_DOLLARS + requests["get"] * GET_DOLLARS
    month = dollars * MONTH_MS / max(uptime_ms, 1)
    state = "" if logs["leased"] else f", nothing is handed out: {logs['state']}"
    if logs["away_since_ms"] is not None:
        state += f" since {format_ms(logs['away_since_ms'])}, nothing is accepted"
    return f"log       epoch {logs['epoch']}, {logs['rounds']:,} rounds, about ${month:,.0f} a month of requests{state}"


def _due(due_ms: int | None, now_ms: int) -> str:
    if due_ms is None:
        return "?"
    return f"in {span(due_ms - now_ms)}" if due_ms > now_ms else "now"


def span(ms: int) -> str:
    """Format a length of time in its two largest units: "3d 4h", "12s"."""
    if ms < 1000:
        return f"{max(ms, 0)}ms"
    for place, (unit, size_ms) in enumerate(_UNITS):
        if ms >= size_ms:
            rest = [] if place + 1 == len(_UNITS) else [_UNITS[place + 1]]
            return " ".join(
                [f"{ms // size_ms}{unit}", *(f"{ms % size_ms // s}{u}" for u, s in rest if ms % size_ms >= s)]
            )
    return "0s"


def rate(count: int, spent_ms: int) -> str:
    """So many a second; "-" where no time has passed."""
    if spent_ms <= 0 or count < 0:
        return "-"
    value = count * 1000 / spent_ms
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"
