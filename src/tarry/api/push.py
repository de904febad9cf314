"""Push subscriptions: what is POSTed to whom, and what is known of it. Their texts are checked here.

A subscription takes the messages of a group of its own and sends each to a URL, signed as Standard Webhooks has it
(https://www.standardwebhooks.com). Back-off, tries, filter and dead letters are the group's.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets as random_bytes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from urllib.parse import urlsplit

from tarry.api.settings import check_number
from tarry.base.errors import InvalidArgumentError, NotFoundError
from tarry.base.printable import shown

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
URL_MAX = 2048
SECRET_PREFIX = "whsec_"
SECRET_BYTES_MIN, SECRET_BYTES_MAX = 24, 64
SECRETS_MAX = 4
HEADERS_MAX = 20
HEADER_MAX = 4096
CONCURRENCY_MAX = 256
TIMEOUT_MS_MIN, TIMEOUT_MS_MAX = 100, 300_000
PER_SECOND_MAX = 1e6
FAILURES_MAX = 1_000_000
REASON_MAX = 200
RETRY = "exponential 2s max 1h jitter 0.2"
"""Back-off of a group that is made for a subscription that says nothing of it."""

CLOUDEVENTS = ("off", "binary", "structured")
"""The content mode of CloudEvents 1.0 over HTTP in which requests are sent; ``off``: in none."""
CloudEventsMode = Literal["off", "binary", "structured"]

_ATTRIBUTE = re.compile("ce-[a-z0-9]{1,64}")
_OF_EACH = tuple(f"ce-{name}" for name in ("id", "specversion", "time", "subject", "datacontenttype", "data"))
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_HEADER_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?|")
_URL = re.compile(r"[\x21-\x7e]+")
_OURS = ("webhook-", "x-tarry-", "proxy-")
_FRAMING = (
    *("host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "expect"),
    *("keep-alive", "accept-encoding"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSubscription:
    """A subscription as it is stored, with its secrets; checked.

    Raises:
        InvalidArgumentError: a value is not allowed; says which are. Secrets are not in the text.
    """

    name: str
    topic: str
    group: str
    url: str = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    """Each message is signed with all of them, so that a receiver may go over from one to another."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    concurrency: int = 16
    """Requests at a time."""
    per_second: float = 0.0
    """Requests a second; 0: as many as there are."""
    timeout_ms: int = 15_000
    """Longest time of a request, its answer included, in milliseconds."""
    breaker_failures: int = 10
    """Failures in a row that open the circuit breaker; 0: never."""
    cloudevents: str = "off"
    """Content mode of the CloudEvents that requests are, one of :data:`CLOUDEVENTS`."""
    paused: bool = False
    reason: str = ""
    """The reason why it is paused."""
    created_ms: int = 0

    def __post_init__(self) -> None:
        check_name(self.name)
        check_url(self.url)
        _check_secrets(self.secrets)
        _check_headers(self.headers)
        check_cloudevents(self.cloudevents, self.headers)
        check_number("concurrency", self.concurrency, 1, CONCURRENCY_MAX, "1")
        check_number("timeout_ms", self.timeout_ms, TIMEOUT_MS_MIN, TIMEOUT_MS_MAX, str(TIMEOUT_MS_MIN))
        check_number("breaker_failures", self.breaker_failures, 0, FAILURES_MAX, "0 (never)")
        rate = self.per_second
        # Not a number is in no range.
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= PER_SECOND_MAX:
            raise InvalidArgumentError(f"per_second is {shown(rate)}; allowed: 0 (no limit) to {PER_SECOND_MAX:g}")
        if rate and rate < 0.001:
            raise InvalidArgumentError(f"per_second is {rate}; allowed: 0 (no limit), or 0.001 and more")
        if not isinstance(self.reason, str) or len(self.reason) > REASON_MAX:
            raise InvalidArgumentError(f"reason is {shown(self.reason)}; allowed: up to {REASON_MAX} characters")

    def changed(self, **given: Any) -> PushSubscription:
        """Return a copy with new values; None leaves a value as it is."""
        return replace(self, **{name: value for name, value in given.items() if value is not None})


@dataclass(frozen=True, slots=True, kw_only=True)
class PushProgress:
    """State of a subscription, as the pusher sees it; counts are since the process began."""

    state: str
    """One of running, open, half_open, waiting and stopped.

    open: the circuit breaker has opened; half_open: one request tries whether it can close; waiting: the receiver asked
    for a pause (Retry-After); stopped: it cannot take messages, ``error`` says why.
    """
    until_ms: int | None = None
    """Until when it is open or waiting."""
    in_flight: int = 0
    pushed: int = 0
    """Acknowledged by a 2xx."""
    failed: int = 0
    """Requests that ended otherwise."""
    failures_in_a_row: int = 0
    breaker_opened: int = 0
    """Number of times that the circuit breaker has opened."""
    error: str | None = None
    """The last failure."""
    error_ms: int | None = None
    pushed_ms: int | None = None
    """Time of the last pushed message."""
    duration_us: dict[str, Any] = field(default_factory=dict)
    """Duration of requests, as a histogram (:class:`tarry.base.histogram.Histogram`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushInfo:
    """A subscription as shown to users: without secrets, values of headers, and the query of its URL."""

    name: str
    topic: str
    group: str
    url: str
    secrets: int
    """Number of secrets."""
    headers: list[str]
    """Their names."""
    concurrency: int
    per_second: float
    timeout_ms: int
    breaker_failures: int
    cloudevents: str = "off"
    paused: bool
    reason: str
    created_ms: int
    state: str
    """paused; off: this broker does not push; else see :class:`PushProgress`."""
    until_ms: int | None
    in_flight: int
    pushed: int
    failed: int
    failures_in_a_row: int
    breaker_opened: int
    error: str | None
    error_ms: int | None
    pushed_ms: int | None
    duration_us: dict[str, Any]
    secret: str | None = None
    """A secret that was made just now: it is not shown again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushAttempt:
    """A request, and its result."""

    name: str
    """The subscription."""
    webhook_id: str
    id: str
    """The message's."""
    seq: int
    topic: str
    attempt: int
    """Number of the message's try; 0: a test."""
    at_ms: int
    duration_ms: float
    status: int | None
    """The answer's status; None: there was no answer."""
    outcome: Literal["pushed", "failed", "throttled", "gone"]
    """pushed, failed, throttled (429 or 503 with Retry-After) or gone (410)."""
    error: str | None
    answer: str
    """The beginning of the answer's body."""
    again_ms: int | None
    """Earliest time of the next try, if the receiver asked for one; else the group's back-off decides."""


def check_name(name: str) -> str:
    """``name`` itself, where a subscription may be called so.

    Raises:
        InvalidArgumentError: otherwise.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InvalidArgumentError(
            f"subscription {shown(name)}; allowed: 1 to 64 letters, digits, '.', '_' and '-', beginning with one of "
            "the first two"
        )
    return name


def check_cloudevents(mode: str, headers: Mapping[str, str]) -> None:
    """Check the content mode of a subscription, and what its headers say of its events.

    Raises:
        InvalidArgumentError: there is no such mode, or a header is an attribute that each event has of its own.
    """
    if mode not in CLOUDEVENTS:
        raise InvalidArgumentError(f"cloudevents is {shown(mode)}; allowed: {', '.join(CLOUDEVENTS)}")
    if mode == "off":
        return
    for name in headers:
        low = name.lower()
        if low.startswith("ce-") and (not _ATTRIBUTE.fullmatch(low) or low in _OF_EACH):
            raise InvalidArgumentError(
                f"header {name} is no attribute that all events could have; allowed: ce-source, ce-type, "
                "ce-dataschema, and ce- with a name of a-z and 0-9 of your own"
            )


def not_there(name: str) -> NotFoundError:
    """Return the error of a subscription that is not there, or that a caller may not know of."""
    return NotFoundError(f"there is no push subscription {name!r}")


def origin_of(url: str) -> tuple[str, str, int]:
    """Scheme, host and port of a URL that was checked: who receives what is pushed there."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or {"http": 80, "https": 443}[parts.scheme]


def check_url(url: str) -> str:
    """``url`` itself, where one may push to it; its address is looked at when it is connected to.

    Raises:
        InvalidArgumentError: otherwise. What may be secret in it is not in the text.
    """
    wanted = "allowed: http:// or https://, a host, maybe a port, path and query"
    if not isinstance(url, str) or len(url) > URL_MAX or not _URL.fullmatch(url) or "\\" in url:
        raise InvalidArgumentError(f"url is no URL of up to {URL_MAX} printable ASCII characters; {wanted}")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidArgumentError(f"url: {error}; {wanted}") from None
    if parts.scheme not in ("http", "https"):
        raise InvalidArgumentError(f"url begins with {shown(parts.scheme)}; {wanted}")
    if "@" in parts.netloc:
        raise InvalidArgumentError(f"url has a user or a password; use a header; {wanted}")
    if not parts.hostname or port == 0 or "%" in parts.netloc:
        raise InvalidArgumentError(f"url has no host, or no port that can be; {wanted}")
    if "#" in url:
        raise InvalidArgumentError(f"url has a fragment, which is never sent; {wanted}")
    return url


def shown_url(url: str) -> str:
    """Return a URL without its query, which may have a password in it."""
    head, mark, _ = url.partition("?")
    return f"{head}?…" if mark else head


def new_secret() -> str:
    """Return a new random secret."""
    return SECRET_PREFIX + base64.b64encode(random_bytes.token_bytes(32)).decode()


def secret_key(secret: str) -> bytes:
    """Return the key of a secret of Standard Webhooks.

    Raises:
        InvalidArgumentError: it is none; the text does not show it.
    """
    wanted = (
        f"allowed: {SECRET_PREFIX} and the base64 of {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes (`openssl rand`)"
    )
    if not isinstance(secret, str) or not secret.startswith(SECRET_PREFIX):
        raise InvalidArgumentError(f"a secret does not begin with {SECRET_PREFIX}; {wanted}")
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidArgumentError(f"a secret is no base64 behind {SECRET_PREFIX}; {wanted}") from None
    if not SECRET_BYTES_MIN <= len(key) <= SECRET_BYTES_MAX:
        raise InvalidArgumentError(f"a secret has {len(key)} bytes; {wanted}")
    return key


def _check_secrets(secrets: Sequence[str]) -> None:
    if not 1 <= len(secrets) <= SECRETS_MAX:
        raise InvalidArgumentError(f"{len(secrets)} secrets; allowed: 1 to {SECRETS_MAX}")
    for secret in secrets:
        secret_key(secret)


def _check_headers(headers: Mapping[str, str]) -> None:
    if len(headers) > HEADERS_MAX:
        raise InvalidArgumentError(f"{len(headers)} headers; allowed: up to {HEADERS_MAX}")
    seen = set()
    for name, value in headers.items():
        low = name.lower() if isinstance(name, str) else ""
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name) or low in seen:
            raise InvalidArgumentError(
                f"header {shown(name)} is given twice, or no name of a header; allowed: token characters"
            )
        seen.add(low)
        if low in _FRAMING or low.startswith(_OURS):
            raise InvalidArgumentError(f"header {name} is set by Tarry or by HTTP; allowed: others")
        if not isinstance(value, str) or len(value) > HEADER_MAX or not _HEADER_VALUE.fullmatch(value):
            raise InvalidArgumentError(
                f"the value of header {name} is not allowed; allowed: up to {HEADER_MAX} printable ASCII characters"
            )
