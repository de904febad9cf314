"""The log engine that the settings ask for."""

from __future__ import annotations

from collections.abc import Callable

from tarry.base.clock import Clock
from tarry.base.config import Config
from tarry.base.errors import InvalidArgumentError
from tarry.broker import hand_out_bound
from tarry.broker.directory import CHECKPOINT_FILE
from tarry.link.credentials import ADMIN_TOKEN_FILE
from tarry.log.engine import LogEngine
from tarry.log.file_engine import FileEngine
from tarry.log.files import Files
from tarry.store.place import Place

LOCAL = (CHECKPOINT_FILE, "topics-*.json", hand_out_bound.FILE, ADMIN_TOKEN_FILE)
"""Small files that are no part of shared logs.

The checkpoint and what it names are in what a new owner begins from; hand-outs have the log's own clock as their bound;
and the administrator's token in the clear is for programs of this machine.
"""


def engine_of(config: Config, files: Files, clock: Clock, is_stopped: Callable[[], bool] = lambda: False) -> LogEngine:
    """Return the engine: logs in the data directory, or in an object store (setting ``log``).

    ``is_stopped`` is asked while a claim waits for another owner's end, which then raises ClosedError.

    Raises:
        InvalidArgumentError: the settings do not fit together, or the URI is none of a store that can keep logs.
    """
    if config.log is None and config.takeover != "silent":
        raise InvalidArgumentError(
            f"takeover is {config.takeover}, and log is not set: this would be a broker of its own; allowed: --standby "
            "and takeover with log"
        )
    if config.log is None:
        return FileEngine(files, config.data)
    from tarry.log.objects.engine import ObjectEngine
    from tarry.log.objects.s3 import S3Objects, check_uri

    check_uri(config.log)  # before the store, which only a right one asks for
    if config.store is None:
        raise InvalidArgumentError(
            f"log is {config.log}, and store is not set: messages would be on this machine alone; allowed: with log, a "
            "store that another machine reaches, as s3://BUCKET/PREFIX"
        )
    local = Place.of(config.store_uri).local
    if local is not None and local.is_relative_to(config.data.absolute()):
        raise InvalidArgumentError(
            f"the store {local} is in {config.data}, which is a cache with log, and emptied at each start; allowed: a "
            "store elsewhere"
        )
    uri = f"{config.log.rstrip('/')}/shard={config.shard}"
    return ObjectEngine(
        S3Objects(uri),
        files,
        config.data,
        clock,
        name=uri,
        local=LOCAL,
        takeover=config.takeover,
        is_stopped=is_stopped,
        gap_s=config.log_interval_ms / 1000,
    )
