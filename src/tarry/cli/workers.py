"""A front of ``tarry serve`` that runs in processes of its own, beside the broker's."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from tarry.base.errors import UnavailableError
from tarry.cli.gateway_worker import Settings
from tarry.fronts.gateway.supervisor import WorkerSupervisor
from tarry.fronts.kit.front import Front, FrontServices

START_S = 60.0
"""Seconds that the workers of a front may take to begin."""


class Workers:
    """The worker processes of one front: a :class:`tarry.fronts.kit.front.RunningFront`."""

    def __init__(self, front: Front, broker: str, services: FrontServices, count: int) -> None:
        """Start the workers, and wait until they serve.

        Args:
            front: the front.
            broker: where the workers connect to the broker.
            services: those of the front in this process; their address is where its clients connect to the workers.
            count: the number of workers.

        Raises:
            NotFoundError: a package is not installed.
            UnavailableError: the address cannot be listened on, or a worker did not begin.
        """
        front.check_installed()
        address = services.address
        self._home = front.run_home(services)
        verbose = logging.getLogger("tarry.serve").isEnabledFor(logging.DEBUG)
        settings = Settings(broker, front.name, address, verbose=verbose)
        try:
            self._supervisor = WorkerSupervisor(settings.command, address, front.name, count)
        except BaseException:
            self._stop_home()
            raise
        own = {} if self._home is None else self._home.addresses
        self.addresses: Mapping[str, str] = {front.name: f"{self._supervisor.address} ({count} workers)", **own}
        """The clients' address, by the front's name, and the number of workers; and the addresses of its home."""
        self._supervisor.start()
        if not self._supervisor.wait_serving(START_S):
            ended = ", ".join(f"{each['name']}: {each['ended'] or each['state']}" for each in self._supervisor.status())
            self.stop()
            raise UnavailableError(f"the front's workers did not begin ({ended}); the log above says why")

    def stop(self, grace_s: float = 4.0) -> None:
        """Let the workers finish for up to ``grace_s`` seconds, then end them."""
        self._supervisor.stop(grace_s)
        self._stop_home()

    def _stop_home(self) -> None:
        if self._home is not None:
            self._home.stop()
