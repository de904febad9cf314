"""Cookies of the console: names by which no other host can set them, and the one of a session."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

COOKIE = "tarry_console"


def cookie_name(name: str, by_tls: bool) -> str:
    """Return the name of a cookie; by TLS one that no other host can set (RFC 6265bis, section 4.1.3.2)."""
    return f"__Host-{name}" if by_tls else name


class SessionCookie:
    """Holds a session's id in a browser. By TLS, it goes by TLS alone."""

    def __init__(self, url: str | None) -> None:
        """``url``: that of the console, for browsers; None: they come by the scheme of their requests."""
        self.url = url

    def find(self, request: Request) -> str | None:
        """Return the session's id; None: the browser has sent none."""
        return request.cookies.get(self._name(request))

    def set(self, response: Response, request: Request, id: str) -> None:
        """Have the browser keep a session's id until it is closed."""
        response.headers.append("set-cookie", self.text(request, id))

    def remove(self, response: Response, request: Request) -> None:
        """Have the browser forget its session."""
        response.headers.append("set-cookie", f"{self.text(request, '')}; Max-Age=0")

    def text(self, request: Request, id: str) -> str:
        """Return the header's value that sets the cookie."""
        secure = "; Secure" if self._is_by_tls(request) else ""
        return f"{self._name(request)}={id}; Path=/; HttpOnly; SameSite=Strict{secure}"

    def _name(self, request: Request) -> str:
        return cookie_name(COOKIE, self._is_by_tls(request))

    def _is_by_tls(self, request: Request) -> bool:
        # A proxy with TLS passes a request on by http.
        return request.url.scheme == "https" or (self.url or "").startswith("https:")
