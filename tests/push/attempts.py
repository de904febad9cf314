"""Attempts, made up for tests."""

from __future__ import annotations

from tarry.api.push import PushAttempt


def attempt(name: str, id: str, at_ms: int, outcome: str = "pushed") -> PushAttempt:
    """One of a subscription for a message; its webhook-id is ``wh-`` and the id."""
    return PushAttempt(
        name=name,
        webhook_id=f"wh-{id}",
        id=id,
        seq=1,
        topic="t",
        attempt=1,
        at_ms=at_ms,
        duration_ms=1.0,
        status=204 if outcome == "pushed" else 500,
        outcome=outcome,
        error=None if outcome == "pushed" else "no",
        answer="",
        again_ms=None,
    )
