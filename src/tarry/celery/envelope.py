"""A message of kombu in one of Tarry, whose body is kombu's message as JSON.

What Tarry can do with it stands in its own fields: when it is due (the task's ``eta``), its key (the task's id, while
it waits), and the options that a caller gave as ``tarry_…``.
"""

from __future__ import annotations

import json
import uuid
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from typing import Any

from kombu.utils.json import dumps, loads

from tarry.base.errors import InvalidArgumentError
from tarry.client.delivery import Delivery
from tarry.message.options import MessageOptions

OPTION = "tarry_"
"""Publishing options that begin so are Tarry's: ``task.apply_async(tarry_key="cart-17")``."""
OPTIONS = frozenset(f"{OPTION}{name}" for name in MessageOptions.__annotations__) | {f"{OPTION}due"}
SERIES = "celery.series"
"""The property of a message that comes again: each occurrence is a task of its own."""
BASE64 = "base64"
"""The only encoding of bodies but none, of bytes that are no text."""
CONTENT = ("content-type", "content-encoding")
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
"""Stands for each ``eta`` before it, such as ``datetime.min``: the task is due.

The broker has no times before 1970.
"""
EXPIRES_S = "tarry_expires_s"
"""The header of a message that comes again: seconds from each due time to its expiry."""


def decode(content: bytes) -> dict[str, Any]:
    """Return kombu's message of a body.

    Raises:
        ValueError: it is none. A worker would end at what kombu or Celery cannot read, and the next one, too.
    """
    try:
        message: dict[str, Any] = loads(content)
    except Exception as error:  # kombu's own types in it, and a depth that is too much, have errors of all kinds
        raise ValueError(f"not a message of kombu: {error!r}: {content[:80]!r}") from error
    if wrong := _wrong_in(message):
        raise ValueError(f"not a message of kombu: {wrong}: {content[:80]!r}")
    return message


def _wrong_in(message: Any) -> str | None:
    """Return what is wrong with a message, for people; None: nothing."""
    if not isinstance(message, dict):
        return "no object"
    headers, properties, body = message.get("headers") or {}, message.get("properties"), message.get("body")
    if not isinstance(properties, dict):
        return "properties is no object"
    if not isinstance(headers, dict):
        return "headers is no object"
    if not isinstance(properties.get("delivery_info", {}), dict):
        return "delivery_info is no object"
    if not isinstance(body, str | bytes):
        return "body is no text"
    texts = {name: message.get(name) or "" for name in CONTENT}
    if "task" in headers:
        texts |= {name: headers.get(name) for name in ("task", "id")}
    for name, text in texts.items():
        if not isinstance(text, str):
            return f"{name} is no text"
    encoding = properties.get("body_encoding")
    if encoding not in (None, BASE64):
        return f"body_encoding is {encoding!r}, not {BASE64}"
    return None if encoding is None or _is_base64(body) else f"body is no {BASE64}"


def _is_base64(body: str | bytes) -> bool:
    try:
        b64decode(body)
    except ValueError:
        return False
    return True


def task_id_of(message: dict[str, Any]) -> str | None:
    """Return the id of the task that a message is; None: it is no task, or one of Celery's first protocol."""
    headers = message.get("headers") or {}
    return headers.get("id") if "task" in headers else None


def due_of(message: dict[str, Any]) -> datetime | None:
    """Return the task's ``eta``; None: at once.

    Raises:
        InvalidArgumentError: it is no time.
    """
    eta = (message.get("headers") or {}).get("eta") if task_id_of(message) is not None else None
    return None if eta is None else max(_time("eta", eta), LONG_AGO)


def _time(name: str, given: Any) -> datetime:
    try:
        time = given if isinstance(given, datetime) else datetime.fromisoformat(given)
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"{name} is {given!r}; allowed: a time in ISO 8601") from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def row_of(message: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of :meth:`tarry.Client.schedule` for a message, without the topic.

    Raises:
        InvalidArgumentError: an option of Tarry has a name or a value that it may not have.
    """
    # Publishing is tried again with the same dict where it fails, so nothing is taken out of it.
    properties = message["properties"]
    given = {name: value for name, value in properties.items() if name.startswith(OPTION)}
    content = {**message, "properties": {name: properties[name] for name in properties.keys() - given.keys()}}
    if wrong := given.keys() - OPTIONS:
        raise InvalidArgumentError(f"{min(wrong)} is no option; allowed: {', '.join(sorted(OPTIONS))}")
    row: dict[str, Any] = {name.removeprefix(OPTION): value for name, value in given.items()}
    due = due_of(message)
    if due is not None and "due" not in row:
        row["due"] = due
    if (task_id := task_id_of(message)) is not None and "due" in row:
        # So a revoke finds it, and one that is sent again in doubt, or by the same id, does not come twice.
        row.setdefault("key", task_id)
    if row.get("repeat") is not None:
        row["properties"] = {**(row.get("properties") or {}), SERIES: "1"}
        if f"{OPTION}due" not in given:
            row.pop("due", None)
        content["headers"] = _relative(message["headers"])
    row["body"] = dumps(content)
    return row


def message_of(delivery: Delivery) -> dict[str, Any]:
    """Return kombu's message of what was delivered.

    It is due, so it has no ``eta`` for which a worker would wait.

    Raises:
        ValueError: it is none.
    """
    message = decode(delivery.body)
    headers, properties = message.setdefault("headers", {}) or {}, message["properties"]
    properties["delivery_tag"] = f"{delivery.seq}-{delivery.offset}-{delivery.attempt}"
    if delivery.attempt > 1:
        properties.setdefault("delivery_info", {})["redelivered"] = True
    if "task" in headers:
        if headers.get("eta") is not None:
            headers["tarry_eta"] = headers["eta"]
            headers["eta"] = None
        if SERIES in delivery.properties:
            _name_occurrence(headers, properties, delivery)
    return message


def _relative(headers: dict[str, Any]) -> dict[str, Any]:
    """Return the headers of a task that comes again; its expiry counts from each due time."""
    if headers.get("expires") is None:
        return {**headers, "eta": None}
    expires = _time("expires", headers["expires"])
    return {**headers, "eta": None, "expires": None, EXPIRES_S: (expires - datetime.now(UTC)).total_seconds()}


def _name_occurrence(headers: dict[str, Any], properties: dict[str, Any], delivery: Delivery) -> None:
    """Give an occurrence a task id of its own: the same at each try of it."""
    name = f"{delivery.topic}/{headers.get('id')}/{delivery.due_ms}"
    task_id = str(uuid.uuid5(uuid.NAMESPACE_URL, name))
    root = headers.get("root_id") in (None, headers.get("id"))
    headers["id"] = properties["correlation_id"] = task_id
    if root:
        headers["root_id"] = task_id
    if (expires_s := headers.pop(EXPIRES_S, None)) is not None:
        headers["expires"] = (delivery.due + timedelta(seconds=expires_s)).isoformat()


def control_of(message: dict[str, Any]) -> dict[str, Any] | None:
    """Return the command of remote control that a message is; None: it is none that can be read."""
    if message.get("content-type") != "application/json":
        return None
    try:
        command = json.loads(message["body"])
    except (KeyError, TypeError, ValueError):
        return None
    return command if isinstance(command, dict) and "method" in command else None
