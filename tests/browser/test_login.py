"""Logging in to a console that asks for a token, in Chromium."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tarry.broker import Broker
from tarry.fronts.http.front import HttpFront
from tarry.fronts.registry import ServerConfig
from tests.browser.chromium import found
from tests.browser.visit import visiting

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(found() is None, reason="chromium is not installed: apt-get install chromium"),
]


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
