"""The store of a broker that takes over, opened while the logs are still read.

On object storage each step of opening is a round trip or more, one after the other. So a broker that stands by has read
the table before, looks again when the owner is silent, and claims the store as soon as it has claimed the logs. It may
do so before it knows where the logs end: that claim only keeps the former owner from committing, as any claim does; and
the logs are read to an end that lies behind all that the former owner was told of.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from tarry.base.config import Config
from tarry.base.errors import OwnershipLostError, TarryError
from tarry.base.setting_types import STANDING_BY
from tarry.broker.directory import ID_FILE, owner_of
from tarry.log.engine import LogEngine
from tarry.store import Owner, Store, WarmTable
from tarry.store.place import Place

THREAD = "tarry-early-store"


class EarlyStore:
    """The store of a broker that may stand by; it does nothing for others. One claim."""

    def __init__(self, config: Config, engine: LogEngine) -> None:
        self._config = config
        self._pool: ThreadPoolExecutor | None = None
        self._opening: Future[Store] | None = None
        self._owner: Owner | None = None
        stands_by = engine.shared is not None and config.takeover in STANDING_BY
        if engine.shared is not None and stands_by and Place.of(config.store_uri).local is None:
            self._warm = WarmTable(config.store_uri, config.shard)
            self._pool = ThreadPoolExecutor(1, THREAD)
            self._pool.submit(self._warm.refresh)
            engine.shared.watch_claim(self)

    def suspected(self) -> None:
        """Read what is new of the table."""
        if self._pool is not None:
            self._pool.submit(self._warm.refresh)

    def claimed(self, epoch: int) -> None:
        """Open the store for an epoch."""
        # A directory that was not followed yet does not say whose the store is.
        if self._pool is None or not (self._config.data / ID_FILE).exists():
            return
        try:
            self._owner = owner = owner_of(self._config.data)
        except TarryError:
            return  # who opens the directory is told
        uri, shard = self._config.store_uri, self._config.shard
        self._opening = self._pool.submit(
            lambda: Store.open(uri, shard=shard, create=False, owner=owner, epoch=epoch, warm=self._warm)
        )

    def store(self, owner: Owner, epoch: int | None, version_min: int) -> Store | None:
        """Return the store, opened for this owner and epoch; None: it has to be opened as any other.

        Raises:
            OwnershipLostError: a later epoch has claimed it.
            CorruptError: it has not ``version_min``, which was acted on.
        """
        if self._opening is None:
            return None
        try:
            store = self._opening.result()
        except OwnershipLostError:
            raise
        except TarryError:
            return None  # to open it again says why
        if owner != self._owner or store.epoch != epoch:
            return None
        store.check_version(version_min)
        return store

    def close(self) -> None:
        """Wait for nothing any more."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
