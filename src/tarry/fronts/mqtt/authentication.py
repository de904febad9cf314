"""Access of MQTT clients: open, or by an access token for everything, as the password."""

from __future__ import annotations

import hmac

from tarry.api.access import EVERYTHING, digest_of
from tarry.api.local import LocalBroker
from tarry.base.exposure import is_exposed
from tarry.fronts.mqtt.packets import ConnectPacket
from tarry.fronts.mqtt.reasons import MqttError, Reason
from tarry.fronts.mqtt.settings import MqttSettings


class Authentication:
    """Checks who connects, by the broker's tokens as they are then. On the event loop's thread."""

    def __init__(self, broker: LocalBroker, address: str) -> None:
        setting = MqttSettings.of(broker.config).mqtt_access
        self._broker = broker
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
        digest = digest_of((connect.password or b"").decode(errors="replace"))
        found = {t.namespace for t in self._broker.access_tokens if hmac.compare_digest(t.digest, digest)}
        if not found:
            raise MqttError(Reason.BAD_LOGIN, "the password is no access token; see tarry token create")
        if EVERYTHING not in found:
            raise MqttError(Reason.NOT_AUTHORIZED, f"the token is for {', '.join(sorted(found))}; allowed: one for *")
