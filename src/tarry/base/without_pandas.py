"""Arrow without pandas, in a process that needs none.

At its first conversion of a list, pyarrow asks whether that is one of pandas' series, and imports pandas for that,
where it is installed (Spark needs it). In each broker, worker and command that would be a third of a second and 32 MiB.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from typing import Any


def leave_pandas_out() -> None:
    """Have pyarrow convert no objects of pandas in this process, and import it only to make a DataFrame.

    To be called in a process of our own, before anything is converted; it imports pyarrow. Whoever imports pandas by
    name afterwards gets it.
    """
    import pyarrow as pa

    if "pandas" in sys.modules:
        return
    absent = _Absent()
    sys.meta_path.insert(0, absent)
    try:
        pa.array([])  # it looks for pandas once in a process
    finally:
        sys.meta_path.remove(absent)


class _Absent(MetaPathFinder):
    """Finder by which pandas is not installed."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
