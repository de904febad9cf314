"""The time that certificates end, and the settings that name their files."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tarry.base.config import Config

if TYPE_CHECKING:
    from cryptography import x509

SOON_MS = 14 * 86_400_000
"""A certificate that has less left is warned of."""
_NAMES = "tls_certificate"
OWN = Path("rocketmq", "certificate.pem")
"""The certificate that the broker has made itself, in its directory."""
_SHOW_OWN = ("rocketmq", "remoting")
"""Settings of the ports that show it."""


def certificate_files(config: Config) -> dict[str, Path]:
    """Return the certificates that ports may show, by their setting; the broker's own has none.

    That is there as soon as a port of RocketMQ's has been open once, and counts while one is.
    """
    given = {name: getattr(config, name) for name in type(config).model_fields if name.endswith(_NAMES)}
    files = {name: Path(file) for name, file in given.items() if file is not None}
    own = config.data / OWN
    is_open = any(getattr(config, port, None) is not None for port in _SHOW_OWN)
    return {**files, "": own} if is_open and own.exists() else files


def ends_ms(file: Path) -> int | None:
    """Return the instant at which the first certificate of a PEM file ends; None: there is none."""
    shown = _first_in(file)
    return None if shown is None else _end_ms_of(shown)


def fingerprints(certificate: Path, client_ca: Path | None) -> dict[str, str | int]:
    """Return details that tell one certificate from another, and one file of authorities.

    Empty where one is none.
    """
    shown = _first_in(certificate)
    if shown is None:
        return {}
    from cryptography.hazmat.primitives.hashes import SHA256

    try:
        authorities = {} if client_ca is None else {"client_ca_sha256": sha256(client_ca.read_bytes()).hexdigest()}
    except (OSError, ValueError):
        return {}
    number = f"{shown.serial_number:x}"
    ends = _end_ms_of(shown)
    return {"sha256": shown.fingerprint(SHA256()).hex(), "serial": number, "ends_ms": ends, **authorities}


def _first_in(file: Path) -> x509.Certificate | None:
    from cryptography import x509  # it takes a while, and most brokers have no certificate

    try:
        return x509.load_pem_x509_certificate(file.read_bytes())
    except (OSError, ValueError):
        return None


def _end_ms_of(certificate: x509.Certificate) -> int:
    return int(certificate.not_valid_after_utc.timestamp() * 1000)


def ending(config: Config, now_ms: int) -> list[dict[str, Any]]:
    """Return what is to be told of the certificates: setting, file, end, and if that is soon or was."""
    found = []
    for setting, file in certificate_files(config).items():
        end_ms = ends_ms(file)
        state = "unreadable" if end_ms is None else state_of(end_ms, now_ms)
        found.append({"setting": setting, "file": str(file), "ends_ms": end_ms, "state": state})
    return found


def state_of(end_ms: int, now_ms: int) -> str:
    """Return "valid", "ends soon" or "expired"."""
    if end_ms <= now_ms:
        return "expired"
    return "ends soon" if end_ms - now_ms < SOON_MS else "valid"
