"""A front of ``tarry serve`` that runs in processes of its own, beside the broker's."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from tarry.base.errors import UnavailableError
from tarry.cli.gateway_worker import Settings
from tarry.fronts.gateway.supervisor import WorkerSupervisor
from tarry.fronts.kit.front import Front

START_S = 60.0
"""Seconds that the workers of a front may take to begin."""


class Workers:
    """The worker processes of one front: a :class:`tarry.fronts.kit.front.RunningFront`."""

    def __init__(self, front: Front, broker: str, address: str, count: int) -> None:
        """Start the workers, and wait until they serve.

        Args:
            broker: where the workers connect to the broker.
            address: where the front's clients connect to them.

        Raises:
            NotFoundError: a package is not installed.
            UnavailableError: the address cannot be listened on, or a worker did not begin.
        """
        front.check_installed()
        verbose = logging.getLogger("tarry.serve").isEnabledFor(logging.DEBUG)
        settings = Settings(broker, front.name, address, verbose=verbose)
        self._supervisor = WorkerSupervisor(settings.command, address, front.name, count)
        self.addresses: Mapping[str, str] = {front.name: f"{self._supervisor.address} ({count} workers)"}
        """The clients' address, by the front's name, and the number of workers."""
        self._supervisor.start()
        if not self._supervisor.wait_serving(START_S):
            ended = ", ".join(f"{each['name']}: {each['ended'] or each['state']}" for each in self._supervisor.status())
            self.stop()
            raise UnavailableError(f"the front's workers did not begin ({ended}); the log above says why")

    def stop(self, grace_s: float = 4.0) -> None:
        """Let the workers finish for up to ``grace_s`` seconds, then end them."""
        self._supervisor.stop(grace_s)
