"""Celery on Tarry: a transport for kombu, a definite revoke, and entries of beat as series.

    import tarry.celery  # makes tarry:// known
    app = Celery("shop", broker="tarry://localhost:7611")

Tasks with an ``eta`` or ``countdown`` wait in the broker, not in a worker's memory: workers get them when they are due.
``docs/celery.md`` is for users. One file, one question:

==============  ==============================================================================
``transport``   how does a connection of kombu become a client of Tarry?
``channel``     what does a channel do: declare, publish, consume, settle?
``inbox``       how do messages that consumers receive wait for a worker that has room?
``envelope``    how is a message of kombu written in a message of Tarry, and when is it due?
``places``      which topic and group is a queue?
``revoking``    how is a task cancelled that is not due yet?
``beat``        how do beat's entries become series?
==============  ==============================================================================
"""

from __future__ import annotations

from kombu.transport import TRANSPORT_ALIASES

from tarry.celery.revoking import cancel
from tarry.celery.transport import Transport

TRANSPORT_ALIASES["tarry"] = "tarry.celery:Transport"

__all__ = ["Transport", "cancel"]
