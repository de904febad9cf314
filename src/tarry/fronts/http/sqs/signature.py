"""Signature Version 4, AWS's way to sign a request with an access key.

The signature covers the method, the path, the query, the headers that it names (``host`` among them) and the body. So a
proxy has to pass ``Host`` on as it came.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

from tarry.fronts.http.exchange import Headers
from tarry.fronts.http.sqs.errors import SqsError

ALGORITHM = "AWS4-HMAC-SHA256"
SKEW_MS_MAX = 5 * 60_000
"""Longest way of a client's clock from the broker's, as with AWS."""
TERMINATION = "aws4_request"

_SHOWN = re.compile(
    ALGORITHM + r"\s+Credential=([^/,\s]{1,256})/([0-9]{8})/([-a-zA-Z0-9]{1,64})/([a-z0-9]{1,32})/aws4_request\s*,\s*"
    r"SignedHeaders=([-a-z0-9;._]{1,2000})\s*,\s*Signature=([0-9a-f]{64})"
)
_SPACES = re.compile(" +")


class Signature(NamedTuple):
    """The signature that a request shows."""

    access_key: str
    day: str
    region: str
    signed_headers: tuple[str, ...]
    signature: str
    time: str
    """``YYYYMMDDTHHMMSSZ``."""
    service: str

    @property
    def scope(self) -> str:
        return f"{self.day}/{self.region}/{self.service}/{TERMINATION}"


def shown_by(headers: Headers, service: str) -> Signature | None:
    """Return the signature that a request shows; None: it shows none of this kind.

    ``service``: the name of the service for which it has to be.

    Raises:
        SqsError: it is incomplete.
    """
    given = dict(headers)
    text = given.get(b"authorization", b"").decode("latin-1")
    if not text.startswith("AWS4-"):
        return None
    found = _SHOWN.fullmatch(text.strip())
    time = given.get(b"x-amz-date", b"").decode("latin-1")
    if found is None or found[4] != service or not time.startswith(found[2]):
        raise SqsError(
            "IncompleteSignature",
            f"Authorization is not {ALGORITHM} with Credential (of service {service}), SignedHeaders and Signature, "
            "or there is no X-Amz-Date of that day.",
        )
    signed = tuple(found[5].split(";"))
    if "host" not in signed:
        raise SqsError("IncompleteSignature", "The header host is not among the signed headers.")
    return Signature(found[1], found[2], found[3], signed, found[6], time, service)


def check_time(shown: Signature, now_ms: int) -> None:
    """Refuse a signature that was made long ago, or will be made.

    Raises:
        SqsError: it is more than five minutes from now.
    """
    try:
        signed_ms = datetime.strptime(shown.time, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp() * 1000
    except ValueError:
        raise SqsError("IncompleteSignature", "X-Amz-Date is not YYYYMMDDTHHMMSSZ.") from None
    if abs(signed_ms - now_ms) > SKEW_MS_MAX:
        now = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
        word = "expired" if signed_ms < now_ms else "not yet current"
        raise SqsError(
            "SignatureDoesNotMatch", f"Signature {word}: {shown.time} is more than 5 minutes from {now}.", 403
        )


def is_right(shown: Signature, secret: bytes, method: str, target: bytes, headers: Headers, body: bytes) -> bool:
    """Return whether a signature was made with a secret for this request."""
    request = canonical_request(method, target, headers, shown.signed_headers, body)
    text = "\n".join((ALGORITHM, shown.time, shown.scope, sha256(request).hexdigest()))
    key = b"AWS4" + secret
    for part in (shown.day, shown.region, shown.service, TERMINATION):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.compare_digest(hmac.digest(key, text.encode(), "sha256").hex(), shown.signature)


def canonical_request(method: str, target: bytes, headers: Headers, signed: Sequence[str], body: bytes) -> bytes:
    """Return a request as it is signed. ``target``: path and query, as they came."""
    path, _, query = target.partition(b"?")
    values: dict[str, list[str]] = {}
    for name, value in headers:
        values.setdefault(name.decode("latin-1"), []).append(_SPACES.sub(" ", value.decode("latin-1").strip()))
    lines = [f"{name}:{','.join(values.get(name, ()))}\n" for name in signed]
    parts = (
        *(method, quote(path.decode("latin-1") or "/", safe="/-_.~"), _canonical_query(query)),
        *("".join(lines), ";".join(signed), sha256(body).hexdigest()),
    )
    return "\n".join(parts).encode("latin-1")


def _canonical_query(query: bytes) -> str:
    if not query:
        return ""
    pairs = [(name, value) for name, _, value in (pair.partition(b"=") for pair in query.split(b"&"))]
    return "&".join(
        f"{name}={value}" for name, value in sorted((_quoted(name), _quoted(value)) for name, value in pairs)
    )


def _quoted(raw: bytes) -> str:
    return quote(unquote_to_bytes(raw), safe="-_.~")


def region_in(headers: Mapping[bytes, bytes]) -> str:
    """Return the region in a request's signature, unchecked; empty: there is none."""
    text = headers.get(b"authorization", b"").decode("latin-1")
    return text.partition("Credential=")[2].partition(",")[0].split("/")[2] if text.count("/") > 2 else ""
