"""Requests made from the API's own description, by schemathesis: whatever they are, none is an internal error."""

from __future__ import annotations

import logging
from contextlib import suppress

import pytest
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.core.control import SkipTest

from tests.http.rest import Rest

pytestmark = pytest.mark.rest

EXAMPLES = 12
LEFT_OUT = ("/events", "/batch")
"""Answers that go on for as long as somebody reads, and bodies of media types that schemathesis has no words for."""


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_no_request_is_an_internal_error(mode: GenerationMode, rest: Rest, caplog: pytest.LogCaptureFixture) -> None:
    schema = schemathesis.openapi.from_dict(rest.get("/openapi.json").json())
    schema.config.update(base_url=f"http://{rest.front.address}")
    schema.config.generation.update(modes=[mode])
    asked: dict[str, int] = {}

    def ask(case: Case) -> None:
        if isinstance(case.body, dict) and "wait_ms" in case.body:
            case.body["wait_ms"] = 0
        if isinstance(case.query, dict) and "wait_ms" in case.query:
            case.query["wait_ms"] = "0"
        answer = case.call(timeout=30)
        asked[case.operation.label] = answer.status_code
        assert answer.status_code < 500 or answer.status_code == 503, f"{case.as_curl_command()}\n{answer.text}"

    for result in schema.get_all_operations():
        operation = result.ok()
        if not operation.path.endswith(LEFT_OUT):
            checks = list(HealthCheck)
            limits = settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=checks)
            strategy = operation.as_strategy(generation_mode=mode)
            with suppress(Unsatisfiable, SkipTest):  # there is no such request: nothing of it can be wrong
                seed(1)(limits(given(case=strategy)(ask)))()
    assert len(asked) > 20, "hardly anything was asked"
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
