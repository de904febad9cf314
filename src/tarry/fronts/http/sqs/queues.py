"""Queues: made, found, changed, emptied and deleted."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import pyarrow.compute as pc

from tarry.api.needs import Right
from tarry.api.operations import Cancel, GetGroup, GetHandles, GetPending, ListPending, Seek, SetGroup
from tarry.api.settings import LATEST
from tarry.base.errors import NotFoundError
from tarry.fronts.http.read_your_writes import Landing
from tarry.fronts.http.services import HttpServices
from tarry.fronts.http.sqs.errors import SqsError, invalid, missing, no_queue
from tarry.fronts.http.sqs.message_attributes import is_allowed
from tarry.fronts.http.sqs.names import ACCOUNT, GROUP, arn_of, check_name, is_fifo, name_in, name_of_arn
from tarry.fronts.http.sqs.queue_attributes import KNOWN, Queue, checked
from tarry.fronts.http.sqs.queue_table import QueueTable
from tarry.fronts.http.sqs.request import SqsRequest, text_of, texts_of
from tarry.fronts.http.sqs.scheduled import OCCURRENCES

PAGE_ROWS = 1000
LISTED_MAX = 1000
TAGS_MAX = 50
ACTIONS_MAX = 7
GRANTED = (
    *("SendMessage", "ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility", "GetQueueAttributes"),
    *("GetQueueUrl", "ListDeadLetterSourceQueues", "PurgeQueue"),
)
"""Actions that a policy may grant to others."""


class SqsQueues:
    """On the event loop's thread."""

    def __init__(self, services: HttpServices, table: QueueTable, landing: Landing, delay_s_max: int) -> None:
        self._services = services
        self._table = table
        self._landing = landing
        self._delay_s_max = delay_s_max

    async def create(self, request: SqsRequest) -> dict[str, Any]:
        """Make a queue; one that is there already with these attributes is as good."""
        name = check_name(request.parameters.get("QueueName"))
        attributes = request.parameters.get("Attributes") or {}
        wants_fifo = isinstance(attributes, Mapping) and str(attributes.get("FifoQueue", "")).lower() == "true"
        if is_fifo(name) != wants_fifo:
            raise invalid(
                "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must end "
                "with .fifo suffix and be 1 to 80 in length; its attribute FifoQueue is true."
            )
        given = checked(name, attributes, self._delay_s_max)
        tags = _tags(request.parameters.get("tags") or request.parameters.get("Tags") or {})
        request.desk.principal.check(Right.MANAGE, name, GROUP, peer=request.http.host)
        queue = self._table.get(name)
        if queue is None:
            self._check_redrive(request, name, given)
            # The group first: what is sent as soon as the queue is known is kept for it.
            await self._set_group(request, Queue(name, given, {}, 0, 0), LATEST)
            queue = await self._table.create(name, given, tags)
        different = [key for key, value in given.items() if value != queue.attributes.get(key, "")]
        if different:
            raise SqsError(
                "QueueNameExists", f"A queue already exists with the same name and a different value for {different[0]}"
            )
        return {"QueueUrl": url_of(request, name)}

    async def delete(self, request: SqsRequest) -> None:
        """Delete a queue with all its messages."""
        queue = self._managed(request)
        await self._table.delete(queue.name)
        await self._drop_pending(queue.name)
        await request.desk.forget_queue(queue.name, GROUP)

    async def purge(self, request: SqsRequest) -> None:
        """Drop all messages of a queue: ready ones, those in consumers' hands, and delayed ones."""
        queue = self._managed(request)
        await self._landing.landed(queue.name)
        await self._drop_pending(queue.name)
        asked = request.desk.principal.asks(request.http.host, "http")
        await self._services.call_by(Seek(queue.name, GROUP, LATEST), asked)

    async def url(self, request: SqsRequest) -> dict[str, Any]:
        """Return the URL of a queue that is there."""
        name = request.parameters.get("QueueName")
        if not isinstance(name, str) or not name:
            raise missing("QueueName")
        if name_in(name) != name:
            raise no_queue()
        self._table.seen(request, name)
        return {"QueueUrl": url_of(request, name)}

    async def list(self, request: SqsRequest) -> dict[str, Any]:
        """Return the URLs of those queues that the caller may know of."""
        prefix = text_of(request.parameters, "QueueNamePrefix") or ""
        rights = request.desk.principal.rights
        names = [
            name for name in self._table.names() if name.startswith(prefix) and rights.allow(Right.LOOK, name, GROUP)
        ]
        return _page(request, "QueueUrls", names)

    async def dead_letter_sources(self, request: SqsRequest) -> dict[str, Any]:
        """Return the URLs of the queues that have this one as their dead-letter queue."""
        queue = self._table.asked(request)
        answer = _page(request, "queueUrls", self._table.sources_of(queue.name))
        return {"queueUrls": [], **answer}

    async def attributes(self, request: SqsRequest) -> dict[str, Any]:
        """Return attributes, and how many messages there are in which state."""
        queue = self._table.asked(request)
        names = texts_of(request.parameters, "AttributeNames")
        unknown = [name for name in names if name != "All" and name not in KNOWN]
        if unknown:
            raise SqsError("InvalidAttributeName", f"Unknown Attribute {unknown[0]:.60}.")
        if not names:
            return {}
        found = {
            **queue.attributes,
            "QueueArn": arn_of(queue.name, request.region),
            "CreatedTimestamp": str(queue.created_ms // 1000),
            "LastModifiedTimestamp": str(queue.modified_ms // 1000),
        }
        if "All" in names or any(name.startswith("Approximate") for name in names):
            found |= await self._counts(queue.name)
        shown = {key: value for key, value in found.items() if "All" in names or key in names}
        return {"Attributes": shown} if shown else {}

    async def set_attributes(self, request: SqsRequest) -> None:
        """Change attributes of a queue."""
        queue = self._managed(request)
        given = checked(queue.name, request.parameters.get("Attributes") or {}, self._delay_s_max)
        if not given:
            raise missing("Attribute.Name")
        self._check_redrive(request, queue.name, given)
        await self._set_group(request, await self._table.change(queue.name, given))

    async def tag(self, request: SqsRequest) -> None:
        """Set tags."""
        queue, given = self._managed(request), request.parameters.get("Tags")
        if not given:
            raise missing("Tags")
        tags = _tags(given)
        if len({*queue.tags, *tags}) > TAGS_MAX:
            raise invalid(f"Too many tags added for queue {queue.name}.")
        await self._table.change(queue.name, tags=tags)

    async def untag(self, request: SqsRequest) -> None:
        """Take tags away."""
        queue, keys = self._managed(request), texts_of(request.parameters, "TagKeys")
        if not keys:
            raise invalid("Tag keys must be between 1 and 128 characters in length.")
        await self._table.change(queue.name, tags=dict.fromkeys(keys))

    async def tags(self, request: SqsRequest) -> dict[str, Any]:
        """Return the tags of a queue."""
        tags = self._table.asked(request).tags
        return {"Tags": dict(tags)} if tags else {}

    async def add_permission(self, request: SqsRequest) -> None:
        """Add a statement to the queue's policy, which is kept and not acted upon."""
        queue = self._managed(request)
        label = _label(request)
        accounts = texts_of(request.parameters, "AWSAccountIds")
        actions = texts_of(request.parameters, "Actions")
        if not actions:
            raise missing("Actions")
        if not accounts:
            raise invalid("Value [] for parameter PrincipalId is invalid. Reason: Unable to verify.")
        if len(actions) > ACTIONS_MAX:
            text = f"{len(actions)} Actions were found, maximum allowed is {ACTIONS_MAX}."
            raise SqsError("OverLimit", text, 403)
        owners = [action for action in actions if action != "*" and action not in GRANTED]
        if owners:
            raise invalid(
                f"Value SQS:{owners[0]} for parameter ActionName is invalid. "
                "Reason: Only the queue owner is allowed to invoke this action."
            )
        policy, statements = _policy_of(queue, request.region)
        if any(each.get("Sid") == label for each in statements):
            raise invalid(f"Value {label} for parameter Label is invalid. Reason: Already exists.")
        users = [f"arn:aws:iam::{account}:root" for account in accounts]
        verbs = [f"SQS:{action}" for action in actions]
        statement = {
            "Sid": label,
            "Effect": "Allow",
            "Principal": {"AWS": users[0] if len(users) == 1 else users},
            "Action": verbs[0] if len(verbs) == 1 else verbs,
            "Resource": arn_of(queue.name, request.region),
        }
        await self._table.change(queue.name, {"Policy": json.dumps({**policy, "Statement": [*statements, statement]})})

    async def remove_permission(self, request: SqsRequest) -> None:
        """Take a statement from the queue's policy."""
        queue = self._managed(request)
        label = _label(request)
        policy, statements = _policy_of(queue, request.region)
        kept = [each for each in statements if each.get("Sid") != label]
        if len(kept) == len(statements):
            raise invalid(f"Value {label} for parameter Label is invalid. Reason: can't find label on existing policy.")
        await self._table.change(queue.name, {"Policy": json.dumps({**policy, "Statement": kept}) if kept else ""})

    # ------------------------------------------------------------------------------------------------------------------

    def _managed(self, request: SqsRequest) -> Queue:
        queue = self._table.asked(request)
        request.desk.principal.check(Right.MANAGE, queue.name, GROUP, peer=request.http.host)
        return queue

    def _check_redrive(self, request: SqsRequest, name: str, given: Mapping[str, str]) -> None:
        if not given.get("RedrivePolicy"):
            return
        target = name_of_arn(json.loads(given["RedrivePolicy"])["deadLetterTargetArn"])
        if target is not None:  # or who has no right on it would put messages there
            request.desk.principal.check(Right.MANAGE, target, GROUP, peer=request.http.host)
        queue = None if target is None else self._table.get(target)
        if queue is None:
            raise invalid(f"Value {given['RedrivePolicy']} for parameter RedrivePolicy is invalid. "
                          "Reason: Dead letter target does not exist.")  # fmt: skip
        if queue.is_fifo != is_fifo(name):
            raise invalid("Dead-letter queue must be same type of queue as the source.")
        if not queue.allows_redrive_of(arn_of(name, request.region)):
            raise invalid(f"The RedriveAllowPolicy of {queue.name} does not allow {name} to have it as its target.")

    async def _set_group(self, request: SqsRequest, queue: Queue, start: Any = None) -> None:
        """Bring the queue's group in line: its tries are counted here, and its order kept there."""
        lease_ms = max(1, queue.visibility_s * 1000)
        await request.desk.call(
            SetGroup.of(queue.name, GROUP, start=start, tries=0, lease_ms=lease_ms, ordered=queue.is_fifo)
        )

    async def _counts(self, topic: str) -> dict[str, str]:
        await self._landing.landed(topic)
        pending = next(
            (each for each in await self._services.call(GetPending(next_due=False)) if each.topic == topic), None
        )
        try:
            info = await self._services.call(GetGroup(topic, GROUP))
        except NotFoundError:
            ready = held = 0
        else:
            ready, held = info.ready + info.blocked, info.leased + info.waiting
        return {
            "ApproximateNumberOfMessages": str(ready),
            "ApproximateNumberOfMessagesNotVisible": str(held),
            "ApproximateNumberOfMessagesDelayed": str(0 if pending is None else pending.pending),
        }

    async def _drop_pending(self, topic: str) -> None:
        """Cancel what is delayed. What is sent meanwhile may stay, and may not."""
        cursor = None
        while True:
            page = await self._services.call(ListPending(topic=topic, limit=PAGE_ROWS, cursor=cursor, bodies=False))
            if page.rows.num_rows:
                # A schedule of EventBridge Scheduler is not its queue's: it goes on, whatever becomes of the queue.
                kept = pc.fill_null(pc.starts_with(page.rows.column("key"), OCCURRENCES), False)
                dropped = page.rows.filter(pc.invert(kept))
                places = (dropped.column(name).to_numpy() for name in ("seq", "due_ms"))
                handles: list[str] = await self._services.call(GetHandles(*places))
                await self._services.call(Cancel(handles))
            cursor = page.cursor
            if cursor is None:
                return


def url_of(request: SqsRequest, name: str) -> str:
    """Return the URL of a queue, as a client gets to it."""
    return f"{request.base_url}/{ACCOUNT}/{name}"


def _page(request: SqsRequest, field: str, names: list[str]) -> dict[str, Any]:
    """Return a page of queues' URLs, and a token for the next one if the client has asked for pages."""
    limit = request.whole("MaxResults", 0, 1, LISTED_MAX)
    token = text_of(request.parameters, "NextToken")
    if token:
        try:
            after = base64.b64decode(token, validate=True).decode()
        except ValueError:
            raise invalid("NextToken is invalid.") from None
        names = [name for name in names if name > after]
    shown = names[: limit or LISTED_MAX]
    answer: dict[str, Any] = {field: [url_of(request, name) for name in shown]} if shown else {}
    if limit and len(shown) < len(names):
        answer["NextToken"] = base64.b64encode(shown[-1].encode()).decode()
    return answer


def _tags(given: Any) -> dict[str, str]:
    if not isinstance(given, Mapping) or not all(isinstance(text, str) for pair in given.items() for text in pair):
        raise invalid("Tags must be a map of strings.")
    if any(not 1 <= len(key) <= 128 or len(value) > 256 for key, value in given.items()):
        raise invalid("Tag keys must be between 1 and 128 characters in length, and values up to 256.")
    if not all(is_allowed(text) for pair in given.items() for text in pair):
        raise invalid("Tags must have characters that XML can have.")
    return dict(given)


def _label(request: SqsRequest) -> str:
    label = request.parameters.get("Label")
    if not isinstance(label, str) or not label:
        raise missing("Label")
    return label


def _policy_of(queue: Queue, region: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    text = queue.given.get("Policy")
    fresh = {"Version": "2012-10-17", "Id": f"{arn_of(queue.name, region)}/SQSDefaultPolicy", "Statement": []}
    policy: dict[str, Any] = json.loads(text) if text else fresh
    statements = policy.get("Statement", [])
    return policy, statements if isinstance(statements, list) else [statements]
