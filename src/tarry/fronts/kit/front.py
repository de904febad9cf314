"""Declaration of a front.

It is all that ``tarry serve`` and a gateway's worker know of a front before its modules are loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast, runtime_checkable

from tarry.base.config import Config
from tarry.base.descriptors import ConnectionLimits
from tarry.base.endpoint import local_socket
from tarry.base.errors import NotFoundError
from tarry.base.extras import missing_extra
from tarry.base.placement import Placement
from tarry.fronts.kit.settings import FrontSettings

if TYPE_CHECKING:  # declarations are loaded before Arrow, whose environment is set first
    from loopgrpc import UnreadBytes
    from tarry.api.local import AnyBroker, LocalBroker
    from tarry.fronts.kit.listening import SharedPort


@dataclass(frozen=True, slots=True)
class FrontServices:
    """Everything that a front is started with."""

    broker: AnyBroker
    address: str
    """The front's own setting: ``HOST:PORT``, or "on" if the front listens on no address."""
    placement: Placement
    connections: ConnectionLimits
    unread: UnreadBytes
    """Limit on unread answers, shared by all fronts."""
    shared: SharedPort | None = None
    """In a gateway's worker: the port that all workers listen on."""
    local: LocalBroker | None = None
    """The broker where it is in this process; None: in a gateway's worker."""

    @property
    def local_broker(self) -> LocalBroker:
        """The broker, for fronts that cannot run in a gateway's worker."""
        assert self.local is not None, "only fronts that are declared for it are started in a worker"
        return self.local

    def home(self, front: str) -> str:
        """Return ``unix:PATH`` of a front's home, its part in the broker's process beside workers."""
        return local_socket(self.broker.config.data, front)


class RunningFront(Protocol):
    """A front that was started. Any thread."""

    @property
    def addresses(self) -> Mapping[str, str]:
        """Every address that it listens on: names for people, such as "http admin", and ``HOST:PORT``."""
        ...

    def stop(self, grace_s: float = ...) -> None:
        """Accept nothing new, let calls end for up to ``grace_s`` seconds, then cut the rest."""
        ...


@runtime_checkable
class WorkerFront(RunningFront, Protocol):
    """A front that can run in a gateway's worker."""

    def figures(self) -> Mapping[str, int]:
        """Return figures for the status of the worker, such as its number of connections."""
        ...


StartFront: TypeAlias = Callable[[FrontServices], RunningFront]
"""Start a front.

Raises InvalidArgumentError for a wrong setting, and UnavailableError if an address cannot be listened on.
"""
CheckFront: TypeAlias = Callable[[Config], None]
"""Raise an error if the front must not be started with these settings.

Called before anything is opened or made.
"""


@dataclass(frozen=True, slots=True)
class Front:
    """A front that ``tarry serve`` can start."""

    name: str
    """Name of the setting that turns the front on: its address, or "on" and "off"."""
    settings: type[FrontSettings]
    """The front's settings."""
    start: str
    """``MODULE:FUNCTION`` of the :data:`StartFront`; loaded when the front is wanted."""
    title: str
    """Name for people."""
    extra: str | None = None
    """The extra of the package that has the front's modules."""
    check: str | None = None
    """``MODULE:FUNCTION`` of a :data:`CheckFront`."""
    is_wanted: Callable[[Config], bool] | None = None
    """Decides whether the front is started, where its own setting alone does not."""
    takes_descriptors: bool = True
    """True if its connections have a share of the process's file descriptors."""
    worker_needs: str | None = None
    """A module whose import shows that the front's packages are installed.

    None if the front cannot run in a gateway's worker.
    """
    own_settings: tuple[str, ...] = ()
    """Settings that a worker takes from the gateway and not from the broker: files, for example."""
    knows_tokens: bool = False
    """True if a worker checks access tokens, and is told of them."""
    checks_signatures: bool = False
    """True if a worker checks signatures by access keys.

    It is told their secrets by its broker's Unix socket.
    """
    asks_callers: bool = False
    """True if it asks who its callers are once the broker has identities."""
    home: str | None = None
    """``MODULE:FUNCTION`` of the :data:`StartFront` of the part in the broker's process, beside workers."""

    @property
    def in_worker(self) -> bool:
        """True if the front can run in a gateway's worker."""
        return self.worker_needs is not None

    def is_on(self, config: Config) -> bool:
        """Return whether the settings turn the front on."""
        if self.is_wanted is not None:
            return self.is_wanted(config)
        return self.address(config) not in ("", "off")

    def address(self, config: Config) -> str:
        """Return the value of the setting that turns the front on; "" for none."""
        return getattr(self.settings.of(config), self.name) or ""

    def refuse(self, config: Config) -> None:
        """Raise the error for which the front must not be started with these settings, if there is one."""
        if self.check is not None:
            cast(CheckFront, self._load(self.check))(config)

    def load(self) -> None:
        """Load what :meth:`run` does. Raises NotFoundError."""
        self._load(self.start)

    def run(self, services: FrontServices) -> RunningFront:
        """Load the front, and start it.

        Raises:
            NotFoundError: a package is not installed; the text says how to install it.
            TarryError: it could not be started.
        """
        return cast(StartFront, self._load(self.start))(services)

    def run_home(self, services: FrontServices) -> RunningFront | None:
        """Load what stays in the broker's process beside workers, and start it; None if nothing does.

        Its addresses are those that it listens on for clients. Otherwise as :meth:`run`.
        """
        return None if self.home is None else cast(StartFront, self._load(self.home))(services)

    def check_installed(self) -> None:
        """Raise an error if a worker would lack a package.

        Raises:
            NotFoundError: a package is not installed; the text says how to install it.
        """
        if self.worker_needs is not None:
            self._load(f"{self.worker_needs}:__name__")

    def _load(self, place: str) -> Any:
        module, _, name = place.partition(":")
        try:
            return getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            otherwise = f"no {self.name} address"
            text = missing_extra(f"the {self.title} front", self.extra or self.name, error, otherwise)
            raise NotFoundError(text) from error
