"""An operation as an endpoint: its fields are the request's, its result is the answer.

The fields come from the path, the query or a JSON object; the result is JSON or rows. ``GET`` and ``DELETE`` have their
fields in the query. The others have them in a JSON object, or, without a body, in the query, too.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Any, ClassVar, cast

import pyarrow as pa
from pydantic import TypeAdapter

from tarry.api.audited import AUDITED
from tarry.api.bounds import bound_of, with_bound
from tarry.api.internal_topics import check_open
from tarry.api.operation import NOTHING, PLAIN, Action, Operation
from tarry.api.operations import GetTopic, HasTopic, ListJobs
from tarry.api.parsing import from_json, from_texts, model_of
from tarry.api.paths import Kind, Resource
from tarry.api.views import Page
from tarry.api.wire import JSON_BYTES_MAX, decode_request
from tarry.base.errors import InvalidArgumentError, NotFoundError
from tarry.fronts.http.errors import HttpError
from tarry.fronts.http.rest import rows
from tarry.fronts.http.rest.answer import ARROW, JSON, Answer, chosen, json_answer
from tarry.fronts.http.rest.deliveries import with_delivery, with_id
from tarry.fronts.http.rest.description import DescribedBody, Description, Parameter, Schema, text_of
from tarry.fronts.http.rest.request import RestRequest
from tarry.fronts.http.rest.rights import needs_text
from tarry.fronts.http.rest.routes import Names

REF = "#/components/schemas/{model}"
ENCODING = Parameter(
    "encoding", "query", {"type": "string", "enum": ["text", "base64"], "default": "text"},
    "How bodies are written as JSON: as texts where they are UTF-8, or all of them in base64.",
)  # fmt: skip


class OperationEndpoint:
    """Carries out one operation. ``LISTS``: fields besides its own that are lists."""

    LISTS: ClassVar[tuple[str, ...]] = ()

    def __init__(self, resource: Resource) -> None:
        self._kind = resource.kind
        self._offered = (JSON,) if isinstance(self._kind.wire, Action) else (JSON, ARROW)

    async def _read(self, request: RestRequest, names: Names) -> Operation[Any]:
        values, are_texts = await read_fields(request, names, (*lists_of(cast(Any, self._kind)), *self.LISTS))
        operation = (from_texts if are_texts else from_json)(self._kind, self.adapt(values))
        check_open(operation)
        return operation

    async def __call__(self, request: RestRequest, names: Names) -> Answer:
        # Before it is carried out: a receive whose result nobody accepts would lease in vain.
        media_type = chosen(request, *self._offered)
        is_base64 = self._offered != (JSON,) and take_encoding(request)
        operation = await self._read(request, names)
        return answer_of(self._kind, await self.carry_out(operation, request), media_type, is_base64=is_base64)

    def adapt(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the operation's fields, after translating other names that clients may use."""
        return values

    async def carry_out(self, operation: Operation[Any], request: RestRequest) -> Any:
        """Carry out an operation, and return its result."""
        if self._kind in AUDITED:
            return await request.desk.call_by(operation, request.asked)
        if isinstance(self._kind.wire, Action):
            return await request.desk.call(operation)
        room = request.room

        def call() -> Any:
            # Again, and counted here: others of this client, whose answers it does not read, may have come before it.
            room.check()
            result = request.desk.broker.call(operation)
            rows = result.rows if isinstance(result, Page) else result
            if isinstance(rows, pa.RecordBatch):
                room.hold(rows.nbytes)
            return result

        return await request.desk.run(call)


class TopicEndpoint(OperationEndpoint):
    """Shows a topic's settings."""

    async def carry_out(self, operation: Operation[Any], request: RestRequest) -> Any:
        """Carry out an operation, as for any other.

        Raises:
            NotFoundError: nobody has named the topic.
        """
        topic = cast(GetTopic, operation).topic
        if not await request.desk.call(HasTopic(topic)):
            # Protocols ask for the settings of topics that are yet to come; a person who looks has misspelt the name.
            raise NotFoundError(f"there is no topic {topic!r:.300}; GET /v1/topics shows those with messages")
        return await super().carry_out(operation, request)


class JobEndpoint(OperationEndpoint):
    """Shows the bulk job of the path."""

    async def carry_out(self, operation: Operation[Any], request: RestRequest) -> Any:
        """Carry out an operation, as for any other.

        Raises:
            NotFoundError: nothing is known of the job.
        """
        jobs = await super().carry_out(operation, request)
        if not jobs:
            raise NotFoundError(f"nothing is known of job {cast(ListJobs, operation).job!r:.300}")
        return jobs


async def read_fields(request: RestRequest, names: Names, lists: Collection[str]) -> tuple[dict[str, Any], bool]:
    """Read the fields of a request; return also whether they are texts, from the query.

    ``lists``: the names of those that are lists.

    Raises:
        InvalidArgumentError: a body that is no JSON object, a field that is there twice.
        HttpError: a body that cannot be.
    """
    body = await request.body(JSON_BYTES_MAX)
    if request.method in ("GET", "HEAD", "DELETE") or not body:
        values: dict[str, Any] = _from_query(request, lists)
    else:
        check_json(request)
        if request.query:
            raise InvalidArgumentError("fields are in the query and in the body; allowed: one of them")
        values = decode_request(body)
        if not isinstance(values, dict):
            raise InvalidArgumentError(f"the body is {body[:60]!r}; allowed: a JSON object")
    if twice := next((name for name in names if name in values), None):
        raise InvalidArgumentError(f"{twice} is in the path and once more; allowed: once")
    return {**values, **names}, not body


def check_json(request: RestRequest) -> None:
    """Check the media type of a body that must be JSON.

    Raises:
        HttpError: 415, its body is said to be something else than JSON.
    """
    media_type = request.media_type
    if media_type is not None and media_type != JSON and not media_type.endswith("+json"):
        raise HttpError(
            415, "unsupported_media_type", f"content-type is {media_type[:80]!r}; allowed: {JSON}, as of curl --json"
        )


def take_encoding(request: RestRequest) -> bool:
    """Return whether bodies shall be in base64, and remove the field from the query."""
    values = [value for name, value in request.query if name == ENCODING.name]
    request.query[:] = [(name, value) for name, value in request.query if name != ENCODING.name]
    if any(value not in ENCODING.schema["enum"] for value in values):
        raise InvalidArgumentError(f"encoding is {values[0]!r:.60}; allowed: text, base64")
    return "base64" in values


def answer_of(kind: Kind, result: Any, media_type: str, *, is_base64: bool = False) -> Answer:
    """Return a result as the client wants it."""
    wire = kind.wire
    if isinstance(wire, Action):
        return json_answer(wire.codec.encode(result))
    schema, batches = wire.encode(result)
    adapt = with_delivery if "lease" in schema.names else with_id
    details = {f"x-tarry-{name}": value for name, value in rows.details_of(schema).items()}
    if media_type == ARROW:
        return Answer(200, rows.arrow_parts(schema, batches), ARROW, details)
    return Answer(200, rows.json_parts(schema, batches, adapt, always_base64=is_base64), JSON, details)


def _from_query(request: RestRequest, lists: Collection[str]) -> dict[str, str | list[str]]:
    values: dict[str, str | list[str]] = {}
    for name, value in request.query:
        if name in lists:
            kept = values.setdefault(name, [])
            assert isinstance(kept, list)
            kept.append(value)
        elif name in values:
            raise InvalidArgumentError(f"{name[:60]} is given twice; allowed: once")
        else:
            values[name] = value
    return values


@cache
def _schema_of(kind: Any) -> Schema:
    """Return the JSON Schema of an operation's fields."""
    model = model_of(kind)
    return {"type": "object"} if model is None else model.model_json_schema(ref_template=REF)


@cache
def lists_of(kind: Any) -> frozenset[str]:
    """Return the names of its list fields, which may come several times in a query."""
    return frozenset(name for name, schema in _schema_of(kind).get("properties", {}).items() if _is_list(schema))


def _is_list(schema: Schema) -> bool:
    return schema.get("type") == "array" or any(_is_list(one) for one in schema.get("anyOf", ()))


# -- what is said of it ------------------------------------------------------------------------------------------------


@cache
def describe(resource: Resource) -> Description:
    """Describe an operation, from its docstring and the types of its fields and of its result."""
    kind: Any = resource.kind
    text, arguments = text_of(kind)
    schema = dict(_schema_of(kind))
    schemas = dict(schema.pop("$defs", {}))
    fields = {
        name: _said(with_bound(one, bound_of(kind.__name__, name)), arguments.get(name))
        for name, one in schema.get("properties", {}).items()
    }
    required = set(schema.get("required", ()))
    in_path = [part[1:-1] for part in resource.path.split("/") if part.startswith("{")]
    parameters = [Parameter(name, "path", fields.pop(name), "", True) for name in in_path]
    body = None
    if resource.method in ("GET", "DELETE"):
        parameters += [
            Parameter(name, "query", one, one.pop("description", ""), name in required)
            for name, one in fields.items()
            if not _is_nested(one)
        ]
    elif fields:
        left = {"type": "object", "properties": fields, "additionalProperties": False}
        if needed := sorted(required & fields.keys()):
            left["required"] = needed
        body = DescribedBody("Its fields.", {JSON: left}, is_required=bool(needed))
    answer, more = result_of(kind)
    if not isinstance(kind.wire, Action):
        parameters.append(ENCODING)
    name = f"{resource.method.lower()}_{kind.__name__}_{len(in_path)}"
    needs = needs_text(kind.needs, schema.get("properties", {}))
    return Description(name, resource.tag, text, tuple(parameters), body, {200: answer}, schemas | more, needs=needs)


def fields_of(kind: Any) -> dict[str, Schema]:
    """Return the schemas of a request's fields, by name."""
    return {
        name: _said(with_bound(schema, bound_of(kind.__name__, name)), None)
        for name, schema in _schema_of(kind).get("properties", {}).items()
    }


def _said(schema: Schema, text: str | None) -> Schema:
    schema = {name: value for name, value in schema.items() if name != "title"}
    return schema if text is None else {**schema, "description": text}


def _is_nested(schema: Schema) -> bool:
    items = schema.get("items", {})
    return _is_list(schema) and (items.get("type") == "array" or any(map(_is_nested, schema.get("anyOf", ()))))


@cache
def result_of(kind: Kind) -> tuple[DescribedBody, dict[str, Schema]]:
    """Return the description of an operation's result, and the schemas that are named in it."""
    wire = kind.wire
    if not isinstance(wire, Action):
        arrow = {"type": "string", "contentMediaType": ARROW}
        return DescribedBody("The rows.", {JSON: rows.schema_of(wire.schema), ARROW: arrow}), {}
    if wire.codec is NOTHING:
        return DescribedBody("It was done.", {JSON: {"type": "object"}}), {}
    if wire.codec is PLAIN:
        return DescribedBody("Plain data.", {JSON: {"type": "object", "additionalProperties": True}}), {}
    shape = wire.codec.shape if wire.codec.shape is not None else _result_type(kind)
    schema = TypeAdapter(shape).json_schema(mode="serialization", ref_template=REF)
    schemas = schema.pop("$defs", {})
    if wire.codec.name is not None:
        schema = {"type": "object", "properties": {wire.codec.name: schema}, "required": [wire.codec.name]}
    return DescribedBody("Its result.", {JSON: schema}), schemas


def _result_type(kind: Any) -> Any:
    """``R`` of ``Operation[R]``."""
    return kind.__orig_bases__[0].__args__[0]
