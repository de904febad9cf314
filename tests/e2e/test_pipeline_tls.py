"""The pipeline of a broker whose native port takes TLS alone: it works on when the certificate is exchanged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tarry.client import Client, ClientTls
from tests.gateway.test_processes import port_of, setting
from tests.loopgrpc.certificates import make_certificate
from tests.waiting import wait_until

pytestmark = [pytest.mark.rest, pytest.mark.timeout(300)]


def test_the_pipeline_needs_no_certificate(tmp_path: Path) -> None:
    own = make_certificate(tmp_path)
    (tmp_path / "new").mkdir()
    new = make_certificate(tmp_path / "new")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(own.certificate.read_bytes() + new.certificate.read_bytes())
    settings = setting(
        *("flight_tls=on", f"tls_certificate={own.certificate}", f"tls_key={own.key}"),
        *("schedule_interval_ms=1000", "disk_free_bytes_min=0"),
    )
    data = ["--data", str(tmp_path / "data"), "--flight", "127.0.0.1:0", "--spark-master", "local[1]"]
    command = [sys.executable, "-m", "tarry", "serve", *data, "--pipeline", "on", *settings]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, (tmp_path / "log").read_text()
    try:
        with Client(f"tls://localhost:{port_of(line, 'flight on ')}", tls=ClientTls(str(trusted))) as client:
            for committed in (1, 2):
                client.schedule("orders", b"x", delay="1h")
                wait_until(
                    lambda committed=committed: client.status()["store"]["committed_seq"] >= committed,
                    120,
                    lambda: client.status()["pipeline"],
                )
                if committed == 1:
                    new.certificate.replace(own.certificate)
                    new.key.replace(own.key)
            assert client.status()["pipeline"]["supervisor"]["restarts"] == 0
        assert (tmp_path / "data" / "pipeline.sock").stat().st_mode & 0o777 == 0o600
    finally:
        process.terminate()
        assert process.wait(60) == 0
