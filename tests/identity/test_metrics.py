"""The metrics port: open until there are identities, then for whoever may look at all topics."""

from __future__ import annotations

from pathlib import Path

import httpx
from httpx import Response
from tests.identity.conftest import Known

from tarry.fronts.metrics.front import MetricsFront
from tarry.testing import open_broker


def ask(front: MetricsFront, token: str | None = None, path: str = "/metrics", method: str = "GET") -> Response:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    return httpx.request(method, f"http://{front.address}{path}", headers=headers, timeout=20)


def test_without_identities_nobody_is_asked(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker, MetricsFront.start(broker, "127.0.0.1:0") as front:
        assert ask(front).status_code == 200
        broker.create_token("*")
        assert ask(front).status_code == 200


def test_figures_are_for_whoever_may_look_at_all_topics(known: Known) -> None:
    grants = {
        "viewer": ["look *"],
        "partly": ["look orders.*", "deny look orders.cards"],
        "but": ["look *", "deny look a"],
    }
    tokens = {}
    for name, lines in grants.items():
        known.broker.set_identity(name, lines)
        tokens[name] = known.broker.add_credential(name).secret
    narrow, whole = known.broker.create_token("ns").secret, known.broker.create_token("*").secret
    known.broker.schedule("orders.a", b"x", delay=60)
    with MetricsFront.start(known.broker, "127.0.0.1:0") as front:
        for token in (None, "x" * 30, known.admin[:-1]):
            for path, method in (("/metrics", "GET"), ("/metrics", "HEAD"), ("/", "GET"), ("/metrics", "POST")):
                refused = ask(front, token, path, method)
                assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
                assert "orders" not in refused.text
        for token in (tokens["partly"], tokens["but"], known.billing, narrow):
            refused = ask(front, token)
            assert refused.status_code == 403
            assert "has not the right look on all topics" in refused.text
        for token in (tokens["viewer"], known.admin, whole):
            answer = ask(front, token)
            assert answer.status_code == 200
            assert 'tarry_pending_messages{topic="orders.a"} 1.0' in answer.text
        known.broker.delete_identity("viewer")
        assert ask(front, tokens["viewer"]).status_code == 401
