"""Tests that are coroutines run here on asyncio's loop and on uvloop's, which differ in their transports."""

from __future__ import annotations

import asyncio
import inspect

import pytest
import uvloop

from tests.loopgrpc.certificates import Certificate, make_certificate

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
TEST_S = 60


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if inspect.iscoroutinefunction(metafunc.function):
        metafunc.fixturenames.append("loop_kind")
        metafunc.parametrize("loop_kind", list(LOOPS))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.function):
        return None
    wanted = inspect.signature(pyfuncitem.function).parameters
    arguments = {name: value for name, value in pyfuncitem.funcargs.items() if name in wanted}
    with asyncio.Runner(loop_factory=LOOPS[pyfuncitem.callspec.params["loop_kind"]]) as runner:
        runner.run(asyncio.wait_for(pyfuncitem.function(**arguments), TEST_S))
    return True


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"))
