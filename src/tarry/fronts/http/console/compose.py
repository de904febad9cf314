"""Scheduling a message by hand, and bulk jobs."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tarry.base.errors import InvalidArgumentError, TarryError
from tarry.fronts.http.console.listing import listing
from tarry.fronts.http.console.messages import MESSAGE, OUTCOMES, instant_ms
from tarry.fronts.http.console.page import Console, done, field, plural
from tarry.message.options import OPTIONS, MessageOptions, Option, OptionKind
from tarry.message.receipt import NO_SEQ
from tarry.repeat import Repeat

JOBS = "/console/jobs"
JOBS_MAX = 200
TOPICS_MAX = 100
FIELDS = (
    *("topic", "body", "encoding", "when", "delay", "due", *(option.name for option in OPTIONS)),
    *("every", "cron", "zone", "times"),
)
SHOWN = tuple(option for option in OPTIONS if option.kind is not OptionKind.RULE)
"""Options with a field of their own; a rule has several."""
DEFAULTS = {
    **{option.name: option.default for option in OPTIONS},
    "encoding": "text",
    "when": "delay",
    "delay": "1h",
    "zone": "UTC",
    "repeat": "no",
}


async def show_form(console: Console, request: Request) -> Response:
    """Return the form; the address's query may fill in fields."""
    given = {name: request.query_params.get(name, DEFAULTS.get(name, "")) for name in FIELDS}
    return await _form(console, request, given, None)


async def schedule(console: Console, request: Request) -> Response:
    """Schedule what the form says; it stays filled in where something is not allowed."""
    given = {name: field(request, name) for name in FIELDS}
    try:
        receipt = await console.services.schedule(
            given["topic"].strip(), _body(given), **_when(given, console.now_ms), **_options(given)
        )
    except TarryError as error:
        return await _form(console, request, given, str(error))
    texts = {
        "scheduled": "Scheduled, durably.",
        "replaced": "Scheduled; it has replaced the one that was pending under its key.",
        "kept": "Not scheduled: this one is pending under its key.",
        "duplicate": "Not scheduled again: this is the message of that id.",
        "changed": "Not scheduled: another one is pending under its key, this one.",
        "not_pending": "Not scheduled: nothing is pending under its key.",
    }
    if receipt.seq == NO_SEQ:
        return await _form(console, request, given, texts[receipt.outcome])
    return done(request, MESSAGE, texts[receipt.outcome], message=f"{receipt.seq}.{receipt.due_ms}")


async def _form(console: Console, request: Request, given: dict[str, str], error: str | None) -> Response:
    listed = (await listing(console))["topics"]["listed"]
    topics = sorted(each["topic"] for each in listed if console.may("produce", each["topic"]))[:TOPICS_MAX]
    filled = [option.name for option in SHOWN if given[option.name] not in ("", option.default)]
    values = {"given": given, "error": error, "topics": topics, "options": SHOWN, "filled": filled}
    return console.render(request, "schedule.html.j2", 400 if error else 200, **values)


def _body(given: dict[str, str]) -> bytes:
    if given["encoding"] != "base64":
        # Browsers send lines of forms with CRLF; what people mean is LF.
        return given["body"].replace("\r\n", "\n").encode()
    try:
        return base64.b64decode("".join(given["body"].split()), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidArgumentError("the body is no base64; allowed: base64, or 'text'") from None


def _when(given: dict[str, str], now_ms: int) -> dict[str, Any]:
    if given["repeat"] == "cron":
        return {}  # first when the rule says
    if given["when"] == "due":
        return {"due": instant_ms(given["due"], now_ms)}
    return {"delay": given["delay"].strip() or "0s"}


def _options(given: dict[str, str]) -> MessageOptions:
    values: Any = {option.name: _value(option, given[option.name]) for option in SHOWN if given[option.name].strip()}
    if given["repeat"] in ("every", "cron"):
        values["repeat"] = _repeat(given)
    options: MessageOptions = values
    return options


def _value(option: Option, text: str) -> Any:
    match option.kind:
        case OptionKind.WHOLE:
            return _whole(option.name, text)
        case OptionKind.TEXTS:
            return _pairs(text)
    return text


def _repeat(given: dict[str, str]) -> Repeat:
    times = _whole("times", given["times"]) if given["times"].strip() else None
    if given["repeat"] == "every":
        return Repeat.every(given["every"].strip(), times=times)
    return Repeat.cron(given["cron"].strip(), given["zone"].strip() or "UTC", times=times)


def _pairs(text: str) -> dict[str, str]:
    pairs = {}
    for line in text.splitlines():
        if line.strip():
            name, equals, value = line.partition("=")
            if not equals:
                raise InvalidArgumentError(f"the property {line!r:.80} has no value; allowed: lines NAME=VALUE")
            pairs[name.strip()] = value
    return pairs


def _whole(name: str, text: str) -> int:
    try:
        return int(text.strip()[:20])
    except ValueError:
        raise InvalidArgumentError(f"{name} is {text!r:.40}; allowed: a whole number") from None


async def show_jobs(console: Console, request: Request) -> Response:
    """Bulk jobs, the newest first."""
    return console.render(request, "jobs.html.j2", jobs=await console.services.jobs(limit=JOBS_MAX))


async def cancel_job(console: Console, request: Request) -> Response:
    """Cancel all that is pending of a job."""
    try:
        cancelled = await console.services.cancel_job(field(request, "job"))
    except TarryError as error:
        return done(request, JOBS, str(error), is_error=True)
    if cancelled.outcome != "done":
        return done(request, JOBS, OUTCOMES[cancelled.outcome], is_error=True)
    return done(request, JOBS, f"{plural(cancelled.cancelled, 'message')} of the job will never be delivered.")
