"""A PostgreSQL of its own: a cluster in a directory, on a free port, as a user without rights."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.ports import free_port

FOUND = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
WHY_NOT = "PostgreSQL is not installed: apt-get install postgresql"
USER = "nobody"
"""PostgreSQL does not run as root."""


class Postgres:
    """A server that runs until :meth:`stop`."""

    def __init__(self, directory: Path, *, fsync: bool = False) -> None:
        self._bin = FOUND[-1]
        self._directory = directory
        directory.mkdir()
        if os.geteuid() == 0:
            shutil.chown(directory, USER)
        self.port = free_port()
        self.dsn = f"postgresql://tarry@127.0.0.1:{self.port}/postgres"
        self._run("initdb", "-D", str(directory / "data"), "-U", "tarry", "-A", "trust", "--no-sync")
        options = f"-p {self.port} -k {directory} -c listen_addresses=127.0.0.1 -c fsync={'on' if fsync else 'off'}"
        self._run("pg_ctl", "-D", str(directory / "data"), "-o", options, "-l", str(directory / "log"), "-w", "start")

    def stop(self) -> None:
        """Stop it, and end its connections."""
        self._run("pg_ctl", "-D", str(self._directory / "data"), "-m", "immediate", "-w", "stop")

    def run_shell(self, command: str, directory: Path) -> None:
        """Run a command, with this server where its clients look for one."""
        found = {"PGHOST": "127.0.0.1", "PGPORT": str(self.port), "PGUSER": "tarry"}
        environment = {**os.environ, **found, "PATH": f"{self._bin}:{os.environ['PATH']}"}
        subprocess.run(command, shell=True, cwd=directory, env=environment, check=True, timeout=120)

    def _run(self, program: str, *arguments: str) -> None:
        other = {"user": USER, "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
        with (self._directory / "out").open("ab") as out:
            done = subprocess.run(
                [self._bin / program, *arguments], stdout=out, stderr=out, cwd=self._directory, timeout=120, **other
            )  # type: ignore[call-overload]
        assert done.returncode == 0, (self._directory / "out").read_text()
