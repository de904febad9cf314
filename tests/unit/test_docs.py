"""What the pages show works: each Python snippet runs by itself as it is pasted, each command is one that there is.

Those of the README and of ``docs/python.md`` are run in order, as one program, by ``test_first_pages.py`` as well;
those with Spark by ``tests/spark/test_docs_spark.py``.
"""

from __future__ import annotations

import http.client
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import HTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.contract.conftest import Served
from tests.http.rest import Rest, serving
from tests.loopgrpc.certificates import make_certificate
from tests.mqtt.place import serving as mqtt_serving
from tests.snippets import NOT_RUN_MAX, PAGES, ROOT, Snippet, snippets

from tarry.base.extras import missing_extra
from tarry.broker import Broker
from tarry.cli.main import command, run
from tarry.client import AsyncClient, Client
from tarry.fronts.link.front import LinkFront
from tarry.fronts.registry import ServerConfig
from tarry.link.places import BrokerPlaces

PYTHON = [each for each in snippets("python") if not each.takes_spark]
COMMANDS = [(each.name, words) for each in snippets("sh") for words in each.commands("tarry")]
SECRET = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def run_snippet(snippet: Snippet, **names: Any) -> dict[str, Any]:
    """Run it as a program; the names that it made. What it connected is closed."""
    exec(compile(snippet.code, snippet.name, "exec"), names)
    for made in names.values():
        if isinstance(made, Client):
            made.close()
    return names


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A broker on ``data``, seen from the directory where it was started, and by the address of the pages."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TARRY_DISK_FREE_BYTES_MIN", "0")
    place = Served(tmp_path / "data")
    connect, connect_async = Client.__init__, AsyncClient.__init__

    def to_it(self: Client, address: str | BrokerPlaces, **more: Any) -> None:
        assert BrokerPlaces.of(address).text in ("localhost:7611", "127.0.0.1:7611", place.address)
        connect(self, place.address, **more)

    monkeypatch.setattr(Client, "__init__", to_it)
    # Its consumers go by its own address.
    monkeypatch.setattr(AsyncClient, "__init__", lambda self, _: connect_async(self, place.address))
    yield place
    place.stop()


def with_a_job(served: Served) -> None:
    """``docs/delivery.md`` cancels one that somebody has loaded."""
    jobs = served.broker.components.bulk
    attempt = jobs.begin("nightly-2026-11-21")
    due_ms = served.broker.clock.now_ms() + 3_600_000
    rows = pa.record_batch({"topic": ["orders"], "due_ms": [due_ms], "body": [b"x"]})
    jobs.commit(attempt.number, *jobs.stage(attempt.number, [rows]))


def with_a_stored_message(served: Served) -> None:
    """``docs/demo.md`` reads a file of the store."""
    with_a_job(served)


PRELUDES: dict[str, Callable[[Served], None]] = {"cancel_job": with_a_job, "table.history": with_a_stored_message}
APART = (
    *("rocketmq import", "HTTPServer", "def test_", "paho.mqtt", "ClientTls", "tarry.celery", "aio_pika", "boto3"),
    *("tarry.django", "django.tasks", "shop.tasks"),
)
"""Those with a test of their own below: they take another port, or serve one, or a fixture."""


@pytest.mark.parametrize(
    "snippet",
    [
        pytest.param(each, id=each.name)
        for each in PYTHON
        if each.reason is None and not any(word in each.code for word in APART)
    ],
)
def test_a_python_snippet_runs_by_itself(snippet: Snippet, served: Served) -> None:
    for word, prepare in PRELUDES.items():
        if word in snippet.code:
            prepare(served)
    code = snippet.code.replace("timeout=5", "timeout=0.2")
    run_snippet(Snippet(snippet.page, snippet.line, snippet.language, code, None))


def named(word: str) -> Snippet:
    [snippet] = [each for each in PYTHON if word in each.code]
    return snippet


def test_few_snippets_are_not_run() -> None:
    reasons = {each.name: each.reason for language in ("python", "sh") for each in snippets(language) if each.reason}
    assert len(reasons) <= NOT_RUN_MAX, reasons


def test_every_snippet_can_be_pasted() -> None:
    """A placeholder of other letters than a keyboard has ends in a header, or in a shell."""
    for language in ("python", "sh"):
        for snippet in snippets(language):
            code = re.sub(r"#.*", "", snippet.code)
            assert code.isascii(), snippet.name


def test_the_receiver_of_push_takes_what_is_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    webhooks = pytest.importorskip("standardwebhooks")
    monkeypatch.setenv("WEBHOOK_SECRET", SECRET)
    made: list[HTTPServer] = []
    monkeypatch.setattr(HTTPServer, "serve_forever", lambda server: made.append(server))
    code = named("HTTPServer").code.replace("8000", "0")
    names: dict[str, Any] = {}
    exec(compile(code, "docs/push.md", "exec"), names)
    [server] = made
    try:
        sign = webhooks.Webhook(SECRET).sign
        now, body = datetime.now(UTC), '{"order": 7}'
        headers = {"webhook-id": "m1", "webhook-timestamp": str(int(now.timestamp()))}
        answers = []
        for signature in (sign("m1", now, body), "v1,wrong"):
            handling = threading.Thread(target=server.handle_request)
            handling.start()
            connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
            connection.request("POST", "/", body, {**headers, "webhook-signature": signature})
            answers.append(connection.getresponse().status)
            connection.close()
            handling.join()
        assert answers == [204, 401]
        assert names["seen"] == {"m1"}
    finally:
        server.server_close()


@pytest.mark.rest
@pytest.mark.skipif(find_spec("rocketmq") is None, reason="rocketmq-python-client is not installed")
def test_the_program_with_rocketmqs_client_runs(tmp_path: Path) -> None:
    """In a process of its own: the client has threads that do not end."""
    from tests import rocketmq_place

    from tarry.fronts.rocketmq.front import RocketMQFront

    place: Any = rocketmq_place.Place(RocketMQFront, lambda port: None, tmp_path / "data")
    try:
        code = named("rocketmq import").code.replace("127.0.0.1:8081", f"127.0.0.1:{place.front.port}")
        place.broker.schedule("orders", b"due")
        ended = "import os; print('ran'); os._exit(0)"
        done = subprocess.run([sys.executable, "-c", f"{code}\n{ended}"], capture_output=True, timeout=120, text=True)
        assert "ran" in done.stdout, done.stderr
    finally:
        place.close()


@pytest.mark.skipif(find_spec("paho") is None, reason="paho-mqtt is not installed")
def test_the_programs_with_paho_run(tmp_path: Path) -> None:
    programs = [each for each in PYTHON if "paho.mqtt" in each.code]
    assert len(programs) == 2
    with mqtt_serving(tmp_path / "data") as place:
        for each in programs:
            names: dict[str, Any] = {}
            exec(compile(each.code.replace("1883", str(place.port)), each.name, "exec"), names)
            assert "done" not in names or names["done"].is_set()
            names["client"].loop_stop()
        assert place.broker.find_key("orders/eu", "order-17") is not None


def test_the_program_in_tls_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    certificate = make_certificate(tmp_path)
    certificate.certificate.rename("tarry.pem")
    config = ServerConfig(
        data=tmp_path / "data", pipeline="off", tls_certificate="tarry.pem", tls_key=str(certificate.key)
    )
    with Broker.open(config) as broker:
        front = LinkFront.start(broker, "127.0.0.1:0")
        port = front.address.rpartition(":")[2]
        snippet = named("ClientTls")
        code = snippet.code.replace("7610", port)
        run_snippet(Snippet(snippet.page, snippet.line, snippet.language, code, None))
        [line] = [words for _, words in COMMANDS if "tls://localhost:7610" in words]
        assert run([word.replace("7610", port) for word in line]) == 0
        front.stop()


@pytest.mark.parametrize(("where", "words"), [pytest.param(*each, id=" ".join(each[1])[:60]) for each in COMMANDS])
def test_a_command_is_one_that_there_is(where: str, words: list[str]) -> None:
    found: Any = command()
    rest = list(words)
    while hasattr(found, "get_command"):
        found = found.get_command(None, rest.pop(0))
        assert found is not None, f"{where}: {words}"
    found.make_context(words[0], rest)  # it raises for what the command does not take


@pytest.mark.rest
def test_the_commands_of_their_page_run(served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TARRY_ENDPOINT", served.address)
    (tmp_path / "orders.txt").write_text("one\ntwo\n")
    [shown] = [each for each in snippets("sh") if "tarry cancel" in each.code]
    with Client("localhost:7611") as client:
        client.schedule("orders", b"due")
    for words in shown.commands("tarry"):
        # They fill a terminal, are for a broker that has stopped, run until they are stopped, or move a test clock.
        if words[0] not in ("top", "verify", "migrate", "work", "advance", "takeover", "bridge"):
            assert run(words) == 0, words
    served.stop()
    assert run(["verify", "data"]) == run(["migrate", "data"]) == 0


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
def test_the_curl_lines_of_the_http_page_work(tmp_path: Path) -> None:
    (tmp_path / "orders.jsonl").write_text('{"body": "one"}\n{"body": "two", "delay": "1h"}\n')
    lines = [
        line
        for each in snippets("sh")
        if each.page == "docs/http.md"
        for line in each.code.replace("\\\n", "").splitlines()
        if line.startswith("curl")
    ]
    assert len(lines) == 12
    with serving(tmp_path / "data") as rest:
        rest.schedule(b"due")
        for line in lines:
            delivery = "1045659633423745026.2"
            if delivery in line:  # one that is held
                rest.schedule(b"more")
                line = line.replace(delivery, rest.receive("orders", "billing")[0]["delivery"])
            _curl(line, rest, tmp_path)


def _curl(line: str, rest: Rest, directory: Path) -> None:
    command = shlex.split(line.replace("localhost:7777", rest.front.address), comments=True)
    done = subprocess.run(
        [*command, "--silent", "--show-error", "--fail-with-body"], capture_output=True, timeout=60, cwd=directory
    )
    assert done.returncode == 0, (line, done.stderr + done.stdout)


# -- what is named -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["invariants.md", "takeover-model.md"])
def test_the_gates_and_tests_of_invariants_exist(name: str) -> None:
    page = (ROOT / "docs" / name).read_text()
    named = re.findall(r"`((?:src|tests)/[\w/]+\.py)(?:: ([\w, ]+))?`", page)
    assert len(named) > 50
    for path, names in named:
        text = (ROOT / path).read_text()
        for name in names.split(", ") if names else ():
            assert re.search(rf"^\s*(?:(?:async )?def|class) {name}\b|^\s*{name}\b", text, re.MULTILINE), (path, name)


# -- what to install ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_installs_what_no_index_has(page: Path) -> None:
    """No index has Tarry's distributions: they are found in the directory of its wheels; README has a checkout, too."""
    commands = re.findall(r"pip install ([^`\n]*)", page.read_text())
    ours = [each for each in commands if re.search(r"(^|[ '])(tarry|loopgrpc|\.)", each)]
    if page.name == "README.md":
        ours.remove("./packages/loopgrpc ./packages/client '.[spark,http]'    # Spark's Java runtime comes from PyPI")
    assert [each for each in ours if not re.match(r"--find-links dist ('?(tarry|loopgrpc)[^ .]*( |$))+", each)] == []


def test_a_missing_extra_is_named() -> None:
    error = ModuleNotFoundError("No module named 'starlette'", name="starlette")
    assert missing_extra("the HTTP front", "http", error, "no http address") == (
        "the HTTP front needs the extra 'http': the module 'starlette' is not installed; "
        "allowed: pip install --find-links dist 'tarry[http]' (dist: the directory of Tarry's wheels), "
        "or no http address"
    )
