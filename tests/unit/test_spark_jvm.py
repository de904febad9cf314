"""How the end of a JVM is told: as that, and not as a connection that failed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from tarry.base.errors import TarryError
from tarry.spark.reports import session as reports
from tarry.spark.runtime.failures import one_line
from tarry.spark.runtime.session import jvm_end


class Py4JNetworkError(Exception):
    """As py4j's, by its name."""


@pytest.fixture
def jvm(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """A process in the place of Spark's."""
    code = "import sys; sys.exit(int(sys.stdin.readline() or 0))"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        context = SimpleNamespace(SparkContext=SimpleNamespace(_gateway=SimpleNamespace(proc=process)))
        monkeypatch.setitem(sys.modules, "pyspark.core.context", context)  # type: ignore[arg-type]
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    "error",
    [
        Py4JNetworkError("Answer from Java side is empty"),
        ConnectionRefusedError(111, "Connection refused"),
        ConnectionResetError(104, "Connection reset by peer"),
        RuntimeError("Error while sending or receiving"),
        ValueError("anything at all"),
    ],
)
def test_a_jvm_that_was_killed_is_the_cause(jvm: subprocess.Popen[bytes], error: Exception) -> None:
    jvm.kill()
    jvm.wait()
    killed = f"Spark's JVM (process {jvm.pid}) was killed by SIGKILL"
    assert one_line(error) == f"{killed}; the system may have been out of memory: its log says so"


def test_a_jvm_that_ends_after_its_connection(jvm: subprocess.Popen[bytes]) -> None:
    assert jvm_end() is None
    jvm.kill()  # and not waited for: the error is there before the process has gone
    assert "was killed by SIGKILL" in one_line(Py4JNetworkError("Answer from Java side is empty"))


def test_a_jvm_that_ended_by_itself(jvm: subprocess.Popen[bytes]) -> None:
    assert jvm.stdin is not None
    jvm.stdin.write(b"52\n")
    jvm.stdin.close()
    jvm.wait()
    assert one_line(ConnectionRefusedError()) == f"Spark's JVM (process {jvm.pid}) has ended with exit code 52"


def test_while_it_lives_an_error_is_itself(jvm: subprocess.Popen[bytes]) -> None:
    assert one_line("first\ntarry.base.errors.TarryError: the cause") == "tarry.base.errors.TarryError: the cause"


def test_a_report_says_so(jvm: subprocess.Popen[bytes], tmp_path: object) -> None:
    from pathlib import Path

    with (
        pytest.raises(TarryError, match=f"Spark failed: Spark's JVM .process {jvm.pid}. was killed by SIGKILL"),
        reports._spark_errors(Path(str(tmp_path)) / "log"),  # noqa: SLF001 - what a report runs in
    ):
        jvm.kill()
        raise ConnectionRefusedError(111, "Connection refused")
