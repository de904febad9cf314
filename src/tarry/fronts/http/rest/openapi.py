"""The description of all routes as OpenAPI 3.1, from the description of each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tarry.base.version import VERSION
from tarry.fronts.http.rest.description import DescribedBody, Description, Parameter, Schema, plain
from tarry.fronts.http.rest.routes import Route

OPENAPI = "3.1.0"
JSON = "application/json"
ABOUT = """Tarry is a delayed-message broker: hand it a message with a due time, and a consumer gets it then, never
early.

Names in a path are percent-encoded: a slash in one is `%2F`. Times are UTC milliseconds. A `POST`, `PUT` or `PATCH` of
JSON may have its fields in the query instead, without a body. Every error is `{"error": code, "message": text}`; codes
are stable. A token, where one is needed, comes in `Authorization: Bearer TOKEN` or `X-Token`: that of an identity, or
an access token. Once the broker has identities, each request needs one, and `x-tarry-needs` of an operation is the
right that it asks for; what is listed is what the caller may see."""

ERRORS = {
    400: "The request, or a value in it, is not allowed.",
    401: "A token is needed, or the one that was shown is not known.",
    403: "The caller has not the right to this, or a handle is another broker's.",
    404: "There is no such thing.",
    405: "The method is not allowed here.",
    406: "None of the media types that the client accepts is offered.",
    409: "It is in conflict with how things are: a stale lease, a key that is pending.",
    413: "It is too large.",
    415: "The media type of the body is not allowed.",
    422: "A message was refused.",
    500: "A bug, or a damaged file; see the broker's log.",
    503: "Not now: try again later, as Retry-After says. Nothing was accepted.",
    507: "The disk is nearly full: producers are refused, consumers are served.",
}
ALWAYS = (400, 401, 403, 404, 406, 413, 503)
WITH_BODY = (415, 422, 507)
ERROR = {
    "type": "object",
    "properties": {
        "error": {"type": "string", "description": "A stable code."},
        "message": {"type": "string", "description": "What was wrong, with the value, and what is allowed."},
        "row": {"type": "integer", "description": "Which of several messages, from 0."},
    },
    "required": ["error", "message"],
}


EXAMPLES: dict[str, Any] = {
    "topic": "orders",
    "group": "billing",
    "key": "order-7",
    "handle": "AQ4AAAAAAAAAAQAAAZtYp8gAc1YqUQ",
    "job": "nightly-2026-11-21",
    "delay": "30m",
    "tag": "vip",
    "unit": "hour",
    "within": "1h",
    "limit": 20,
    "max_messages": 10,
    "wait_ms": 5000,
    "prefetch": 100,
    "deliveries": ["1045659633423745026.2"],
    "keys": ["order-7", "order-8"],
    "to": "earliest",
    "name": "shop",
    "url": "https://shop.example/hooks/tarry",
    "body": "unpaid?",
    "namespace": "shop",
}
"""Examples of parameters and fields, by name; values that can be sent as they are."""


def describe(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the OpenAPI document of these routes."""
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {"Error": ERROR}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route.about)
        schemas |= {name: _spoken(schema) for name, schema in route.about.schemas.items()}
    responses = {str(status): _error(text) for status, text in ERRORS.items()}
    return {
        "openapi": OPENAPI,
        "info": {"title": "Tarry", "version": VERSION, "description": ABOUT},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": responses,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _operation(about: Description) -> dict[str, Any]:
    errors = sorted({*ALWAYS, *about.errors, *(WITH_BODY if about.body else ())} - about.answers.keys())
    answers = {str(status): _content(content) for status, content in sorted(about.answers.items())}
    operation: dict[str, Any] = {
        "operationId": about.name,
        "tags": [about.tag],
        "summary": about.summary,
        "description": about.text,
        "parameters": [_parameter(parameter) for parameter in about.parameters],
        "responses": {**answers, **{str(e): {"$ref": f"#/components/responses/{e}"} for e in errors}},
    }
    if about.needs:
        operation["x-tarry-needs"] = about.needs
    if about.body is not None:
        operation["requestBody"] = {**_content(about.body), "required": about.body.is_required}
    return operation


def _parameter(parameter: Parameter) -> dict[str, Any]:
    schema = _spoken(parameter.schema)
    if parameter.where == "path":
        # A field in a path is required, even if the operation does not require it.
        [there] = [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]
        schema = {"minLength": 1, **{word: value for word, value in there.items() if word != "default"}}
    text = parameter.text or schema.pop("description", "")
    said = {"name": parameter.name, "in": parameter.where, "required": parameter.is_required, "schema": schema}
    if parameter.name in EXAMPLES:
        said["example"] = EXAMPLES[parameter.name]
    return {**said, "description": plain(text)} if text else said


def _content(content: DescribedBody) -> dict[str, Any]:
    return {
        "description": content.text,
        "content": {media_type: _with_example(_spoken(schema)) for media_type, schema in content.by_type.items()},
    }


def _with_example(schema: Schema) -> dict[str, Any]:
    """Return a media type; its example has the required fields, and the ones that say the most."""
    fields = schema.get("properties", {})
    needed = set(schema.get("required", ()))
    example = {name: EXAMPLES[name] for name in fields if name in EXAMPLES}
    if not example or needed - example.keys() or "$ref" in schema:
        return {"schema": schema}
    return {"schema": schema, "example": example}


def _error(text: str) -> dict[str, Any]:
    return {"description": text, "content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}}


def _spoken(schema: Any) -> Any:
    """Return a schema without pydantic's titles, and with descriptions for people."""
    if isinstance(schema, list):
        return [_spoken(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    spoken: dict[str, Any] = {}
    for name, value in schema.items():
        if name == "properties":
            spoken[name] = {field: _spoken(one) for field, one in value.items()}
        elif name == "description" and isinstance(value, str):
            spoken[name] = plain(value)
        elif name != "title" or not isinstance(value, str):
            spoken[name] = _spoken(value)
    return spoken
