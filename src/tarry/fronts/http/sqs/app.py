"""SQS's API as a handler of the HTTP port.

Which requests are its, who asks, and what carries each operation out.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence

from tarry.base.addresses import Network
from tarry.base.errors import TarryError
from tarry.fronts.http.access import Access
from tarry.fronts.http.exchange import BodyTooLargeError, DisconnectedError, Handler, HttpRequest, HttpResponse, Work
from tarry.fronts.http.read_your_writes import Landing
from tarry.fronts.http.services import HttpServices
from tarry.fronts.http.settings import HttpSettings
from tarry.fronts.http.sqs.access import SqsAccess
from tarry.fronts.http.sqs.errors import SqsError, error_of
from tarry.fronts.http.sqs.json_protocol import PREFIX, TARGET, JsonProtocol
from tarry.fronts.http.sqs.move_tasks import MoveTasks
from tarry.fronts.http.sqs.names import ACCOUNT, GROUP, region_of
from tarry.fronts.http.sqs.query_protocol import FORM, QueryProtocol
from tarry.fronts.http.sqs.queue_attributes import DELAY_S_MAX
from tarry.fronts.http.sqs.queue_table import QueueTable
from tarry.fronts.http.sqs.queues import SqsQueues
from tarry.fronts.http.sqs.receiving import Receiving
from tarry.fronts.http.sqs.redriving import Redriving
from tarry.fronts.http.sqs.request import Carry, SqsRequest
from tarry.fronts.http.sqs.sending import Sending
from tarry.fronts.http.sqs.settling import SqsSettling
from tarry.fronts.http.sqs.signature import Signature, region_in
from tarry.fronts.http.sqs.urls import base_url
from tarry.identity.principal import Principal

log = logging.getLogger(__name__)

BODY_BYTES_MAX = 8 << 20
"""Body of a request: ten messages of a mebibyte together.

Some of their characters are six in JSON.
"""
QUEUE_PATH = f"/{ACCOUNT}/"

_JSON, _QUERY = JsonProtocol(), QueryProtocol()


def protocol_of(http: HttpRequest) -> JsonProtocol | QueryProtocol | None:
    """Return the protocol of SQS that a request speaks; None: it is for another part of the port."""
    if http.method == "POST":
        for name, value in http.headers:
            if name == TARGET and value.startswith(PREFIX):
                return _JSON
        if http.path.startswith(QUEUE_PATH) or (http.path == "/" and _has_form(http)):
            return _QUERY
    elif http.method == "GET" and b"Action=" in http.query and (http.path == "/" or http.path.startswith(QUEUE_PATH)):
        return _QUERY
    return None


def _has_form(http: HttpRequest) -> bool:
    return any(name == b"content-type" and value.startswith(FORM) for name, value in http.headers)


def beside(sqs: Handler, others: Handler) -> Handler:
    """Return a handler that gives SQS's requests to one, and all else to another."""

    def handle(http: HttpRequest) -> Work | None:
        return others(http) if protocol_of(http) is None else sqs(http)

    return handle


class Sqs:
    """A :data:`tarry.fronts.http.exchange.Handler`. On the loop's thread."""

    def __init__(
        self,
        services: HttpServices,
        access: Access,
        queues: Callable[[], QueueTable],
        proxies: Sequence[Network] = (),
    ) -> None:
        """``queues``: returns the table of queues, which it may read for that."""
        self._services = services
        self._queues = queues
        self._access = SqsAccess(access, services.broker.clock)
        self._proxies = proxies
        self._operations: Mapping[str, Carry] | None = None
        """None: nobody has asked yet."""

    def __call__(self, http: HttpRequest) -> Work | None:
        return self._answer(http)

    async def _answer(self, http: HttpRequest) -> None:
        protocol = protocol_of(http) or _JSON
        request_id = str(uuid.uuid4())
        try:
            response = await self._response(http, protocol, request_id)
        except (SqsError, TarryError) as error:
            if not isinstance(error, SqsError) and error_of(error).status == 500:
                log.error("%s: %s", http.path, error)
            response = protocol.refusal(error_of(error), request_id)
        except DisconnectedError:
            raise  # nobody waits for an answer; no fault of ours
        except Exception as error:
            log.exception("a request of SQS's API failed")
            response = protocol.refusal(error_of(error), request_id)
        http.answer(response, f"x-amzn-requestid: {request_id}\r\n".encode())

    async def _response(
        self, http: HttpRequest, protocol: JsonProtocol | QueryProtocol, request_id: str
    ) -> HttpResponse:
        looked = self._access.look(http)
        with self._services.bodies.holding(http.headers, BODY_BYTES_MAX):
            try:
                body = await http.read(BODY_BYTES_MAX)
            except BodyTooLargeError:
                raise SqsError(
                    "RequestEntityTooLarge", f"The body is longer than {BODY_BYTES_MAX} bytes.", 413
                ) from None
            principal = looked if isinstance(looked, Principal) else self._access.check(http, *looked, body)
            action, parameters = protocol.read(http.headers, http.path, http.query, body)
            carry = self._all().get(action)
            if carry is None:
                raise SqsError("InvalidAction", f"The action {action!r:.60} is not valid for this endpoint.")
            signed = looked[0] if isinstance(looked, tuple) else None
            request = SqsRequest(
                http,
                parameters,
                self._services.seen_by(principal, http.host),
                _region(http, signed),
                base_url(http, self._proxies),
            )
            return protocol.answer(action, await carry(request), request_id)

    def _all(self) -> Mapping[str, Carry]:
        """Return what carries each operation out; made for the first request, which reads a file."""
        if self._operations is None:
            self._operations = operations(self._services, self._queues())
        return self._operations


def _region(http: HttpRequest, signed: Signature | None) -> str:
    return region_of(signed.region if signed is not None else region_in(dict(http.headers)))


def operations(services: HttpServices, table: QueueTable) -> Mapping[str, Carry]:
    """Return the operations by name."""
    broker, config = services.broker, services.broker.config
    strict = HttpSettings.of(config).http_sqs_strict == "on"
    delay_s_max = DELAY_S_MAX if strict else config.delay_ms_max // 1000
    landing = Landing(services, GROUP)
    settling = SqsSettling(services, table)
    redriving = Redriving(services, table, settling)
    receiving = Receiving(services, table, landing, redriving)
    sending = Sending(table, landing, broker.clock, delay_s_max, strict=strict)
    tasks = MoveTasks(services, table, redriving)
    queues = SqsQueues(services, table, landing, delay_s_max)
    return {
        "SendMessage": sending.send,
        "SendMessageBatch": sending.send_batch,
        "ReceiveMessage": receiving.receive,
        "DeleteMessage": settling.delete,
        "DeleteMessageBatch": settling.delete_batch,
        "ChangeMessageVisibility": settling.change,
        "ChangeMessageVisibilityBatch": settling.change_batch,
        "CreateQueue": queues.create,
        "DeleteQueue": queues.delete,
        "PurgeQueue": queues.purge,
        "GetQueueUrl": queues.url,
        "ListQueues": queues.list,
        "ListDeadLetterSourceQueues": queues.dead_letter_sources,
        "GetQueueAttributes": queues.attributes,
        "SetQueueAttributes": queues.set_attributes,
        "TagQueue": queues.tag,
        "UntagQueue": queues.untag,
        "ListQueueTags": queues.tags,
        "StartMessageMoveTask": tasks.start,
        "CancelMessageMoveTask": tasks.cancel,
        "ListMessageMoveTasks": tasks.list,
        "AddPermission": queues.add_permission,
        "RemovePermission": queues.remove_permission,
    }
