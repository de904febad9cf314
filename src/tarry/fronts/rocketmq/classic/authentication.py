"""Whether a request is signed with an access key that there is.

The signature is the HMAC-SHA1, in base64, of the values of all fields in the order of their names, but for its own, and
of the body. Source: ``AclUtils.combineRequestContent`` of apache/rocketmq.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Mapping
from hashlib import sha1

from tarry.fronts.rocketmq.classic.codes import RequestRefused, ResponseCode
from tarry.fronts.rocketmq.classic.frames import Command

ACCESS_KEY, SIGNATURE = "AccessKey", "Signature"


class Authenticator:
    """``keys``: secret by access key; without any, everybody is let in."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        self._keys = {key: secret.encode() for key, secret in keys.items()}

    @property
    def names_key(self) -> Callable[[Command], bool] | None:
        """Whether a command, whose body may be missing, names a key that there is; None: nobody needs one."""
        return (lambda command: command.fields.get(ACCESS_KEY, "") in self._keys) if self._keys else None

    def check(self, command: Command) -> None:
        """
        Raises:
            RequestRefused: NO_PERMISSION.
        """
        if not self._keys:
            return
        key = command.fields.get(ACCESS_KEY, "")
        # An unknown key is compared, too, so that the time taken does not tell which there are.
        expected = signature_of(command, self._keys.get(key, b""))
        given = command.fields.get(SIGNATURE, "")
        if not hmac.compare_digest(given.encode(), expected.encode()) or key not in self._keys:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the signature of access key {key!r:.80} is missing or wrong, or there is no such key",
            )


def signature_of(command: Command, secret: bytes) -> str:
    """What the field Signature must be."""
    signed = "".join(value for name, value in sorted(command.fields.items()) if name != SIGNATURE)
    return base64.b64encode(hmac.new(secret, signed.encode() + command.body, sha1).digest()).decode("ascii")
