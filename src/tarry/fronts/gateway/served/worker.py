"""The sessions of a gateway's worker: its link, and its connections for questions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tarry.api.local import AnyBroker
from tarry.api.operation import Operation
from tarry.api.wire import decode_json, encode_json
from tarry.base.errors import UnavailableError
from tarry.fronts.gateway.served.board import BoardSeat
from tarry.fronts.gateway.served.broker import ServedBroker
from tarry.fronts.gateway.served.news import News, Told, guard, with_secrets
from tarry.fronts.gateway.served.receiving import WorkerConsumers
from tarry.fronts.kit.admission import Admission
from tarry.fronts.kit.front import Front
from tarry.fronts.kit.tls_settings import TlsSettings
from tarry.fronts.link.group_calls import GroupCalls
from tarry.fronts.link.groups import Listener
from tarry.fronts.link.link_session import Handlers, NewLinkSession, Refuse
from tarry.fronts.link.outgoing import Outgoing
from tarry.fronts.link.questions import Questions
from tarry.fronts.link.sending import Submissions
from tarry.fronts.link.settling import Settlements
from tarry.fronts.link.shared import Shared
from tarry.fronts.registry import FRONTS
from tarry.identity.issuers import PublishedIssuer
from tarry.identity.named import NamedPrincipals
from tarry.identity.seen import seen_by
from tarry.link.frames import CONTROL, LINK, FrameKind, frame

log = logging.getLogger(__name__)

TOLD_SETTINGS = (
    *("data", "lease_ms", "dedupe_ms", "retry_ms"),
    *("body_bytes_max", "properties_bytes_max", "delay_ms_max", "delay_levels"),
)
"""The broker's settings that a front needs.

A gateway learns no others, which may have secrets in them.
"""
_QUESTIONS = (FrameKind.CALL, FrameKind.FIND_KEYED, FrameKind.REPLACE)


def _declared(front: str) -> Front | None:
    return next((each for each in FRONTS if each.name == front and each.in_worker), None)


def told_settings(front: str) -> set[str]:
    """Return the names of the settings that a gateway learns: :data:`TOLD_SETTINGS` and its front's own."""
    declared = _declared(front)
    return {*TOLD_SETTINGS, *TlsSettings.model_fields, *(() if declared is None else declared.settings.model_fields)}


class WorkerSessions:
    """The sessions of all workers of one port. On the loop's thread."""

    def __init__(self, shared: Shared, broker: ServedBroker) -> None:
        self._shared, self._broker = shared, broker
        self._links: dict[str, Listener] = {}
        """Links that are told about groups, by the names that workers gave themselves."""
        self._tokens = Told(FrameKind.TOKENS, lambda: broker.access_tokens, broker.listen_to_tokens)
        self._identities, self._identities_near = (
            Told(FrameKind.IDENTITIES, lambda: broker.identities, broker.listen_to_identities, *plain)
            for plain in ((), (partial(with_secrets, broker),))
        )
        self._issuers = Told(
            FrameKind.ISSUERS, lambda: broker.published_issuers, broker.listen_to_issuers, PublishedIssuer.fields
        )
        self._principals = NamedPrincipals(broker)
        self.by_kind: dict[str, NewLinkSession] = {LINK: self._new_link, CONTROL: self._new_control}

    def _new_link(self, said: Mapping[str, Any], out: Outgoing, admission: Admission, refuse: Refuse) -> WorkerLink:
        front = str(said.get("front", ""))
        declared = _declared(front)
        stops = []
        if declared is None or not declared.asks_callers:
            stops.append(guard(self._broker, self._shared.loop, front, refuse))
        is_near = not admission.peer_host
        checks = declared is not None and declared.checks_signatures
        told = [self._identities_near if is_near and checks else self._identities]
        if self._broker.token_issuers:
            told.insert(0, self._issuers)  # before the identities: a worker serves nobody before those
        if declared is not None and declared.knows_tokens:
            told.insert(0, self._tokens)
        stops += [News(each, self._shared.loop, out).stop for each in told]
        return WorkerLink(self._shared, self._broker, said, out, self._links, self._questions(out), stops)

    def _new_control(
        self, said: Mapping[str, Any], out: Outgoing, admission: Admission, refuse: Refuse
    ) -> WorkerControl:
        return WorkerControl(self._shared, said, out, self._links, self._questions(out))

    def _questions(self, out: Outgoing) -> Questions:
        return Questions(self._shared, out, _QUESTIONS, _anything, seen_as=self._seen_as)

    def _seen_as(self, caller: str) -> AnyBroker:
        return seen_by(self._broker, self._principals.find(caller))


class WorkerControl:
    """A connection for questions, one at a time. On the loop's thread."""

    def __init__(
        self,
        shared: Shared,
        said: Mapping[str, Any],
        out: Outgoing,
        links: Mapping[str, Listener],
        questions: Questions,
    ) -> None:
        self._out = out
        worker = str(said.get("worker", ""))
        self.welcome = _welcome(shared, said)
        self.flow = None
        self.handlers: Handlers = {
            FrameKind.GROUP: GroupCalls(shared, out, partial(_link_of, links, worker)).answer,
            **questions.handlers,
        }

    def on_writable(self) -> None:
        """Do nothing: a worker reads what it asks for."""

    def on_drain(self) -> None:
        """Cut the connection off."""
        self._out.abort()

    def end(self) -> None:
        """Do nothing: there is no state."""


class WorkerLink:
    """A worker's link: consumers, and a member on the board. On the loop's thread."""

    def __init__(
        self,
        shared: Shared,
        broker: ServedBroker,
        said: Mapping[str, Any],
        out: Outgoing,
        links: dict[str, Listener],
        questions: Questions,
        stops: Sequence[Callable[[], None]],
    ) -> None:
        """Begin; call ``stops`` when the connection has ended."""
        self._shared, self._out, self._links, self._stops = shared, out, links, stops
        self._worker, front, name = (str(said.get(key, "")) for key in ("worker", "front", "name"))
        self.welcome = _welcome(shared, said)
        self.flow = None
        self._groups = links[self._worker] = GroupCalls(shared, out, partial(_link_of, links, self._worker))
        self._consumers = WorkerConsumers(shared.groups, out, shared.broker.accounts)
        self._seat = BoardSeat(broker.board, front, name, out)
        submissions = Submissions(shared, out)
        self.handlers: Handlers = {
            FrameKind.SUBMIT: submissions.submit,
            FrameKind.SUBMIT_CHECKED: submissions.submit_checked,
            FrameKind.SUBMIT_OWN: partial(submissions.submit, own_handles=True),
            FrameKind.SUBMIT_CHECKED_OWN: partial(submissions.submit_checked, own_handles=True),
            **self._consumers.handlers,
            FrameKind.SETTLE: Settlements(shared.groups, out).settle,
            FrameKind.LEASE: lambda number, _: self._answer(number, broker.lease_left_ms),
            FrameKind.USE: self._count_use,
            FrameKind.POST: self._seat.post,
            FrameKind.SEND: self._seat.send,
            FrameKind.NOTE: lambda _, payload: broker.refusals.take(decode_json(bytes(payload))),
            FrameKind.ISSUER_KEYS: lambda _, payload: broker.ask_issuer(str(decode_json(bytes(payload))["issuer"])),
            FrameKind.GROUP: self._groups.answer,
            **questions.handlers,
        }
        log.info("gateway %s (%s) has connected", name, self._worker)

    def _count_use(self, number: int, payload: memoryview) -> None:
        """Count what the worker has let pass of identities with quotas, and tell what is left."""
        accounts = self._shared.broker.accounts
        spent = decode_json(bytes(payload))
        left = {name: accounts.of(name).charge_elsewhere(each) for name, each in spent.items()}
        self._answer(number, left)

    def _answer(self, number: int, answer: object) -> None:
        self._out.write(frame(FrameKind.RESULT, number, encode_json(answer)))

    def on_writable(self) -> None:
        """Do nothing: a worker reads what it asks for."""

    def on_drain(self) -> None:
        """Cut the link off: the worker ends with it."""
        self._out.abort()

    def end(self) -> None:
        """End the link, as the connection has ended."""
        if self._links.get(self._worker) is self._groups:
            del self._links[self._worker]
        self._seat.leave()
        for stop in self._stops:
            stop()
        self._shared.groups.forget(self._groups)
        self._consumers.stop()
        log.info("gateway %s is gone", self._worker)


def _welcome(shared: Shared, said: Mapping[str, Any]) -> dict[str, Any]:
    names = told_settings(str(said.get("front", "")))
    return {"config": shared.broker.config.model_dump(mode="json", include=names)}


def _link_of(links: Mapping[str, Listener], worker: str) -> Listener:
    link = links.get(worker)
    if link is None:
        raise UnavailableError(f"worker {worker} has no link")
    return link


def _anything(operation: Operation[Any]) -> None:
    """Refuse nothing: the front in the worker's process has checked it."""
