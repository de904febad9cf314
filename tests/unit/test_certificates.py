"""The end of certificates: which files there are, what is told of them, and when a port warns."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tarry.base.certificates import ending
from tarry.fronts.kit.tls import WARN_S, ReloadedTls, TlsFiles
from tarry.fronts.registry import ServerConfig

NOW_MS = time.time_ns() // 1_000_000


def make(directory: Path, days: int) -> TlsFiles:
    """A certificate that ends in so many days, and its key."""
    secret = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tarry")])
    now = datetime.fromtimestamp(NOW_MS / 1000, UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(secret.public_key())
    builder = builder.serial_number(1).not_valid_before(now - timedelta(days=400))
    certificate = builder.not_valid_after(now + timedelta(days=days, hours=1)).sign(secret, hashes.SHA256())
    files = TlsFiles(str(directory / "c.pem"), str(directory / "k.pem"))
    Path(files.certificate).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    key = secret.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    Path(files.key).write_bytes(key)
    return files


@pytest.mark.parametrize(("days", "state"), [(20, "valid"), (13, "ends soon"), (-1, "expired")])
def test_status_tells_of_each_file(tmp_path: Path, days: int, state: str) -> None:
    files = make(tmp_path, days)
    (tmp_path / "rocketmq").mkdir()
    (tmp_path / "rocketmq" / "certificate.pem").write_text("damaged")
    config = ServerConfig(data=tmp_path, tls_certificate=files.certificate, tls_key=files.key)
    assert len(ending(config, NOW_MS)) == 1, "no port shows the broker's own"
    config = ServerConfig(data=tmp_path, tls_certificate=files.certificate, tls_key=files.key, remoting="localhost:0")
    given, own = ending(config, NOW_MS)
    assert (given["setting"], given["file"], given["state"]) == ("tls_certificate", files.certificate, state)
    assert (own["setting"], own["ends_ms"], own["state"]) == ("", None, "unreadable")
    assert ending(ServerConfig(data=tmp_path / "none"), NOW_MS) == []


@pytest.mark.parametrize(("days", "text"), [(20, None), (13, "ends soon"), (-1, "has expired")])
def test_a_port_warns_once_a_day(tmp_path: Path, caplog: pytest.LogCaptureFixture, days: int, text: str | None) -> None:
    now_s = [0.0]
    tls = ReloadedTls(make(tmp_path, days), clock_s=lambda: now_s[0])

    def said() -> int:
        found = [r for r in caplog.records if r.levelno == logging.WARNING and text is not None and text in r.message]
        return len(found)

    first = 0 if text is None else 1
    assert said() == first
    for at_s in (2.0, WARN_S - 1):
        now_s[0] = at_s
        tls.context()
    assert said() == first
    now_s[0] = WARN_S + 1
    tls.context()
    assert said() == 2 * first


def test_ports_that_share_a_certificate_warn_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files, now_s = make(tmp_path, 13), [0.0]
    ports = [ReloadedTls(files, clock_s=lambda: now_s[0]) for _ in range(5)]

    def said() -> list[str]:
        return [r.message for r in caplog.records if "ends soon" in r.message]

    [once] = said()
    assert files.certificate in once
    now_s[0] = WARN_S + 1
    for each in ports:
        each.context()
    assert len(said()) == 2
    make(tmp_path, 12)
    now_s[0] += 2
    for each in ports:
        each.context()
    assert len(said()) == 3, "another certificate, which ends soon, too"


def test_the_oldest_version_is_a_setting(tmp_path: Path) -> None:
    files = make(tmp_path, 20)
    newer = TlsFiles(files.certificate, files.key, version_min="1.3")
    assert [ReloadedTls(each).context().minimum_version.name for each in (files, newer)] == ["TLSv1_2", "TLSv1_3"]
