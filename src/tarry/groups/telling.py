"""What a group can tell of one message: whether it is settled, who has it, when it comes again."""

from __future__ import annotations

from typing import Any

import numpy as np

from tarry.groups.group import Group


def state_in(group: Group, offset: int) -> dict[str, Any]:
    """The message's state in the group, as plain data. ``state`` is one of

    - ``settled``: acknowledged, dropped, in the dead letters, passed by in a seek, or ready before the group began
    - ``leased``: with a consumer, as try ``attempt``, until ``until_ms``
    - ``waiting``: to be handed out at ``again_ms`` (0: at once), as try ``attempt``
    - ``burying``: on its way to the dead letters, for ``cause``
    - ``blocked``: behind another message of its ordering key
    - ``ready``: not handed out
    """
    with group.lock:
        if offset < group.floor or bool(group._settled.mask(np.array([offset], np.int64))[0]):
            return {"state": "settled"}
        for lease in group._leases:
            at = np.flatnonzero(lease.offsets[lease.held] == offset)
            if len(at):
                attempt = int(lease.attempts[lease.held][at[0]])
                return {"state": "leased", "attempt": attempt, "until_ms": lease.deadline_ms}
        for burial in group._graves:
            if offset in burial.offsets:
                return {"state": "burying", "cause": burial.cause}
        for at_ms, offsets, attempts in group._waiting:
            at = np.flatnonzero(offsets == offset)
            if len(at):
                return {"state": "waiting", "attempt": int(attempts[at[0]]), "again_ms": at_ms}
        passed = offset < group.cursor and not bool(group._passing.mask(np.array([offset], np.int64))[0])
        return {"state": "blocked" if passed and group._order is not None else "ready"}
