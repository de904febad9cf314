"""The official Python client, unchanged, against ``tarry serve --rocketmq``: every scenario of some 20 s at most.

The other languages, the restarts and the long ones: ``python -m tests.compat.rocketmq.run``.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec

import pytest

from .programs import build
from .running import Result, run
from .scenarios import SCENARIOS
from .servers import NotInThisVersionError, tarry_server

QUICK = [scenario.name for scenario in SCENARIOS.values() if scenario.quick and not scenario.is_classic]
CORE = ("normal", "recall")
"""In `make test`; the others are in the rest."""
AT_A_TIME = 6
"""They wait more than they work."""

Results = dict[str, Future[Result]]

pytestmark = pytest.mark.skipif(find_spec("rocketmq") is None, reason="rocketmq-python-client is not installed")


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Results]:
    """The scenarios of the tests that were selected, running; one server for all of them."""
    directory = tmp_path_factory.mktemp("rocketmq")
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    selected = {item.callspec.params.get("name") for item in items if hasattr(item, "callspec")}
    try:
        with tarry_server(directory / "server") as server, ThreadPoolExecutor(AT_A_TIME) as pool:
            command = build("python")
            yield {
                name: pool.submit(run, "python", command, SCENARIOS[name], server, directory / name)
                for name in QUICK
                if name in selected
            }
    except NotInThisVersionError as error:
        pytest.skip(str(error))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in CORE else pytest.mark.rest) for n in QUICK])
def test_scenario(name: str, results: Results) -> None:
    result = results[name].result()
    assert result.outcome == "ok", f"{result.outcome}: {result.reason or result.facts}"
