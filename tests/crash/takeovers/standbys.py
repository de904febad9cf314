"""A machine that stands by: it follows the logs, and claims them, while others are called.

Its requests go on whenever time passes, so it may be killed, or stand still, at any of them, and may claim in the
midst of anybody's call. Its broker is opened once it is looked at after that: until then, as far as anybody sees, its
thread stands still.
"""

from __future__ import annotations

import json
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from tarry.log.file_engine import ROLE_FILE
from tarry.log.objects.engine import ObjectEngine, Takeover
from tarry.log.objects.role import tell_to_take_over
from tarry.log.objects.rounds import EpochRounds
from tests.crash.takeovers.machines import Machine


class FollowingEngine(ObjectEngine):
    """An engine whose claim goes on beside other calls; :meth:`claim` has its result."""

    claiming: Future[EpochRounds]

    def begin(self) -> None:
        self.claiming = self._requests.start(super()._claim())

    async def _claim(self) -> EpochRounds:
        return self.claiming.result(0)


class StandbyMachine(Machine):
    """A broker that stands by, and takes over."""

    engine: FollowingEngine | None

    def follow(self, takeover: Takeover) -> None:
        """Begin to stand by."""
        self.takeover = takeover
        self.engine = self._new(FollowingEngine, takeover)
        self.call(self.engine.begin)

    @property
    def stands_by(self) -> bool:
        """Whether it is none of these: an owner, dead, or at its end."""
        return not (self.is_dead or self.way.is_dead or self.epoch or self.has_ended)

    @property
    def has_ended(self) -> bool:
        """Whether it has claimed, or has failed to: its broker is to be opened."""
        return self.engine is not None and self.engine.claiming.done()

    @property
    def role(self) -> dict[str, Any]:
        """What it says of itself, at most a second ago; nothing before it follows."""
        role: dict[str, Any] = {}
        with suppress(FileNotFoundError):
            role = json.loads((self.data / ROLE_FILE).read_bytes())
        return role if role.get("role") == "standby" else {}

    def tell(self) -> None:
        """Tell it to take over."""
        tell_to_take_over(self.data)
