"""Logging in to a console that asks, by a token and at a provider, in Chromium."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tarry.broker import Broker
from tarry.fronts.http.front import HttpFront
from tarry.fronts.registry import ServerConfig
from tests.browser.chromium import found
from tests.browser.visit import PHONE, Visit, visiting
from tests.identity.provider import CLIENT, providing

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(found() is None, reason="chromium is not installed: apt-get install chromium"),
]


@contextmanager
def console(data: Path, **settings: Any) -> Iterator[tuple[Broker, Visit]]:
    """Visit the console of a broker with these settings."""
    config = ServerConfig(data=data, pipeline="off", flight=None, disk_free_bytes_min=0, **settings)
    with (
        Broker.open(config) as broker,
        HttpFront.start(broker, "127.0.0.1:0") as front,
        visiting(f"http://localhost:{front.port}") as visit,
    ):
        yield broker, visit


def test_log_in_and_out(tmp_path: Path) -> None:
    config = ServerConfig(data=tmp_path, pipeline="off", flight=None, disk_free_bytes_min=0, http_access="tokens")
    with Broker.open(config) as broker, HttpFront.start(broker, "127.0.0.1:0") as front:
        secret, other = broker.create_token("*").secret, broker.create_token("ns").secret
        with visiting(f"http://{front.address}") as visit:
            page = visit.go("/console/pending")
            expect(page.locator("h1")).to_have_text("Log in")
            for wrong in ("x" * 30, other):
                page.fill("#secret", wrong)
                page.keyboard.press("Enter")
                expect(page.locator("[role=alert]")).to_be_visible()
            page.fill("#secret", secret)
            page.keyboard.press("Enter")
            expect(page).to_have_url(re.compile("/console/pending$"))
            expect(page.locator("h1")).to_have_text(re.compile("Pending"))
            assert secret not in page.content() and secret not in page.url
            assert page.evaluate("document.cookie") == "", "scripts see no session"
            page.click("text=Log out")
            visit.go("/console/pending")
            expect(page.locator("h1")).to_have_text("Log in")
            # A refused log-in is an answer of 401 or 403, which the browser writes to its console.
            assert all("401" in said or "403" in said for said in visit.complaints)


def test_log_in_at_a_provider(tmp_path: Path) -> None:
    """The provider is another site, so on the way back the browser sends no cookie of ``SameSite=Strict``."""
    with providing() as provider:
        settings = {**provider.settings(), "jwt_client_id": CLIENT, "pipeline": "off", "disk_free_bytes_min": 0}
        config = ServerConfig(data=tmp_path, flight=None, **settings)
        with Broker.open(config) as broker, HttpFront.start(broker, "127.0.0.1:0") as front:
            broker.set_identity("root", ["admin"])
            broker.add_credential("root")
            broker.set_identity("shop", ["look *"])
            broker.add_credential("shop", kind="jwt", claim="groups=tarry-shop")
            with visiting(f"http://localhost:{front.port}") as visit:
                page = visit.go("/console/topics?q=a")
                page.click("text=Log in with")
                expect(page).to_have_url(re.compile(r"^http://localhost:[0-9]+/console/topics\?q=a$"))
                expect(page.locator("header")).to_contain_text("shop")
                assert page.evaluate("document.cookie") == "", "scripts see no session"
                assert visit.complaints == [], "the policy lets the browser go there and back"
                page.click("text=Log out")
                expect(page.locator("h1")).to_have_text("Log in")
                page.goto(f"http://localhost:{front.port}/console/login/127.0.0.1/back?code=x&state=y")
                expect(page.locator("[role=alert]")).to_contain_text("not begun in this browser")
                page.click("text=Log in with a token")
                expect(page.locator("#secret")).to_be_visible()


def test_a_link_of_another_site(tmp_path: Path) -> None:
    """The browser sends no session with it, and is let in all the same."""
    with console(tmp_path, http_access="tokens") as (broker, visit):
        page = visit.go("/console/topics?q=1")
        page.fill("#secret", broker.create_token("*").secret)
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile(r"/console/topics\?q=1$"))
        paths = ("/console/pending?key=a%26b", "/console/login?next=%2Fconsole%2Fpending%3Fkey%3Da%2526b")
        links = "<br>".join(f'<a href="{visit.address}{path}">here</a>' for path in paths)
        page.route("http://other.example/", lambda route: route.fulfill(body=links, content_type="text/html"))
        for n in range(len(paths)):
            page.goto("http://other.example/")
            page.locator("a").nth(n).click()
            expect(page).to_have_url(f"{visit.address}/console/pending?key=a%26b")
            expect(page.locator("header")).to_contain_text("Log out")
            page.go_back()
            expect(page).to_have_url("http://other.example/")
        assert visit.complaints == []


def test_a_page_that_the_browser_has_kept_is_not_shown_again(tmp_path: Path) -> None:
    """Some browsers keep pages to go back to, whatever these say of being stored."""
    with console(tmp_path, http_access="tokens") as (broker, visit):
        page = visit.go("/console/jobs")
        page.fill("#secret", broker.create_token("*").secret)
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile("/console/jobs$"))
        page.context.clear_cookies()
        page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
        expect(page.locator("h1")).to_have_text("Log in")


def test_names_of_providers_fit_on_a_phone(tmp_path: Path) -> None:
    name = "a-provider-with-a-long-name-" * 2
    table = {name: {"issuer": "https://login.example", "audience": "tarry", "client_id": CLIENT}}
    with console(tmp_path, jwt_issuers=table) as (broker, visit):
        broker.set_identity("root", ["admin"])
        broker.add_credential("root")
        visit.resize(PHONE)
        visit.go("/console/login")
        box = visit.page.locator("text=Log in with").first.bounding_box()
        assert box is not None and box["x"] + box["width"] <= PHONE["width"]
        assert visit.hangs_over_px <= 0
