"""Answers made of templates, and the parts of every page: session, notices, addresses of files."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from tarry.api.needs import Right
from tarry.base.errors import TarryError
from tarry.base.pages import LOOK
from tarry.fronts.http.access import Access
from tarry.fronts.http.console import formatting as shown
from tarry.fronts.http.console.causes import CauseJobs
from tarry.fronts.http.console.cookies import SessionCookie
from tarry.fronts.http.console.figures import ConsoleFigures
from tarry.fronts.http.console.guesses import Guesses
from tarry.fronts.http.console.providers import LoginProviders
from tarry.fronts.http.console.sessions import VisitorSession, VisitorSessions
from tarry.fronts.http.errors import status_of
from tarry.fronts.http.services import HttpServices
from tarry.fronts.kit.known_errors import INTERNAL
from tarry.identity.principal import Principal
from tarry.identity.rights import Rights

HERE = Path(__file__).parent
_SAFE = ":/%#?=@[]!$&'()*+,;"
"""Characters that addresses have unescaped (RFC 3986), and the sign of what is escaped."""


def _sees_all(rights: Rights) -> bool:
    return rights.allow(Right.LOOK)


def _sees_bodies(rights: Rights) -> bool:
    return rights.allow_some(Right.BROWSE)


NAV: tuple[tuple[str, str, Callable[[Rights], bool]], ...] = (
    ("/", "Overview", _sees_all),
    ("/console/past", "History", lambda rights: True),
    ("/console/topics", "Topics & groups", lambda rights: True),
    ("/console/pending", "Pending", _sees_bodies),
    ("/console/series", "Series", _sees_bodies),
    ("/console/dead", "Dead letters", _sees_bodies),
    ("/console/push", "Push", lambda rights: True),
    ("/console/jobs", "Bulk jobs", lambda rights: rights.allow(Right.BULK)),
    ("/console/schedule", "Schedule", lambda rights: rights.allow_some(Right.PRODUCE)),
    ("/console/system", "System", _sees_all),
)
"""Addresses and titles of pages, and whether somebody with these rights finds anything there."""
PARTS = ("live.html.j2", "dead_progress.html.j2")
"""Templates of parts that pages ask for again: notices are for whole pages."""
SECTIONS = {
    "/console/topic": "/console/topics",
    "/console/group": "/console/topics",
    "/console/message": "/console/pending",
    "/console/history": "/console/pending",
    "/console/dead/progress": "/console/dead",
    "/console/past/at": "/console/past",
}
"""The navigation entry of each page that is not in the navigation itself."""


@dataclass(frozen=True, slots=True)
class Console:
    """Everything that the pages are made with."""

    services: HttpServices
    access: Access
    sessions: VisitorSessions
    cookie: SessionCookie
    guesses: Guesses
    providers: LoginProviders
    figures: ConsoleFigures
    templates: Environment
    cause_jobs: CauseJobs = dataclasses.field(default_factory=CauseJobs)

    def seen_by(self, principal: Principal, peer: str | None = None) -> Console:
        """Return the same for one viewer, who gets no more than its rights allow; ``peer``: its address."""
        return replace(self, services=self.services.seen_by(principal, peer))

    def may(self, right: str, topic: str | None = None, group: str | None = None) -> bool:
        """Return whether the viewer has a right; without a topic, on all topics."""
        return self.services.principal.rights.allow(Right(right), topic, group)

    def check(self, right: Right) -> None:
        """Check that the viewer has a right on all topics.

        Raises:
            ForbiddenError: it has not.
        """
        self.services.principal.check(right, peer=self.services.peer)

    @property
    def now_ms(self) -> int:
        """The time by the broker's clock, as everywhere."""
        return self.services.broker.clock.now_ms()

    def render(self, request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """Render a page, or a part of one."""
        session: VisitorSession = request.state.session
        principal = self.services.principal
        common = {
            "section": SECTIONS.get(request.url.path, request.url.path),
            "nav": [(path, title) for path, title, is_of_use in NAV if is_of_use(principal.rights)],
            "may": self.may,
            "viewer": principal.name if session.secret is not None else None,
            "form_token": session.form_token,
            "may_log_out": session.secret is not None,
            "notices": session.take_notices() if template not in PARTS else [],
            "now_ms": self.now_ms,
        }
        return HTMLResponse(self.templates.get_template(template).render(common | values), status)

    def refuse(self, request: Request, error: BaseException) -> HTMLResponse:
        """Return the page of an error."""
        text = str(error) if isinstance(error, TarryError) else INTERNAL
        return self.render(request, "error.html.j2", status_of(error), title="Not possible", text=text)


def done(request: Request, path: str, text: str, *, is_error: bool = False, **query: Any) -> Response:
    """Back to a page after a form was carried out, with a notice on it."""
    request.state.session.notify(text, is_error=is_error)
    return RedirectResponse(link(path, **query), 303)


def link(path: str, **query: Any) -> str:
    """Return an address; values that are None or empty are left out."""
    given = {name: value for name, value in query.items() if value is not None and value != ""}
    return f"{path}?{urlencode(given)}" if given else path


def own_path(after: str) -> str:
    """Return a path of this console to go on with, escaped; "/" for all else."""
    is_ours = after.startswith("/") and not after.startswith("//") and "\\" not in after
    return quote(after, safe=_SAFE) if is_ours else "/"


def field(request: Request, name: str) -> str:
    """Return a field of the form; empty if it was left out."""
    values: list[str] = request.state.form.get(name, [])
    return values[0] if values else ""


def plural(count: int, one: str, many: str | None = None) -> str:
    """ "1 message", "2 messages"."""
    return f"{shown.number(count)} {one if count == 1 else many or one + 's'}"


@cache
def templates() -> Environment:
    """Return the templates, which escape all values; compiled once in a process."""
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": shown.number,
        "short": shown.short,
        "size": shown.size,
        "span": shown.span,
        "instant": shown.instant,
        "name": shown.name,
        "visible": shown.visible,
        "preview": shown.preview,
    }
    addresses = _addresses(HERE / "static") | _addresses(LOOK)
    environment.globals |= {
        "relative": shown.relative,
        "link": link,
        "plural": plural,
        "flat": shown.flat,
        "static": addresses.__getitem__,
    }
    return environment


def _addresses(directory: Path) -> dict[str, str]:
    """Files by name, with the hash of their content, so that a browser keeps them until they change."""
    digests = {file.name: hashlib.sha256(file.read_bytes()).hexdigest()[:12] for file in directory.iterdir()}
    return {name: f"/static/{name}?v={digest}" for name, digest in digests.items()}
