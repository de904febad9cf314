"""Links of other sites to the console: whoever is let in arrives and stays in, and nobody goes in circles.

A browser sends no cookie of ``SameSite=Strict`` with what another site has begun, redirects included.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from tests.identity.conftest import Known
from tests.identity.http_place import HttpPlace, serving

from tarry.broker import Broker
from tarry.fronts.registry import ServerConfig
from tarry.testing import open_broker

LOGIN, PAGE = "/console/login", "/console/topics?q=a%26b&topic=a%20b"
COOKIE = "tarry_console"
FORM = re.compile(r'name="form_token" value="([^"]+)"')
NEXT = re.compile(r'name="next" value="([^"]*)"')
REFRESH = re.compile(r'<meta http-equiv="refresh" content="0; url=([^"]+)">')
GO_ON = re.compile(r'href="([^"]+)">Go on</a>')
REQUESTS_MAX = 6


class StrictBrowser:
    """It follows redirects and pages that go on by themselves, and sends cookies only with what the console began."""

    def __init__(self, http: httpx.Client, *, says_site: bool = True, is_opaque: bool = False) -> None:
        """``says_site``: False as by http of another machine. ``is_opaque``: a window of a sandbox is no site's."""
        self.http = http
        self._says_site, self._is_opaque = says_site, is_opaque
        self.set: list[str] = []
        """Cookies that were set by the last navigation."""

    def open(self, address: str, site: str = "cross-site") -> httpx.Response:
        """Follow a link, of another site if nothing else is said; return the page at the end."""
        self.set = []
        for _ in range(REQUESTS_MAX):
            answer = self._ask("GET", address, "cross-site" if self._is_opaque else site)
            self.set += answer.headers.get_list("set-cookie")
            further = REFRESH.search(answer.text)
            if answer.status_code == 303:
                address = answer.headers["location"]
            elif further is not None:
                address, site = html.unescape(further[1]), "same-origin"
            else:
                return answer
        raise AssertionError(f"the browser goes in circles: {address}")

    def send(self, address: str, site: str = "same-origin", **fields: str) -> httpx.Response:
        return self._ask("POST", address, site, fields)

    def log_in(self, page: str, secret: str) -> httpx.Response:
        """Fill in the form of a page, and return the page at the end."""
        token, further = FORM.search(page), NEXT.search(page)
        assert token is not None and further is not None
        fields = {"form_token": token[1], "next": html.unescape(further[1]), "secret": secret}
        answer = self.send(LOGIN, **fields)
        assert answer.status_code == 303, answer.text
        return self.open(answer.headers["location"], "same-origin")

    def _ask(self, method: str, address: str, site: str, fields: dict[str, str] | None = None) -> httpx.Response:
        headers = {"accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}
        if self._says_site:
            headers |= {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
        if method == "POST":
            headers["origin"] = (
                str(self.http.base_url).rstrip("/") if site == "same-origin" else "https://other.example"
            )
        request = self.http.build_request(method, address, headers=headers, data=fields)
        if site == "cross-site":
            request.headers.pop("cookie", None)
        return self.http.send(request)


@pytest.fixture
def place(known: Known) -> Iterator[HttpPlace]:
    with serving(known.broker) as place:
        yield place


def logged_in(place: HttpPlace, known: Known, *, says_site: bool = True) -> StrictBrowser:
    browser = StrictBrowser(place.http, says_site=says_site)
    browser.log_in(browser.open(LOGIN, "none").text, known.admin)
    return browser


@pytest.mark.parametrize("says_site", [True, False])
@pytest.mark.parametrize("address", [PAGE, f"{LOGIN}?next=%2Fconsole%2Ftopics%3Fq%3Da%2526b%26topic%3Da%2520b"])
def test_a_link_of_another_site_arrives(place: HttpPlace, known: Known, says_site: bool, address: str) -> None:
    browser = logged_in(place, known, says_site=says_site)
    session = place.http.cookies[COOKIE]
    shown = browser.open(address)
    assert browser.set == [], "another cookie would end the session"
    assert shown.status_code == 200 and "Log out" in shown.text
    assert shown.url.raw_path.decode() == PAGE
    assert place.http.cookies[COOKIE] == session
    assert "Log out" in browser.open("/console/system", "none").text


@pytest.mark.parametrize("says_site", [True, False])
def test_who_has_no_session_logs_in_and_arrives(place: HttpPlace, known: Known, says_site: bool) -> None:
    browser = StrictBrowser(place.http, says_site=says_site)
    login = browser.open(PAGE)
    assert login.status_code == 200 and len(browser.set) == 1
    shown = browser.log_in(login.text, known.admin)
    assert shown.url.raw_path.decode() == PAGE and "Log out" in shown.text


def test_a_login_page_that_was_copied_ends_no_session(place: HttpPlace, known: Known) -> None:
    """Its address says that a browser has gone on already; one that has come by a link of another site has not."""
    copied = StrictBrowser(place.http).open(PAGE).url.raw_path.decode()
    browser = logged_in(place, known)
    page = browser.open(copied)
    assert browser.set == [] and not FORM.search(page.text)
    further = GO_ON.search(page.text)
    assert further is not None
    shown = browser.open(html.unescape(further[1]), "same-origin")
    assert shown.url.raw_path.decode() == PAGE and "Log out" in shown.text


@pytest.mark.parametrize("address", ["/", PAGE, LOGIN])
@pytest.mark.parametrize("asks", [True, False])
def test_a_window_that_is_no_sites_goes_in_no_circles(tmp_path: Path, address: str, asks: bool) -> None:
    """In the window of a sandbox each page is another site's, so it never has a cookie."""
    settings = {"http_access": "tokens" if asks else "open"}
    config = ServerConfig(data=tmp_path / "data", flight=None, pipeline="off", **settings)  # type: ignore[arg-type]
    with Broker.open(config) as broker, serving(broker) as place:
        browser = StrictBrowser(place.http, is_opaque=True)
        page = browser.open(address)
        assert page.status_code == 200 and GO_ON.search(page.text) and not FORM.search(page.text)
        assert browser.set == []


def test_a_form_of_another_site_ends_no_session(place: HttpPlace, known: Known) -> None:
    browser = logged_in(place, known)
    for path in (LOGIN, "/console/topics", "/console/logout"):
        answer = browser.send(path, "cross-site", secret="x")
        assert answer.status_code in (303, 403) and "set-cookie" not in answer.headers, path
    for path, headers in (("/console/data/live", {}), ("/console/live", {"hx-request": "true"})):
        request = place.http.build_request("GET", path, headers={"sec-fetch-site": "cross-site", **headers})
        request.headers.pop("cookie", None)
        answer = place.http.send(request)
        assert answer.status_code == 401 and "set-cookie" not in answer.headers, path
    assert "Log out" in browser.open("/console/system", "none").text


def test_an_image_of_another_site_ends_no_session(place: HttpPlace, known: Known) -> None:
    browser = logged_in(place, known)
    for path in (PAGE, LOGIN):
        headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "accept": "image/*"}
        request = place.http.build_request("GET", path, headers=headers)
        request.headers.pop("cookie", None)
        assert "set-cookie" not in place.http.send(request).headers
    assert "Log out" in browser.open("/console/system", "none").text


@pytest.mark.parametrize("address", ["//other.example/", "/console/login?next=https%3A%2F%2Fother.example"])
def test_one_goes_on_within_the_console(place: HttpPlace, known: Known, address: str) -> None:
    browser = logged_in(place, known)
    shown = browser.open(f"{place.http.base_url}{address}")
    assert (shown.url.host, shown.url.path) == ("127.0.0.1", "/")


def test_what_is_no_browser_is_redirected_as_ever(place: HttpPlace) -> None:
    answer = place.http.get(PAGE)
    assert answer.status_code == 303
    assert parse_qs(urlsplit(answer.headers["location"]).query) == {"next": [PAGE]}


def test_forms_of_an_open_console_stay_good(tmp_path: Path) -> None:
    """It has sessions without a login, for the tokens of its forms."""
    with open_broker(tmp_path) as broker, serving(broker) as place:  # type: ignore[arg-type]
        browser = StrictBrowser(place.http)
        token = FORM.search(browser.open("/console/schedule", "none").text)
        assert token is not None
        assert browser.open(PAGE).url.raw_path.decode() == PAGE
        assert browser.set == []
        fields = {"topic": "orders", "body": "x", "encoding": "text", "when": "delay", "delay": "1h", "repeat": "no"}
        assert browser.send("/console/schedule", form_token=token[1], **fields).status_code == 303
