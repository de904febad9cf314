"""Authentication of callers: the client named in the headers, its signature, token or certificate.

Source: ``Signature`` of apache/rocketmq-clients. The signed time is the client's local time under the name of UTC,
which is at most 14 hours off. So one that is further from now than :data:`AGE_MS_MAX` is refused: otherwise a header
that was seen once would be a password for ever.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha1
from typing import NamedTuple

from loopgrpc import Call
from tarry.base.bounded_cache import BoundedCache
from tarry.base.clock import Clock
from tarry.base.errors import TarryError
from tarry.base.redaction import without_tokens
from tarry.fronts.rocketmq.common.callers import SigningCallers, none_shown
from tarry.fronts.rocketmq.common.refusal import Code, Refusal
from tarry.identity.principal import LOCAL, Principal

_AUTHORIZATION = re.compile(
    r"MQv2-HMAC-SHA1\s+Credential=([^,/\s]*)[^,]*,\s*SignedHeaders=x-mq-date-time\s*,\s*Signature=([0-9A-Fa-f]+)\s*\Z"
)
_NO_KEY = re.compile(
    rb"MQv2-HMAC-SHA1\s+Credential=(?:/[^,]*)?\s*,\s*SignedHeaders=x-mq-date-time\s*,\s*Signature=[0-9A-Fa-f]*\s*\Z"
)
"""Header of a client without an access key, which may sign with an empty one: nobody can have that.

Go's client always signs, and names a region and a service behind the key.
"""
_BEARER = "Bearer "
_DATE = "%Y%m%dT%H%M%SZ"
AGE_MS_MAX = 15 * 3_600_000
"""Time by which a signed date may be before or after now."""
CALLERS_MAX = 10_000
"""Callers whose headers are remembered, so that they are not parsed again for each call."""
SIGNATURES_MAX = 10_000
"""Signatures that are remembered: a client sends the same for all calls of a second."""


@dataclass(frozen=True, slots=True)
class CallingClient:
    """A client, as named in the headers of its calls, and the caller that it proved to be."""

    id: str
    """The client's own id; beside identities with its caller's name before it.

    So no other caller's client is the same.
    """
    namespace: str
    """Empty if there is none."""
    principal: Principal = LOCAL
    host: str = field(default="", compare=False)
    """The address that its calls come from, without the port; empty where nobody is asked."""


class _Verified(NamedTuple):
    principal: Principal
    version: object
    """Of who is known: with another one it is checked again."""
    until_ms: int


class Authenticator:
    """Tells who calls. On the loop's thread."""

    def __init__(self, callers: SigningCallers, clock: Clock) -> None:
        self._known = callers
        self._clock = clock
        self._callers: BoundedCache[tuple[bytes, bytes, Principal, str], CallingClient] = BoundedCache(CALLERS_MAX)
        self._verified: BoundedCache[tuple[bytes, bytes], _Verified] = BoundedCache(SIGNATURES_MAX)

    def authenticate(self, call: Call) -> CallingClient:
        """Check a call's headers, and return its caller.

        Raises:
            Refusal: CLIENT_ID_REQUIRED; UNAUTHORIZED. UnauthenticatedError.
        """
        principal, host = (self._identify_noted(call), call.host) if self._known.asks else (LOCAL, "")
        headers = call.value(b"x-mq-client-id"), call.value(b"x-mq-namespace"), principal, host
        caller = self._callers.get(headers)
        return self._remember(*headers) if caller is None else caller

    def trusts(self, call: Call) -> bool:
        """Return whether a call shows who it is of, or need not."""
        try:
            return not self._known.asks or self._identify(call) is not None
        except (Refusal, TarryError):
            return False

    def _remember(self, id: bytes, namespace: bytes, principal: Principal, host: str) -> CallingClient:
        if not id:
            raise Refusal(Code.CLIENT_ID_REQUIRED, "the header x-mq-client-id is missing or empty; it is needed")
        caller = CallingClient(id.decode("latin-1"), namespace.decode("latin-1"), principal, host)
        if principal is not LOCAL:
            caller = replace(caller, id=f"{principal.name}\0{caller.id}")
        return self._callers.keep((id, namespace, principal, host), caller)

    def _identify_noted(self, call: Call) -> Principal:
        try:
            return self._identify(call)
        except (Refusal, TarryError) as error:
            self._known.note_refusal(error, call.host)
            raise

    def _identify(self, call: Call) -> Principal:
        headers = call.value(b"authorization"), call.value(b"x-mq-date-time")
        verified = self._verified.get(headers)
        if (
            verified is not None
            and verified.version is self._known.version
            and self._clock.now_ms() < verified.until_ms
        ):
            self._known.note_use(verified.principal)
            return verified.principal
        shows_none = (not headers[0] or _NO_KEY.match(headers[0])) and not call.value(b"x-mq-session-token")
        if shows_none and (principal := self._known.by_certificate(call.principal)) is not None:
            return principal
        if shows_none and (principal := self._known.by_nothing(call.host)) is not None:
            return principal
        if shows_none:
            raise none_shown(
                "the header authorization, MQv2-HMAC-SHA1 Credential=ACCESS_KEY, SignedHeaders=x-mq-date-time, "
                "Signature=HEX"
            )
        authorization = headers[0].decode("latin-1")
        if authorization.startswith(_BEARER):
            return self._known.by_token(authorization.removeprefix(_BEARER).strip())
        fresh = self._check_signature(authorization, headers[1])
        self._verified.keep(headers, fresh)
        self._known.note_use(fresh.principal)
        return fresh.principal

    def _check_signature(self, authorization: str, date: bytes) -> _Verified:
        match = _AUTHORIZATION.match(authorization)
        if match is None:
            raise Refusal(
                Code.UNAUTHORIZED,
                "the header authorization is no signature; needed: MQv2-HMAC-SHA1 Credential=ACCESS_KEY, "
                "SignedHeaders=x-mq-date-time, Signature=HEX",
            )
        name, signature = match[1], match[2].lower()
        # Compare for an unknown key, too, so that the time taken does not reveal which keys exist.
        key = self._known.find(name)
        expected = hmac.new(key.secret, date, sha1).hexdigest()
        if not hmac.compare_digest(signature.encode(), expected.encode()) or key.principal is None:
            raise Refusal(
                Code.UNAUTHORIZED,
                f"the signature of access key {without_tokens(name)!r:.80} is wrong, or there is no such key",
            )
        until_ms = _signed_ms(date, self._clock.now_ms()) + AGE_MS_MAX
        if key.expires_ms is not None:
            until_ms = min(until_ms, key.expires_ms)
        return _Verified(key.principal, self._known.version, until_ms)


def _signed_ms(date: bytes, now_ms: int) -> int:
    """Return the signed time.

    Raises:
        Refusal: UNAUTHORIZED: it is none, or too far from now.
    """
    text = date.decode("latin-1")
    signed = _parsed(text)
    if signed is None:
        raise Refusal(
            Code.UNAUTHORIZED,
            f"the header x-mq-date-time is {without_tokens(text)!r:.80}; allowed: as 20301231T235959Z, or as "
            "2030-12-31T23:59:59Z",
        )
    signed_ms = int(signed.timestamp() * 1000)
    if abs(now_ms - signed_ms) >= AGE_MS_MAX:
        hours = AGE_MS_MAX // 3_600_000
        raise Refusal(
            Code.UNAUTHORIZED,
            f"the signature is of {text}; allowed: within {hours} hours of now, by the broker's clock",
        )
    return signed_ms


def _parsed(text: str) -> datetime | None:
    """Return a date in the protocol's form, or RFC 3339's, which Rust's client writes; None: neither."""
    try:
        return datetime.strptime(text, _DATE).replace(tzinfo=UTC)
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
