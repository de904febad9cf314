"""What clients ask most, without a task for each request: publish, consume from one queue, acknowledge.

Nothing is decided here that the usual way (:mod:`.routes`) does not decide. A request whose token, queue and options
are in order, with nothing special about it, is begun; any other one is left to that way, refusals above all. What a
target (path and query) means is remembered, since clients send the same few again and again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from tarry.api.access import AccessToken
from tarry.base.errors import ClosedError, TarryError
from tarry.fronts.http.exchange import HttpResponse, WholeRequest
from tarry.fronts.http.lmstfy.access_log import AccessLog
from tarry.fronts.http.lmstfy.answering import Answering
from tarry.fronts.http.lmstfy.answers import JSON_LINE, QueryValues, RefusalError
from tarry.fronts.http.lmstfy.job_queue import JobEntry, JobQueue, Plain
from tarry.fronts.http.lmstfy.jobs import LmstfyJob
from tarry.fronts.http.lmstfy.names import GROUP, NAME, NAME_CHARS_MAX, topic_of
from tarry.fronts.http.lmstfy.receiving import JobReceiver, answer_of, options_of
from tarry.fronts.http.lmstfy.sending import BODY_BYTES_MAX, bodies_of
from tarry.fronts.http.lmstfy.sending import options_of as publish_options_of
from tarry.fronts.http.lmstfy.settling import Acknowledging
from tarry.fronts.http.lmstfy.waiting import JobReceive
from tarry.fronts.http.services import HttpServices
from tarry.fronts.kit.receiving import ReceiveQueue
from tarry.message.schema import is_topic

TARGETS_MAX = 4096
"""So many targets are remembered."""
PREFIX_PARTS = 4
"""Of ``/api/NAMESPACE/QUEUE``: parts between slashes, the empty one before the first counted in."""


class Publish(NamedTuple):
    """What requests to publish with one target have in common."""

    kind: Plain
    several: bool
    """In bulk."""


K = TypeVar("K", Publish, JobReceive)
FindToken = Callable[[bytes, str], AccessToken | None]
"""The token that a header's secret is in a namespace."""


class Prompt:
    """On the loop's thread."""

    def __init__(
        self,
        services: HttpServices,
        jobs: JobQueue,
        acknowledging: Acknowledging,
        consuming: JobReceiver,
        answering: Answering,
        access_log: AccessLog,
        find_token: FindToken,
    ) -> None:
        self._services = services
        self._jobs = jobs
        self._acknowledging = acknowledging
        self._consuming = consuming
        self._answering = answering
        self._ids = answering.ids
        self._access_log = access_log
        self._find_token = find_token
        config = services.broker.config
        self._body_bytes_max = min(BODY_BYTES_MAX, config.body_bytes_max)
        self._delay_ms_max = config.delay_ms_max
        self._publishes: dict[bytes, tuple[str, ReceiveQueue, Publish]] = {}
        self._receives: dict[bytes, tuple[str, ReceiveQueue, JobReceive]] = {}

    def begin(self, request: WholeRequest) -> bool:
        """See :data:`tarry.fronts.http.exchange.Begin`."""
        if self._access_log.enabled:
            return False
        secret = b""
        for name, value in request.headers:
            if name == b"x-token":
                secret = secret or value
            elif name == b"enable-job-version":
                return False
        if request.method == "PUT":
            return self._publish(request, secret)
        if request.method == "GET":
            return self._consume(request, secret)
        return request.method == "DELETE" and self._acknowledge(request, secret)

    # ----------------------------------------------------------------------------------------------------------------

    def _publish(self, request: WholeRequest, secret: bytes) -> bool:
        found = self._publishes.get(request.target) or self._look(request, self._publishes, self._plain)
        if found is None or not self._may(secret, found[0], found[1]):
            return False
        kind, several = found[2].kind, found[2].several
        try:
            bodies = bodies_of(request.whole()) if several else [request.whole()]
            if max(map(len, bodies)) > self._body_bytes_max:
                return False
            on_result = self._on_published_in_bulk if several else self._on_published
            self._jobs.add(JobEntry(kind, bodies, partial(on_result, request), partial(self._refuse, request)))
        except (ClosedError, RefusalError):
            return False
        return True

    def _on_published(self, request: WholeRequest, ids: list[str]) -> None:
        body = b'{"job_id":"%s","msg":"published"}' % ids[0].encode()
        request.answer(HttpResponse(201, body, (), JSON_LINE + self._ids.next()))

    def _on_published_in_bulk(self, request: WholeRequest, ids: list[str]) -> None:
        body = b'{"job_ids":["%s"],"msg":"published"}' % '","'.join(ids).encode()
        request.answer(HttpResponse(201, body, (), JSON_LINE + self._ids.next()))

    def _consume(self, request: WholeRequest, secret: bytes) -> bool:
        found = self._receives.get(request.target) or self._look(request, self._receives, self._receive)
        if found is None or not self._may(secret, found[0], found[1]):
            return False
        receive = found[2]
        self._consuming.begin(request, receive, partial(self._on_jobs, request, receive.count))
        return True

    def _on_jobs(self, request: WholeRequest, count: int, jobs: list[LmstfyJob] | TarryError) -> None:
        if isinstance(jobs, TarryError):
            self._refuse(request, jobs)
        else:
            status, body = answer_of(jobs, count)
            request.answer(HttpResponse(status, body, (), JSON_LINE + self._ids.next()))

    def _acknowledge(self, request: WholeRequest, secret: bytes) -> bool:
        parts = request.target.split(b"/")
        if len(parts) != PREFIX_PARTS + 2 or parts[4] != b"job":
            return False
        namespace, queue, job = parts[2].decode("latin-1"), parts[3].decode("latin-1"), parts[5].decode("latin-1")
        # A job in somebody's hands is of a queue whose name is in order.
        token = self._find_token(secret, namespace)
        return token is not None and self._acknowledging.settle(
            topic_of(namespace, queue), job, partial(self._on_settled, request)
        )

    def _on_settled(self, request: WholeRequest, result: bool | TarryError) -> None:
        if isinstance(result, TarryError):
            self._refuse(request, result)
        elif result:
            request.answer(HttpResponse(204, b"", (), self._ids.next()))
        else:
            request.carry_out()  # its lease was over: wherever it is now, it is to go

    def _refuse(self, request: WholeRequest, error: TarryError) -> None:
        request.answer(self._answering.identified(self._answering.refusal(request, error)))

    # ----------------------------------------------------------------------------------------------------------------

    def _may(self, secret: bytes, namespace: str, queue: ReceiveQueue) -> bool:
        """Whether a token lets its owner do it, as often as wanted, and the queue is still there."""
        token = self._find_token(secret, namespace)
        unlimited = token is not None and not (token.reads_max or token.writes_max)
        return unlimited and not queue.group.closed

    def _look(
        self,
        request: WholeRequest,
        known: dict[bytes, tuple[str, ReceiveQueue, K]],
        kind_of: Callable[[ReceiveQueue, tuple[str, str], QueryValues, bool], K | None],
    ) -> tuple[str, ReceiveQueue, K] | None:
        """What a target means, which is remembered then; None: that is for the usual way."""
        parts = request.path.split("/")
        several = request.method == "PUT" and parts[PREFIX_PARTS:] == ["bulk"]
        if not (several or len(parts) == PREFIX_PARTS) or b"token=" in request.query:
            return None
        names = parts[2], parts[3]
        if names[1].startswith("_") or not all(NAME.fullmatch(n) and len(n) <= NAME_CHARS_MAX for n in names):
            return None
        topic = topic_of(*names)
        queue = self._services.known_queue(topic, GROUP)
        if queue is None or not is_topic(topic):
            return None
        try:
            kind = kind_of(queue, names, QueryValues(request.query), several)
        except RefusalError:
            return None
        if kind is None:
            return None
        if len(known) >= TARGETS_MAX:
            known.clear()
        known[request.target] = found = (names[0], queue, kind)
        return found

    def _plain(self, queue: ReceiveQueue, names: tuple[str, str], query: QueryValues, several: bool) -> Publish | None:
        options = publish_options_of(query)
        if options.delay_ms > self._delay_ms_max or (options.ttl_ms is not None and options.ttl_ms <= options.delay_ms):
            return None
        return Publish(Plain(queue.group.topic_name, options.delay_ms, options.ttl_ms, options.tries), several)

    def _receive(self, queue: ReceiveQueue, names: tuple[str, str], query: QueryValues, several: bool) -> JobReceive:
        lease_ms, timeout_s, count = options_of(query)
        return JobReceive(queue, names, count, lease_ms, timeout_s)
