"""One job at a time works with a checkpoint: the next one waits for the former to end, or says who it is."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tarry.base.errors import LockedError
from tarry.spark.runtime.sole_user import sole_user

HOLD = """
import sys, threading
from pathlib import Path
from tarry.spark.runtime.sole_user import sole_user
with sole_user(Path(sys.argv[1]), threading.Event()):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_job_waits_for_the_former_one_also_where_that_is_killed(tmp_path: Path) -> None:
    checkpoint = tmp_path / "pipeline" / "checkpoint"
    command = [sys.executable, "-c", HOLD, str(checkpoint)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as former:
        assert former.stdout is not None and former.stdout.readline() == b"held\n"
        with (
            pytest.raises(LockedError, match=rf"checkpoint is in use by another job \(process {former.pid}\)"),
            sole_user(checkpoint, threading.Event(), wait_s=0),
        ):
            pass
        taken, let_go = threading.Event(), threading.Event()

        def work() -> None:
            with sole_user(checkpoint, threading.Event()):
                taken.set()
                let_go.wait()

        successor = threading.Thread(target=work)
        successor.start()
        assert not taken.wait(0.2)
        former.kill()
        assert taken.wait(30)
        let_go.set()
        successor.join()
    with sole_user(checkpoint, threading.Event(), wait_s=0):
        assert (checkpoint.parent / ".checkpoint.lock").read_text().split()[0] == str(os.getpid())


def test_who_is_to_stop_does_not_wait(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    with (
        sole_user(tmp_path / "c", threading.Event()),
        pytest.raises(LockedError),
        sole_user(tmp_path / "c", stop),
    ):
        pass
