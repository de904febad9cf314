"""Logging in to the console at a provider, by authorization code with PKCE: end to end, and each way that it fails."""

from __future__ import annotations

import html
import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from tests.cli_tools import error_of, out_of
from tests.gateway.worker_places import http_workers
from tests.identity.http_place import HttpPlace, serving
from tests.identity.provider import AUTHORIZE, CLIENT, DISCOVERY, SECRET, TOKEN, OidcProvider, providing
from tests.waiting import wait_until

from tarry.api.operations import ReadAuditLog
from tarry.base.clock import SystemClock
from tarry.base.config import Config
from tarry.base.errors import InvalidArgumentError
from tarry.broker import Broker
from tarry.fronts.http.console.attempts import AFTER_CHARS_MAX, ATTEMPT_MS, COOKIE_CHARS_MAX
from tarry.fronts.http.console.guesses import GUESSES_MAX
from tarry.fronts.registry import ServerConfig
from tarry.identity.code_login import REDEEMED_OF_PEER_MAX
from tarry.identity.jwt import LEEWAY_S
from tarry.testing import TestClock, open_broker

LOGIN, NAME = "/console/login", "127.0.0.1"
BEGIN = f"{LOGIN}/{NAME}"
FORM = re.compile(r'name="form_token" value="([^"]+)"')
REFRESH = re.compile(r'<meta http-equiv="refresh" content="0; url=([^"]+)">')
NOTICE = re.compile(r'role="alert">(.*?)</p>')


class Browser:
    """Two sites' pages in one browser: cookies as they are, no scripts."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def leave(self, begin: str = BEGIN, **query: str) -> str:
        """Follow the link to the provider, and return where that is."""
        answer = self.http.get(begin, params=query or None)
        assert answer.status_code == 303, answer.text
        return answer.headers["location"]

    def way_back(self, address: str) -> str:
        """Log in at the provider; return where it sends the browser back to."""
        answer = httpx.get(address)
        assert answer.status_code == 302, answer.text
        return answer.headers["location"]

    def go_on(self, address: str) -> str:
        """Come back, and go on with the page that this leads to, whose address is returned."""
        answer = self.http.get(address)
        assert answer.status_code == 200, answer.text
        further = REFRESH.search(answer.text)
        assert further is not None
        return html.unescape(further[1])

    def log_in(self, **query: str) -> str:
        return self.go_on(self.way_back(self.leave(**query)))

    def said(self, address: str, status: int = 403) -> str:
        """Come back, and return the sentence that is shown in the place of the console."""
        answer = self.http.get(address)
        assert answer.status_code == status, answer.text
        notice = NOTICE.search(answer.text)
        assert notice is not None and "Traceback" not in answer.text
        assert not REFRESH.search(answer.text)
        for code in parse_qs(urlsplit(address).query).get("code", ()):
            assert code not in answer.text
        assert self.http.get("/console/topics").status_code == 303, "nobody is let in"
        return html.unescape(notice[1])


class Place:
    """A broker with a provider, and "shop", who is known by a group there."""

    def __init__(self, http: HttpPlace, provider: OidcProvider, stack: ExitStack) -> None:
        self.http, self.provider, self.broker = http, provider, http.broker
        self._stack = stack

    def browser(self, **more: Any) -> Browser:
        http = httpx.Client(base_url=f"http://{self.http.front.address}", timeout=30, **more)
        return Browser(self._stack.enter_context(http))


@pytest.fixture
def provider() -> Iterator[OidcProvider]:
    with providing() as provider:
        yield provider


@pytest.fixture
def clock() -> TestClock:
    return TestClock(int(time.time() * 1000))


def know_shop(broker: Any, **more: Any) -> None:
    broker.set_identity("root", ["admin"])
    broker.add_credential("root")
    broker.set_identity("shop", ["look *", "produce orders.*"])
    broker.add_credential("shop", kind="jwt", claim="groups=tarry-shop", **more)


@pytest.fixture
def start(tmp_path: Path, provider: OidcProvider, clock: TestClock) -> Iterator[Callable[..., Place]]:
    with ExitStack() as stack:

        def begin(**more: Any) -> Place:
            settings = {**provider.settings(), "jwt_client_id": CLIENT, **more}
            broker = stack.enter_context(open_broker(tmp_path / "data", clock=clock, **settings))
            know_shop(broker)
            return Place(stack.enter_context(serving(broker)), provider, stack)  # type: ignore[arg-type]

        yield begin


def test_one_logs_in_at_the_provider(start: Callable[..., Place], caplog: pytest.LogCaptureFixture) -> None:
    place = start()
    browser = place.browser()
    page = browser.http.get(LOGIN, params={"next": "/console/topics?q=a b"}).text
    link = re.search(rf'href="({BEGIN}[^"]*)">Log in with <bdi>{NAME}</bdi>', page)
    assert link is not None
    address = browser.leave(html.unescape(link[1]))
    asked = {name: value for name, [value] in parse_qs(urlsplit(address).query).items()}
    assert address.startswith(f"{place.provider.url}{AUTHORIZE}?")
    assert asked.keys() == {
        *("response_type", "client_id", "redirect_uri", "scope"),
        *("state", "nonce", "code_challenge", "code_challenge_method"),
    }
    assert (asked["response_type"], asked["client_id"], asked["scope"]) == ("code", CLIENT, "openid")
    assert asked["code_challenge_method"] == "S256"
    assert asked["redirect_uri"] == f"http://{place.http.front.address}{BEGIN}/back"
    assert len({asked["state"], asked["nonce"], asked["code_challenge"]}) == 3
    back = browser.way_back(address)
    answer = browser.http.get(back)
    assert answer.status_code == 200 and "<bdi>shop</bdi>" in answer.text
    session, gone = answer.headers.get_list("set-cookie")
    assert "SameSite=Strict" in session and "HttpOnly" in session
    assert gone.startswith('tarry_login=""') and "Max-Age=0" in gone
    assert answer.headers["cache-control"] == "no-store"
    code = parse_qs(urlsplit(back).query)["code"][0]
    assert code not in answer.text and "eyJ" not in answer.text and asked["state"] not in answer.text
    further = REFRESH.search(answer.text)
    assert further is not None and html.unescape(further[1]) == "/console/topics?q=a%20b"
    shown = browser.http.get(html.unescape(further[1]))
    assert shown.status_code == 200 and "shop" in shown.text and "Log out" in shown.text
    assert code not in caplog.text and "eyJ" not in caplog.text


def test_the_cookie_of_a_login_is_short_and_of_one_site(start: Callable[..., Place]) -> None:
    answer = start().browser().http.get(BEGIN)
    [cookie] = answer.headers.get_list("set-cookie")
    assert cookie.startswith("tarry_login=")
    assert {"HttpOnly", "Max-Age=600", "Path=/", "SameSite=lax"} <= set(cookie.split("; "))
    asked = parse_qs(urlsplit(answer.headers["location"]).query)
    for name in ("state", "nonce", "code_challenge"):
        assert asked[name][0] not in cookie, "what the provider gets is derived, and is not in it"


def test_a_session_has_the_rights_that_its_identity_has_now(start: Callable[..., Place]) -> None:
    place = start()
    browser = place.browser()
    assert browser.log_in() == "/"
    assert browser.http.get("/console/system").status_code == 200
    place.broker.set_identity("shop", ["produce orders.*"])
    assert browser.http.get("/console/system").status_code == 403
    [shop] = [each for each in place.broker.list_identities() if each.name == "shop"]
    place.broker.remove_credential(shop.credentials[0].id)
    assert browser.http.get("/console/topics").headers["location"].startswith(LOGIN)


def test_a_session_ends_with_its_token(start: Callable[..., Place], clock: TestClock) -> None:
    place = start()
    browser = place.browser()
    browser.log_in()
    assert browser.http.get("/console/topics").status_code == 200
    clock.advance_ms((300 + LEEWAY_S + 600) * 1000)  # the provider's clock is another one, and has gone on
    assert browser.http.get("/console/topics").headers["location"].startswith(LOGIN)


def test_logging_out_ends_the_session(start: Callable[..., Place]) -> None:
    browser = start().browser()
    browser.log_in()
    token = FORM.search(browser.http.get("/console/topics").text)
    assert token is not None
    session = dict(browser.http.cookies)
    assert browser.http.post("/console/logout", data={"form_token": token[1]}).status_code == 303
    browser.http.cookies.update(session)
    assert browser.http.get("/console/topics").status_code == 303


def test_a_second_login_ends_the_first(start: Callable[..., Place]) -> None:
    """Two tabs have begun one. A provider of the same site has the browser send the session's cookie."""
    browser = start().browser()
    address = browser.leave()
    cookie = browser.http.cookies["tarry_login"]
    browser.log_in()
    first = browser.http.cookies["tarry_console"]
    browser.http.cookies["tarry_login"] = cookie
    browser.go_on(browser.way_back(address))
    assert browser.http.cookies["tarry_console"] != first
    browser.http.cookies.clear()
    browser.http.cookies["tarry_console"] = first
    assert browser.http.get("/console/topics").status_code == 303


def test_who_is_in_is_not_sent_away(start: Callable[..., Place]) -> None:
    browser = start().browser()
    browser.log_in()
    assert browser.leave() == LOGIN
    assert browser.leave(f"{LOGIN}/nobody") == LOGIN


def test_the_id_token_is_for_the_console_alone(start: Callable[..., Place], provider: OidcProvider) -> None:
    """Its audience is the client, and not what the broker takes tokens for; and the other way round."""
    place = start()
    token = provider.sign(aud=CLIENT, nonce="x")
    assert place.http.status("GET", "/v1/whoami", token) == 401
    assert place.http.status("GET", "/v1/whoami", provider.sign()) == 200
    provider.claims["aud"] = "tarry"
    browser = place.browser()
    assert "is not taken" in browser.said(browser.way_back(browser.leave()))


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_a_state_of_another_browser_is_refused(start: Callable[..., Place]) -> None:
    """Somebody has another log in with an account that is not theirs."""
    place = start()
    mine, theirs = place.browser(), place.browser()
    back = mine.way_back(mine.leave())
    assert "not begun in this browser" in theirs.said(back), "without a login of its own"
    other = theirs.way_back(theirs.leave())
    assert "not begun in this browser" in theirs.said(back), "with another one"
    assert theirs.go_on(other) == "/", "which goes on all the same"
    assert mine.go_on(back) == "/"


def test_a_code_of_another_browser_is_refused(start: Callable[..., Place]) -> None:
    """The state is right and the code is another's: the provider compares the verifier with its challenge."""
    place = start()
    mine, theirs = place.browser(), place.browser()
    stolen = parse_qs(urlsplit(mine.way_back(mine.leave())).query)["code"][0]
    back = httpx.URL(theirs.way_back(theirs.leave())).copy_set_param("code", stolen)
    assert "does not take the code" in theirs.said(str(back))


def test_a_token_of_another_login_is_refused(start: Callable[..., Place], provider: OidcProvider) -> None:
    place = start()
    first, second = place.browser(), place.browser()
    address = first.leave()
    first.log_in()
    provider.claims["nonce"] = parse_qs(urlsplit(address).query)["nonce"][0]
    assert "of another login" in second.said(second.way_back(second.leave()))
    provider.claims["nonce"] = None
    assert "of another login" in second.said(second.way_back(second.leave()))


def test_a_way_back_is_good_once(start: Callable[..., Place]) -> None:
    place = start()
    browser, copy = place.browser(), place.browser()
    address = browser.leave()
    copy.http.cookies.update(dict(browser.http.cookies))
    back = browser.way_back(address)
    assert browser.go_on(back) == "/"
    browser.http.cookies.delete("tarry_console")
    assert "not begun in this browser" in browser.said(back)
    assert "does not take the code" in copy.said(back), "who has a copy of the cookie has no second code"


def test_a_login_that_takes_too_long_is_refused(start: Callable[..., Place], clock: TestClock) -> None:
    place = start()
    browser = place.browser()
    back = browser.way_back(browser.leave())
    clock.advance_ms(ATTEMPT_MS)
    assert "more than ten minutes ago" in browser.said(back)


def test_a_cookie_that_was_changed_is_refused(start: Callable[..., Place]) -> None:
    place = start()
    browser = place.browser()
    back = browser.way_back(browser.leave())
    cookie = browser.http.cookies["tarry_login"]
    for changed in (cookie[:-4] + "AAAA", "", "x", "eyJ", "A" * 5000, cookie + "="):
        browser.http.cookies.clear()
        browser.http.cookies["tarry_login"] = changed
        assert "not begun in this browser" in browser.said(back), changed


def test_the_provider_refuses(start: Callable[..., Place]) -> None:
    place = start()
    browser = place.browser()
    for given, shown in (
        ("access_denied", "has not let you in: access_denied."),
        ("<script>", "has not let you in: an error that is none."),
    ):
        state = parse_qs(urlsplit(browser.leave()).query)["state"][0]
        assert shown in browser.said(str(httpx.URL(f"{BEGIN}/back", params={"error": given, "state": state})))
    assert "not begun" in browser.said(f"{BEGIN}/back?error=access_denied"), "anybody could say that"


@pytest.mark.parametrize("code", ["", "a\nb", "x" * 5000])
def test_what_is_no_code_is_refused(start: Callable[..., Place], provider: OidcProvider, code: str) -> None:
    browser = start().browser()
    state = parse_qs(urlsplit(browser.leave()).query)["state"][0]
    assert "no code" in browser.said(str(httpx.URL(f"{BEGIN}/back", params={"code": code, "state": state})))
    assert provider.asked[TOKEN] == 0


def test_an_answer_of_another_provider_is_refused(start: Callable[..., Place], provider: OidcProvider) -> None:
    provider.discovered = {"authorization_response_iss_parameter_supported": True}
    browser = start().browser()
    for change in ({"iss": "https://other.example"}, {"iss": None}):
        url = httpx.URL(browser.way_back(browser.leave()))
        params = {name: value for name, value in {**dict(url.params), **change}.items() if value is not None}
        assert "The answer is not 127.0.0.1's" in browser.said(str(url.copy_with(params=params)))
    assert provider.asked[TOKEN] == 0
    assert browser.log_in() == "/"


def test_who_is_refused_goes_on_to_the_same_page_the_next_time(start: Callable[..., Place]) -> None:
    """Somebody has clicked at the wrong provider."""
    browser = start().browser()
    state = parse_qs(urlsplit(browser.leave(next="/console/topics?q=a%26b")).query)["state"][0]
    page = browser.http.get(f"{BEGIN}/back", params={"error": "access_denied", "state": state}).text
    for at, text in ((BEGIN, f"Log in with <bdi>{NAME}</bdi>"), (LOGIN, "Log in with a token")):
        link = re.search(rf'href="{at}\?([^"]*)">{text}', page)
        assert link is not None
        assert parse_qs(html.unescape(link[1])) == {"next": ["/console/topics?q=a%26b"]}
    assert 'href="/console/login">Log in with a token' in browser.http.get(f"{BEGIN}/back?code=x&state=y").text


def test_a_refusal_is_told_to_who_does_not_see_it(start: Callable[..., Place]) -> None:
    """A page that is read aloud begins with its title, and goes to the field that has the focus."""
    browser = start().browser()
    page = browser.http.get(LOGIN).text
    assert "<title>Log in · Tarry</title>" in page and "aria-invalid" not in page
    token = FORM.search(page)
    assert token is not None
    refused = browser.http.post(LOGIN, data={"form_token": token[1], "secret": "wrong", "next": "/"}).text
    assert "<title>Not logged in · Tarry</title>" in refused
    field = re.search(r'<input id="secret"[^>]*>', refused)
    assert field is not None
    assert {'aria-invalid="true"', 'aria-describedby="login-error', "autofocus"} <= set(field[0].rstrip(">").split(" "))
    assert '<p class="notice bad" id="login-error" role="alert">' in refused


def test_nobody_has_these_claims(start: Callable[..., Place], provider: OidcProvider) -> None:
    provider.claims["groups"] = ["others"]
    browser = start().browser()
    said = browser.said(browser.way_back(browser.leave()))
    assert said.startswith("127.0.0.1 has let you in, and this broker does not: ")
    assert "claims which no identity has" in said
    assert said.endswith("Log in in another way, or ask who runs this broker.")


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"aud": ["other", CLIENT]}, "for another client"),
        ({"azp": "other"}, "for another client"),
        ({"exp": 1}, "is expired"),
        ({"iss": "https://other.example"}, "is not taken"),
        ({"nonce": "ü"}, "of another login"),
        ({"nonce": 5}, "of another login"),
    ],
)
def test_a_token_that_is_not_right_is_refused(
    start: Callable[..., Place], provider: OidcProvider, claims: dict[str, Any], said: str
) -> None:
    provider.claims.update(claims)
    browser = start().browser()
    assert said in browser.said(browser.way_back(browser.leave()))


def test_a_token_for_several_audiences_of_this_client_is_taken(
    start: Callable[..., Place], provider: OidcProvider
) -> None:
    provider.claims.update({"aud": ["other", CLIENT], "azp": CLIENT})
    assert start().browser().log_in() == "/"


DOWN: list[tuple[str, Callable[[], Any]]] = [
    (TOKEN, lambda: (500, {}, b"")),
    (TOKEN, lambda: (302, {"location": "/elsewhere"}, b"")),
    (TOKEN, lambda: (200, {}, b"no JSON")),
    (TOKEN, lambda: (200, {}, b"[]")),
    (TOKEN, lambda: (200, {}, b"{}")),
    (TOKEN, lambda: (200, {}, b" " * (1 << 20))),
]


@pytest.mark.parametrize(("path", "answer"), DOWN)
def test_a_provider_that_does_not_answer_as_it_should(
    start: Callable[..., Place],
    provider: OidcProvider,
    caplog: pytest.LogCaptureFixture,
    path: str,
    answer: Callable[[], Any],
) -> None:
    browser = start().browser()
    back = browser.way_back(browser.leave())
    provider.instead[path] = answer
    assert "does not answer as it should" in browser.said(back, 503)
    assert "a login to the console at a provider was refused" in caplog.text
    assert parse_qs(urlsplit(back).query)["code"][0] not in caplog.text
    assert provider.asked["/elsewhere"] == 0
    del provider.instead[path]
    assert browser.log_in() == "/"


def test_a_provider_that_is_down(start: Callable[..., Place], provider: OidcProvider, clock: TestClock) -> None:
    place = start()
    provider.instead[DISCOVERY] = lambda: (500, {}, b"")
    before = provider.asked[DISCOVERY]
    for _ in range(20):
        assert "does not answer as it should" in place.browser().said(BEGIN, 503)
    assert provider.asked[DISCOVERY] == before + 1, "strangers cause no storm"
    del provider.instead[DISCOVERY]
    clock.advance_ms(5_000)
    assert place.browser().log_in() == "/"
    provider.instead[DISCOVERY] = lambda: (500, {}, b"")
    clock.advance_ms(300_000)
    assert place.browser().log_in() == "/", "what it said before is good until it says something else"


@pytest.mark.rest
@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint"])
@pytest.mark.parametrize("url", ["http://login.example/x", "file:///etc/passwd", "javascript:alert(1)", None])
def test_addresses_that_a_provider_may_not_have(
    start: Callable[..., Place], provider: OidcProvider, caplog: pytest.LogCaptureFixture, name: str, url: str | None
) -> None:
    place = start()
    provider.discovered = {name: url}
    assert "does not answer as it should" in place.browser().said(BEGIN, 503)
    assert f"{name} is {str(url)!r}" in caplog.text


def test_the_token_endpoint_is_asked_at_addresses_that_are_allowed(
    start: Callable[..., Place], provider: OidcProvider, caplog: pytest.LogCaptureFixture
) -> None:
    provider.discovered = {"token_endpoint": "https://169.254.169.254/token"}
    browser = start().browser()
    assert "does not answer as it should" in browser.said(browser.way_back(browser.leave()), 503)
    assert "not a public address; allowed by the setting jwt_private_addresses" in caplog.text


CODE_REFUSALS: list[tuple[int, str]] = [
    (400, '{"error": "invalid_grant"}'),
    (400, '{"error": "invalid_request", "error_description": "<b>"}'),
    (401, '{"error": "invalid_client"}'),
    (404, ""),
    (429, '{"error": "slow_down"}'),
]


@pytest.mark.rest
@pytest.mark.parametrize(("status", "content"), CODE_REFUSALS)
def test_guesses_are_few(
    start: Callable[..., Place], provider: OidcProvider, clock: TestClock, status: int, content: str
) -> None:
    """Whatever the provider says of a wrong code."""
    browser = start().browser()
    provider.instead[TOKEN] = lambda: (status, {}, content.encode())
    said = f"does not take the code: it answers {status}" + (f" ({json.loads(content)['error']})" if content else "")
    for _ in range(GUESSES_MAX):
        assert said in browser.said(guess(browser))
    assert "Too many logins were refused" in browser.said(browser.way_back(browser.leave()), 429)
    assert provider.asked[TOKEN] == GUESSES_MAX
    del provider.instead[TOKEN]
    clock.advance_ms(60_000)
    assert browser.log_in() == "/"


def guess(browser: Browser) -> str:
    """Begin a login; return the way back with a made-up code."""
    return f"{BEGIN}/back?code=none-at-all&state={parse_qs(urlsplit(browser.leave()).query)['state'][0]}"


def test_guesses_at_one_time_are_few(start: Callable[..., Place], provider: OidcProvider) -> None:
    place = start()
    provider.instead[TOKEN] = provider.hang
    browsers = [place.browser() for _ in range(3 * REDEEMED_OF_PEER_MAX)]
    backs = [guess(browser) for browser in browsers]
    with ThreadPoolExecutor(len(browsers)) as pool:
        answers = [pool.submit(browser.http.get, back) for browser, back in zip(browsers, backs, strict=True)]
        wait_until(lambda: sum(each.done() for each in answers) == 2 * REDEEMED_OF_PEER_MAX)
        assert all("are on their way" in each.result().text for each in answers if each.done())
        provider.hangs.set()
    assert {each.result().status_code for each in answers} == {503}
    assert provider.asked[TOKEN] == REDEEMED_OF_PEER_MAX
    for _ in range(GUESSES_MAX - REDEEMED_OF_PEER_MAX):  # the others were not asked for, and do not count
        assert "does not answer as it should" in browsers[0].said(guess(browsers[0]), 503)
    assert "Too many logins were refused" in browsers[0].said(guess(browsers[0]), 429)


@pytest.mark.rest
def test_logins_that_succeed_are_not_few(start: Callable[..., Place]) -> None:
    place = start()
    for _ in range(GUESSES_MAX + 1):
        assert place.browser().log_in() == "/"


def test_pages_of_other_sites_keep_nobody_out(start: Callable[..., Place]) -> None:
    browser = start().browser()
    for _ in range(GUESSES_MAX + 1):
        assert "not begun" in browser.said(f"{BEGIN}/back?code=none-at-all&state=y")
    assert browser.log_in() == "/"


def test_what_is_refused_is_in_the_audit_log(tmp_path: Path, provider: OidcProvider) -> None:
    settings = {**provider.settings(), "jwt_client_id": CLIENT, "pipeline": "off"}
    with (
        Broker.open(ServerConfig(data=tmp_path / "data", flight=None, **settings), audited=True) as broker,
        serving(broker) as http,
        ExitStack() as stack,
    ):
        know_shop(broker)
        place = Place(http, provider, stack)
        browser = place.browser()
        browser.said(f"{BEGIN}/back?code=none-at-all&state=y")
        provider.claims["groups"] = []
        browser.said(browser.way_back(browser.leave()))
        for status, content in CODE_REFUSALS:
            provider.instead[TOKEN] = partial(_answer, status, content)
            browser.said(guess(browser))

        def refused() -> list[Any]:
            return broker.components.audit.read(ReadAuditLog(operation="login"))

        wait_until(lambda: len(refused()) >= 2 + len(CODE_REFUSALS))
        assert {each.code for each in refused()} == {"other", "claims"}


def _answer(status: int, content: str) -> tuple[int, dict[str, str], bytes]:
    return status, {}, content.encode()


# -- settings ----------------------------------------------------------------------------------------------------------


def test_without_a_client_nobody_logs_in_this_way(start: Callable[..., Place]) -> None:
    browser = start(jwt_client_id=None).browser()
    assert "Log in with" not in browser.http.get(LOGIN).text
    assert browser.leave() == LOGIN
    assert browser.http.get(f"{BEGIN}/back?code=none-at-all&state=y").headers["location"] == LOGIN


@pytest.mark.rest
@pytest.mark.parametrize("ways", [None, ["client_secret_post"]])
def test_a_clients_secret(
    start: Callable[..., Place], provider: OidcProvider, tmp_path: Path, ways: list[str] | None
) -> None:
    provider.client_secret = SECRET
    if ways is not None:
        provider.discovered = {"token_endpoint_auth_methods_supported": ways}
    file = tmp_path / "secret"
    file.write_text("another\n")
    browser = start(jwt_client_secret_file=str(file)).browser()
    assert "it answers 401 (invalid_client)" in browser.said(browser.way_back(browser.leave()))
    file.write_text(SECRET + "\n")
    assert browser.log_in() == "/", "the file is read at each login"


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "No such file"), ("", "has 0 characters"), ("a\nb", "cannot be printed"), ("x" * 5000, "has 5000")],
)
def test_a_file_without_a_secret_refuses_the_start(
    start: Callable[..., Place], tmp_path: Path, content: str | None, said: str
) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_text(content)
    with pytest.raises(InvalidArgumentError, match=f"client_secret_file .*{said}"):
        start(jwt_client_secret_file=str(file))


def test_the_command_refuses_a_missing_secret(
    tmp_path: Path, provider: OidcProvider, capsys: pytest.CaptureFixture[str]
) -> None:
    more = {"jwt_client_id": CLIENT, "jwt_client_secret_file": "nowhere", "http": "127.0.0.1:0", "pipeline": "off"}
    settings = {**provider.settings(), **more, "flight": ""}
    options = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    code, said = error_of(capsys, "serve", "--data", str(tmp_path / "data"), *options)
    assert (code, "client_secret_file 'nowhere': No such file" in said) == (2, True)


def test_a_secret_is_not_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    assert SECRET not in out_of(capsys, "serve", "--print-config", "--set", f"jwt_client_secret_file={file}")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"jwt_client_secret_file": "x"}, "and no client_id"),
        ({"jwt_client_id": "x", "jwt_scopes": "profile"}, "the scopes 'profile'"),
        ({"jwt_client_id": "x", "jwt_issuer": "cluster", "jwt_keys_file": "x"}, "at which people log in"),
    ],
)
def test_settings_that_are_refused(tmp_path: Path, provider: OidcProvider, more: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        Broker.open(Config(data=tmp_path / "data", pipeline="off", **{**provider.settings(), **more}))


def test_scopes(start: Callable[..., Place]) -> None:
    address = start(jwt_scopes="openid groups").browser().leave()
    assert parse_qs(urlsplit(address).query)["scope"] == ["openid groups"]


@pytest.mark.rest
@pytest.mark.parametrize(
    "headers",
    [{"host": "tarry.example"}, {"host": "localhost:1@evil.example"}, {"x-forwarded-for": "192.0.2.1"}],
)
def test_an_address_that_somebody_says_is_not_believed(
    start: Callable[..., Place], provider: OidcProvider, headers: dict[str, str]
) -> None:
    browser = start().browser(headers=headers)
    assert "http_console_url" in browser.said(BEGIN)
    assert "http_console_url" in browser.said(f"{BEGIN}/back?code=none-at-all&state=y")


def test_behind_a_proxy_the_setting_says_where_to(tmp_path: Path, provider: OidcProvider) -> None:
    """The browser is at https, and the proxy reaches the console by http."""
    settings = {**provider.settings(), "jwt_client_id": CLIENT, "http_console_url": "https://tarry.example/"}
    config = ServerConfig(data=tmp_path / "data", flight=None, pipeline="off", **settings)
    with Broker.open(config) as broker, serving(broker) as http, ExitStack() as stack:
        know_shop(broker)
        browser = Place(http, provider, stack).browser(headers={"host": "tarry.example", "x-forwarded-proto": "https"})
        come_by_a_proxy(browser)


def come_by_a_proxy(browser: Browser) -> None:
    assert f'href="https://tarry.example{BEGIN}"' in browser.http.get(LOGIN).text
    answer = browser.http.get(BEGIN)
    [cookie] = answer.headers.get_list("set-cookie")
    assert cookie.startswith("__Host-tarry_login=") and "Secure" in cookie.split("; ") and "Domain" not in cookie
    asked = parse_qs(urlsplit(answer.headers["location"]).query)
    assert asked["redirect_uri"] == [f"https://tarry.example{BEGIN}/back"]
    back = httpx.URL(browser.way_back(answer.headers["location"]))
    value = cookie.partition("=")[2].partition(";")[0]
    came = browser.http.get(back.raw_path.decode(), headers={"cookie": f"__Host-tarry_login={value}"})
    assert came.status_code == 200 and "<bdi>shop</bdi>" in came.text


@pytest.mark.parametrize("url", ["tarry.example", "http://tarry.example", "https://tarry.example/x", "https://a?b"])
def test_an_url_that_is_no_consoles(url: str) -> None:
    with pytest.raises(InvalidArgumentError, match="http_console_url is"):
        ServerConfig(http_console_url=url)


@pytest.mark.parametrize(
    "after", ["https://evil.example/", "//evil.example", "/\\evil.example", "evil", "/" + "x" * 2000]
)
def test_one_goes_on_within_the_console(start: Callable[..., Place], after: str) -> None:
    assert start().browser().log_in(next=after) == "/"


def test_the_longest_address_to_go_on_with_fits_into_the_cookie(start: Callable[..., Place]) -> None:
    browser, after = start().browser(), "/console/pending?q=" + "\U0001f600" * 123
    quoted = str(httpx.URL(after))
    assert AFTER_CHARS_MAX - 12 < len(quoted) <= AFTER_CHARS_MAX
    address = browser.leave(next=after)
    assert len(browser.http.cookies["tarry_login"]) < COOKIE_CHARS_MAX
    assert browser.go_on(browser.way_back(address)) == quoted


def test_of_several_providers_each_lets_in_its_own(tmp_path: Path, provider: OidcProvider) -> None:
    with providing() as other, ExitStack() as stack:
        table = {
            "one": {"issuer": provider.url, "audience": "tarry", "client_id": CLIENT},
            "two": {"issuer": other.url, "audience": "tarry", "client_id": "console-at-two"},
            "three": {"issuer": "https://three.example", "audience": "tarry", "keys_file": str(tmp_path / "keys")},
        }
        (tmp_path / "keys").write_text(json.dumps({"keys": [provider.key.as_dict(private=False)]}))
        settings: dict[str, Any] = {"jwt_issuers": table, "jwt_private_addresses": "127.0.0.1"}
        broker = stack.enter_context(open_broker(tmp_path / "data", clock=SystemClock(), **settings))
        know_shop(broker, issuer="two")
        place = Place(stack.enter_context(serving(broker)), provider, stack)  # type: ignore[arg-type]
        browser = place.browser()
        page = browser.http.get(LOGIN).text
        assert re.findall(r"Log in with <bdi>(.*?)</bdi>", page) == ["one", "two"]
        assert "no identity has" in browser.said(browser.way_back(browser.leave(f"{LOGIN}/one")))
        back = browser.way_back(browser.leave(f"{LOGIN}/two"))
        assert "not begun" in browser.said(back.replace("/two/back", "/one/back")), "the way back of another"
        assert browser.go_on(back) == "/"
        browser.http.cookies.clear()
        address = browser.leave(f"{LOGIN}/one")
        token = other.sign(aud=CLIENT, nonce=parse_qs(urlsplit(address).query)["nonce"][0])
        provider.instead[TOKEN] = lambda: (200, {}, json.dumps({"id_token": token}).encode())
        assert "is not taken" in browser.said(browser.way_back(address)), "one provider hands over the other's token"


def test_with_workers(tmp_path: Path, provider: OidcProvider) -> None:
    """Workers pass the console on to the broker's process, whichever of them a browser reaches."""
    settings = {**provider.settings(), "jwt_client_id": CLIENT}
    with http_workers(tmp_path / "data", 2, **settings) as workers, ExitStack() as stack:
        know_shop(workers.broker)
        first, second = (
            stack.enter_context(httpx.Client(base_url=f"http://{front.address}", timeout=60))
            for front in workers.fronts
        )
        wait_until(lambda: "Log in with" in first.get(LOGIN).text)
        address = first.get(BEGIN).headers["location"]
        back = httpx.URL(Browser(first).way_back(address))
        second.cookies.update(first.cookies)
        came = second.get(back.raw_path.decode(), headers={"host": back.netloc.decode()})
        assert came.status_code == 200 and "<bdi>shop</bdi>" in came.text
        first.cookies.update(second.cookies)
        assert first.get("/console/topics").status_code == 200


def test_an_open_console_asks_nobody(tmp_path: Path, provider: OidcProvider) -> None:
    settings = {**provider.settings(), "jwt_client_id": CLIENT}
    with open_broker(tmp_path / "data", **settings) as broker, serving(broker) as http:  # type: ignore[arg-type]
        assert http.status("GET", "/console/topics") == 200
        for path in (BEGIN, f"{BEGIN}/back?code=none-at-all&state=y"):
            assert http.ask("GET", path).headers["location"] == LOGIN
