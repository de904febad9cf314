"""The certificate of the RocketMQ front: the user's, or a self-signed one.

Java's client uses TLS, and trusts any certificate, unless it is told otherwise: with a self-signed one, programs that
use it work as they are.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tarry.base.config import Config
from tarry.fronts.kit.tls import TlsFiles
from tarry.fronts.kit.tls_settings import PortTls, both_or_neither, shared_files, with_mode
from tarry.fronts.rocketmq.settings import RocketMQSettings

YEARS = 20


def rocketmq_tls(config: Config, now_ms: int) -> PortTls:
    """Return the TLS of RocketMQ's ports: by the fronts' own settings, or else by those of all ports.

    Without a certificate in either, use the one in the data directory, which is made if there is none.

    Raises:
        InvalidArgumentError: the settings contradict each other.
    """
    mode, files = RocketMQSettings.of(config).rocketmq_tls, _given_files(config)
    if files is None and mode != "off":
        files = TlsFiles(*_own_certificate(config.data / "rocketmq", now_ms))
    return with_mode("rocketmq_tls", mode, files)


def check(config: Config) -> None:
    """Raise an error if the settings of TLS, or their files, are not what they should be.

    Raises:
        InvalidArgumentError: they are not.
    """
    with_mode("rocketmq_tls", RocketMQSettings.of(config).rocketmq_tls, _given_files(config)).context()


def _given_files(config: Config) -> TlsFiles | None:
    settings, shared = RocketMQSettings.of(config), shared_files(config)
    own = both_or_neither("rocketmq_tls", settings.rocketmq_tls_certificate, settings.rocketmq_tls_key)
    return shared if own is None else TlsFiles(*own, None if shared is None else shared.client_ca)


def _own_certificate(directory: Path, now_ms: int) -> tuple[str, str]:
    """Return the paths of the certificate and its key in the data directory; make them if there are none."""
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    directory.mkdir(parents=True, exist_ok=True)
    # The workers of a gateway start at the same time, and have to show the same certificate.
    with _only_one(directory):
        if not (certificate.exists() and key.exists()):
            secret = ec.generate_private_key(ec.SECP256R1())
            # The key first: after a crash between the two, both are made anew.
            _write(
                key,
                secret.private_bytes(
                    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
                ),
            )
            _write(certificate, _self_signed(secret, now_ms).public_bytes(serialization.Encoding.PEM))
    return str(certificate), str(key)


@contextmanager
def _only_one(directory: Path) -> Iterator[None]:
    """Hold a lock on the directory, so that one process works on it at a time."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _self_signed(secret: ec.EllipticCurvePrivateKey, now_ms: int) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tarry")])
    hosts = [x509.DNSName("localhost"), *(x509.IPAddress(ipaddress.ip_address(a)) for a in ("127.0.0.1", "::1"))]
    begin = datetime.fromtimestamp(now_ms / 1000, UTC) - timedelta(days=1)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(secret.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(begin)
    builder = builder.not_valid_after(begin + timedelta(days=365 * YEARS))
    builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
    return builder.sign(secret, hashes.SHA256())


def _write(path: Path, content: bytes) -> None:
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    fd = os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
        os.fsync(fd)
    fresh.replace(path)
