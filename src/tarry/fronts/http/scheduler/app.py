"""EventBridge Scheduler's API as a handler of the HTTP port.

It tells which requests are its own, who asks, and what they do.

The operation follows from method and path, its parameters are in the path, the query and a JSON object.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, cast
from urllib.parse import parse_qs

from tarry.api.local import LocalBroker
from tarry.base.errors import TarryError
from tarry.fronts.http.access import Access
from tarry.fronts.http.exchange import BodyTooLargeError, DisconnectedError, Handler, HttpRequest, HttpResponse, Work
from tarry.fronts.http.scheduler.errors import SchedulerError, error_of, invalid
from tarry.fronts.http.scheduler.group_table import ScheduleGroupTable
from tarry.fronts.http.scheduler.groups import Groups
from tarry.fronts.http.scheduler.request import SchedulerRequest
from tarry.fronts.http.scheduler.schedules import Schedules
from tarry.fronts.http.services import HttpServices
from tarry.fronts.http.sqs.access import SqsAccess
from tarry.fronts.http.sqs.errors import SqsError
from tarry.fronts.http.sqs.names import region_of
from tarry.fronts.http.sqs.queue_table import QueueTable
from tarry.fronts.http.sqs.signature import region_in
from tarry.identity.principal import Principal

log = logging.getLogger(__name__)

Carry: TypeAlias = Callable[[SchedulerRequest], Awaitable[dict[str, Any]]]
"""Carries an operation out, and returns its answer's fields."""

BODY_BYTES_MAX = 2 << 20
"""Body of a request: an input of 256 KiB, some of whose characters are six in JSON."""
SERVICE = "scheduler"
"""The service's name in signatures."""
ROOTS = ("/schedules", "/schedule-groups", "/tags")
TYPE = b"content-type: application/json\r\n"


def is_schedulers(http: HttpRequest) -> bool:
    """Return whether a request is for EventBridge Scheduler's API."""
    path = http.path
    return path.startswith(ROOTS) and f"/{path.split('/')[1]}" in ROOTS


def beside(scheduler: Handler, others: Handler) -> Handler:
    """Return a handler that gives EventBridge Scheduler's requests to one, and all else to another."""

    def handle(http: HttpRequest) -> Work | None:
        return scheduler(http) if is_schedulers(http) else others(http)

    return handle


class SchedulerApp:
    """A :data:`tarry.fronts.http.exchange.Handler`. On the loop's thread."""

    def __init__(self, services: HttpServices, access: Access, queues: Callable[[], QueueTable]) -> None:
        """``queues``: returns the table of queues, which it may read for that."""
        self._services = services
        self._queues = queues
        self._access = SqsAccess(access, services.broker.clock, SERVICE)
        self._operations: Mapping[tuple[str, str, bool], Carry] | None = None
        """None: nobody has asked yet."""

    def __call__(self, http: HttpRequest) -> Work | None:
        return self._answer(http)

    async def _answer(self, http: HttpRequest) -> None:
        request_id = str(uuid.uuid4())
        try:
            response = await self._response(http)
        except (SchedulerError, SqsError, TarryError) as error:
            refused = error_of(error)
            if refused.status == 500:
                log.error("%s: %s", http.path, error)
            response = _refusal(refused)
        except DisconnectedError:
            raise  # nobody waits for an answer; no fault of ours
        except Exception as error:
            log.exception("a request of EventBridge Scheduler's API failed")
            response = _refusal(error_of(error))
        http.answer(response, f"x-amzn-requestid: {request_id}\r\n".encode())

    async def _response(self, http: HttpRequest) -> HttpResponse:
        looked = self._access.look(http)
        with self._services.bodies.holding(http.headers, BODY_BYTES_MAX):
            try:
                body = await http.read(BODY_BYTES_MAX)
            except BodyTooLargeError:
                raise SchedulerError(
                    "ValidationException", f"The body is longer than {BODY_BYTES_MAX} bytes.", 413
                ) from None
            principal = looked if isinstance(looked, Principal) else self._access.check(http, *looked, body)
            region = looked[0].region if isinstance(looked, tuple) else region_in(dict(http.headers))
            root, _, label = http.path[1:].partition("/")
            carry = self._all().get((http.method, root, bool(label)))
            if carry is None:
                raise SchedulerError(
                    "UnknownOperationException", f"{http.method} {http.path:.200} is no operation of this service.", 404
                )
            query = parse_qs(http.query.decode("latin-1"), keep_blank_values=True)
            request = SchedulerRequest(label, _fields(body), query, principal, region_of(region), http.host)
            fields = await carry(request)
            return HttpResponse(200, json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode(), (), TYPE)

    def _all(self) -> Mapping[tuple[str, str, bool], Carry]:
        """Return what carries each operation out; made for the first request, which reads files."""
        if self._operations is None:
            self._operations = operations(self._services, self._queues())
        return self._operations


def operations(services: HttpServices, queues: QueueTable) -> Mapping[tuple[str, str, bool], Carry]:
    """Return the operations by method, by the beginning of the path, and by whether the path goes on."""
    table = ScheduleGroupTable(services, cast(LocalBroker, services.broker))
    schedules = Schedules(services, queues, table)
    groups = Groups(table, schedules)
    return {
        ("POST", "schedules", True): schedules.create,
        ("PUT", "schedules", True): schedules.update,
        ("GET", "schedules", True): schedules.get,
        ("DELETE", "schedules", True): schedules.delete,
        ("GET", "schedules", False): schedules.page,
        ("POST", "schedule-groups", True): groups.create,
        ("GET", "schedule-groups", True): groups.get,
        ("DELETE", "schedule-groups", True): groups.delete,
        ("GET", "schedule-groups", False): groups.page,
        ("POST", "tags", True): groups.tag,
        ("DELETE", "tags", True): groups.untag,
        ("GET", "tags", True): groups.tags,
    }


def _fields(body: bytes) -> Mapping[str, Any]:
    try:
        given = json.loads(body.decode()) if body else {}
        json.dumps(given, ensure_ascii=False).encode()  # half a surrogate pair is no text that could be kept
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, Mapping):
        raise invalid("The body is not a JSON object in UTF-8.")
    return given


def _refusal(error: SchedulerError) -> HttpResponse:
    """Return the answer that an error is: SDKs take its kind from the header."""
    body = json.dumps({"Message": str(error)}, ensure_ascii=False).encode(errors="replace")
    return HttpResponse(error.status, body, (), TYPE + f"x-amzn-errortype: {error.code}\r\n".encode())
