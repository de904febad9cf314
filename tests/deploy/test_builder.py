"""The image by a real builder, Buildah, upon a Debian 13 with a Python: what it makes of the file, and that it serves.

The base image stands in for ``python:3.12-slim``, which a registry would give: Debian by ``mmdebstrap``, and a
Python 3.12 of this machine's below ``/usr/local``. ``test_image.py`` has more of what the broker does in the image.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.deploy.containerfile import settings_of, stages
from tests.ports import free_port
from tests.pythons import found
from tests.sources import ROOT
from tests.waiting import wait_until

PYTHON = "python3.12"


def why_not() -> str | None:
    """Say what is missing here for a build."""
    if os.geteuid() != 0:
        return "only root may do it"
    missing = [each for each in ("buildah", "mmdebstrap") if shutil.which(each) is None]
    if missing:
        return f"there is no {missing[0]} (apt-get install buildah mmdebstrap)"
    return f"there is no {PYTHON} beside the system's" if prefix() is None else None


def prefix() -> Path | None:
    """Return the directory of the Python that goes into the base image; the system's is in none of its own."""
    python = found(PYTHON)
    if python is None:
        return None
    told = subprocess.run([python, "-c", "import sys; print(sys.base_prefix)"], capture_output=True, text=True)
    return None if told.stdout.strip() in ("", "/usr") else Path(told.stdout.strip())


pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(why_not() is not None, reason=f"no builder here: {why_not()}"),
]
BYTES_MAX = 400_000_000
NAME = "docker.io/library/python:3.12-slim"
DEBIAN = "trixie"
PACKAGES = (
    "ca-certificates,libbz2-1.0,libffi8,liblzma5,libncursesw6,libreadline8t64,libsqlite3-0,libssl3t64,libuuid1,"
    "netbase,tzdata"
)
"""What the official image has for its Python."""
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
BASE = f"""
FROM scratch
ADD debian.tar /
COPY python/ /usr/local/
COPY authorities.crt {AUTHORITIES}
ENV SSL_CERT_FILE={AUTHORITIES} PIP_CERT={AUTHORITIES}
RUN ldconfig && ln -sf python3 /usr/local/bin/python \\
    && echo 'Acquire::Check-Valid-Until "false";' > /etc/apt/apt.conf.d/99-snapshots \\
    && python -c 'import bz2, ctypes, lzma, sqlite3, ssl'
"""
"""The authorities are the machine's, and mirrors that stand still are taken, as this build may use them."""


@dataclass
class Builder:
    """Buildah with a storage of its own."""

    place: Path

    def command(self, *words: str | Path) -> list[str | Path]:
        return ["buildah", "--root", self.place / "storage", "--runroot", self.place / "run", *words]

    def do(self, *words: str | Path) -> str:
        done = subprocess.run(self.command(*words), capture_output=True, text=True)
        assert done.returncode == 0, (words, done.stdout[-3000:], done.stderr[-3000:])
        return done.stdout.strip()

    def build(self, name: str, file: Path, context: Path, *options: str) -> None:
        self.do("build", "--isolation", "chroot", *options, "--tag", name, "--file", file, context)


@pytest.fixture(scope="module")
def builder() -> Iterator[Builder]:
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="tarry-") as name:  # gigabytes, and no memory
        made = Builder(Path(name))
        try:
            base(made)
            # Buildah 1.28 takes a stage for unused that an argument's default alone names.
            made.build("tarry", ROOT / "Containerfile", ROOT, "--pull-never", "--build-arg", "PIPELINE=off")
            yield made
        finally:
            for words in (("rm", "--all"), ("rmi", "--all", "--force")):
                made.do(*words)


def base(builder: Builder) -> None:
    """Make the image that stands in for the official one; skip the test where Debian cannot be had."""
    context = builder.place / "context"
    context.mkdir()
    words = ("--variant=minbase", '--aptopt=Acquire::Check-Valid-Until "false"', f"--include={PACKAGES}")
    made = subprocess.run(["mmdebstrap", *words, DEBIAN, context / "debian.tar"], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"Debian cannot be had: {made.stderr[-500:]}")
    left_out = shutil.ignore_patterns("test", "tests", "__pycache__", "*.a", "site-packages", "share")
    shutil.copytree(str(prefix()), context / "python", symlinks=True, ignore=left_out)
    shutil.copy(AUTHORITIES, context / "authorities.crt")
    (context / "Containerfile").write_text(BASE)
    builder.build(NAME, context / "Containerfile", context)
    shutil.rmtree(context)


@pytest.fixture(scope="module")
def container(builder: Builder) -> str:
    return builder.do("from", "--pull-never", "localhost/tarry")


def test_it_is_configured_as_its_file_says(builder: Builder) -> None:
    final = stages(ROOT / "Containerfile")[-1]
    config: dict[str, Any] = json.loads(builder.do("inspect", "--type", "image", "localhost/tarry"))["OCIv1"]["config"]
    environment = dict(each.split("=", 1) for each in config["Env"])
    assert environment == settings_of(final, "ENV") | {"TARRY_PIPELINE": "off"}
    assert (config["Entrypoint"], config["Cmd"]) == (["tarry"], ["serve"])
    assert (config["User"], config["StopSignal"]) == ("10001:0", "SIGTERM")
    assert config["ExposedPorts"].keys() == {"7611/tcp", "7777/tcp", "9611/tcp"}


def test_it_has_at_most_400_mb(builder: Builder, container: str) -> None:
    root = Path(builder.do("mount", container))
    assert sum(each.lstat().st_size for each in root.rglob("*") if each.is_symlink() or each.is_file()) <= BYTES_MAX
    packages = {each.name for each in (root / "var/lib/dpkg/status.d").iterdir()}
    assert {"libc6", "libssl3t64", "tzdata", "ca-certificates"} <= packages


def test_it_serves(builder: Builder, container: str) -> None:
    ports = {name: f"127.0.0.1:{free_port()}" for name in ("FLIGHT", "HTTP", "METRICS")}
    settings = {f"TARRY_{name}": address for name, address in ports.items()}
    settings["TARRY_ENDPOINT"] = ports["FLIGHT"]
    options = [word for name, value in settings.items() for word in ("--env", f"{name}={value}")]
    run = ("run", "--isolation", "chroot", *options, container, "--")
    builder.do(*run, "tarry", "identity", "create", "admin", "--all", "--no-keep", "--data", "/var/lib/tarry/data")
    status = builder.command(*run, "tarry", "status")
    with subprocess.Popen(builder.command(*run, "tarry", "serve"), stdout=subprocess.DEVNULL) as broker:
        try:
            wait_until(lambda: broker.poll() is not None or not subprocess.run(status, capture_output=True).returncode)
            assert broker.poll() is None
            builder.do(*run, "tarry", "send", "orders", "hello", "--delay", "10ms")
            assert "hello" in builder.do(*run, "tarry", "receive", "orders", "--group", "g", "--wait", "20s")
        finally:
            broker.send_signal(signal.SIGTERM)
