"""Access of MQTT clients: open, by an access token for everything, or as an identity.

Without identities the setting ``mqtt_access`` says if a client needs an access token as its password. Beside identities
every client is asked: the password is a token of an identity, one of a provider or an access token, or user name and
password are an access key and its secret; one without a password is of whom its certificate names. One that shows
neither of these, nor a user name, is the identity "anonymous", if there is one.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets

from tarry.api.identities import is_token
from tarry.api.local import AnyBroker
from tarry.base.errors import UnauthenticatedError
from tarry.base.exposure import is_exposed
from tarry.base.redaction import without_tokens
from tarry.fronts.kit.callers import Callers
from tarry.fronts.kit.peer_proof import PeerProof, certificate_of
from tarry.fronts.mqtt.packets import V5, ConnectPacket
from tarry.fronts.mqtt.reasons import MqttError, Reason
from tarry.fronts.mqtt.settings import MqttSettings
from tarry.identity.principal import LOCAL, Principal


class Authentication:
    """Tells who connects, by identities and tokens as they are then. On the event loop's thread."""

    def __init__(self, broker: AnyBroker, address: str, loop: asyncio.AbstractEventLoop) -> None:
        setting = MqttSettings.of(broker.config).mqtt_access
        self._needs_token = is_exposed(address) if setting == "auto" else setting == "tokens"
        self.callers = Callers(broker, loop, "mqtt")
        """The clients that are connected."""
        self._nobody = secrets.token_bytes(32)

    def identify(self, connect: ConnectPacket, host: str, proof: PeerProof | None = None) -> Principal:
        """Return who connects from the address ``host``, by a connection that has proved ``proof`` by itself.

        Raises:
            MqttError: BAD_LOGIN: the client shows nothing, or it is not taken. NOT_AUTHORIZED: it may not come in.
        """
        if "authentication_method" in connect.properties:
            raise MqttError(Reason.BAD_AUTHENTICATION_METHOD, "an authentication method; allowed: a password")
        if self.callers.authenticator.asks:
            return self._identity(connect, certificate_of(proof), host)
        if self._needs_token:
            self._check_token(connect, host)
        return LOCAL

    def _identity(self, connect: ConnectPacket, certificate: tuple[str, ...] | None, host: str) -> Principal:
        try:
            if certificate is not None and connect.password is None:
                return _of_user(connect.user or "", self.callers.authenticator.by_certificate(certificate, host))
            if connect.password is None and not connect.user:
                anonymous = self.callers.authenticator.by_nothing(host)
                if anonymous is not None:
                    return anonymous
            return self._known(connect.user or "", connect.password or b"", host)
        except UnauthenticatedError as error:
            # 3.1.1 has a code for a login that cannot be read, and one for a client that may not come in.
            reason = Reason.BAD_LOGIN if connect.version == V5 else Reason.NOT_AUTHORIZED
            raise MqttError(reason, str(error)) from error

    def _known(self, username: str, password: bytes, host: str) -> Principal:
        authenticator, text = self.callers.authenticator, password.decode(errors="replace")
        if is_token(text) or authenticator.takes_jwt(text):
            return _of_user(username, authenticator.by_token(text, peer=host))
        owner = authenticator.tokens.identify(text)
        if owner is not None:
            return owner.principal  # of an access token, beside which the user name says nothing
        key = authenticator.by_access_key(username, host)
        # Compare for an unknown key, too, so that the time taken does not reveal which keys exist.
        same = hmac.compare_digest(password, self._nobody if key is None else key.secret)
        if key is None or not same:
            authenticator.note_refusal("not_known" if password else "none_shown", host)
            raise UnauthenticatedError(
                "the client shows no identity; needed: a token as the password, or an access key and its secret"
            )
        authenticator.note_use(key.id)
        return key.principal

    def _check_token(self, connect: ConnectPacket, host: str) -> None:
        owner = self.callers.authenticator.tokens.identify((connect.password or b"").decode(errors="replace"))
        if owner is None:
            self.callers.authenticator.note_refusal("not_known" if connect.password else "none_shown", host)
            raise MqttError(Reason.BAD_LOGIN, "the password is no access token; see tarry token create")
        if not owner.for_everything:
            namespaces = ", ".join(sorted(owner.tokens))
            raise MqttError(Reason.NOT_AUTHORIZED, f"the token is for {namespaces}; allowed: one for *")


def _of_user(username: str, principal: Principal) -> Principal:
    """Return a caller who may have said a user name, too.

    Raises:
        UnauthenticatedError: it is the name of another.
    """
    if username not in ("", principal.name):
        raise UnauthenticatedError(
            f"the user name is {without_tokens(username)!r:.80}, and the token or certificate another identity's; "
            "allowed: the identity's name, or none"
        )
    return principal
