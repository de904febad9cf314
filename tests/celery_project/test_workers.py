"""Workers of Celery in processes of their own, on a broker: what a project with nothing changed but the URL sees."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.celery_project.place import Shop
from tests.contract.conftest import Served
from tests.snippets import snippets
from tests.waiting import wait_until

pytestmark = pytest.mark.rest


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    served = Served(tmp_path / "data")
    yield Shop(tmp_path, served)
    served.stop()


@pytest.mark.parametrize("pool", ["prefork", "gevent"])
def test_tasks_come_when_they_are_due_and_results_come_back(shop: Shop, pool: str) -> None:
    with shop.worker("-c", "2", "-P", pool):
        said = shop.run(
            "import time\n"
            "print(shop.note.delay('now').get(timeout=30))\n"
            "began = time.time(); print(shop.note.apply_async(('later',), countdown=2).get(timeout=30))\n"
            "print(time.time() - began >= 2)\n"
            "print(len(shop.app.control.inspect(timeout=5, limit=1).ping()))\n"
        )
    assert said.split() == ["now", "later", "True", "1"]


def test_a_revoke_is_definite_without_any_worker(shop: Shop) -> None:
    said = shop.run(
        "import tarry.celery\n"
        "one, two = (shop.note.apply_async((each,), countdown=3600) for each in 'ab')\n"
        "print(tarry.celery.cancel(shop.app, one.id), one.state)\n"
        "two.revoke(); print(two.state, tarry.celery.cancel(shop.app, two.id))\n"
        "print(tarry.celery.cancel(shop.app, 'none'))\n"
    )
    assert said.split() == ["done", "REVOKED", "REVOKED", "cancelled", "unknown"]
    # An id that can be no key was an error of the whole command, and the others went on waiting.
    said = shop.run(
        "one = shop.note.apply_async(('a',), countdown=3600)\n"
        "shop.app.control.revoke(['', one.id, 'x' * 300]); print(one.state)\n"
    )
    assert said.split() == ["REVOKED"]
    assert sum(each.pending for each in shop.served.broker.pending()) == 0


def test_what_a_killed_worker_had_comes_again_at_once(shop: Shop) -> None:
    with shop.worker("-c", "1") as first:
        shop.run("shop.slow.delay('a', 30)")
        shop.wait_for("begun", 1)
        first.kill()
    with shop.worker("-c", "1"):
        assert shop.wait_for("begun", 2) == [["a"], ["a"]]


def test_a_worker_that_stops_ends_its_tasks_and_gives_the_rest_back(shop: Shop) -> None:
    with shop.worker("-c", "1") as first:
        shop.run("[shop.slow.delay(each, 1) for each in 'abcd']")
        shop.wait_for("begun", 1)
        assert first.stop() == 0
    begun = shop.said("begun")
    assert shop.said("ended") == begun and len(begun) < 4
    with shop.worker("-c", "1"):
        shop.wait_for("ended", 4)
        wait_until(lambda: shop.served.broker.group_info("celery", "celery").lag == 0)
    assert sorted(shop.said("ended")) == [["a"], ["b"], ["c"], ["d"]], "none is lost, none doubled"
    assert shop.served.broker.group_info("celery", "celery").dead == 0


def test_a_task_that_is_refused_comes_again(shop: Shop) -> None:
    with shop.worker("-c", "1"):
        shop.run("shop.again.delay('x')")
        assert shop.wait_for("again", 2) == [["x"], ["x"]]


def test_higher_priorities_go_first(shop: Shop) -> None:
    shop.run("[shop.note.apply_async((str(n % 10),), queue='urgent', priority=n % 10) for n in range(60)]")
    with shop.worker("-c", "1", "-P", "threads", "-Q", "urgent", "--prefetch-multiplier", "1"):
        noted = [int(text) for text, _ in shop.wait_for("note", 60)]
    assert sorted(noted) == sorted(n % 10 for n in range(60))
    assert sum(noted[:20]) / 20 > sum(noted[40:]) / 20, noted


def test_a_worker_goes_on_when_the_broker_was_away(shop: Shop) -> None:
    with shop.worker("-c", "1"):
        shop.run("shop.note.delay('a')")
        shop.wait_for("note", 1)
        shop.served.stop()
        shop.served.start()
        shop.run("shop.note.delay('b')")
        assert [text for text, _ in shop.wait_for("note", 2)] == ["a", "b"]


def test_entries_of_beat_are_kept_by_the_broker(shop: Shop) -> None:
    with (shop.directory / "shop.py").open("a") as project:
        project.write(
            'app.conf.beat_schedule = {"tick": {"task": "shop.note", "schedule": 1.0, "args": ("tick",)},'
            ' "yearly": {"task": "shop.note", "schedule": 31536000.0, "args": ("y",)},'
            ' "often": {"task": "shop.note", "schedule": 0.25, "args": ("often",)}}\n'
        )
    for _ in range(2):  # the second one finds all as it should be
        with shop.celery("beat", "-S", "tarry.celery.beat:Scheduler", "-l", "info", "--pidfile=") as beat:
            beat.wait_for("Starting...")
            beat.wait_for("often is repeated by beat itself")
            beat.wait_for("Sending due task often")
            wait_until(lambda: len(pending_keys(shop)) == 2)
    with shop.worker("-c", "1"):
        wait_until(lambda: len([text for text, _ in shop.said("note") if text == "tick"]) >= 2)
        ids = [task_id for _, task_id in shop.said("note")]
    assert len(set(ids)) == len(ids), "each occurrence is a task of its own"
    with (shop.directory / "shop.py").open("a") as project:
        project.write('del app.conf.beat_schedule["tick"]\n')
    with shop.celery("beat", "-S", "tarry.celery.beat:Scheduler", "-l", "info", "--pidfile="):
        wait_until(lambda: pending_keys(shop) == ["beat:shop:yearly"])


def pending_keys(shop: Shop) -> list[str]:
    rows = shop.served.broker.list_pending(topic="celery", repeating=True).rows
    return sorted(row["key"] for row in rows.to_pylist())


def test_the_pages_programs_run(shop: Shop) -> None:
    programs = [each.code for each in snippets("python") if each.page == "docs/celery.md"]
    assert len(programs) == 2
    first, second = (each.replace("localhost:7611", shop.served.address) for each in programs)
    (shop.directory / "shop.py").write_text(first)
    assert shop.run(second).split() == ["done"]
    with shop.celery("call", "shop.remind", "--args", '["order-17"]') as call:
        call.wait_for("-")
    with shop.worker("-c", "1") as worker:
        worker.wait_for("order-17\n")
