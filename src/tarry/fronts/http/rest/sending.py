"""Scheduling one message, and what is done with one that is pending, by its handle or its key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

from pydantic import TypeAdapter

from tarry.api.bounds import FIELDS, with_bound
from tarry.api.operations import CancelKeys, FindKey, GetHistory, Reschedule
from tarry.api.operations.messages import ReceiptJson, receipt_to_json
from tarry.api.outcome import Outcome
from tarry.api.paths import HANDLE, KEY, MESSAGES
from tarry.base.errors import InvalidArgumentError, InvalidMessageError, NotFoundError
from tarry.fronts.http.rest import message_fields
from tarry.fronts.http.rest.answer import JSON, Answer, chosen, json_answer
from tarry.fronts.http.rest.cloud_events import is_batch, is_event, rows_of_events
from tarry.fronts.http.rest.description import DescribedBody, Description, Parameter, Schema, plain
from tarry.fronts.http.rest.message_fields import message_of_json, message_of_request, times_of_json, times_of_query
from tarry.fronts.http.rest.operations import REF, answer_of, check_json, result_of
from tarry.fronts.http.rest.request import RestRequest
from tarry.fronts.http.rest.rights import PRODUCE, needs_text
from tarry.fronts.http.rest.routes import Names, Route
from tarry.fronts.http.rest.trace_headers import with_trace
from tarry.fronts.http.services import HttpServices
from tarry.message.accepted import Accepted
from tarry.message.cloud_event_json import BATCH_TYPE, JSON_TYPE
from tarry.message.options import UNMET
from tarry.message.receipt import Receipt
from tarry.message.rows import ID, Row

OVERHEAD_BYTES = 1 << 20
"""Bytes that a JSON object may have beside its body."""
TIMES_BYTES_MAX = 64 << 10
ANY = "application/octet-stream"
PRESENT = ("scheduled", "replaced")
"""Outcomes after which a message is pending because of this request."""
RECEIPT: Schema = TypeAdapter(ReceiptJson).json_schema()


class Messages:
    """The endpoints."""

    def __init__(self, services: HttpServices) -> None:
        self._body_bytes_max = services.broker.config.body_bytes_max

    def routes(self) -> Iterator[Route]:
        """Yield the routes, with their descriptions."""
        for method, path in (("POST", MESSAGES), ("PUT", MESSAGES), ("PUT", KEY)):
            yield Route(method, path, self.schedule, _scheduling(method, path))
        outcome = DescribedBody("What became of it.", {JSON: _outcome_schema()})
        rescheduled, schemas = result_of(Reschedule)
        receipt = DescribedBody("The receipt of what is pending.", {JSON: _ref("Receipt")})
        endpoints: tuple[tuple[str, str, _Endpoint, str, DescribedBody, dict[str, Schema]], ...] = (
            ("GET", HANDLE, self.history, "What happened to a message, and will.", *result_of(GetHistory)),
            ("DELETE", HANDLE, self.cancel, CANCEL.format("a message by its handle"), outcome, {}),
            ("PATCH", HANDLE, self.reschedule, RESCHEDULE.format("a message"), rescheduled, schemas),
            ("GET", KEY, self.find_key, "What is pending under a key; 404: nothing is.", receipt, {"Receipt": RECEIPT}),
            ("DELETE", KEY, self.cancel_key, CANCEL.format("what is pending under a key"), outcome, {}),
            ("PATCH", KEY, self.reschedule, RESCHEDULE.format("what is pending under a key"), rescheduled, schemas),
        )
        for method, path, endpoint, text, answer, named in endpoints:
            about = _described(method, path, endpoint, text, answer, named)
            yield Route(method, path, endpoint, about, finds=path == HANDLE)

    async def schedule(self, request: RestRequest, names: Names) -> Answer:
        """Schedule one message; 201 when it is durable, 200 if an earlier one stands for it."""
        chosen(request, JSON)
        if is_event(request):
            return await self._schedule_events(request, names)
        if request.media_type == JSON:
            body = await request.body(2 * self._body_bytes_max + OVERHEAD_BYTES)
            if request.query:
                raise InvalidArgumentError("fields are in the query and in the JSON; allowed: one of them")
            row = message_of_json(body, **names)
        else:
            row = message_of_request(request, await request.body(self._body_bytes_max), **names)
        return _scheduled(await request.desk.schedule_row(with_trace(row, request.headers)))

    async def _schedule_events(self, request: RestRequest, names: Names) -> Answer:
        """Schedule a CloudEvent as a message; of a batch all or none, and 201 with a list of receipts."""
        is_whole = request.media_type in (JSON_TYPE, BATCH_TYPE)
        body = await request.body(2 * self._body_bytes_max + OVERHEAD_BYTES if is_whole else self._body_bytes_max)
        fixed = {name: value for name, value in names.items() if name != "topic"}
        if not is_batch(request):
            [row] = rows_of_events(request, body, names["topic"], fixed)
            return _scheduled(await request.desk.schedule_row(with_trace(row, request.headers)))
        # In a thread: events of some megabytes take seconds, in which nobody else would be answered.
        rows = await request.desk.run(rows_of_events, request, body, names["topic"], fixed)
        if not rows:
            return json_answer([])
        request.desk.check_row(rows[0])  # all of them are of one topic
        try:
            accepted = await request.desk.schedule_rows(rows)
        except InvalidMessageError as error:
            number = error.row
            if number is None:
                raise
            raise InvalidMessageError(f"event {number}: {error.of_row(None)}") from None
        return await request.desk.run(_receipts, accepted, rows)

    async def history(self, request: RestRequest, names: Names) -> Answer:
        _check_no_query(request)
        operation = GetHistory(names["handle"])
        return answer_of(GetHistory, await request.desk.call(operation), chosen(request, JSON))

    async def cancel(self, request: RestRequest, names: Names) -> Answer:
        chosen(request, JSON)
        _check_no_query(request)
        return _outcome(await request.desk.cancel(names["handle"]))

    async def cancel_key(self, request: RestRequest, names: Names) -> Answer:
        chosen(request, JSON)
        _check_no_query(request)
        [outcome] = await request.desk.call(CancelKeys(names["topic"], [names["key"]]))
        return _outcome(outcome)

    async def find_key(self, request: RestRequest, names: Names) -> Answer:
        chosen(request, JSON)
        _check_no_query(request)
        receipt = await request.desk.call(FindKey(names["topic"], names["key"]))
        if receipt is None:
            raise NotFoundError(f"nothing is pending under the key {names['key']!r:.80} in {names['topic']}")
        return json_answer(receipt_to_json(receipt))

    async def reschedule(self, request: RestRequest, names: Names) -> Answer:
        media_type = chosen(request, JSON)
        body = await request.body(TIMES_BYTES_MAX)
        if body:
            check_json(request)
            if request.query:
                raise InvalidArgumentError("fields are in the query and in the JSON; allowed: one of them")
        time = times_of_json(body) if body else times_of_query(request)
        operation = (
            Reschedule.of(names["handle"], **time)
            if "handle" in names
            else Reschedule.of_key(names["topic"], names["key"], **time)
        )
        return answer_of(Reschedule, await request.desk.call(operation), media_type)


def _scheduled(receipt: Receipt) -> Answer:
    location = {"location": f"/v1/messages/{quote(receipt.handle, safe='')}"} if receipt.handle else {}
    status = 201 if receipt.outcome in PRESENT else 412 if receipt.outcome in UNMET else 200
    return json_answer(receipt_to_json(receipt), status, location)


def _receipts(accepted: Accepted, rows: Sequence[Row]) -> Answer:
    return json_answer([receipt_to_json(receipt) for receipt in accepted.receipts([row[ID] for row in rows])], 201)


_Endpoint = Callable[[RestRequest, Names], Awaitable[Answer]]


def _check_no_query(request: RestRequest) -> None:
    if request.query:
        raise InvalidArgumentError(f"the query has {request.query[0][0]!r:.60}; allowed: none")


def _outcome(outcome: Outcome) -> Answer:
    return json_answer({"outcome": outcome.value})


# -- what is said of them ----------------------------------------------------------------------------------------------

SCHEDULE = """Schedule a message{}; when this answers, it is durable.

The body is sent as it is, and everything else is in the query (or in headers: `X-Tarry-Delay: 30m`, `X-Tarry-Key`,
`X-Tarry-Property-NAME`; in the query, a property is `property.NAME`). Sent as `application/json`, all of it is one JSON
object. A CloudEvent is taken in binary mode (`ce-specversion` and its like), in structured mode
(`application/cloudevents+json`), and as a batch (`application/cloudevents-batch+json`), whose receipts are a list; it
says when it is due by `tarrydue` or `tarrydelay`.

201: it was scheduled. 200: another message stands for it (its outcome is "kept" or "duplicate"). 412: its
condition did not hold, and nothing was scheduled (its outcome is "not_pending", or "changed" with the message that is
pending)."""
CANCEL = """Cancel {}, durably; of a series, all that is to come.

The outcome is definite: "done" (no consumer will ever get it), "delivered" (it was due already), "cancelled" (it had
been cancelled, replaced or rescheduled before) or "unknown" (nothing is known of it)."""
RESCHEDULE = """Move {} to another time, durably; it keeps its content.

The outcome is definite, as that of cancelling; where it is "done", the answer has the receipt of the message at its new
time. The fields may be in the query instead."""


def _outcome_schema() -> Schema:
    words = {"type": "string", "enum": [outcome.value for outcome in Outcome]}
    return {"type": "object", "properties": {"outcome": words}, "required": ["outcome"]}


def _ref(name: str) -> Schema:
    return {"$ref": REF.format(model=name)}


def in_path(path: str) -> tuple[Parameter, ...]:
    names = (part[1:-1] for part in path.split("/") if part.startswith("{"))
    return tuple(Parameter(name, "path", with_bound({"type": "string"}, FIELDS.get(name)), "", True) for name in names)


def _scheduling(method: str, path: str) -> Description:
    is_key = path == KEY
    text = SCHEDULE.format(" under a key, in the place of the one that is pending under it" if is_key else "")
    body = DescribedBody("The body, or all of it as JSON.", {ANY: {"type": "string"}, JSON: _ref("Message")}, False)
    receipt = DescribedBody("Its receipt.", {JSON: _ref("Receipt")})
    return Description(
        f"{method.lower()}_{'key' if is_key else 'message'}",
        "messages",
        text,
        (*in_path(path), *message_fields.parameters(*(["key"] if is_key else []))),
        body,
        {201: receipt, 200: receipt, 412: receipt},
        {**message_fields.schemas(), "Receipt": RECEIPT},
        (409, 413, 422),
        PRODUCE,
    )


def _described(
    method: str, path: str, endpoint: Any, text: str, answer: DescribedBody, schemas: dict[str, Schema]
) -> Description:
    body = DescribedBody("The new time.", {JSON: _ref("Times")}) if method == "PATCH" else None
    schemas = {**schemas, **(message_fields.schemas() if body else {})}
    name = f"{method.lower()}_{'key' if path == KEY else 'handle'}"
    needs = needs_text(GetHistory.needs, ()) if path == HANDLE and method == "GET" else PRODUCE
    return Description(name, "messages", plain(text), in_path(path), body, {200: answer}, schemas, (403,), needs)
