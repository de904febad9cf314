"""Access of MQTT clients: open, or by an access token for everything, as the password."""

from __future__ import annotations

from tarry.api.local import AnyBroker
from tarry.base.exposure import is_exposed
from tarry.fronts.kit.tokens import KnownTokens
from tarry.fronts.mqtt.packets import ConnectPacket
from tarry.fronts.mqtt.reasons import MqttError, Reason
from tarry.fronts.mqtt.settings import MqttSettings


class Authentication:
    """Checks who connects, by the broker's tokens as they are then. On the event loop's thread."""

    def __init__(self, broker: AnyBroker, address: str) -> None:
        setting = MqttSettings.of(broker.config).mqtt_access
        self._tokens = KnownTokens(broker)
        self._needs_token = is_exposed(address) if setting == "auto" else setting == "tokens"

    def check(self, connect: ConnectPacket) -> None:
        """Refuse a client that shows no token, whatever its user name.

        Raises:
            MqttError: BAD_LOGIN; NOT_AUTHORIZED: the token is for a namespace alone.
        """
        if "authentication_method" in connect.properties:
            raise MqttError(Reason.BAD_AUTHENTICATION_METHOD, "an authentication method; allowed: a password")
        if not self._needs_token:
            return
        identity = self._tokens.identify((connect.password or b"").decode(errors="replace"))
        if identity is None:
            raise MqttError(Reason.BAD_LOGIN, "the password is no access token; see tarry token create")
        if not identity.for_everything:
            namespaces = ", ".join(sorted(identity.tokens))
            raise MqttError(Reason.NOT_AUTHORIZED, f"the token is for {namespaces}; allowed: one for *")
