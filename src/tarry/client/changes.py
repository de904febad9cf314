"""Taking back and moving what was scheduled: methods of the client."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from tarry.api.jobs import Job, JobCancelled, JobState
from tarry.api.operation import decoded as read_answer
from tarry.api.outcome import Outcome, Rescheduled
from tarry.api.receipt import Receipt
from tarry.api.values import when
from tarry.api.wire import HANDLES_MAX
from tarry.base import handle as handles_
from tarry.base.delay import Delay
from tarry.base.errors import InvalidArgumentError, TarryError
from tarry.client.connection import Connection

_OUTCOMES = {outcome.value: outcome for outcome in Outcome}

JOB_TIMEOUT_S = 600.0


class Changes:
    """Cancel, reschedule, look up by key; for :class:`tarry.client.Client`."""

    _connection: Connection
    _timeout_s: float

    def cancel(self, handle: str) -> Outcome:
        """Cancel the message that ``handle`` names.

        Returns:
            "done": no consumer will ever get it. "delivered": it was due already. "cancelled": it had been cancelled,
            replaced or rescheduled before. "unknown": nothing is known of it any more. To cancel a message of a series
            ends the series.

        Raises:
            InvalidArgumentError: no handle, or a damaged one. ForgedHandleError: this broker did not make it.
            UnavailableError: no answer. It may have been cancelled; ask again: "cancelled" says that it was.
        """
        try:
            return self.cancel_many([handle])[0]
        except InvalidArgumentError as error:
            raise _of_one(error) from None

    def cancel_many(self, handles: Sequence[str]) -> list[Outcome]:
        """:meth:`cancel` of many messages, in few round trips; an answer for each, in order.

        Raises:
            InvalidArgumentError, ForgedHandleError: names the place of the handle that is none. Nothing was cancelled;
                except that of more than 65,536 handles, those before may have been when one was forged.
        """
        _check_texts("handles", handles)
        if len(handles) > HANDLES_MAX:
            # Several calls: what can be seen here is refused before the first of them.
            for place, text in enumerate(handles):
                try:
                    handles_.decode(text)
                except InvalidArgumentError as error:
                    raise type(error)(f"handle {place}: {error}") from None
        found: list[Outcome] = []
        for start in range(0, len(handles), HANDLES_MAX):
            part = list(handles[start : start + HANDLES_MAX])
            try:
                found += self._outcomes("cancel", {"handles": part}, len(part))
            except InvalidArgumentError as error:
                raise _further(error, start) from None
        return found

    def cancel_key(self, topic: str, key: str) -> Outcome:
        """Cancel what is pending under ``key`` in ``topic``; "unknown" where nothing is known of that key."""
        return self.cancel_keys(topic, [key])[0]

    def cancel_keys(self, topic: str, keys: Sequence[str]) -> list[Outcome]:
        """:meth:`cancel_key` of many keys, in few round trips; an answer for each, in order."""
        _check_texts("keys", keys)
        found: list[Outcome] = []
        for start in range(0, len(keys), HANDLES_MAX):
            part = list(keys[start : start + HANDLES_MAX])
            found += self._outcomes("cancel-keys", {"topic": topic, "keys": part}, len(part))
        return found

    def reschedule(self, handle: str, *, delay: Delay | None = None, due: datetime | int | None = None) -> Rescheduled:
        """Move the message that ``handle`` names to another time, said as for :meth:`Client.schedule`.

        Returns:
            The outcome, as of :meth:`cancel`; where it is "done", also the message's new receipt. The former handle
            names nothing any more.

        Raises:
            InvalidArgumentError, ForgedHandleError: as :meth:`cancel`; or a time that is not allowed.
        """
        return self._reschedule({"handle": handle}, delay, due)

    def reschedule_key(
        self, topic: str, key: str, *, delay: Delay | None = None, due: datetime | int | None = None
    ) -> Rescheduled:
        """:meth:`reschedule` of what is pending under ``key`` in ``topic``."""
        return self._reschedule({"topic": topic, "key": key}, delay, due)

    def cancel_job(self, job: str) -> JobCancelled:
        """Cancel all that is pending of a bulk job; one that has not committed never will.

        Returns:
            "done" with the number of messages that no consumer will get; "delivered" where none was pending any more;
            "cancelled" where it had been; "unknown".
        """
        # Counting what there is takes a second for some ten million messages.
        answer = self._connection.action("bulk-cancel", {"job": job}, timeout_s=max(self._timeout_s, JOB_TIMEOUT_S))
        return read_answer(
            lambda: JobCancelled(Outcome(answer["outcome"]), int(answer["cancelled"]), int(answer["rows"])), answer
        )

    def jobs(self, job: str | None = None, *, limit: int = 100) -> list[Job]:
        """A bulk job, or those that were begun last, the newest first."""
        answer = self._answer("bulk-jobs", {"job": job, "limit": limit})
        return read_answer(
            lambda: [Job(**{**told, "state": JobState(told["state"])}) for told in answer["jobs"]], answer
        )

    def find_key(self, topic: str, key: str) -> Receipt | None:
        """The receipt of what is pending under ``key`` in ``topic``; None: nothing is."""
        answer = self._answer("find-key", {"topic": topic, "key": key})
        return read_answer(lambda: _receipt(answer["receipt"]), answer)

    def _reschedule(self, which: dict[str, Any], delay: Delay | None, due: datetime | int | None) -> Rescheduled:
        if delay is None and due is None:
            raise InvalidArgumentError("neither delay nor due is given; allowed: one of them")
        times = dict(zip(("due_ms", "delay_ms", "delay_level"), when(delay, due), strict=True))
        answer = self._answer("reschedule", which | {name: ms for name, ms in times.items() if ms is not None})
        return read_answer(lambda: Rescheduled(Outcome(answer["outcome"]), _receipt(answer["receipt"])), answer)

    def _outcomes(self, action: str, body: dict[str, Any], count: int) -> list[Outcome]:
        answer = self._answer(action, body)
        found = read_answer(lambda: [_OUTCOMES[word] for word in answer["outcomes"]], answer)
        if len(found) != count:
            raise TarryError(f"the broker gave {len(found)} answers to {count} questions")
        return found

    def _answer(self, action: str, body: dict[str, Any]) -> Any:
        return self._connection.action(action, body, timeout_s=self._timeout_s)


def _receipt(plain: dict[str, Any] | None) -> Receipt | None:
    if plain is None:
        return None
    said = handles_.decode(plain["handle"])
    return Receipt(plain["id"], said.seq, said.due_ms, said.first_seq, said.rows, said.token, plain["outcome"])


def _check_texts(name: str, texts: Sequence[str]) -> None:
    if isinstance(texts, str | bytes) or not isinstance(texts, Sequence):
        raise InvalidArgumentError(f"{name} are of type {type(texts).__name__}; allowed: a list of texts")
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise InvalidArgumentError(f"{name}: number {place} is {text!r:.60}; allowed: texts")


_PLACE = re.compile(r"^handle (\d+): ")


def _further(error: InvalidArgumentError, start: int) -> InvalidArgumentError:
    """``error`` names a place in a part that began at ``start``."""
    error.args = (_PLACE.sub(lambda found: f"handle {int(found[1]) + start}: ", str(error)),)
    return error


def _of_one(error: InvalidArgumentError) -> InvalidArgumentError:
    error.args = (_PLACE.sub("", str(error)),)
    return error
