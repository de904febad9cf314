"""Finds out whose a request of SQS's API is: by its signature, or as the rest of the HTTP port does."""

from __future__ import annotations

from typing import cast

from tarry.base.clock import Clock
from tarry.base.errors import UnauthenticatedError
from tarry.fronts.http.access import Access
from tarry.fronts.http.exchange import HttpRequest
from tarry.fronts.http.foreign import AccessRefusal
from tarry.fronts.http.server.message import HttpExchange
from tarry.fronts.http.sqs import signature
from tarry.fronts.http.sqs.errors import SqsError
from tarry.fronts.http.sqs.signature import Signature
from tarry.identity.authenticator import AccessKey
from tarry.identity.principal import Principal

_NO_KEYS = (
    "The broker asks for access tokens, and has no identities whose access keys could sign; allowed: make an identity "
    "and an access key (tarry identity create, tarry identity access-key), or Authorization: Bearer TOKEN."
)


class SqsAccess:
    """On the event loop's thread."""

    def __init__(self, access: Access, clock: Clock, service: str = "sqs") -> None:
        """``service``: the name of the service in signatures."""
        self._access = access
        self._clock = clock
        self._service = service

    def look(self, http: HttpRequest) -> tuple[Signature, AccessKey] | Principal:
        """Return whose a request is; or, of a signed one, what to check as soon as its body is there.

        Raises:
            SqsError: it is refused.
        """
        if not self._access.asks:
            return self._admitted(http)  # whatever it is signed with
        shown = signature.shown_by(http.headers, self._service)
        if shown is None:
            return self._admitted(http)
        if not self._access.knows_identities:
            raise SqsError("InvalidClientTokenId", _NO_KEYS, 403)
        signature.check_time(shown, self._clock.now_ms())
        try:
            key = self._access.authenticator.by_access_key(shown.access_key, http.host)
        except UnauthenticatedError as error:
            raise SqsError("InvalidClientTokenId", str(error), 403) from error
        if key is None:
            self._access.authenticator.note_refusal("not_known", http.host)
            raise SqsError("InvalidClientTokenId", "The access key in the request is not known.", 403)
        return shown, key

    def check(self, http: HttpRequest, shown: Signature, key: AccessKey, body: bytes) -> Principal:
        """Return whose a signed request is.

        Raises:
            SqsError: the signature is another one.
        """
        if not signature.is_right(shown, key.secret, http.method, http.target, http.headers, body):
            self._access.authenticator.note_refusal("signature", http.host)
            raise SqsError(
                "SignatureDoesNotMatch",
                "The request signature we calculated does not match the signature you provided. Check the secret "
                "access key, and that no proxy changes the Host header.",
                403,
            )
        self._access.authenticator.note_use(key.id)
        http.trusted()
        return key.principal

    def _admitted(self, http: HttpRequest) -> Principal:
        admitted = self._access.admit(cast(HttpExchange, http).scope)
        if isinstance(admitted, AccessRefusal):
            code = "MissingAuthenticationToken" if admitted.status == 401 else "AccessDeniedException"
            raise SqsError(code, admitted.text, 403)
        return admitted
