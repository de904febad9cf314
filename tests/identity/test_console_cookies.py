"""The cookie of a console's session: its name, by which way it goes, and that it leaves with who logs out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.identity.http_place import HttpPlace, serving

from tarry.broker import Broker
from tarry.fronts.registry import ServerConfig

LOGIN = "/console/login"
FORM = re.compile(r'name="form_token" value="([^"]+)"')
URL = "https://tarry.example"


@contextmanager
def console(directory: Path, url: str | None) -> Iterator[tuple[HttpPlace, str]]:
    """A console that asks for tokens, and one."""
    config = ServerConfig(data=directory, flight=None, pipeline="off", http_access="tokens", http_console_url=url)
    with Broker.open(config) as broker, serving(broker) as place:
        yield place, broker.create_token("*").secret


def cookie_of(answer: httpx.Response) -> tuple[str, str, set[str]]:
    """Name, value and attributes of the one cookie that is set."""
    [text] = answer.headers.get_list("set-cookie")
    said, *attributes = text.split("; ")
    name, _, value = said.partition("=")
    return name, value, set(attributes)


class Proxied:
    """A browser at https, whose requests a proxy passes on by http."""

    def __init__(self, place: HttpPlace, origin: str) -> None:
        self._http = place.http
        self._headers = {"host": origin.partition("://")[2], "origin": origin, "x-forwarded-proto": "https"}

    def get(self, path: str, cookie: str = "") -> httpx.Response:
        return self._ask("GET", path, cookie)

    def post(self, path: str, cookie: str, **fields: str) -> httpx.Response:
        return self._ask("POST", path, cookie, fields)

    def _ask(self, method: str, path: str, cookie: str, fields: dict[str, str] | None = None) -> httpx.Response:
        self._http.cookies.clear()
        return self._http.request(method, path, data=fields, headers={**self._headers, "cookie": cookie})

    def log_in(self, secret: str) -> tuple[str, str, set[str]]:
        page = self.get(LOGIN)
        name, value, _ = cookie_of(page)
        token = FORM.search(page.text)
        assert token is not None
        answer = self.post(LOGIN, f"{name}={value}", form_token=token[1], secret=secret)
        assert answer.status_code == 303, answer.text
        return cookie_of(answer)


def test_behind_a_proxy_with_tls_a_session_goes_by_tls_alone(tmp_path: Path) -> None:
    with console(tmp_path / "data", URL) as (place, secret):
        browser = Proxied(place, URL)
        assert cookie_of(browser.get(LOGIN))[0] == "__Host-tarry_console"
        name, value, attributes = browser.log_in(secret)
        assert name == "__Host-tarry_console"
        assert attributes == {"Path=/", "HttpOnly", "SameSite=Strict", "Secure"}
        shown = browser.get("/console/system", f"{name}={value}")
        assert shown.status_code == 200
        assert "strict-transport-security" not in shown.headers, "who has the certificate says that"
        assert browser.get("/console/system", f"tarry_console={value}").status_code == 303, "anybody could set that"


@pytest.mark.parametrize("url", [None, "http://localhost:7777"])
def test_by_http_a_session_goes_by_http(tmp_path: Path, url: str | None) -> None:
    with console(tmp_path / "data", url) as (place, secret):
        browser = Proxied(place, "http://localhost:7777")
        name, _, attributes = browser.log_in(secret)
        assert (name, attributes) == ("tarry_console", {"Path=/", "HttpOnly", "SameSite=Strict"})


def test_who_comes_past_the_proxy_is_told_where_the_console_is(tmp_path: Path) -> None:
    """By http the browser has not kept the cookie of the form."""
    with console(tmp_path / "data", URL) as (place, secret):
        token = FORM.search(place.http.get(LOGIN).text)
        assert token is not None
        answer = place.http.post(LOGIN, data={"form_token": token[1], "secret": secret})
        assert answer.status_code == 403 and f"The console is at {URL}." in answer.text


@pytest.mark.parametrize("url", [None, URL])
def test_a_session_leaves_the_browser_when_somebody_logs_out(tmp_path: Path, url: str | None) -> None:
    with console(tmp_path / "data", url) as (place, secret):
        browser = Proxied(place, url or "http://localhost:7777")
        name, value, attributes = browser.log_in(secret)
        token = FORM.search(browser.get("/console/system", f"{name}={value}").text)
        assert token is not None
        answer = browser.post("/console/logout", f"{name}={value}", form_token=token[1])
        assert (answer.status_code, answer.headers["location"]) == (303, LOGIN)
        assert answer.headers["cache-control"] == "no-store"
        assert cookie_of(answer) == (name, "", attributes | {"Max-Age=0"})
