"""Settings of all tests, what holds for each of them, and how they are divided.

``--part core`` is what ``make test`` runs: everything that is not marked ``rest``, and property tests with few
examples. ``--part rest`` is what it leaves out: all that is marked, and the property tests again with many examples.
Together they run every test but those with targets of their own (``long``, ``kafka_slow``, ``browser``, a cluster of
Spark).
"""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import ssl
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import httpx._transports.default
import pytest
from hypothesis import is_hypothesis_test, settings

from .s3 import s3_endpoint, s3_uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["s3_endpoint", "s3_uri"]

settings.register_profile("quick", deadline=None, max_examples=20)
settings.register_profile("default", deadline=None, max_examples=60)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

TESTS = Path(__file__).parent
LONG_FIRST = (
    *("spark", "kafka", "celery_project", "django_project", "rabbitmq", "outbox"),
    *("e2e", "crash", "model", "models", "compat"),
    *("rocketmq", "rocketmq_classic", "gateway", "http", "mqtt", "link", "loopgrpc", "fuzz", "browser", "push"),
    *("contract", "takeover", "engines", "identity", "worker", "deploy", "formats", "upgrade", "unit"),
)
"""Order of the directories for several workers: long work begins first, so that all of them end together."""

FDS = "/proc/self/fd"
HAS_FDS = Path(FDS).is_dir()
MEMORY = Path("/dev/shm")
MEMORY_FREE_BYTES_MIN = 8 << 30
YOUNG_OBJECTS_MAX = 50_000
"""New objects before a collection of garbage, instead of 700: a test makes thousands, nearly all of which last as long
as it does."""

# What is fsynced in a test is there after the kill of a process, in memory as on a disk; power is never cut here. In
# memory it takes no time, and two workers do not wait for one disk.
if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_FREE_BYTES_MIN:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
# Spark in tests runs for seconds: the second compiler of a JVM would take more time than its code saves.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
# A shell starts what it runs in its background with SIGINT ignored. Programs that tests stop by it would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A client of httpx, and httpx.get() makes one, reads all authorities that it trusts: 20 ms, longer than most requests.
_public_authorities = cache(httpx.create_ssl_context)


def _ssl_context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    if verify is True and cert is None and trust_env:
        return _public_authorities()
    return httpx.create_ssl_context(verify, cert, trust_env)


httpx._transports.default.create_ssl_context = _ssl_context  # noqa: SLF001 - see above


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part", choices=["core", "rest", "long"], help="only this part of the tests; see tests/conftest.py"
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Leave modules and tests, which stay until the end, out of the collections of garbage: these take longer than many
    a test.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS_MAX, 20, 10)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if part := config.getoption("--part"):
        selected = [item for item in items if _is_of(part, item)]
        if part == "core" and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
            _check_all_are_touched(selected, items)
        config.hook.pytest_deselected(items=[item for item in items if not _is_of(part, item)])
        items[:] = selected
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: LONG_FIRST.index(_directory(item)))
        for item in items:
            if group := _group(item):
                _put_into_group(item, group)


def _put_into_group(item: pytest.Item, group: str) -> None:
    """Have all tests of a group done by one worker.

    The scheduler reads the group from the id, where xdist 3.8 puts it by an attribute that pytest 9.2 no longer reads:
    then each test would be a group by itself, with a JVM in each worker.
    """
    item.add_marker(pytest.mark.xdist_group(group))
    if hasattr(item, "_id") and item.config.getvalue("loadgroup"):
        item._id = type(item._id).parse(f"{item.nodeid}@{group}")  # noqa: SLF001 - as above


def _is_of(part: str, item: pytest.Item) -> bool:
    if item.get_closest_marker("kafka_slow") or item.get_closest_marker("browser"):
        return False
    if item.get_closest_marker("long"):
        return part == "long"
    if item.get_closest_marker("rest"):
        return part == "rest"
    return part == "core" or (part == "rest" and is_hypothesis_test(getattr(item, "obj", None)))


def _check_all_are_touched(selected: list[pytest.Item], items: list[pytest.Item]) -> None:
    """The core has tests of every file, but those of whole processes with Spark or Kafka, of long runs, of whole
    suites once more behind workers, and of what waits for time-outs."""
    allowed = {
        "celery_project/test_workers.py",
        "django_project/test_page.py",
        "django_project/test_workers.py",
        "crash/test_backup_steps.py",
        "crash/test_takeovers.py",
        "worker/test_campaign.py",
        "kafka/test_relay.py",
        "kafka/test_faults.py",
        "gateway/test_classic.py",
        "gateway/test_front_processes.py",
        "link/test_example_node.py",
        "gateway/test_http.py",
        "gateway/test_lmstfy.py",
        "gateway/test_processes.py",
        "gateway/test_rocketmq.py",
        "upgrade/test_rolling.py",
        "e2e/test_backup_kill.py",
        "e2e/test_cancel_in_store.py",
        "e2e/test_demo.py",
        "e2e/test_pipeline_tls.py",
        "e2e/test_upkeep.py",
        "fuzz/test_door.py",
        "http/test_kill.py",
        "http/test_sqs_kill.py",
        "http/test_rest_schema.py",
        "push/test_faults.py",
        "spark/test_datasource_kill.py",
        "spark/test_docs_spark.py",
        "spark/test_delta_connector.py",
        "identity/test_certificate_exchange.py",
        "unit/test_store_month.py",
        "browser/test_console.py",
    }
    files = {i.path for i in items if not i.get_closest_marker("skipif")} - {i.path for i in selected}
    if missing := {str(path.relative_to(TESTS)) for path in files} - allowed:
        raise pytest.UsageError(f"nothing of {sorted(missing)} is in the core of the tests: mark less as 'rest'")


def _directory(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).parts[0]


def _group(item: pytest.Item) -> str | None:
    """What is done by one worker: all that shares Spark's session (a JVM), else a file. None for a test by itself,
    where each makes what it needs and takes seconds.
    """
    if "spark" in getattr(item, "fixturenames", ()):
        return _directory(item)
    if _directory(item) in ("e2e", "crash", "spark", "model") and item.path.name != "test_demo_parts.py":
        return None
    return str(item.path.relative_to(TESTS))


@pytest.fixture(autouse=True)
def nothing_is_left_open() -> Iterator[None]:
    """A log, a lock or a Parquet file that a test leaves open is a leak."""
    before = _data_files()
    yield
    if _data_files() - before:
        gc.collect()
        left = _data_files() - before
        assert not left, f"left open: {sorted(left)}"


def _data_files() -> set[tuple[str, str]]:
    found = set()
    for number in os.listdir(FDS) if HAS_FDS else []:  # noqa: PTH208 - thrice as fast, before and after each test
        try:
            target = os.readlink(f"{FDS}/{number}")  # noqa: PTH115 - as above
        except OSError:
            continue
        if target.removesuffix(" (deleted)").endswith((".log", ".idx", "/lock", ".parquet")):
            found.add((number, target))
    return found


@pytest.fixture
def levels_as_before() -> Iterator[None]:
    """The levels of logging that a test sets are not left to the tests after it."""
    loggers = [logging.root, logging.getLogger("tarry.log")]
    levels = [each.level for each in loggers]
    yield
    for each, level in zip(loggers, levels, strict=True):
        each.setLevel(level)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    # Here, and nowhere else: two fixtures would share one JVM, and both would end it.
    from tarry.spark.runtime.session import build_session, end_jvm

    session = build_session(
        name="tests",
        # A relay has tasks that last, two for each of its shards.
        master="local[10]",
        memory="512m",
        work=tmp_path_factory.mktemp("spark") / "work",
        # A few rows do not repay the compiling of their query; jobs that are processes of their own do compile.
        settings={
            "spark.default.parallelism": "2",
            "spark.scheduler.mode": "FAIR",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        },
    )
    yield session
    session.stop()
    end_jvm()
