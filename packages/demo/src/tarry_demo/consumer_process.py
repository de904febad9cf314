"""The consumer as a child process: started, its progress read, ended.

``consumer_main`` itself is not imported here: it is the main module of the other process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from tarry.base.errors import TarryError

END_S = 60.0
"""Seconds it may take to send its last acknowledgements and to write its file."""


class ConsumerProcess:
    """Runs ``consumer_main``. Close it, or use it in a ``with`` block."""

    def __init__(self, address: str, group: str, file: Path, topics: Sequence[str], log: Path) -> None:
        self._file = file
        self._log = log
        self.count = 0
        """Hand-outs so far, by its last report."""
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tarry_demo.consumer_main", address, group, str(file), *topics],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                start_new_session=True,
            )
        self._thread = threading.Thread(target=self._listen, name="demo-consumer", daemon=True)
        self._thread.start()

    def died(self) -> bool:
        """Return whether it ended by itself."""
        return self._process.poll() is not None

    def finish(self) -> pa.Table:
        """End the consumer, and return its hand-outs.

        Raises:
            TarryError: it failed; its log has the reason.
        """
        self._end()
        if self._process.returncode != 0:
            raise TarryError(f"the consumer failed (exit code {self._process.returncode}); its log: {self._log}")
        with pa.OSFile(str(self._file)) as source:
            return pa.ipc.open_file(source).read_all()

    def close(self) -> None:
        """End the process; its file is not read."""
        self._end()

    def __enter__(self) -> ConsumerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join()
        self._process.stdout.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.count = json.loads(line)["count"]
