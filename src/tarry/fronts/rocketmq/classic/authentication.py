"""Checks that a request is signed with a known access key, or comes with a known certificate.

The signature is the HMAC-SHA1, in base64, of the values of all fields but itself, in the order of their names, and of
the body. Source: ``AclUtils.combineRequestContent`` of apache/rocketmq.

Without identities, requests to a name server are answered without a signature, here too: a client that will be refused
has to find the broker first, so that it gets the broker's own text.
"""

from __future__ import annotations

import base64
import hmac
from hashlib import sha1

from tarry.base.errors import UnauthenticatedError
from tarry.base.redaction import without_tokens
from tarry.fronts.rocketmq.classic.codes import RequestCode, RequestRefused, ResponseCode
from tarry.fronts.rocketmq.classic.frames import RemotingCommand
from tarry.fronts.rocketmq.common.callers import SigningCallers, none_shown
from tarry.identity.principal import LOCAL, Principal

ACCESS_KEY, SIGNATURE = "AccessKey", "Signature"
_SHOWN = frozenset((ACCESS_KEY, SIGNATURE, "SecurityToken"))
UNSIGNED = frozenset(
    {RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO, RequestCode.GET_KV_CONFIG}
)
"""Requests that need no signature while there are no identities.

Their answers tell where the broker is, and nothing of its content.
"""
_SET_AFTER_SIGNING: dict[int, str] = {RequestCode.QUERY_MESSAGE: "_UNIQUE_KEY_QUERY"}
"""Fields that some clients add to a request after signing it: those up to 4.9.3, and those of ONS.

Source: ``DefaultAuthenticationContextBuilder``.
"""
_NOT_SENT: dict[int, tuple[str, str]] = {RequestCode.GET_ROUTEINFO_BY_TOPIC: ("split", "\x01")}
"""Fields that ONS clients sign and do not send.

They sign each member of the request's class, constants too.
Source: ``AbstractRPCHook.parseRequestContent`` and ``GetRouteInfoRequestHeader`` of com.aliyun.openservices:ons-client.
"""


class Authenticator:
    """Tells who signed a request. On the loop's thread."""

    def __init__(self, callers: SigningCallers) -> None:
        self._callers = callers

    def names_key(self, command: RemotingCommand, proof: object) -> bool:
        """Return whether a command, maybe without its body, names a known key, or needs none.

        ``proof``: what its connection has proved.
        """
        if not self._callers.asks or self._callers.names(command.fields.get(ACCESS_KEY, "")):
            return True
        try:
            return _is_unsigned(command) and (
                self._callers.by_certificate(proof) is not None or self._callers.takes_nothing
            )
        except UnauthenticatedError:
            return False

    def identify(self, command: RemotingCommand, proof: object, peer: str) -> Principal | None:
        """Return whose a command is, by its signature; None: a stranger's, which is answered nevertheless.

        One that is not signed is of whom the connection's certificate names, by what it has proved; without one, of who
        shows nothing, at the address ``peer``.

        Raises:
            RequestRefused: NO_PERMISSION. UnauthenticatedError: the key has expired, or is not known here; there is
                none.
        """
        callers = self._callers
        if not callers.asks:
            return LOCAL
        if command.code in UNSIGNED and not callers.has_identities:
            return None
        if _is_unsigned(command) and (principal := callers.by_certificate(proof)) is not None:
            return principal
        if _is_unsigned(command) and (principal := callers.by_nothing(peer)) is not None:
            return principal
        if not command.fields.get(ACCESS_KEY):
            raise none_shown("the fields AccessKey and Signature")
        name = command.fields.get(ACCESS_KEY, "")
        # Compare for an unknown key, too, so that the time taken does not reveal which keys exist.
        key, given = callers.find(name), command.fields.get(SIGNATURE, "")
        good = _same(given, signature_of(command, key.secret))
        if not good and (late := _SET_AFTER_SIGNING.get(command.code)) in command.fields:
            good = _same(given, signature_of(command, key.secret, late))
        if not good and (unsent := _NOT_SENT.get(command.code)) is not None and unsent[0] not in command.fields:
            good = _same(given, signature_of(command, key.secret, unsent=unsent))
        if not good or key.principal is None:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the signature of access key {without_tokens(name)!r:.80} is missing or wrong, or there is no such "
                "key",
            )
        callers.note_use(key.principal)
        return key.principal


def _is_unsigned(command: RemotingCommand) -> bool:
    return _SHOWN.isdisjoint(command.fields)


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


def signature_of(
    command: RemotingCommand, secret: bytes, late: str | None = None, *, unsent: tuple[str, str] | None = None
) -> str:
    """Return the right value of the field Signature.

    ``late``: a field that the client added after signing; ``unsent``: one that it signed and did not send.
    """
    fields = sorted([*command.fields.items(), *(() if unsent is None else (unsent,))])
    signed = "".join(value for name, value in fields if name not in (SIGNATURE, late))
    return base64.b64encode(hmac.new(secret, signed.encode() + command.body, sha1).digest()).decode("ascii")
