"""What is told of Spark's failures: the last error of the last traceback, and what to do about it."""

from __future__ import annotations

import sys

import pytest

from tarry.spark.runtime.failures import one_line

# As Spark 4.2 and 4.3 write them, shortened.
NO_SOURCE = """[PYTHON_DATA_SOURCE_ERROR] Failed to create the instance: Traceback (most recent call last):
  File "/x/pipeline/intake_source.py", line 13, in <module>
    import pyarrow as pa
ModuleNotFoundError: No module named 'pyarrow'
 SQLSTATE: 38000"""

NO_DAEMON = """An error occurred while calling o72.count.
: org.apache.spark.SparkException: Job aborted: Task 0 in stage 0.0 failed 1 times, \
most recent failure: Lost task 0.0 in stage 0.0 (TID 0) (localhost executor driver): org.apache.spark.SparkException:
Error from python worker:
  Traceback (most recent call last):
    File "<frozen runpy>", line 198, in _run_module_as_main
    File "/x/spark/runtime/daemon.py", line 19, in <module>
      from pyspark.daemon import manager
  ModuleNotFoundError: No module named 'pyspark'
PYTHONPATH was:
  /x/pyspark.zip:/x/py4j-0.10.9.9-src.zip
org.apache.spark.SparkException: EOFException occurred while reading the port number from the daemon's stdout.
\tat org.apache.spark.errors.SparkCoreErrors$.eofExceptionWhileReadPortNumberError(SparkCoreErrors.scala:55)

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.$anonfun$abortStage$3(DAGScheduler.scala:4568)
Caused by: org.apache.spark.SparkException:
Error from python worker:
  Traceback (most recent call last):
    File "<frozen runpy>", line 198, in _run_module_as_main
  ModuleNotFoundError: No module named 'pyspark'
"""

REFUSED = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [PYTHON_DATA_SOURCE_ERROR] Failed: \
Traceback (most recent call last):
  File "/x/options.py", line 122, in of
    raise InvalidArgumentError("first: it begins")
tarry.base.errors.InvalidArgumentError: first: it begins

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/x/runner.py", line 295, in main
    with pa.ipc.open(x):
         ^^^^^^^^^^^^^^
pyarrow.lib.ArrowInvalid: what ended it
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Current State: INITIALIZING
Thread State: RUNNABLE"""

JAVA = """py4j: Traceback (most recent call last):
  File "/x/y.py", line 1, in f
py4j.protocol.Py4JJavaError: An error occurred while calling o87.count.
: org.apache.spark.SparkException: Job aborted due to stage failure: ExecutorLostFailure
\tat org.apache.spark.x(Y.scala:1)
Caused by: java.lang.OutOfMemoryError: Java heap space
\tat org.apache.spark.x(Y.scala:1)
Caused by: org.apache.spark.SparkException:
"""

NOT_BACK = """An error occurred while calling o72.count.
: org.apache.spark.SparkException: Job aborted due to stage failure
Caused by: org.apache.spark.SparkException: Python worker failed to connect back.
\tat org.apache.spark.api.python.PythonWorkerFactory.createSimpleWorker(PythonWorkerFactory.scala:261)
Caused by: java.net.SocketTimeoutException: Timed out while waiting for the Python worker to connect back
"""

VERSION = """Lost task: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/worker_util.py", line 101, in check_python_version
    raise PySparkRuntimeError(
pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: \
3.9 than that in driver: 3.11, PySpark cannot run with different minor versions.

\tat org.apache.spark.api.python.BasePythonRunner"""

NO_PROGRAM = """An error occurred while calling o72.count.
: org.apache.spark.SparkException: Job aborted due to stage failure: java.io.IOException: Cannot run program "/opt/no"
Caused by: java.io.IOException: Cannot run program "/opt/no": error=2, No such file or directory
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
Caused by: java.io.IOException: error=2, No such file or directory"""

HERE = ".".join(map(str, sys.version_info[:2]))


@pytest.mark.parametrize(
    ("text", "cause", "advice"),
    [
        (NO_SOURCE, "ModuleNotFoundError: No module named 'pyarrow'; ", "Spark's workers is /some/python (PYSPARK_PY"),
        (NO_DAEMON, "ModuleNotFoundError: No module named 'pyspark'; ", "pip install --find-links dist 'tarry[spark]'"),
        (REFUSED, "pyarrow.lib.ArrowInvalid: what ended it", ""),
        (JAVA, "Caused by: java.lang.OutOfMemoryError: Java heap space", ""),
        (NOT_BACK, "Caused by: java.net.SocketTimeoutException: Timed out", "within 10 seconds"),
        (VERSION, "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION", f"allowed: a Python {HERE} "),
        (NO_PROGRAM, "Caused by: java.io.IOException: error=2, No such file", "Spark's workers is /some/python (PYSPA"),
        ("[JAVA_GATEWAY_EXITED] Java gateway process", "[JAVA_GATEWAY_EXITED] Java", "allowed: Java 17 or newer"),
        ("first\ntarry.base.errors.TarryError: the cause", "tarry.base.errors.TarryError: the cause", ""),
        ("only a text", "only a text", ""),
        ("", "str", ""),
    ],
)  # fmt: skip
def test_the_cause_and_what_to_do(text: str, cause: str, advice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/some/python")
    told = one_line(text)
    assert told.startswith(cause)
    assert advice in told
    assert bool(advice) == (";" in told)
    assert "\n" not in told


def test_a_long_text_is_cut_and_the_advice_is_not() -> None:
    told = one_line(f"ValueError: No module named {'x' * 9000}")
    assert told[:500].endswith("x")
    assert "pip install --find-links dist 'tarry[spark]'" in told
    assert len(told) < 900
