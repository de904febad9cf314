"""The certificate that RocketMQ's ports make for themselves: how long it is valid, and when it is made anew."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from tarry.base.config import Config
from tarry.base.errors import InvalidArgumentError
from tarry.fronts.kit.tls import server_context
from tarry.fronts.registry import ServerConfig
from tarry.fronts.rocketmq.common.certificate import rocketmq_tls

NOW_MS = 1_795_264_000_000
DAY_MS = 86_400_000
ADDRESS = "127.0.0.1:8081"


def start(data: Path, days: int) -> tuple[bytes, bytes]:
    """Start a front so many days later; the certificate and the key that it has then."""
    rocketmq_tls(Config(data=data), NOW_MS + days * DAY_MS, ADDRESS, signs=False)
    certificate, key = ((data / "rocketmq" / name) for name in ("certificate.pem", "key.pem"))
    server_context(str(certificate), str(key))
    return certificate.read_bytes(), key.read_bytes()


def days_of(certificate: bytes, days: int) -> timedelta:
    """How long a certificate is valid, so many days later."""
    ends = x509.load_pem_x509_certificate(certificate).not_valid_after_utc
    return ends - datetime.fromtimestamp(NOW_MS / 1000, UTC) - timedelta(days=days)


def test_it_is_valid_for_a_year_and_made_anew_in_time(tmp_path: Path) -> None:
    made = start(tmp_path, 0)
    assert days_of(made[0], 0) == timedelta(days=365)
    assert start(tmp_path, 335) == made
    renewed, key = start(tmp_path, 336)
    assert renewed != made[0]
    assert key == made[1], "whoever knows the broker by its key knows it still"
    assert days_of(renewed, 336) == timedelta(days=365)
    assert days_of(start(tmp_path, 5000)[0], 5000) == timedelta(days=365), "one that ended long ago, too"
    assert (tmp_path / "rocketmq" / "certificate.pem").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["certificate.pem", "key.pem"])
def test_what_is_damaged_is_told_and_not_replaced(name: str, tmp_path: Path) -> None:
    start(tmp_path, 0)
    path = tmp_path / "rocketmq" / name
    path.write_text("damaged")
    with pytest.raises(InvalidArgumentError, match="no certificate and its private key"):
        rocketmq_tls(Config(data=tmp_path), NOW_MS + 400 * DAY_MS, ADDRESS, signs=False).context()
    assert path.read_text() == "damaged"


@pytest.mark.parametrize(
    ("settings", "address", "signs", "plain"),
    [
        ({}, ADDRESS, True, True),
        ({}, "0.0.0.0:8081", False, True),
        ({}, "0.0.0.0:8081", True, False),
        ({"rocketmq_tls": "both"}, "0.0.0.0:8081", True, True),
        ({"rocketmq_tls": "on"}, ADDRESS, False, False),
    ],
)
def test_who_signs_from_another_machine_comes_by_tls(
    tmp_path: Path, settings: dict[str, str], address: str, signs: bool, plain: bool
) -> None:
    config = ServerConfig.model_validate({"data": tmp_path, **settings})
    tls = rocketmq_tls(config, NOW_MS, address, signs=signs)
    assert (tls.files is not None, tls.plain) == (True, plain)
