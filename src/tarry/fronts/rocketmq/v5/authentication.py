"""Authentication of callers: the client named in a request's headers, and its signature.

Source: ``Signature`` of apache/rocketmq-clients. The signed time is the client's local time under the name of UTC, so
its age says nothing and is not checked.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha1

from loopgrpc import Call
from tarry.base.bounded_cache import BoundedCache
from tarry.fronts.rocketmq.common.refusal import Code, Refusal

_AUTHORIZATION = re.compile(
    r"MQv2-HMAC-SHA1\s+Credential=([^,/\s]*)[^,]*,\s*SignedHeaders=x-mq-date-time\s*,\s*Signature=([0-9A-Fa-f]+)\s*\Z"
)

CALLERS_MAX = 10_000
"""Callers whose headers are remembered, so that they are not parsed again for each call."""


@dataclass(frozen=True, slots=True)
class CallingClient:
    """A client, as named in the headers of its calls."""

    id: str
    namespace: str
    """Empty if there is none."""


class Authenticator:
    """Checks the signatures of calls. ``keys``: secret by access key; without any, every caller is let in."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        self._callers: BoundedCache[tuple[bytes, bytes], CallingClient] = BoundedCache(CALLERS_MAX)
        self._keys = {key: secret.encode() for key, secret in keys.items()}

    def authenticate(self, call: Call) -> CallingClient:
        """Check a call's headers, and return its caller.

        Raises:
            Refusal: CLIENT_ID_REQUIRED; UNAUTHORIZED.
        """
        if self._keys:
            self._check_signature(call.metadata)
        headers = call.value(b"x-mq-client-id"), call.value(b"x-mq-namespace")
        caller = self._callers.get(headers)
        return self._remember(*headers) if caller is None else caller

    def trusts(self, call: Call) -> bool:
        """Return whether a call is signed with one of the keys."""
        try:
            self._check_signature(call.metadata)
        except Refusal:
            return False
        return True

    def _remember(self, id: bytes, namespace: bytes) -> CallingClient:
        if not id:
            raise Refusal(Code.CLIENT_ID_REQUIRED, "the header x-mq-client-id is missing or empty; it is needed")
        caller = CallingClient(id.decode("latin-1"), namespace.decode("latin-1"))
        return self._callers.keep((id, namespace), caller)

    def _check_signature(self, headers: Mapping[str, str]) -> None:
        match = _AUTHORIZATION.match(headers.get("authorization", ""))
        if match is None:
            raise Refusal(
                Code.UNAUTHORIZED,
                "the header authorization is missing or none; needed: MQv2-HMAC-SHA1 Credential=ACCESS_KEY, "
                "SignedHeaders=x-mq-date-time, Signature=HEX",
            )
        key, signature = match[1], match[2].lower()
        # Compare for an unknown key, too, so that the time taken does not reveal which keys exist.
        secret = self._keys.get(key, b"")
        expected = hmac.new(secret, headers.get("x-mq-date-time", "").encode("latin-1"), sha1).hexdigest()
        if not hmac.compare_digest(signature.encode(), expected.encode()) or key not in self._keys:
            raise Refusal(
                Code.UNAUTHORIZED, f"the signature of access key {key!r:.80} is wrong, or there is no such key"
            )
