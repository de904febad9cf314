"""Checks that a request is signed with a known access key.

The signature is the HMAC-SHA1, in base64, of the values of all fields but itself, in the order of their names, and of
the body. Source: ``AclUtils.combineRequestContent`` of apache/rocketmq.

Requests to a name server are answered without a signature, here too: a client that will be refused has to find the
broker first, so that it gets the broker's own text; and ONS clients sign a route's request with a constant that they do
not send.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Mapping
from hashlib import sha1

from tarry.fronts.rocketmq.classic.codes import RequestCode, RequestRefused, ResponseCode
from tarry.fronts.rocketmq.classic.frames import RemotingCommand

ACCESS_KEY, SIGNATURE = "AccessKey", "Signature"
UNSIGNED = frozenset(
    {RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO, RequestCode.GET_KV_CONFIG}
)
"""Requests that need no signature.

Their answers tell where the broker is, and nothing of its content.
"""
_SET_AFTER_SIGNING: dict[int, str] = {RequestCode.QUERY_MESSAGE: "_UNIQUE_KEY_QUERY"}
"""Fields that some clients add to a request after signing it: those up to 4.9.3, and those of ONS.

Source: ``DefaultAuthenticationContextBuilder``.
"""


class Authenticator:
    """Checks the signatures of requests. ``keys``: secret by access key; without any, all are let in."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        self._keys = {key: secret.encode() for key, secret in keys.items()}

    @property
    def names_key(self) -> Callable[[RemotingCommand], bool] | None:
        """A check whether a command, maybe without its body, names a known key; None if no key is needed."""
        return (lambda command: command.fields.get(ACCESS_KEY, "") in self._keys) if self._keys else None

    def check(self, command: RemotingCommand) -> None:
        """Check a command's signature.

        Raises:
            RequestRefused: NO_PERMISSION.
        """
        if not self._keys or command.code in UNSIGNED:
            return
        key = command.fields.get(ACCESS_KEY, "")
        # Compare for an unknown key, too, so that the time taken does not reveal which keys exist.
        secret, given = self._keys.get(key, b""), command.fields.get(SIGNATURE, "")
        good = _same(given, signature_of(command, secret))
        if not good and (late := _SET_AFTER_SIGNING.get(command.code)) in command.fields:
            good = _same(given, signature_of(command, secret, late))
        if not good or key not in self._keys:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the signature of access key {key!r:.80} is missing or wrong, or there is no such key",
            )


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


def signature_of(command: RemotingCommand, secret: bytes, late: str | None = None) -> str:
    """Return the right value of the field Signature.

    ``late``: a field that the client added after signing.
    """
    signed = "".join(value for name, value in sorted(command.fields.items()) if name not in (SIGNATURE, late))
    return base64.b64encode(hmac.new(secret, signed.encode() + command.body, sha1).digest()).decode("ascii")
