"""Certificates that are exchanged under load: no call fails, at any port, and new connections see the new one."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from tests.identity.authority import Authority, ClientCertificate, uri
from tests.identity.doors import ANY_PORT, CALLERS, Ports
from tests.loopgrpc.certificates import Certificate, make_certificate
from tests.waiting import wait_until

from tarry.api.audit import AuditRecord
from tarry.api.operations import ReadAuditLog
from tarry.base.file_changes import LOOK_S
from tarry.broker import Broker
from tarry.broker.audit_reading import read_lines
from tarry.fronts.registry import ServerConfig

pytestmark = [pytest.mark.rest, pytest.mark.timeout(300)]

SHOP = "spiffe://example/shop"
LOOKED_AT_S = LOOK_S + 0.2
"""Seconds after which the next connection, to whichever process, has the files looked at."""
CALLS, PAUSE_S = 5, 0.05
"""Calls of each client between two events, at least, and the time between two of them."""
HANDSHAKES = 4
"""Of each port; fewer than the port of metrics takes at a time."""
LISTENING = ("flight", "link", "http", "http_admin", "metrics", "rocketmq", "remoting", "mqtt", "gateway")

KEEPING = [name for name in CALLERS if name != "metrics"]
"""Ports whose connections take more than one request."""
CLIENTS = [*(("kept", name) for name in KEEPING), *(("new", name) for name in CALLERS)]
"""What each does with its connection, and its port."""


class Place:
    """``tarry serve`` with all ports in TLS; the files that it looks at, and a client's certificate."""

    def __init__(self, directory: Path, workers: int) -> None:
        self._directory, self._made = directory, 0
        self.now = self.make()
        self.trusted = directory / "trusted.pem"
        """Authorities that clients trust: all certificates that were made."""
        self._trust(self.now)
        self.authority = Authority(directory / "authority", self.trusted)
        self.shown = self.authority.sign(uri(SHOP))
        self.log = directory / "log"
        self._data = data = directory / "data"
        tls = {"certificate": self.now.certificate, "key": self.now.key, "client_ca": self.authority.file}
        settings = {f"tls_{name}": str(path) for name, path in tls.items()}
        settings |= {"flight_tls": "on", "rocketmq_tls": "on", "remoting_vip": "off", "disk_free_bytes_min": "0"}
        settings |= dict.fromkeys(LISTENING, ANY_PORT)
        with Broker.open(ServerConfig(data=data, pipeline="off")) as broker:
            broker.set_identity("shop", ["admin"])
            broker.add_credential("shop", kind="certificate", san=SHOP)
        given = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        command = ["serve", "--data", str(data), "--pipeline", "off", "--workers", str(workers), *given]
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tarry", *command], stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self.log.read_text()
        found = dict(re.findall(r"([a-z][a-z ]*) on (127\.0\.0\.1:\d+)", line.partition("serving ")[2]))
        self.ports = Ports({**found, "lmstfy": found["http"], "gateway": found["gateways"]})

    def make(self) -> Certificate:
        """Another certificate of the broker's, which is not in use."""
        self._made += 1
        directory = self._directory / f"made-{self._made}"
        directory.mkdir()
        return make_certificate(directory)

    def exchange(self, pause_s: float = 0.0) -> Certificate:
        """Put another certificate in the place of the one in use, then its key; return the former one."""
        new, former = self.make(), self.now
        kept = self._directory / f"former-{self._made}.pem"
        kept.write_bytes(former.certificate.read_bytes())
        self._trust(new)
        new.certificate.replace(former.certificate)
        time.sleep(pause_s)  # the files do not fit together, and are looked at
        new.key.replace(former.key)
        return Certificate(kept, former.key)

    def serials(self, name: str) -> set[int]:
        """The serial numbers of the certificates that a port shows, to several connections."""
        found = set()
        for _ in range(HANDSHAKES):
            with self.ports.socket(name, self.shown) as connection:
                shown: Any = connection.getpeercert()
                found.add(int(shown["serialNumber"], 16))
        return found

    def check_shown(self) -> None:
        """Each port shows the certificate that is in its place, a second after it was put there."""
        time.sleep(LOOKED_AT_S)
        serial = serial_of(self.now)
        assert {name: self.serials(name) for name in CALLERS} == {name: {serial} for name in CALLERS}

    def reloads(self) -> list[AuditRecord]:
        """The lines of the audit log about files that were read again. All of them are there a moment later."""
        time.sleep(LOOKED_AT_S)
        return read_lines(self._data, ReadAuditLog(operation="reload"))

    def close(self) -> None:
        self._process.terminate()
        assert self._process.wait(60) == 0

    def _trust(self, certificate: Certificate) -> None:
        before = self.trusted.read_bytes() if self.trusted.exists() else b""
        with_it = self.trusted.with_suffix(".new")
        with_it.write_bytes(before + certificate.certificate.read_bytes())
        with_it.replace(self.trusted)


def serial_of(certificate: Certificate) -> int:
    return x509.load_pem_x509_certificate(certificate.certificate.read_bytes()).serial_number


UNTRUSTED = re.compile("certificate.verify.failed", re.IGNORECASE)


class Load:
    """For each port a client that keeps its connection, and one that makes one for each call."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._stop = threading.Event()
        self.calls: Counter[tuple[str, str]] = Counter()
        self.failures: list[str] = []
        # It trusts the first certificate alone: if it had to connect again, it would fail.
        only = place.trusted.with_name("only.pem")
        only.write_bytes(place.now.certificate.read_bytes())
        self._keeps = replace(place.shown, ca=only)
        self._threads = [threading.Thread(target=self._run, args=client, daemon=True) for client in CLIENTS]
        for thread in self._threads:
            thread.start()

    def goes_on(self) -> None:
        """Wait until each client has called some more, and none has failed."""
        before = Counter(self.calls)
        wait_until(
            lambda: self.failures or all(self.calls[each] >= before[each] + CALLS for each in CLIENTS), 60, self.calls
        )
        assert self.failures == []

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def _run(self, way: str, name: str) -> None:
        try:
            (self._keep if way == "kept" else self._renew)(name)
        except Exception as error:  # noqa: BLE001 - whatever it is, the test tells it
            self.failures.append(f"{way} {name}: {type(error).__name__}: {error}")

    def _keep(self, name: str) -> None:
        with CALLERS[name](self._place.ports, self._keeps, None) as call:
            while not self._stop.wait(PAUSE_S):
                call()
                self.calls["kept", name] += 1

    def _renew(self, name: str) -> None:
        while not self._stop.wait(PAUSE_S):
            trusted = self._place.trusted.read_bytes()
            try:
                with CALLERS[name](self._place.ports, self._place.shown, None) as call:
                    call()
            except Exception as error:
                # It may have read whom to trust before the exchange, and have connected after it.
                if not UNTRUSTED.search(str(error)) or self._place.trusted.read_bytes() == trusted:
                    raise
            self.calls["new", name] += 1


@contextmanager
def serving(directory: Path, workers: int) -> Iterator[Place]:
    place = Place(directory, workers)
    try:
        yield place
    finally:
        place.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_no_call_fails_while_a_certificate_is_exchanged(tmp_path: Path, workers: int) -> None:
    with ExitStack() as stack:
        place = stack.enter_context(serving(tmp_path, workers))
        load = Load(place)
        stack.callback(load.stop)
        load.goes_on()
        place.exchange()
        place.check_shown()
        load.goes_on()
        place.exchange(LOOKED_AT_S)
        place.check_shown()
        load.goes_on()
        load.stop()
        assert load.failures == []
        lines = place.reloads()
        done = [each.details["serial"] for each in lines if each.outcome == "done"]
        assert len(done) == 2 and int(done[-1], 16) == serial_of(place.now), "one of each change, whoever noticed it"
        assert {each.outcome for each in lines} == {"done", "failed"}
    text = place.log.read_text()
    assert "the last good certificate stays in use" in text
    assert "Traceback" not in text


@pytest.mark.parametrize("workers", [0, 2])
def test_broken_and_missing_files_leave_the_last_good_ones_in_use(tmp_path: Path, workers: int) -> None:
    with serving(tmp_path, workers) as place:
        files = place.now
        serial, good = serial_of(files), files.certificate.read_bytes()
        for name in ("broken", "missing"):
            if name == "broken":
                files.certificate.with_suffix(".new").write_bytes(good[: len(good) // 2])
                files.certificate.with_suffix(".new").replace(files.certificate)
            else:
                files.certificate.unlink()
            time.sleep(LOOKED_AT_S)
            assert {name: place.serials(name) for name in CALLERS} == {name: {serial} for name in CALLERS}
            assert "the last good certificate stays in use" in place.log.read_text()
        assert [each.outcome for each in place.reloads()] == ["failed", "failed"]
        files.certificate.write_bytes(good)
        place.exchange()
        place.check_shown()


@pytest.mark.parametrize("workers", [0, 2])
def test_another_authority_of_clients_holds_for_new_connections(tmp_path: Path, workers: int) -> None:
    with serving(tmp_path, workers) as place, ExitStack() as stack:
        kept = {name: stack.enter_context(CALLERS[name](place.ports, place.shown, None)) for name in KEEPING}
        for call in kept.values():
            call()
        other = Authority(tmp_path / "other", place.trusted)
        other.file.replace(place.authority.file)
        time.sleep(LOOKED_AT_S)
        for call in kept.values():
            call()
        for name in CALLERS:
            assert not is_let_in(place, name, place.shown), name
            assert is_let_in(place, name, other.sign(uri(SHOP))), name
        [line] = place.reloads()
        authorities = hashlib.sha256(place.authority.file.read_bytes()).hexdigest()
        assert (line.outcome, line.details["client_ca_sha256"]) == ("done", authorities)


def is_let_in(place: Place, name: str, shown: ClientCertificate) -> bool:
    """Whether a port answers who shows a certificate, by a new connection."""
    try:
        with CALLERS[name](place.ports, shown, None) as call:
            call()
    except Exception:  # noqa: BLE001 - each client tells it in its own way, as a connection that ended
        return False
    return True
