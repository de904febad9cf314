"""Workers of a project of Django, in processes of their own: what tasks did, and what their results say."""

from __future__ import annotations

import os
import signal

import pytest

from tests.contract.conftest import Served
from tests.django_project.place import Shop

pytestmark = pytest.mark.rest

WAIT = """
import time
def wait(*results):
    until_s = time.monotonic() + 100
    for result in results:
        while not result.is_finished:
            assert time.monotonic() < until_s, result
            time.sleep(0.02)
            result.refresh()
"""


def test_tasks_run_when_they_are_due_and_results_say_so(shop: Shop) -> None:
    with shop.worker() as worker:
        said = shop.run(
            f"{WAIT}\n"
            "import asyncio\n"
            "from datetime import timedelta\n"
            "from django.utils import timezone\n"
            "now = tasks.note.enqueue('now'); wait(now)\n"
            "print(now.status, now.return_value, now.attempts, len(now.worker_ids))\n"
            "later = tasks.note_async.using(run_after=timezone.now() + timedelta(seconds=1.5)).enqueue('later')\n"
            "print(later.status); wait(later); print(later.started_at >= later.task.run_after, later.return_value)\n"
            "context = tasks.attempt.using(queue_name='mail').enqueue(); wait(context); print(context.return_value)\n"
            "bad = tasks.fail.enqueue('no'); wait(bad)\n"
            "print(bad.status, bad.errors[0].exception_class, 'ValueError: no' in bad.errors[0].traceback)\n"
            "odd = tasks.odd.enqueue(); wait(odd); print(odd.status, odd.errors[0].exception_class)\n"
            "again = tasks.again.enqueue(3); wait(again); print(again.status, again.attempts, len(again.errors))\n"
            "many = tasks.again.enqueue(9); wait(many); print(many.status, many.attempts, len(many.errors))\n"
            "from_loop = asyncio.run(tasks.note.aenqueue('loop')); wait(from_loop)\n"
            "print(asyncio.run(tasks.note.aget_result(from_loop.id)).return_value)\n"
        )
        assert worker.stop() == 0, worker.lines
    assert said.splitlines() == [
        "SUCCESSFUL now 1 1",
        "READY",
        "True {'text': 'later'}",
        "1",
        "FAILED <class 'ValueError'> True",
        "FAILED <class 'TypeError'>",
        "SUCCESSFUL 3 2",
        "FAILED 3 3",
        "loop",
    ]


def test_a_task_whose_worker_is_killed_runs_again_and_not_for_ever(shop: Shop) -> None:
    with shop.worker("--concurrency", "2") as worker:
        shop.run("tasks.slow.enqueue('one', 3)")
        shop.wait_for("begun", 1)
        [process_id] = worker.workers()
        os.kill(process_id, signal.SIGKILL)
        shop.wait_for("ended", 1)
        assert len(shop.said("begun")) == 2
        said = shop.run(
            f"{WAIT}\nlost = tasks.kill.enqueue(); wait(lost)\nprint(lost.status, lost.attempts, lost.errors)"
        )
    assert len(shop.said("killed")) == 3
    assert said.startswith("FAILED 3 [TaskError(exception_class_path='tarry.django.errors.WorkerLost'")


def test_a_stop_waits_for_what_runs(shop: Shop) -> None:
    with shop.worker() as worker:
        shop.run("tasks.slow.enqueue('one', 2)")
        shop.wait_for("begun", 1)
        assert worker.stop() == 0, worker.lines
    assert shop.said("ended") == [["one"]]


def test_a_broker_that_is_away_or_killed_loses_nothing(shop: Shop, served: Served) -> None:
    served.stop()
    shop.run("[tasks.note.enqueue(f'a{n}') for n in range(5)]")
    served.start()
    with shop.worker():
        shop.run("[tasks.note.enqueue(f'b{n}') for n in range(20)]")
        shop.run("tasks.slow.enqueue('one', 3)")
        shop.wait_for("begun", 1)
        served.stop()
        shop.wait_for("ended", 1)
        served.start()
        shop.run("[tasks.note.enqueue(f'c{n}') for n in range(20)]")
        shop.wait_for("note", 45)
        assert shop.run(f"{WAIT}\nresult = tasks.note.enqueue('last'); wait(result); print(result.status)")
    noted = [text for [text] in shop.said("note")]
    assert len(noted) == len(set(noted)) == 46, "a task that has finished is not run twice"
    assert len(shop.said("ended")) == 1


def test_a_higher_priority_goes_first(shop: Shop) -> None:
    given = (-100, -7, 0, 3, 60)
    shop.run(f"[tasks.pause.using(priority=p).enqueue(p) for p in {given} for _ in range(4)]")
    with shop.worker("--concurrency", "1"):
        said = [int(text) for [text] in shop.wait_for("pause", 4 * len(given))]
    # What came first had a thread while the others were on their way; from then on they are in order.
    assert said[2:] == sorted(said[2:], reverse=True)


def test_a_task_belongs_to_its_transaction_and_can_be_cancelled(shop: Shop) -> None:
    said = shop.run(
        "from django.db import transaction\n"
        "try:\n"
        "    with transaction.atomic():\n"
        "        tasks.note.enqueue('rolled back'); raise KeyError\n"
        "except KeyError: pass\n"
        "with transaction.atomic(): tasks.note.enqueue('committed')\n"
        "due = tasks.note.enqueue('due'); print(tarry.django.cancel(due), tarry.django.cancel(due.id))\n"
        "due.refresh(); print(due.status, due.errors[0].exception_class)\n"
        "try: tarry.django.cancel('none')\n"
        "except Exception as error: print(type(error).__name__)\n"
        "from datetime import UTC, datetime\n"
        "try: tasks.note.using(run_after=datetime(2166, 1, 1, tzinfo=UTC)).enqueue('far')\n"
        "except Exception as error: print(type(error).__name__)\n"
    )
    assert said.splitlines() == [
        "True False",
        "FAILED <class 'tarry.django.errors.TaskCancelled'>",
        "TaskResultDoesNotExist",
        "DelayTooLongError",
    ]
    with shop.worker():
        shop.run(f"{WAIT}\nwait(tasks.note.enqueue('last'))")
    assert sorted(shop.said("note")) == [["committed"], ["last"]]


def test_a_task_whose_module_cannot_be_imported_fails(shop: Shop) -> None:
    shop.run(
        "from django.db import transaction\n"
        "from tarry.django.models import TaskRecord\n"
        "with transaction.atomic():\n"
        "    for module in ('broken', 'leaves'):\n"
        "        TaskRecord.objects.filter(pk=tasks.note.enqueue('x').id).update(task_path=f'shop.{module}.note')\n"
    )
    with shop.worker() as worker:
        shop.run(f"{WAIT}\nwait(tasks.note.enqueue('first'))")
        before = worker.workers()
        said = shop.run(
            "import time\n"
            "from tarry.django.models import TaskRecord\n"
            "until_s = time.monotonic() + 60\n"
            "while TaskRecord.objects.filter(status='READY').exists():\n"
            "    assert time.monotonic() < until_s; time.sleep(0.05)\n"
            "for task in TaskRecord.objects.exclude(task_path='shop.tasks.note').order_by('task_path'):\n"
            "    print(task.status, [each['exception_class_path'] for each in task.errors])\n"
        )
        assert worker.workers() == before, "no process has ended"
    assert said.splitlines() == ["FAILED ['builtins.ValueError']", "FAILED ['builtins.SystemExit']"]


def test_commands_say_what_is_wrong(shop: Shop) -> None:
    assert "there is no queue 'nails'; allowed: default, mail" in shop.manage(
        "tarry_worker", "--queue", "nails", code=1
    )
    assert "allowed: 1 or more" in shop.manage("tarry_worker", "--processes", "0", code=1)
    assert "allowed: 0 ms or more" in shop.manage("tarry_prune", "--older-than", "soon", code=1)
    shop.env["DATABASE"] += "x"
    assert "manage.py migrate" in shop.manage("tarry_worker", code=1)


def test_what_is_finished_can_be_pruned(shop: Shop) -> None:
    with shop.worker():
        shop.run(
            f"{WAIT}\n"
            "from datetime import UTC, datetime\n"
            "wait(tasks.note.enqueue('a'), tasks.fail.enqueue('b'))\n"
            "tasks.note.using(run_after=datetime(2056, 1, 1, tzinfo=UTC)).enqueue('c')\n"
        )
    assert shop.manage("tarry_prune", "--older-than", "1d") == "0 tasks deleted\n"
    assert shop.manage("tarry_prune", "--older-than", "0s", "--keep-failed") == "1 tasks deleted\n"
    assert shop.manage("tarry_prune", "--older-than", "0s") == "1 tasks deleted\n"
    assert shop.run("from tarry.django.models import TaskRecord; print(TaskRecord.objects.count())") == "1\n"
