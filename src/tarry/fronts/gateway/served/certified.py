"""Gateways that are known by their certificates: identities with the right ``front``.

A port that asks for a secret does not ask for this: the secret is what a gateway shows there.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tarry.api.needs import Right
from tarry.base.errors import InvalidArgumentError, UnauthenticatedError
from tarry.fronts.kit.admission import Admission
from tarry.fronts.kit.callers import Callers
from tarry.fronts.kit.peer_proof import certificate_of
from tarry.fronts.link.link_session import Handlers, LinkSession, NewLinkSession, Refuse
from tarry.fronts.link.outgoing import Outgoing
from tarry.fronts.link.shared import Shared
from tarry.identity.principal import Principal


def certified(shared: Shared, sessions: Mapping[str, NewLinkSession]) -> Mapping[str, NewLinkSession]:
    """Return these sessions, each for gateways alone that may serve others."""
    callers = Callers(shared.broker, shared.loop, "gateway")
    shared.on_close.append(callers.close)
    return {kind: partial(_begin, callers, new_session) for kind, new_session in sessions.items()}


def _begin(
    callers: Callers,
    new_session: NewLinkSession,
    said: Mapping[str, Any],
    out: Outgoing,
    admission: Admission,
    refuse: Refuse,
) -> LinkSession:
    """Begin a session of a gateway that is known.

    Raises:
        UnauthenticatedError: its certificate names no identity. ForbiddenError: which may not serve others.
        InvalidArgumentError: there are no identities.
    """
    principal = _gateway(callers, admission)
    session = new_session(said, out, admission, refuse)
    callers.add(session, principal, refuse)
    return _CertifiedSession(session, callers)


def _gateway(callers: Callers, admission: Admission) -> Principal:
    if not callers.authenticator.asks:
        raise InvalidArgumentError(
            "this broker has no gateway_secret, and no identities that a gateway could be; allowed: gateway_secret=FILE"
            " on both sides, or an identity with the right front and the name in the gateway's certificate"
        )
    names = certificate_of(admission.principal)
    if names is None:
        callers.authenticator.note_refusal("none_shown", admission.peer_host)
        raise UnauthenticatedError(
            "a gateway shows neither a secret nor a certificate; allowed: tls_certificate and tls_key, and the "
            "certificate's name among the credentials of an identity with the right front"
        )
    principal = callers.authenticator.by_certificate(names, admission.peer_host)
    principal.check(Right.FRONT, peer=admission.peer_host)
    return principal


class _CertifiedSession:
    """A session whose gateway is forgotten with it. On the loop's thread."""

    def __init__(self, session: LinkSession, callers: Callers) -> None:
        self._session, self._callers = session, callers
        self.handlers: Handlers = session.handlers
        self.flow = session.flow
        self.welcome = session.welcome
        self.on_writable, self.on_drain = session.on_writable, session.on_drain

    def end(self) -> None:
        """End the session: the connection is lost."""
        self._callers.remove(self._session)
        self._session.end()
