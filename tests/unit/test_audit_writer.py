"""What a broker writes into its audit log, and when it is durable."""

from __future__ import annotations

import errno
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import wait_until

from tarry.api import operations as ops
from tarry.api.audit import AskedBy
from tarry.base.config import Config
from tarry.base.errors import DiskFullError, ForbiddenError, InvalidArgumentError, LoginRefusal, NotFoundError
from tarry.broker import Broker
from tarry.broker.audit_bounds import CHANGES_MAX, CHANGES_MS, TEXT_MAX
from tarry.broker.audit_log import AuditLog
from tarry.broker.audit_reading import read_lines
from tarry.cli.main import run
from tarry.identity.principal import Principal
from tarry.identity.rights import Rights
from tarry.identity.seen import SeenBroker
from tarry.log.files import OsFiles
from tarry.testing import TestBroker, TestClock


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker.open(Config(data=tmp_path / "data", pipeline="off"), audited=True) as broker:
        yield broker


def lines(broker: Broker, **asked: Any) -> list[tuple[Any, ...]]:
    found = broker.components.audit.read(ops.ReadAuditLog(**asked))
    return [(each.who, each.operation, each.outcome) for each in found]


def test_changes_are_there_when_they_are_answered(broker: Broker) -> None:
    broker.set_group("t", "g", tries=3)
    broker.schedule("t", b"secret body", delay=60)
    with pytest.raises(NotFoundError):
        broker.pause("t", "other")
    broker.set_identity("root", ["admin"])
    secret = broker.add_credential("root").secret
    broker.pause("t", "g")
    assert lines(broker) == [
        (None, "start", "done"),
        ("local", "set-group", "done"),
        ("local", "pause", "failed"),
        ("local", "set-identity", "begun"),
        ("local", "set-identity", "done"),
        ("local", "add-credential", "begun"),
        ("local", "add-credential", "done"),
        ("broker:front", "pause", "done"),
    ]
    kept = b"".join(path.read_bytes() for path in (broker.config.data / "audit").glob("*.log"))
    assert secret.encode() not in kept
    assert b"secret body" not in kept
    [_, added] = broker.components.audit.read(ops.ReadAuditLog(operation="add-credential"))
    assert added.of == added.n - 1
    assert added.details["id"] == broker.list_identities()[0].credentials[0].id


def test_who_asked_is_there(broker: Broker) -> None:
    admin = Principal("root", Rights.of(["admin"]), "c0ffee")
    seen = SeenBroker(broker, admin, AskedBy("root", "c0ffee", "http", "10.0.0.9", "req-7"))
    seen.call(ops.SetTopic.of("t", ordered=True))
    seen.call(ops.ListIdentities())
    seen.call(ops.ListIdentities())
    found = broker.components.audit
    wait_until(lambda: len(lines(broker, who="root")) == 2)
    [changed, read] = found.read(ops.ReadAuditLog(who="root"))
    assert (changed.operation, changed.credential) == ("set-topic", "c0ffee")
    assert (changed.front, changed.peer, changed.request) == ("http", "10.0.0.9", "req-7")
    assert (read.operation, read.outcome) == ("identities", "done")


def test_a_right_that_is_missing_is_there(broker: Broker) -> None:
    refusals = broker.refusals
    billing = Principal("billing", Rights.of(["produce orders.*"]), "b1", refusals=refusals, front="link")
    seen = SeenBroker(broker, billing, billing.asks("10.0.0.9"))
    for _ in range(3):
        with pytest.raises(ForbiddenError):
            seen.call(ops.PauseGroup("orders.a", "g"))
    with pytest.raises(ForbiddenError):
        seen.call(ops.SetPushSubscription("p", topic="other", url="https://example.org"))
    with pytest.raises(ForbiddenError):
        seen.group("orders.a", "g")
    wait_until(lambda: len(lines(broker, outcome="refused")) == 3)
    found = broker.components.audit.read(ops.ReadAuditLog(outcome="refused"))
    assert [(each.operation, each.peer) for each in found] == [
        ("pause", "10.0.0.9"),
        ("set-push", "10.0.0.9"),
        ("right", "10.0.0.9"),
    ]
    assert found[0].details == {"right": "manage", "topic": "orders.a", "group": "g"}
    assert broker.status()["audit"]["refused"]["right"] == 5


def test_on_a_full_disk_identities_do_not_change_and_other_lines_are_counted(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.set_group("t", "g")

    def full(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(AuditLog, "append", full)
        with pytest.raises(DiskFullError, match="audit log"):
            broker.set_identity("root", ["admin"])
        assert broker.list_identities() == []
        broker.pause("t", "g")
        assert broker.status()["audit"]["lost"] >= 1
    broker.resume("t", "g")
    assert broker.group_info("t", "g").paused is False
    wait_until(lambda: (None, "audit-log-lost", "failed") in lines(broker))
    assert broker.status()["state"] == "serving"


def test_a_change_that_fails_is_told_as_failed(broker: Broker) -> None:
    with pytest.raises(InvalidArgumentError):
        broker.set_identity("root", ["no right"])
    assert lines(broker, operation="set-identity") == [
        ("local", "set-identity", "begun"),
        ("local", "set-identity", "failed"),
    ]


def test_off_and_embedded_nothing_is_written(tmp_path: Path) -> None:
    for name, config, audited in (("a", {}, False), ("b", {"audit_log": "off"}, True)):
        with Broker.open(Config(data=tmp_path / name, pipeline="off", **config), audited=audited) as broker:
            broker.set_group("t", "g")
            broker.set_identity("root", ["admin"])
            broker.refusals.login("http", "10.0.0.1", LoginRefusal())
            with pytest.raises(NotFoundError, match="audit_log=on"):
                broker.audit_log()
            assert broker.status()["audit"]["refused"]["not_known"] == 1
        assert not (tmp_path / name / "audit").exists()


def test_each_line_goes_to_stderr_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = Config(data=tmp_path, pipeline="off", audit_log_copy="stderr")
    with Broker.open(config, audited=True) as broker:
        broker.set_group("t", "g")
    told = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith('{"n"')]
    kept = read_lines(tmp_path, ops.ReadAuditLog())
    assert [(line["n"], line["previous"]) for line in told] == [(each.n, each.previous) for each in kept]


def test_a_search_by_identity_finds_what_was_done_to_it(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    broker.set_identity("root", ["admin"])
    broker.add_credential("root")
    broker.set_identity("orders", ["produce orders.*"])
    made = broker.add_credential("orders", kind="certificate", san="orders.example")
    broker.remove_credential(made.id)
    broker.set_push("orders", topic="t", url="https://example.com/")
    broker.delete_identity("orders")
    found = broker.components.audit.read(ops.ReadAuditLog(identity="orders", outcome="done"))
    assert [each.operation for each in found] == [
        *("set-identity", "add-credential", "remove-credential", "delete-identity")
    ]
    assert found[2].details == {"id": made.id, "identity": "orders"}
    data = str(broker.config.data)
    assert run(["audit-log", "--data", data, "--identity", "orders", "-n", "1"]) == 0
    head, line = capsys.readouterr().out.splitlines()
    assert "delete-identity" in line
    assert head.split() == ["LINE", "WHEN", "WHO", "PORT", "FROM", "OPERATION", "OUTCOME", "DETAILS"]


def test_an_operation_that_is_none_is_refused(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit-log", "--data", str(broker.config.data), "--operation", "nosuchop"]) == 2
    assert "operation is 'nosuchop'; allowed: login, right, reload" in capsys.readouterr().err


def test_a_long_list_of_grants_is_told_by_its_hash(broker: Broker) -> None:
    broker.set_identity("many", [f"produce {'x' * 200}{number}" for number in range(500)])
    [line, _] = broker.components.audit.read(ops.ReadAuditLog(operation="set-identity"))
    assert line.details.keys() == {"bytes", "blake2b"}


def as_tenant(broker: Broker, name: str = "shop") -> SeenBroker:
    return SeenBroker(broker, Principal(name, Rights.of(["manage *"]), "c1"), AskedBy(name, "c1", "link", "10.0.0.9"))


def stopped_clock(data: Path, clock: TestClock) -> closing[TestBroker]:
    config = Config(data=data, pipeline="off", disk_free_bytes_min=0)
    return closing(TestBroker(config, clock, OsFiles(), threads=False, audited=True))


def test_long_texts_of_a_change_are_cut(broker: Broker) -> None:
    text = "(" * 500 + "tag = 'a'" + ")" * 500
    with pytest.raises(InvalidArgumentError):
        as_tenant(broker).call(ops.SetGroup("t" * 9_000, "g", {"filter": text}))
    [line] = broker.components.audit.read(ops.ReadAuditLog(who="shop"))
    assert len(json.dumps(line.details)) < 1_500
    assert line.details["topic"].startswith("t" * TEXT_MAX + "… (9000 characters, blake2b ")
    with pytest.raises(TypeError):  # no client can send it
        as_tenant(broker).call(ops.SetGroup("t", "g", {f"unknown-{n}": n for n in range(1_000)}))
    [*_, line] = broker.components.audit.read(ops.ReadAuditLog(who="shop"))
    assert line.details.keys() == {"bytes", "blake2b"}
    grant = f"produce {'x' * 200} group:{'y' * 200}"
    broker.set_identity("root", ["admin", grant.replace("produce", "consume")])
    [_, whole] = broker.components.audit.read(ops.ReadAuditLog(operation="set-identity"))
    assert len(whole.details["grants"][1]) > TEXT_MAX, "a change of identities is whole"


def test_changes_of_a_caller_are_bounded_and_counted(tmp_path: Path) -> None:
    """Whoever manages one topic does not push the lines of others out of the log, nor hides its own among them."""
    clock = TestClock(1_000_000)
    with stopped_clock(tmp_path, clock) as broker:
        shop, log = as_tenant(broker), broker.components.audit
        for tries in range(1, CHANGES_MAX + 8):
            shop.call(ops.SetGroup("t", "g", {"tries": tries}))
        shop.call(ops.PauseGroup("t", "g"))
        as_tenant(broker, "stock").call(ops.SetGroup("t", "g", {"tries": 2}))
        for n in range(2 * CHANGES_MAX):
            broker.set_identity("some", [f"produce t{n}"])
            broker.set_group("t", "g", tries=n + 1)

        def counts() -> dict[tuple[str | None, str], tuple[int, int]]:
            found: dict[tuple[str | None, str], tuple[int, int]] = {}
            for each in log.read(ops.ReadAuditLog(limit=1_000)):
                count, more = found.get((each.who, each.operation), (0, 0))
                found[each.who, each.operation] = count + 1, more + each.more
            return found

        expected = {
            (None, "start"): (1, 0),
            ("shop", "set-group"): (CHANGES_MAX, 0),
            ("shop", "pause"): (1, 0),
            ("stock", "set-group"): (1, 0),
            ("local", "set-identity"): (4 * CHANGES_MAX, 0),
            ("local", "set-group"): (2 * CHANGES_MAX, 0),
        }
        assert counts() == expected
        clock.advance_ms(CHANGES_MS)
        log.tick()
        expected["shop", "set-group"] = CHANGES_MAX + 1, 7
        assert counts() == expected
        last = log.read(ops.ReadAuditLog(who="shop"))[-1]
        assert (last.more, last.outcome, last.at_ms) == (7, "done", clock.now_ms())
        assert last.details["settings"] == {"tries": CHANGES_MAX + 7}


def test_counts_of_changes_are_written_at_the_end(tmp_path: Path) -> None:
    with stopped_clock(tmp_path, TestClock(1_000_000)) as broker:
        for tries in range(1, CHANGES_MAX + 4):
            as_tenant(broker).call(ops.SetGroup("t", "g", {"tries": tries}))
    assert [each.more for each in read_lines(tmp_path, ops.ReadAuditLog(who="shop"))][-1] == 3


def test_the_command_that_works_without_a_broker_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = str(tmp_path / "data")
    Broker.open(Config(data=tmp_path / "data", pipeline="off")).close()
    assert run(["identity", "create", "admin", "--all", "--no-keep", "--data", data]) == 0
    token = capsys.readouterr().out.strip()
    assert run(["audit-log", "--data", data, "--since", "1h", "--json"]) == 0
    told = capsys.readouterr().out
    assert token not in told
    assert [json.loads(line)["operation"] for line in told.splitlines()] == [
        *("start", "set-identity", "set-identity", "add-credential", "add-credential", "stop")
    ]
    assert run(["verify", data]) == 0
    assert "audit log: 1 files, sound" in capsys.readouterr().out
    assert run(["audit-log", "--data", data, "--since", "x"]) == 2
    assert run(["audit-log", "--data", str(tmp_path)]) == 2


CHILD = """
import sys
from pathlib import Path
from threading import Thread
from tarry.base.config import Config
from tarry.base.errors import LoginRefusal
from tarry.broker import Broker

broker = Broker.open(Config(data=Path(sys.argv[1]), pipeline="off"), audited=True)
broker.set_identity("root", ["admin"])
broker.add_credential("root")

def change(first):
    for number in range(first, 100_000, 3):
        if number % 2:
            broker.set_identity(f"i{number}", ["produce a"])
        else:
            broker.set_topic(f"t{number}", ordered=True)
        sys.stdout.write(f"{number}\\n")
        sys.stdout.flush()
        broker.refusals.login("http", f"10.0.0.{number % 100}", LoginRefusal())

for first in range(3):
    Thread(target=change, args=(first,)).start()
"""


@pytest.mark.rest
@pytest.mark.parametrize("answers", [1, 40, 150])
def test_a_kill_loses_no_line_of_what_was_answered(
    answers: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answered = []
    with subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for _ in range(answers):
            answered.append(int(child.stdout.readline()))
        child.send_signal(signal.SIGKILL)
        answered += [int(line) for line in child.stdout if line.endswith("\n")]
    assert run(["verify", str(tmp_path)]) == 0, capsys.readouterr().out
    found = read_lines(tmp_path, ops.ReadAuditLog(limit=10_000))
    done = {each.details["name"] for each in found if (each.operation, each.outcome) == ("set-identity", "done")}
    done |= {each.details["topic"] for each in found if each.operation == "set-topic"}
    missing = {f"{'i' if number % 2 else 't'}{number}" for number in answered} - done
    assert not {name for name in missing if name.startswith("i")}
    assert not missing or sum(name.startswith("t") for name in done) == CHANGES_MAX, "others were counted"
    begun = {each.details["name"] for each in found if (each.operation, each.outcome) == ("set-identity", "begun")}
    with Broker.open(Config(data=tmp_path, pipeline="off"), audited=True) as broker:
        made = {identity.name for identity in broker.list_identities()}
        assert made <= begun, "a change that no line tells of"
    assert run(["verify", str(tmp_path)]) == 0
