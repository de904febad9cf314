"""The bounds that the description names are those by which the server refuses, and there are no others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.http.rest import Rest

NEEDED: dict[str, Any] = {
    "name": "shop",
    "topic": "orders",
    "group": "billing",
    "to": "earliest",
    "namespace": "n",
    "subscription": "shop",
    "seq": 1,
    "due_ms": 1,
    "offset": 1,
    "lease": 1,
    "handles": ["x"],
    "keys": ["k"],
    "seqs": [1],
}
"""A value of each field that some request cannot do without."""
NAMES = {"topic": "orders", "group": "billing", "key": "order-7", "handle": "x", "job": "j", "token": "x"}
LEFT_OUT = ("/events", "/batch")
"""Answers that go on for as long as somebody reads, and bodies that are no fields."""
FAR_MS = 1 << 61


@dataclass(frozen=True, slots=True)
class Place:
    """A field: its request, where in it the field is, its schema, and what else the request needs."""

    method: str
    path: str
    where: str
    name: str
    schema: dict[str, Any]
    needed: dict[str, Any]

    def ask(self, rest: Rest, value: Any) -> httpx.Response:
        names = {**NAMES, self.name: value} if self.where == "path" else NAMES
        url = re.sub(r"\{(\w+)\}", lambda found: quote(str(names[found[1]]), safe=""), self.path)
        fields = {self.name: value}
        body = {**self.needed, **(fields if self.where == "body" else {})}
        query = fields if self.where == "query" else None
        return rest.http.request(self.method.upper(), url, params=query, json=body or None, timeout=30)

    def shown(self, value: Any, text: str = "") -> str:
        return f"{self.method} {self.path}: {self.where} {self.name} = {str(value)[:40]} {text[:90]}"


def places(document: dict[str, Any]) -> Iterator[Place]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if path.endswith(LEFT_OUT):
                continue
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            schema = content.get("schema", {})
            needed = {
                name: content.get("example", NEEDED).get(name, NEEDED.get(name)) for name in schema.get("required", ())
            }
            for parameter in operation["parameters"]:
                if parameter["in"] != "header":
                    yield Place(method, path, parameter["in"], parameter["name"], plain(parameter["schema"]), needed)
            for name, one in schema.get("properties", {}).items():
                yield Place(method, path, "body", name, plain(one), needed)


def plain(schema: dict[str, Any]) -> dict[str, Any]:
    """Of a value that may be missing, what it is where it is there."""
    kinds = [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]
    return kinds[0] if len(kinds) == 1 else {}


def outside(schema: dict[str, Any]) -> list[Any]:
    """Values that the schema excludes."""
    if schema.get("type") == "integer":
        low, high = schema.get("minimum"), schema.get("maximum", schema.get("exclusiveMaximum"))
        at_end = 1 if "maximum" in schema else 0
        return [*([] if low is None else [low - 1]), *([] if high is None else [high + at_end])]
    values: list[Any] = []
    if "maxLength" in schema:
        values.append("x" * (schema["maxLength"] + 1))
    if "pattern" in schema:
        values += [v for v in ("a b", "tarry.x") if not re.search(schema["pattern"], v)]
    return values + (["no such choice"] if "enum" in schema else [])


def inside(schema: dict[str, Any]) -> list[Any]:
    """Values at the ends of what the schema allows."""
    if schema.get("type") == "integer":
        low = schema.get("minimum", -1)
        high = schema.get("maximum", schema.get("exclusiveMaximum", 1 << 40) - 1)
        return [low, min(high, FAR_MS)]
    if schema.get("type") != "string":
        return []
    if "enum" in schema:
        return list(schema["enum"])
    return ["x" * schema["maxLength"]] if "maxLength" in schema else []


def test_what_the_description_excludes_is_refused(rest: Rest) -> None:
    taken, judged = [], 0
    for place in places(rest.get("/openapi.json").json()):
        for value in outside(place.schema):
            answer = place.ask(rest, value)
            # Not for something else that is missing beside it: with what is allowed, the answer is another.
            allowed = place.ask(
                rest, place.needed.get(place.name, NAMES.get(place.name, (inside(place.schema) or [1])[0]))
            )
            judged += answer.text != allowed.text
            if not 400 <= answer.status_code < 500:
                taken.append(place.shown(value, answer.text))
    assert judged > 100
    assert not taken, "\n".join(taken)


def test_what_the_description_allows_is_not_refused_for_its_size(rest: Rest) -> None:
    refused = []
    for place in places(rest.get("/openapi.json").json()):
        if place.name in ("wait_ms", "until_ms"):
            continue  # it would wait; it goes by the clock
        for value in inside(place.schema):
            answer = place.ask(rest, value)
            text = answer.json().get("message", "") if answer.status_code in (400, 422) else ""
            if re.match(rf"(?:.*?: )?{re.escape(place.name)} is ", text):
                refused.append(place.shown(value, text))
    assert not refused, "\n".join(refused)


def test_the_methods_of_a_path_are_those_of_the_description(rest: Rest) -> None:
    for path, methods in rest.get("/openapi.json").json()["paths"].items():
        url = re.sub(r"\{(\w+)\}", lambda found: NAMES[found[1]], path)
        answer = rest.http.request("QUERY", url)
        expected = {method.upper() for method in methods}
        assert answer.status_code == 405
        assert set(answer.headers["allow"].split(", ")) == expected | ({"HEAD"} if "GET" in expected else set()), path


@pytest.mark.parametrize("where", ["parameters", "requestBody"])
def test_there_are_examples(where: str, rest: Rest) -> None:
    found = [
        place
        for methods in rest.get("/openapi.json").json()["paths"].values()
        for operation in methods.values()
        for place in (
            operation["parameters"] if where == "parameters" else operation.get(where, {}).get("content", {}).values()
        )
        if "example" in place
    ]
    assert len(found) > 10
