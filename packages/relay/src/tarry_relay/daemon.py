"""Spark's Python worker daemon for a relay.

It imports the relay before it forks its first worker, so that a task works at once.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module

from tarry.spark.runtime.daemon import without_zips

if __name__ == "__main__":
    sys.path[:] = without_zips(sys.path)
    # Missing if Tarry reaches the executors in another way than its dependencies: then the task reports it.
    with suppress(ImportError):
        import_module("tarry_relay.tasks")
        import_module("tarry.base.placement").settle_memory()
    from pyspark.daemon import manager

    manager()
