"""Pending messages: finding them, looking at one, cancelling, moving, and having one delivered now."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tarry.api.needs import Right
from tarry.base.delay import parse_duration_ms
from tarry.base.errors import ForbiddenError, InvalidArgumentError, NotFoundError, TarryError
from tarry.fronts.http.console.formatting import Body
from tarry.fronts.http.console.page import Console, done, field, link, plural
from tarry.message.receipt import id_of

PENDING, MESSAGE = "/console/pending", "/console/message"
PAGE_ROWS = 50
LOOKS_MAX = 3
"""Looks for a page, each up to half a second; then the page says that there is more to look through."""
ASKED = ("topic", "id", "key", "tag")
SPANS = (("1m", "minute"), ("1h", "hour"), ("1d", "day"), ("30d", "30 days"))
ONE_TOPIC = "Name a topic: you may not look into all of them."
OUTCOMES = {
    "done": "Done: no consumer will ever get it at its former time.",
    "delivered": "Too late: it was due already.",
    "cancelled": "It had been cancelled, replaced or moved before.",
    "unknown": "Nothing is known of it any more.",
}


async def show_pending(console: Console, request: Request) -> Response:
    """Return a page of pending messages."""
    query = request.query_params
    asked: dict[str, Any] = {name: query[name].strip() for name in ASKED if query.get(name, "").strip()}
    error, status = None, 200
    rows: list[dict[str, Any]] = []
    cursor: str | None = None
    try:
        rows, cursor = await find(console, {**asked, **_times(query, console.now_ms)}, query.get("cursor") or None)
    except ForbiddenError as refused:
        error, status = str(refused), 403 if "topic" in asked else 200
    except TarryError as refused:
        error, status = str(refused), 400
    values = {name: query.get(name, "") for name in (*ASKED, "from", "until", "within")}
    return console.render(
        request,
        "pending.html.j2",
        status,
        rows=rows,
        error=error,
        asked=values,
        is_asked=any(values.values()),
        more=link(PENDING, **values, cursor=cursor) if cursor else None,
        is_first=not query.get("cursor"),
        spans=[(text, link(PENDING, **{**values, "from": "", "until": "", "within": span})) for span, text in SPANS],
        back=link(PENDING, **values, cursor=query.get("cursor")),
    )


async def find(
    console: Console, asked: Mapping[str, Any], cursor: str | None, *, looks_max: int = LOOKS_MAX
) -> tuple[list[dict[str, Any]], str | None]:
    """Find the next pending messages, and the cursor to continue with; None: there are no more.

    Raises:
        ForbiddenError: the viewer may not see these, or has to name a topic. Other TarryErrors: as of ListPending.
    """
    if "topic" not in asked and not console.may(Right.BROWSE):
        raise ForbiddenError(ONE_TOPIC)  # not asked of the broker: the audit log would have a refusal for each visit
    for _ in range(looks_max):
        page = await console.services.list_pending(**asked, limit=PAGE_ROWS, cursor=cursor)
        cursor = page.cursor
        if page.rows.num_rows or cursor is None:
            break
    return [{**row, "id": row["id"] or id_of(row["seq"])} for row in page.rows.to_pylist()], cursor


def _times(query: Mapping[str, str], now_ms: int) -> dict[str, int]:
    times = {}
    if text := query.get("from", "").strip():
        times["after_ms"] = instant_ms(text, now_ms)
    if text := query.get("until", "").strip():
        times["until_ms"] = instant_ms(text, now_ms)
    elif text := query.get("within", "").strip():
        times["until_ms"] = now_ms + parse_duration_ms(text)
    return times


def instant_ms(text: str, now_ms: int, *, past: bool = False) -> int:
    """Return an instant as people write it, in UTC milliseconds.

    UTC as 2026-12-01 06:00, with another offset, UTC milliseconds, or a length of time from now (with ``past``, before
    it).

    Raises:
        InvalidArgumentError: it is none.
    """
    text = text.strip()
    if text.isascii() and text.isdigit() and len(text) > 8:
        return int(text[:19])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        pass
    else:
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1000)
    try:
        length_ms = parse_duration_ms(text.removeprefix("+").strip())
    except TarryError:
        raise InvalidArgumentError(
            f"the time is {text!r:.80}; allowed: 2026-12-01 06:00 (UTC), 2026-12-01T06:00+02:00, UTC milliseconds, or "
            "a length of time from now such as 1h30m"
        ) from None
    return now_ms - length_ms if past else now_ms + length_ms


def place_of(text: str) -> tuple[int, int]:
    """Return the number and due time of a message, from a form or address: "123.1700000000000".

    Raises:
        InvalidArgumentError: it is none.
    """
    seq, _, due_ms = text.partition(".")
    try:
        place = int(seq[:20]), int(due_ms[:20])
    except ValueError:
        raise InvalidArgumentError(f"no message is named {text!r:.80}") from None
    if not all(-(1 << 63) <= value < 1 << 63 for value in place):
        raise InvalidArgumentError(f"no message is named {text!r:.80}")
    return place


async def show_message(console: Console, request: Request) -> Response:
    """One message: its content and its history."""
    place = request.query_params.get("message", "")
    seq, due_ms = place_of(place)
    found = await console.services.get_message(seq, due_ms)
    [handle] = await console.services.get_handles([seq], [due_ms])
    history = await console.services.history(handle)
    message = found.to_pylist()[0] if found.num_rows else None
    return console.render(
        request,
        "message.html.j2",
        200 if message or history.events else 404,
        title=f"Message {message['id'] or id_of(seq)}" if message else f"Message {seq}",
        place=place,
        seq=seq,
        message=message,
        id=(message["id"] or id_of(seq)) if message else None,
        body=Body.of(message["body"]) if message else None,
        history=history,
        is_pending=any(event.event == "pending" for event in history.events),
    )


async def show_history(console: Console, request: Request) -> Response:
    """Show the history of the messages of an id, or of the message of a handle."""
    what = request.query_params.get("what", "").strip()
    topic = request.query_params.get("topic", "").strip() or None
    history = await console.services.history(what, topic=topic) if what else None
    return console.render(request, "history.html.j2", title="History", what=what, topic=topic or "", history=history)


async def body(console: Console, request: Request) -> Response:
    """Return a body unchanged, as a download: the browser never shows it."""
    seq, due_ms = place_of(request.query_params.get("message", ""))
    found = await console.services.get_message(seq, due_ms)
    if not found.num_rows:
        raise NotFoundError(f"message {seq} is not kept any more")
    headers = {"content-disposition": f'attachment; filename="message-{seq}.bin"'}
    return Response(found.column("body")[0].as_py(), media_type="application/octet-stream", headers=headers)


async def change(console: Console, request: Request) -> Response:
    """Cancel, move or deliver the message of a form, by its ``action``."""
    place = field(request, "message")
    seq, due_ms = place_of(place)
    [handle] = await console.services.get_handles([seq], [due_ms])
    action = field(request, "action")
    try:
        if action == "cancel":
            outcome = await console.services.cancel(handle)
            is_done = outcome == "done"
            text = "Cancelled: no consumer will ever get it." if is_done else OUTCOMES[outcome]
            return done(request, MESSAGE, text, is_error=not is_done, message=place)
        if action not in ("move", "now"):
            raise InvalidArgumentError(f"action is {action!r:.40}; allowed: cancel, move, now")
        due = instant_ms(field(request, "due"), console.now_ms) if action == "move" else console.now_ms
        moved = await console.services.reschedule(handle, due=due)
    except TarryError as error:
        return done(request, MESSAGE, str(error), is_error=True, message=place)
    if moved.receipt is None:
        return done(request, MESSAGE, OUTCOMES[moved.outcome], is_error=True, message=place)
    text = "It is due now." if action == "now" else "It has another due time."
    return done(request, MESSAGE, text, message=f"{moved.receipt.seq}.{moved.receipt.due_ms}")


async def cancel_many(console: Console, request: Request) -> Response:
    """Cancel the messages that were chosen from a list."""
    places = [place_of(text) for text in request.state.form.get("message", [])]
    back = field(request, "back")
    back = back if back.startswith((PENDING, "/console/series")) else PENDING
    if not places:
        return done(request, back, "No message was chosen.", is_error=True)
    handles = await console.services.get_handles([seq for seq, _ in places], [due_ms for _, due_ms in places])
    try:
        outcomes = await console.services.cancel_many(handles)
    except TarryError as error:
        return done(request, back, str(error), is_error=True)
    count = sum(outcome == "done" for outcome in outcomes)
    late = len(outcomes) - count
    rest = f" {plural(late, 'was', 'were')} due or cancelled already." if late else ""
    return done(request, back, f"{plural(count, 'message')} cancelled.{rest}", is_error=not count)
