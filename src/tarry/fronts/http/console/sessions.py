"""Sessions of the console: each has a random name in a cookie. The latest are kept, in memory.

A form must bring the session's own token, which no other site can know. A session that has logged in holds the secret
that it showed, so that it ends with the token that let it in. A visitor who still has to log in has no session:
otherwise strangers could push out those who are in. The form token of such a visitor is derived from the cookie, and
kept nowhere.
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field

from tarry.api.issuers import ProviderLogin

SESSIONS_MAX = 10_000
LIFE_MS = 12 * 3_600_000
"""A session that was not used for this time is forgotten."""
NOTICES_MAX = 5


@dataclass(frozen=True, slots=True)
class VisitorNotice:
    """The outcome of something that the visitor asked for; shown once, on the next page."""

    text: str
    is_error: bool = False


@dataclass(slots=True)
class VisitorSession:
    """One visitor's browser."""

    id: str
    form_token: str
    used_ms: int
    secret: str | None = None
    login: ProviderLogin | None = None
    """The login at a provider, of which the secret is the ID token; None: it is another token."""
    notices: list[VisitorNotice] = field(default_factory=list)

    def notify(self, text: str, *, is_error: bool = False) -> None:
        """Have the next page say this."""
        self.notices = [*self.notices, VisitorNotice(text, is_error)][-NOTICES_MAX:]

    def take_notices(self) -> list[VisitorNotice]:
        """Return the notices to show, and forget them."""
        notices, self.notices = self.notices, []
        return notices

    def allows(self, form_token: str) -> bool:
        """Return whether this form token is the one of this session's pages."""
        return hmac.compare_digest(form_token.encode(), self.form_token.encode())


class VisitorSessions:
    """On the event loop's thread."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, VisitorSession] = OrderedDict()
        self._key = secrets.token_bytes(32)

    def find(self, id: str | None, now_ms: int) -> VisitorSession | None:
        """Find the session of that name; None: there is none, or it has expired."""
        session = None if id is None else self._sessions.get(id)
        if session is None:
            return None
        if now_ms - session.used_ms > LIFE_MS:
            del self._sessions[session.id]
            return None
        session.used_ms = now_ms
        self._sessions.move_to_end(session.id)
        return session

    def begin(self, now_ms: int, secret: str | None = None, login: ProviderLogin | None = None) -> VisitorSession:
        """Begin a new session. If there are too many, the least recently used one is forgotten."""
        session = VisitorSession(secrets.token_urlsafe(32), secrets.token_urlsafe(32), now_ms, secret, login)
        self._sessions[session.id] = session
        while len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return session

    def visit(self, cookie: str | None, now_ms: int) -> VisitorSession:
        """Return a session for a visitor who has not logged in, by the cookie or with a new one.

        It is not kept.
        """
        name = cookie if cookie is not None and len(cookie) == len(secrets.token_urlsafe(32)) else None
        name = name or secrets.token_urlsafe(32)
        return VisitorSession(name, hmac.digest(self._key, name.encode(), "sha256").hex(), now_ms)

    def end(self, session: VisitorSession) -> None:
        """Forget a session."""
        self._sessions.pop(session.id, None)
