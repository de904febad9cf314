"""The console with identities: who logs in, what each is shown, what is refused, and when a session ends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.identity.conftest import Known
from tests.identity.http_place import HttpPlace, forget, serving
from tests.waiting import wait_until

from tarry.fronts.http.console import app as app_module
from tarry.testing import TestClock, open_broker

TOKEN = re.compile(r'name="form_token" value="([^"]+)"')
LOGIN = "/console/login"


class Visitor:
    """A browser without scripts: it keeps its cookie, and sends forms with the page's token."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def get(self, path: str, **query: Any) -> httpx.Response:
        return self.http.get(path, params=query or None)

    def page(self, path: str, status: int = 200, **query: Any) -> str:
        answer = self.get(path, **query)
        assert answer.status_code == status, answer.text
        return answer.text

    def send(self, path: str, form_of: str = LOGIN, **fields: Any) -> httpx.Response:
        token = TOKEN.search(self.page(form_of))
        assert token is not None
        return self.http.post(path, data={"form_token": token[1], **fields})

    def done(self, path: str, **fields: Any) -> str:
        """The page that a form leads to; it is sent with the token that every page has in the form to log out."""
        answer = self.send(path, "/console/topics", **fields)
        assert answer.status_code == 303, answer.text
        return self.page(answer.headers["location"])

    def log_in(self, secret: str) -> int:
        return self.send(LOGIN, secret=secret).status_code


@pytest.fixture
def place(known: Known) -> Iterator[HttpPlace]:
    with serving(known.broker) as place:
        yield place


@contextmanager
def visiting(place: HttpPlace, secret: str | None = None) -> Iterator[Visitor]:
    with httpx.Client(base_url=f"http://{place.front.address}", timeout=30) as http:
        visitor = Visitor(http)
        if secret is not None:
            assert visitor.log_in(secret) == 303
        yield visitor


def filled(known: Known) -> None:
    """A message that is pending, a group, and a push subscription: of each one for billing, and one for others."""
    for topic, group in (("orders.a", "billing"), ("secret", "others")):
        known.broker.schedule(topic, f"body of {topic}", delay=3600, key="k")
        known.broker.group(topic, group)
        known.broker.set_push(f"push-{group}", topic=topic, group=group, url="https://example.com/")


def test_nothing_is_shown_before_the_login(place: HttpPlace, known: Known) -> None:
    filled(known)
    with visiting(place) as visitor:
        for path in (*app_module.SHOWN, "/console/nothing"):
            answer = visitor.get(path)
            assert answer.status_code in (200, 303, 401), path
            assert (answer.status_code == 200) == (path == LOGIN), path
            assert "orders.a" not in answer.text
        for path in app_module.CHANGES:
            assert visitor.http.post(path, data={"topic": "orders.a"}).status_code in (303, 403), path
        for header in ({"authorization": f"Bearer {known.admin}"}, {"x-token": known.admin}):
            assert visitor.http.get("/console/topics", headers=header).status_code == 303
        assert visitor.get("/console/topics", token=known.admin).status_code == 303


def test_who_logs_in(place: HttpPlace, known: Known) -> None:
    narrow = known.broker.create_token("shop").secret
    for secret, name in ((known.admin, "admin"), (known.billing, "billing"), (narrow, "token:")):
        with visiting(place, secret) as visitor:
            page = visitor.page("/console/topics")
            assert name in page
            assert secret not in page
            assert visitor.send("/console/logout", "/console/topics").status_code == 303
            assert visitor.get("/console/topics").status_code == 303
    with visiting(place) as visitor:
        assert visitor.log_in("no-token-at-all") == 403
        assert visitor.log_in("") == 403
        forget(known.broker, "billing")
        assert visitor.log_in(known.billing) == 403


def test_lists_have_what_the_viewer_may_see(place: HttpPlace, known: Known) -> None:
    filled(known)
    with visiting(place, known.billing) as visitor:
        assert visitor.get("/").headers["location"] == "/console/topics"
        for path in ("/console/topics", "/console/push", "/console/dead", "/console/schedule"):
            page = visitor.page(path)
            assert "secret" not in page and "others" not in page, path
        assert "orders.a" in visitor.page("/console/topics")
        assert "push-billing" in visitor.page("/console/push")
        page = visitor.page("/console/topics")
        for title in ("Overview", "System", "Bulk jobs", "Pending<", "Series", "Dead letters"):
            assert f">{title.rstrip('<')}</a>" not in page, title
        for title in ("Schedule", "Push", "Topics &amp; groups"):
            assert f">{title}</a>" in page
        assert "billing has not the right" in visitor.page("/console/system", 403)
        for path in ("/console/live", "/console/data/forecast", "/console/data/live", "/console/jobs"):
            assert visitor.get(path).status_code == 403, path
        for path, query in (
            ("/console/topic", {"topic": "secret"}),
            ("/console/group", {"topic": "secret", "group": "others"}),
            ("/console/dead", {"topic": "orders.a", "group": "billing"}),
            ("/console/dead/progress", {"topic": "orders.a", "group": "billing"}),
            ("/console/pending", {"topic": "orders.a"}),
            ("/console/series", {"topic": "orders.a"}),
        ):
            assert "body of" not in visitor.page(path, 403, **query), path
        assert "Name a topic" in visitor.page("/console/past")
        assert "secret" not in visitor.page("/console/past", topic="orders.a")
        assert visitor.get("/console/data/past", topic="orders.a").status_code == 200
        assert visitor.get("/console/data/past").status_code == 403
        assert visitor.get("/console/data/past", topic="secret").status_code == 403
        visitor.page("/console/past", 403, topic="secret")
        span = {"from": "2h", "until": "1h"}
        visitor.page("/console/past/at", 403, **span)
        visitor.page("/console/past/at", 403, topic="secret", **span)
        assert "body of" not in visitor.page("/console/past/at", topic="orders.a", **span)
        assert "secret" not in visitor.page("/console/topic", 404, topic="orders.b"), "nothing like it may be seen"
        assert "Name a topic" in visitor.page("/console/pending")
        assert "Name a topic" in visitor.page("/console/series")
        page = visitor.page("/console/topic", topic="orders.a")
        assert "You may not see the messages" in page and "body of" not in page and "Save the settings" not in page
        assert "Schedule a message here" in page
        page = visitor.page("/console/group", topic="orders.a", group="billing")
        assert "Pause…" not in page and "Forget…" not in page and "Save the settings" not in page
        page = visitor.page("/console/push", name="push-billing")
        assert "Delete…" not in page and "may not see its requests" in page
        assert "push-billing" in visitor.page("/console/push", name="push-others"), "as if there were none"
    with visiting(place, known.admin) as visitor:
        page = visitor.page("/console/topics")
        assert "orders.a" in page and "secret" in page and ">System</a>" in page
        assert "Pause…" in visitor.page("/console/group", topic="secret", group="others")
        assert "Save the settings" in visitor.page("/console/topic", topic="secret")


def test_many_topics_are_listed_for_each_viewer(
    place: HttpPlace, known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker's figures have those with most to do, and these may all be others'."""
    for name in ("tarry.fronts.http.console.figures", "tarry.fronts.http.console.listing"):
        monkeypatch.setattr(f"{name}.LISTED_MAX", 1)
    for topic in ("secret", "secret", "orders.a"):
        known.broker.schedule(topic, b"x", delay=3600)
        known.broker.group(topic, "billing")
    with visiting(place, known.billing) as visitor:
        page = visitor.page("/console/topics")
        assert "orders.a" in page and "secret" not in page
        assert page.count("/console/group?") == 1


def test_what_may_not_be_done_is_refused(place: HttpPlace, known: Known) -> None:
    filled(known)
    [row] = known.broker.list_pending(topic="secret").rows.to_pylist()
    message = f"{row['seq']}.{row['due_ms']}"
    at = {"topic": "orders.a", "group": "billing"}
    with visiting(place, known.billing) as visitor:
        assert visitor.get("/console/message", message=message).status_code == 404
        assert visitor.get("/console/message/body", message=message).status_code == 404
        for path, fields in (
            ("/console/topic", {"topic": "orders.a", "set_late": "drop", "was_late": "x"}),
            *(("/console/group", {**at, "action": action, "to": "latest"}) for action in ("pause", "seek", "delete")),
            *(("/console/dead", {**at, "action": action}) for action in ("purge-all", "purge-cause", "respawn-cause")),
            *(("/console/push", {"name": "push-billing", "action": action}) for action in ("pause", "delete", "test")),
        ):
            answer = visitor.send(path, "/console/topics", **fields)
            assert answer.status_code == 303, path
            location = answer.headers["location"]
            shown = visitor.get(location).text
            assert "has not the right" in shown, (path, fields)
        # What is not theirs to see is to them as if it were not there.
        fields = {"message": message, "back": "/console/pending"}
        assert visitor.send("/console/pending/cancel", "/console/topics", **fields).status_code == 303
        assert visitor.send("/console/message", "/console/topics", message=message, action="cancel").status_code == 303
        assert known.broker.list_pending(topic="secret").rows.num_rows == 1
        assert visitor.send("/console/jobs/cancel", "/console/topics", job="j").status_code == 303
        answer = visitor.send("/console/schedule", "/console/topics", topic="secret", body="x", **FORM)
        assert answer.status_code == 400 and "has not the right produce" in answer.text
        answer = visitor.send("/console/schedule", "/console/topics", topic="orders.b", body="x", **FORM)
        assert answer.status_code == 303
    counts = {each.topic: each.pending for each in known.broker.pending()}
    assert counts == {"orders.a": 1, "secret": 1, "orders.b": 1}
    assert not known.broker.group_info("orders.a", "billing").paused
    assert {each.name for each in known.broker.push_subscriptions()} == {"push-billing", "push-others"}


FORM = {"encoding": "text", "when": "delay", "delay": "1h", "repeat": "no"}


def test_what_may_be_done_is_shown_and_done(place: HttpPlace, known: Known) -> None:
    filled(known)
    token = place.token("browse orders.*", "manage orders.* group:billing", "produce orders.*")
    with visiting(place, token) as visitor:
        page = visitor.page("/console/pending", topic="orders.a")
        assert "body of orders.a" in page and "Cancel those chosen…" in page
        place_of = re.search(r'name="message" value="([^"]+)"', page)
        assert place_of is not None
        page = visitor.page("/console/message", message=place_of[1])
        assert "Reschedule…" in page and "body of orders.a" in page
        page = visitor.page("/console/group", topic="orders.a", group="billing")
        assert "Pause…" in page and "Save the settings" in page
        assert "paused" in visitor.done("/console/group", topic="orders.a", group="billing", action="pause")
        assert known.broker.group_info("orders.a", "billing").paused
        assert "Cancelled" in visitor.done("/console/message", message=place_of[1], action="cancel")
    assert {each.topic: each.pending for each in known.broker.pending() if each.pending} == {"secret": 1}


def test_a_session_ends_with_its_credential(place: HttpPlace, known: Known) -> None:
    with visiting(place, known.billing) as visitor, visiting(place, known.admin) as other:
        assert "orders" not in visitor.page("/console/topics")
        known.broker.group("orders.a", "g")
        forget(known.broker, "billing")
        assert visitor.get("/console/topics").headers["location"].startswith(LOGIN)
        assert visitor.http.get("/console/data/live").status_code == 401
        assert visitor.http.post("/console/schedule", data={"topic": "orders.a"}).status_code == 303
        other.page("/console/topics")
        known.broker.set_identity("admin2", ["admin"])
        known.broker.add_credential("admin2")
        known.broker.set_identity("admin", ["look *"])
        assert "Save the settings" not in other.page("/console/topic", topic="orders.a"), "rights are the current ones"


def test_a_session_ends_when_its_credential_expires(tmp_path: Path) -> None:
    clock = TestClock(1_000_000)
    with open_broker(tmp_path, clock=clock) as broker, serving(broker) as place:  # type: ignore[arg-type]
        broker.set_identity("admin", ["admin"])
        broker.add_credential("admin")
        short = broker.add_credential("admin", expires_ms=1_060_000)
        with visiting(place, short.secret) as visitor:
            visitor.page("/console/topics")
            clock.set_ms(1_060_000)
            assert visitor.get("/console/topics").status_code == 303


def test_a_session_from_before_is_no_login(tmp_path: Path) -> None:
    """Without identities, whoever is on this machine has a session, and everything is allowed."""
    with open_broker(tmp_path) as broker, serving(broker) as place, visiting(place) as visitor:  # type: ignore[arg-type]
        assert "Log out" not in visitor.page("/")
        broker.set_identity("admin", ["admin"])
        secret = broker.add_credential("admin").secret
        assert visitor.get("/").headers["location"] == LOGIN
        assert visitor.log_in(secret) == 303
        assert "Log out" in visitor.page("/")
        forget(broker, "admin")
        wait_until(lambda: not broker.identities)
        assert visitor.get("/").status_code == 200
