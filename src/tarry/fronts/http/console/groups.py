"""Topics and groups: position, settings, pausing, seeking, and forgetting a group."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tarry.api.operations import ListConsumers, SetGroup, SetTopic
from tarry.api.settings import GroupFields, TopicFields
from tarry.base.errors import FilterPausedError, InvalidArgumentError, NotFoundError, TarryError
from tarry.fronts.http.console.figures import LISTED_MAX
from tarry.fronts.http.console.listing import listing
from tarry.fronts.http.console.messages import instant_ms
from tarry.fronts.http.console.missing import has_topic, no_group, no_topic
from tarry.fronts.http.console.page import Console, done, field, link, plural
from tarry.fronts.http.console.sorting import Sorting, matching

PEEKED_MAX = 20
CONSUMERS_MAX = 100
TOPICS, TOPIC, GROUP = "/console/topics", "/console/topic", "/console/group"
TOPIC_COLUMNS = {
    "topic": "Topic",
    "pending": "Pending",
    "next_due_ms": "Next due",
    "ready": "Ready",
    "accepted": "Accepted",
    "fired": "Fired",
    "cancelled": "Cancelled",
}
GROUP_COLUMNS = {
    "group": "Group",
    "topic": "Topic",
    "lag": "Lag",
    "oldest_due_ms": "Oldest",
    "leased": "In flight",
    "waiting": "Waits for a retry",
    "dead": "Dead",
}
PREFIX = "set_"
"""Prefix of the form's fields that are settings."""


async def show_all(console: Console, request: Request) -> Response:
    """All topics and groups, those with most to do first, or as the address says."""
    overview, next_due = await listing(console), await console.figures.next_due()
    asked = {name: request.query_params.get(name, "").strip() for name in ("find", "sort", "groups")}
    topics = matching(overview["topics"]["listed"], asked["find"], "topic")
    topics = sorted(topics, key=lambda t: (-t["pending"] - t["ready"], t["topic"]))
    dues = {name: each.next_due_ms for name, each in next_due.items()}
    topics = [{**topic, "next_due_ms": dues.get(topic["topic"])} for topic in topics]
    groups = matching(overview["groups"]["listed"], asked["find"], "topic", "group")
    groups = sorted(groups, key=lambda g: (-g["lag"], -g["dead"], g["topic"], g["group"]))
    of_topics = Sorting(TOPICS, "sort", asked["sort"], asked, TOPIC_COLUMNS, "Most to do")
    of_groups = Sorting(TOPICS, "groups", asked["groups"], asked, GROUP_COLUMNS, "Most to do")
    template = "topics_live.html.j2" if "hx-request" in request.headers else "topics.html.j2"
    return console.render(
        request,
        template,
        o=overview,
        find=asked["find"],
        here=link(TOPICS, **asked),
        topics=of_topics.apply(topics)[:LISTED_MAX],
        groups=of_groups.apply(groups)[:LISTED_MAX],
        of_topics=of_topics,
        of_groups=of_groups,
        asked=asked,
        next_due=next_due,
    )


async def show_topic(console: Console, request: Request) -> Response:
    """One topic: its settings, its groups, and what is ready."""
    name = request.query_params.get("topic", "")
    info = await console.services.topic_info(name)
    if not await has_topic(console, name):
        return await no_topic(console, request, name)
    groups = await console.services.groups(name)
    ready = (await console.services.peek(name, limit=PEEKED_MAX)).to_pylist() if console.may("browse", name) else []
    overview = await console.figures.overview()
    counts = next((t for t in overview["topics"]["listed"] if t["topic"] == name), None)
    pending = (await console.figures.next_due()).get(name)
    return console.render(
        request,
        "topic.html.j2",
        title=name,
        topic=info,
        groups=groups,
        counts=counts,
        pending=pending,
        ready=ready,
        settings=_settings(TopicFields, info, skipped=("declared",)),
    )


async def show_group(console: Console, request: Request) -> Response:
    """One group: where its messages are, its settings, what waits for it."""
    topic, group = request.query_params.get("topic", ""), request.query_params.get("group", "")
    try:
        info = await console.services.group_info(topic, group)
    except NotFoundError:
        return await no_group(console, request, topic, group)
    consumers = await console.services.call(ListConsumers(topic, group, limit=CONSUMERS_MAX))
    ready = []
    try:
        if console.may("browse", topic, group):
            ready = (await console.services.peek(topic, group=group, limit=PEEKED_MAX)).to_pylist()
    except FilterPausedError:
        info = await console.services.group_info(topic, group)  # which says why
    return console.render(
        request,
        "group.html.j2",
        title=group,
        group=info,
        consumers=consumers,
        consumers_max=CONSUMERS_MAX,
        ready=ready,
        settings=_settings(GroupFields, info, skipped=("paused",)),
    )


async def set_topic(console: Console, request: Request) -> Response:
    """Change a topic's settings."""
    topic = field(request, "topic")
    try:
        await console.services.call(SetTopic(topic, _given(request, TopicFields)))
    except TarryError as error:
        return done(request, TOPIC, str(error), is_error=True, topic=topic)
    return done(request, TOPIC, "The settings are saved.", topic=topic)


async def change_group(console: Console, request: Request) -> Response:
    """Carry out what the form's ``action`` says of a group."""
    topic, group = field(request, "topic"), field(request, "group")
    try:
        text = await _change(console, request, topic, group)
    except TarryError as error:
        return done(request, GROUP, str(error), is_error=True, topic=topic, group=group)
    if field(request, "action") == "delete":
        return done(request, TOPICS, text)
    return done(request, GROUP, text, topic=topic, group=group)


async def _change(console: Console, request: Request, topic: str, group: str) -> str:
    services = console.services
    match field(request, "action"):
        case "pause":
            await services.pause(topic, group)
            return "The group is paused: nothing is handed out to it."
        case "resume":
            await services.resume(topic, group)
            return "The group goes on."
        case "set":
            await services.call(SetGroup(topic, group, _given(request, GroupFields)))
            return "The settings are saved."
        case "seek":
            to = field(request, "to").strip()
            place = to if to in ("earliest", "latest") else instant_ms(to, console.now_ms, past=True)
            return f"The group goes on from there: {plural(await services.seek(topic, group, place), 'message')} ahead."
        case "delete":
            await services.delete_group(topic, group)
            return f"The group {group} is forgotten."
        case other:
            raise InvalidArgumentError(f"action is {other!r:.40}; allowed: pause, resume, set, seek, delete")


def _settings(kind: type[Any], info: Any, *, skipped: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the settings as fields of a form: name, value, default, help."""
    listed = []
    for each in fields(kind):
        if each.name in skipped:
            continue
        value = getattr(info, each.name)
        listed.append(
            {
                "name": each.name,
                "field": PREFIX + each.name,
                "value": each.default if value is None else value,
                "is_truth": isinstance(each.default, bool),
                "is_number": isinstance(each.default, int) and not isinstance(each.default, bool),
                "help": each.metadata["help"],
            }
        )
    return listed


def _given(request: Request, kind: type[Any]) -> dict[str, Any]:
    """Return the settings that the form has changed.

    A box that is not ticked is not sent; a hidden field of its name is.
    """
    given: dict[str, Any] = {}
    for each in fields(kind):
        values = request.state.form.get(PREFIX + each.name)
        before = request.state.form.get("was_" + each.name)
        if not values or values[-1:] == before:
            continue
        text = values[-1].strip()
        if isinstance(each.default, bool):
            given[each.name] = text == "true"
        elif isinstance(each.default, int):
            try:
                given[each.name] = int(text)
            except ValueError:
                raise InvalidArgumentError(f"{each.name} is {text!r:.80}; allowed: a whole number") from None
        else:
            given[each.name] = text
    return given
