"""``/openapi.json``, and ``/docs``: a page made of it.

The page has no scripts, and loads nothing from elsewhere.
"""

from __future__ import annotations

import asyncio
import html
import json
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from tarry.fronts.http.rest.answer import Answer, etag_of
from tarry.fronts.http.rest.description import DescribedBody, Description
from tarry.fronts.http.rest.openapi import JSON, describe
from tarry.fronts.http.rest.request import RestRequest
from tarry.fronts.http.rest.routes import Names, Route

HTML = "text/html; charset=utf-8"
POLICY = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
HERE = __package__
EXAMPLES = {
    "topic": "orders",
    "group": "billing",
    "key": "order-7",
    "handle": "HANDLE",
    "job": "load-1",
    "token": "ID",
    "to": "earliest",
    "deliveries": ["LEASE.OFFSET"],
    "lease_ms": 30000,
    "handles": ["HANDLE"],
    "due": "1h",
    "keys": ["order-7"],
    "what": "HANDLE",
    "body": "unpaid?",
    "delay": "30m",
    "wait_ms": 5000,
    "tries": 5,
}
"""Values of names in the examples."""


def pages(routes: list[Route]) -> Iterator[Route]:
    """Yield the routes of the description of these routes, and of the description itself."""
    text = DescribedBody("The description.", {JSON: {"type": "object"}})
    page = DescribedBody("The page.", {"text/html": {"type": "string"}})
    about = Description("openapi", "broker", "This description, as OpenAPI.", (), None, {200: text})
    documents: dict[str, tuple[bytes, str]] = {}

    async def serve(request: RestRequest, names: Names) -> Answer:
        if not documents:  # when the first is asked for: that takes longer than all else of a start
            documents.update(await asyncio.to_thread(_documents, [*routes, *found]))
        body, media_type = documents["/" + "/".join(request.segments)]
        tag = etag_of(body)
        headers = {"etag": tag, "content-security-policy": POLICY, "referrer-policy": "no-referrer"}
        if request.header("if-none-match") == tag:
            return Answer(304, b"", media_type, headers)
        return Answer(200, body, media_type, headers)

    found = [
        Route("GET", "/openapi.json", serve, about),
        Route(
            "GET", "/docs", serve, Description("docs", "broker", "This description, as a page.", (), None, {200: page})
        ),
    ]
    style = Description("docs_style", "broker", "The page's style.", (), None, {})
    return iter([*found, Route("GET", "/docs/style.css", serve, style)])


def _documents(routes: list[Route]) -> dict[str, tuple[bytes, str]]:
    """Return the content and the media type of each path, of the description of these routes."""
    document = describe(routes)
    return {
        "/openapi.json": (json.dumps(document, indent=1).encode() + b"\n", JSON),
        "/docs": (render(document).encode(), HTML),
        "/docs/style.css": ((files(HERE) / "docs.css").read_bytes(), "text/css; charset=utf-8"),
    }


def render(document: dict[str, Any]) -> str:
    """Render the page."""
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    environment.filters["spoken"] = spoken
    environment.filters["kind"] = kind_of
    template = environment.from_string((files(HERE) / "docs.html").read_text())
    tags: dict[str, list[dict[str, Any]]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            known = {"method": method.upper(), "path": path, "example": example_of(method.upper(), path, operation)}
            tags.setdefault(operation["tags"][0], []).append({**operation, **known})
    return template.render(document=document, tags=tags)


def spoken(text: str) -> Markup:
    """Markdown's paragraphs and code, as HTML."""
    paragraphs = (html.escape(" ".join(part.split()), quote=False) for part in text.split("\n\n"))
    return Markup("\n").join(
        Markup("<p>" + re.sub(r"`([^`]+)`", r"<code>\1</code>", part) + "</p>") for part in paragraphs
    )


def kind_of(schema: dict[str, Any]) -> str:
    """Describe a schema in a few words."""
    if ref := schema.get("$ref"):
        return str(ref).rpartition("/")[2]
    if choice := schema.get("enum"):
        return " | ".join(json.dumps(one) for one in choice)
    if several := schema.get("anyOf"):
        return " | ".join(dict.fromkeys(kind_of(one) for one in several))
    if schema.get("type") == "array":
        return f"[{kind_of(schema.get('items', {}))}]"
    return str(schema.get("const", schema.get("type", "any")))


def example_of(method: str, path: str, operation: dict[str, Any]) -> str:
    """Return a curl command."""
    filled = re.sub(r"{(\w+)}", lambda name: quote(str(EXAMPLES.get(name[1], name[1])), safe=""), path)
    needed = [p["name"] for p in operation["parameters"] if p["in"] == "query" and p["required"]]
    query = "&".join(f"{name}={quote(str(EXAMPLES.get(name, '…')), safe='…')}" for name in needed)
    words = ["curl", *(["-X", method] if method not in ("GET", "POST") else [])]
    contents = operation.get("requestBody", {}).get("content", {})
    if "application/octet-stream" in contents:
        query, body = "delay=30m", "-d 'unpaid?'"
    elif JSON in contents:
        schema = contents[JSON]["schema"]
        fields = schema.get("required", []) if "$ref" not in schema else ["delay"]
        body = f"--json '{json.dumps({name: EXAMPLES.get(name, '…') for name in fields}, ensure_ascii=False)}'"
    else:
        body = "-X POST" if method == "POST" else ""
    url = f"localhost:7777{filled}{'?' if query else ''}{query}"
    return " ".join(filter(None, [*words, f"'{url}'" if query else url, body]))
