"""The certificate of the RocketMQ front: the user's, or a self-signed one.

Java's client uses TLS, and trusts any certificate, unless it is told otherwise: with a self-signed one, programs that
use it work as they are.
"""

from __future__ import annotations

import fcntl
import ipaddress
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tarry.base.certificates import OWN
from tarry.base.config import Config
from tarry.base.exposure import is_exposed
from tarry.fronts.kit.tls import TlsFiles
from tarry.fronts.kit.tls_settings import PortTls, both_or_neither, shared_files, with_certificate, with_mode
from tarry.fronts.rocketmq.settings import RocketMQSettings

log = logging.getLogger(__name__)

_NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tarry")])
VALID = timedelta(days=365)
RENEWED_BEFORE_END = timedelta(days=30)
"""One that has less left is made anew when a front starts.

So a broker has to start again within a year.
"""


def rocketmq_tls(config: Config, now_ms: int, address: str, *, signs: bool) -> PortTls:
    """Return the TLS of a port of RocketMQ's: by the fronts' own settings, or else by those of all ports.

    Without a certificate in either, use the one in the data directory, which is made if there is none. ``signs``:
    clients sign. A signature that others can read is one that they can send again, so clients from other machines come
    by TLS then, unless it is said otherwise.

    Raises:
        InvalidArgumentError: the settings contradict each other.
    """
    mode, files = RocketMQSettings.of(config).rocketmq_tls, _given_files(config)
    if files is None and mode != "off":
        files = with_certificate(shared_files(config), *_own_certificate(config.data / OWN.parent, now_ms))
    if mode == "auto":
        mode = "on" if _asks_all(files) or (signs and is_exposed(address)) else "both"
        if mode == "on":
            log.info(
                "rocketmq_tls=auto: clients come by TLS to %s, since %s; rocketmq_tls=both takes others, too",
                address,
                "they show certificates" if _asks_all(files) else "they sign and other machines reach it",
            )
    return with_mode("rocketmq_tls", mode, files)


def check(config: Config) -> None:
    """Raise an error if the settings of TLS, or their files, are not what they should be.

    Raises:
        InvalidArgumentError: they are not.
    """
    mode = RocketMQSettings.of(config).rocketmq_tls
    with_mode("rocketmq_tls", "on" if mode == "auto" else mode, _given_files(config)).context()


def _asks_all(files: TlsFiles | None) -> bool:
    return files is not None and files.client_ca is not None and not files.is_client_optional


def _given_files(config: Config) -> TlsFiles | None:
    settings, shared = RocketMQSettings.of(config), shared_files(config)
    own = both_or_neither("rocketmq_tls", settings.rocketmq_tls_certificate, settings.rocketmq_tls_key)
    return shared if own is None else with_certificate(shared, *own)


def _own_certificate(directory: Path, now_ms: int) -> tuple[str, str]:
    """Return the paths of the certificate and its key in the data directory.

    They are made if there are none; a certificate that will soon end is made anew, for the same key.
    """
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
        else:
            _renew(certificate, key, now_ms)
    return str(certificate), str(key)


def _renew(certificate: Path, key: Path, now_ms: int) -> None:
    """Make the certificate anew if it will soon end.

    The key stays: a crash between two new files would leave two that do not fit together.
    """
    try:
        former = x509.load_pem_x509_certificate(certificate.read_bytes())
        ends = former.not_valid_after_utc
        if ends - _instant(now_ms) >= RENEWED_BEFORE_END:
            return
        secret = serialization.load_pem_private_key(key.read_bytes(), None)
    except (ValueError, TypeError):
        return  # damaged, or encrypted by somebody: that is told when they are read for use
    if not isinstance(secret, ec.EllipticCurvePrivateKey) or former.issuer != _NAME:
        return  # somebody's own
    _write(certificate, _self_signed(secret, now_ms).public_bytes(serialization.Encoding.PEM))
    log.info("the certificate %s, which would have ended on %s, was made anew", certificate, ends.date())


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
    hosts = [x509.DNSName("localhost"), *(x509.IPAddress(ipaddress.ip_address(a)) for a in ("127.0.0.1", "::1"))]
    begin = _instant(now_ms) - timedelta(days=1)
    builder = x509.CertificateBuilder().subject_name(_NAME).issuer_name(_NAME).public_key(secret.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(begin)
    builder = builder.not_valid_after(_instant(now_ms) + VALID)
    builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
    return builder.sign(secret, hashes.SHA256())


def _instant(now_ms: int) -> datetime:
    return datetime.fromtimestamp(now_ms / 1000, UTC)


def _write(path: Path, content: bytes) -> None:
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    fd = os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
        os.fsync(fd)
    fresh.replace(path)
