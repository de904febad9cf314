"""The transport of ``tarry://``: a connection of kombu is a client of Tarry."""

from __future__ import annotations

import time
from importlib import metadata
from typing import Any

from kombu.transport import virtual

from tarry.base.delay import Delay
from tarry.base.errors import OverloadedError, OwnershipLostError, TarryError, UnavailableError
from tarry.celery.channel import TaskChannel
from tarry.celery.inbox import Wakeup
from tarry.celery.places import DeclaredQueue
from tarry.client.sync import Client

PORT = 7611
GROUP = "celery"
"""The group by which task queues are consumed, where none is given."""


class Transport(virtual.Transport):  # type: ignore[misc]
    """See the module.

    ``transport_options`` may have ``address`` (in all of Tarry's forms, instead of the URL's), ``token``, ``group``,
    and ``lease``: how long it takes until others get what a worker had that died.
    """

    Channel = TaskChannel
    default_port = PORT
    polling_interval = None
    driver_type = driver_name = "tarry"
    connection_errors = (*virtual.Transport.connection_errors, UnavailableError, OverloadedError, OwnershipLostError)
    recoverable_connection_errors = connection_errors
    recoverable_channel_errors = ()
    """None: what is refused is refused at each try, and says so itself."""
    channel_errors = (*virtual.Transport.channel_errors, TarryError)
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"])
    )

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        options = client.transport_options
        self.group: str = options.get("group", GROUP)
        self.lease: Delay | None = options.get("lease")
        self.queues: dict[str, DeclaredQueue] = {}
        """The queues that were declared by this connection."""
        self.tarry: Client
        self.wakeup: Wakeup

    def establish_connection(self) -> Any:
        """Connect. Raises UnavailableError: there is no broker."""
        given = self.client
        options = given.transport_options
        address = options.get("address") or f"{given.hostname or 'localhost'}:{given.port or self.default_port}"
        self.tarry = Client(address, token=options.get("token") or given.password or None)
        try:
            self.tarry.ping()
        except BaseException:
            self.tarry.close()
            raise
        self.wakeup = Wakeup()
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        super().close_connection(connection)
        self.tarry.close()
        self.wakeup.close()

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Deliver a message. Raises TimeoutError: none came for ``timeout`` seconds."""
        until_s = None if timeout is None else time.monotonic() + timeout
        while not self._deliver_next():
            left_s = None if until_s is None else until_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                raise TimeoutError
            self.wakeup.wait(left_s)
            self.wakeup.clear()

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Have an event loop of kombu deliver what comes."""
        loop.add_reader(self.wakeup.fileno(), self._deliver_all)

    def _deliver_all(self) -> None:
        self.wakeup.clear()
        while self._deliver_next():
            pass

    def _deliver_next(self) -> bool:
        return any(channel.deliver_next() for channel in list(self.channels) if not channel.closed)

    @property
    def default_connection_params(self) -> dict[str, Any]:
        return {"hostname": "localhost", "port": self.default_port}

    def driver_version(self) -> str:
        """Return the version of Tarry."""
        return metadata.version("tarry")
