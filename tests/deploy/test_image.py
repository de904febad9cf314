"""The image's files: built by the steps of its file, and run with these alone as ``/``, as the image's user."""

from __future__ import annotations

import json
import os
import queue
import signal
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.deploy.containerfile import in_image, run_steps, settings_of, stages, why_not
from tests.loopgrpc.certificates import Certificate, make_certificate
from tests.ports import free_port
from tests.rocketmq.rpc import Rpc
from tests.s3 import environment as of_the_bucket
from tests.s3 import listens
from tests.sources import ROOT
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(why_not() is not None, reason=f"no place for an image here: {why_not()}"),
]
BYTES_MAX = 400_000_000
HOME = Path("/var/lib/tarry")
_, BUILD, FILES, _, _, FINAL = stages(ROOT / "Containerfile")
WHAT_USERS_NEED = """
import codecs, ssl, tempfile, zoneinfo, os, pwd
from datetime import UTC, datetime
from pathlib import Path
import pyarrow as pa, pyarrow.compute as pc
from pyarrow.fs import AzureFileSystem, GcsFileSystem, S3FileSystem
assert datetime(2026, 7, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")).utcoffset().total_seconds() == 7200
assert zoneinfo.TZPATH and any(Path(each, "Asia/Tokyo").is_file() for each in zoneinfo.TZPATH)
summer = pa.array([datetime(2026, 7, 1, tzinfo=UTC)], pa.timestamp("ms", "Europe/Berlin"))
assert pc.hour(summer).to_pylist() == [2]
authorities = Path(ssl.get_default_verify_paths().capath)
assert sum(each.is_file() for each in authorities.iterdir()) > 100
assert ssl.create_default_context(cafile="/etc/ssl/certs/ca-certificates.crt").cert_store_stats()["x509_ca"] > 100
assert pwd.getpwuid(os.getuid()).pw_name == "tarry"
with tempfile.NamedTemporaryFile() as file:
    assert file.name.startswith("/tmp/")
assert "café".encode("cp1252").decode("cp1252") == "café"
"""


@dataclass
class Image:
    """Its files, and its settings with what is added to them."""

    root: Path
    settings: dict[str, str] = field(default_factory=dict)

    def environment(self, more: dict[str, str]) -> dict[str, str]:
        return {"HOME": str(HOME), **settings_of(FINAL, "ENV"), "TARRY_PIPELINE": "off", **self.settings, **more}

    def run(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = in_image(self.root, list(words))
        return subprocess.run(command, env=self.environment(more), capture_output=True, text=True, timeout=120)

    def do(self, *words: str, **more: str) -> str:
        done = self.run(*words, **more)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    @contextmanager
    def serving(self, **more: str) -> Iterator[None]:
        """``tarry serve``, which is up; it ends well, or it is an error."""
        command = in_image(self.root, ["tarry", "serve"])
        with subprocess.Popen(command, env=self.environment(more), stdout=subprocess.DEVNULL) as broker:
            try:
                wait_until(lambda: broker.poll() is not None or self.run("tarry", "status", **more).returncode == 0)
                assert broker.poll() is None
                yield
            finally:
                broker.send_signal(signal.SIGTERM)
        assert broker.returncode == 0


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("build")
    run_steps(BUILD + FILES, ROOT, root, {})
    return root / "image"


@pytest.fixture
def image(built: Path, request: pytest.FixtureRequest) -> Image:
    """It listens on free ports of this machine alone, with a data directory of the test's own."""
    ports = {name: str(free_port()) for name in ("flight", "link", "http", "metrics", "rocketmq", "mqtt")}
    settings = {f"TARRY_{name.upper()}": f"127.0.0.1:{port}" for name, port in ports.items()}
    settings["TARRY_DATA"] = str(HOME / request.node.name)
    settings["TARRY_ENDPOINT"] = settings["TARRY_FLIGHT"]
    return Image(built, settings)


@pytest.fixture(scope="module")
def certificate(built: Path) -> Certificate:
    """The broker's, which the image's user can read."""
    directory = built / HOME.relative_to("/") / "tls"
    directory.mkdir()
    made = make_certificate(directory)
    os.chown(made.key, 10001, 0)
    return made


def openssl(*words: object, given: str = "") -> str:
    done = subprocess.run(["openssl", *map(str, words)], input=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def bucket(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a server of S3 by https, whose authority is among those of the image's system."""
    place = tmp_path_factory.mktemp("bucket")
    new = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 2)
    openssl(*new, "-subj", "/CN=authority", "-keyout", place / "ca.key", "-out", place / "ca.pem")
    # Not an authority itself: the clients in Rust believe no other.
    more = ("-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE")
    by = ("-CA", place / "ca.pem", "-CAkey", place / "ca.key")
    openssl(*new, *by, *more, "-subj", "/CN=localhost", "-keyout", place / "key.pem", "-out", place / "one.pem")
    pem = (place / "ca.pem").read_text()
    authorities = built / "etc/ssl/certs"
    with (authorities / "ca-certificates.crt").open("a") as file:
        file.write(pem)
    hashed = openssl("x509", "-hash", "-noout", given=pem)
    (authorities / f"{hashed.strip()}.0").write_text(pem)
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    command += ["-c", str(place / "one.pem"), "-k", str(place / "key.pem")]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: listens(port))
        url = f"https://localhost:{port}"
        made = urllib.request.Request(f"{url}/shop", method="PUT")
        trusting = ssl.create_default_context(cafile=str(place / "ca.pem"))
        urllib.request.urlopen(made, context=trusting).close()
        yield {name: value for name, value in of_the_bucket(url, "tests", "tests").items() if "ALLOW_HTTP" not in name}
    finally:
        server.kill()
        server.wait()


def test_it_has_at_most_400_mb(built: Path) -> None:
    assert sum(each.lstat().st_size for each in built.rglob("*") if each.is_symlink() or each.is_file()) <= BYTES_MAX


def test_what_users_need_is_in_it(image: Image) -> None:
    image.do("python", "-c", WHAT_USERS_NEED)
    assert image.do("tarry", "--version").startswith("tarry ")
    probe = "test -e /tmp && until tarry --version > /dev/null; do sleep 1; done; date -u +%FT%H%M"
    assert image.do("sh", "-c", probe).startswith("20")
    assert "Estimate" in image.do("tarry", "size", "--help")
    image.do("tarry", "size", "--per-second", "1000", "--bytes", "400", "--delay", "3d")


def test_what_it_is_made_of_is_told_to_scanners(built: Path) -> None:
    records = {each.name: each.read_text() for each in (built / "var/lib/dpkg/status.d").iterdir()}
    assert {"libc6", "tzdata", "ca-certificates"} <= records.keys()
    assert all(f"Package: {name}\n" in text and "\nVersion: " in text for name, text in records.items())
    assert all((built / "usr/share/doc" / name / "copyright").stat().st_size for name in records)


def test_others_reach_it_only_with_identities(image: Image) -> None:
    image.settings |= {"TARRY_FLIGHT": f"0.0.0.0:{free_port()}"}
    image.settings["TARRY_ENDPOINT"] = image.settings["TARRY_FLIGHT"].replace("0.0.0.0", "127.0.0.1")
    refused = image.run("tarry", "serve")
    assert refused.returncode == 2
    assert "identit" in refused.stderr
    image.do("tarry", "identity", "create", "admin", "--all", "--no-keep", "--data", image.settings["TARRY_DATA"])
    with image.serving():
        image.do("tarry", "send", "orders", "one", "--delay", "1h")


def received(image: Image, topic: str, **more: str) -> str:
    return image.do("tarry", "receive", topic, "--group", "g", "--wait", "20s", **more)


def test_messages_go_over_every_front(image: Image, certificate: Certificate) -> None:
    tls = {
        "TARRY_TLS": "both",
        "TARRY_TLS_CERTIFICATE": str(HOME / "tls" / certificate.certificate.name),
        "TARRY_TLS_KEY": str(HOME / "tls" / certificate.key.name),
    }
    ports = {
        name: int(image.settings[f"TARRY_{name}"].rpartition(":")[2]) for name in ("LINK", "HTTP", "ROCKETMQ", "MQTT")
    }
    with image.serving(**tls):
        image.do("tarry", "send", "native", "over-native", "--delay", "10ms")
        assert "over-native" in received(image, "native")
        link = {"TARRY_ENDPOINT": f"tls://localhost:{ports['LINK']}", "TARRY_CA": tls["TARRY_TLS_CERTIFICATE"]}
        image.do("tarry", "send", "link", "over-link", **link)
        assert "over-link" in received(image, "link", **link)
        over_https(ports["HTTP"], certificate.client_context())
        over_rocketmq(ports["ROCKETMQ"])
        over_mqtt(ports["MQTT"])
        metrics = urllib.request.urlopen(f"http://{image.settings['TARRY_METRICS']}/metrics").read()
        assert b"tarry_serving 1" in metrics
        image.do("tarry", "send", "orders", "later", "--id", "order-7", "--delay", "1h")
        assert "accepted" in image.do("tarry", "history", "order-7", "--topic", "orders")
        assert "orders" in image.do("tarry", "top", "--once")


def over_https(port: int, context: ssl.SSLContext) -> None:
    topic = f"https://localhost:{port}/v1/topics/web"
    urllib.request.urlopen(f"{topic}/messages", b"over-https", context=context).close()
    answer = urllib.request.urlopen(f"{topic}/groups/g/receive?wait_ms=20000", b"", context=context).read()
    assert b"over-https" in answer or "b3Zlci1odHRwcw" in answer.decode()


def over_rocketmq(port: int) -> None:
    rpc = Rpc(port)
    try:
        rpc.send("rocket", b"over-rocketmq")
        assert [each.body for each in rpc.receive("rocket", "g", wait_s=20)] == [b"over-rocketmq"]
    finally:
        rpc.close()


def over_mqtt(port: int) -> None:
    paho = pytest.importorskip("paho.mqtt.client")
    came: queue.Queue[Any] = queue.Queue()
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, "one", protocol=paho.MQTTv5)
    client.on_message = lambda _client, _data, message: came.put(message.payload)
    client.on_subscribe = lambda *_: client.publish("$delayed/1/mqtt", b"over-mqtt", qos=1)
    client.on_connect = lambda *_: client.subscribe("mqtt", qos=1)
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        assert came.get(timeout=60) == b"over-mqtt"
    finally:
        client.disconnect()
        client.loop_stop()


def test_backups_and_stores_are_in_buckets_by_https(image: Image, bucket: dict[str, str]) -> None:
    with image.serving(TARRY_STORE="s3://shop/store", **bucket):
        image.do("tarry", "send", "orders", "in an hour", "--delay", "1h")
        image.do("tarry", "backup", "s3://shop/backup", **bucket)
        assert json.loads(image.do("tarry", "status", "--json"))["backup"]
    image.do("tarry", "verify", image.settings["TARRY_DATA"], "--store", "s3://shop/store", **bucket)
    image.do("tarry", "verify", "s3://shop/backup", **bucket)
    restored = f"{image.settings['TARRY_DATA']}-restored"
    image.do("tarry", "restore", "s3://shop/backup", "--data", restored, **bucket)
    with image.serving(TARRY_DATA=restored):
        assert "orders" in image.do("tarry", "pending")


def test_logs_are_in_buckets_by_https(image: Image, bucket: dict[str, str]) -> None:
    with image.serving(TARRY_LOG="s3://shop/log", TARRY_STORE="s3://shop/other", **bucket):
        image.do("tarry", "send", "orders", "now")
        assert "now" in received(image, "orders")
