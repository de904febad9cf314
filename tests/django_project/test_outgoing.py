"""What of a transaction goes to the broker: all that was committed, and nothing that was rolled back."""

from __future__ import annotations

import json

import pytest

from tarry import Client
from tests.contract.conftest import Served
from tests.django_project.place import Shop

BEGIN = """
import os
from datetime import UTC, datetime
from django.db import transaction
from tarry.django import records, sending
from tarry.django.compat import backend_of
from tarry.django.models import TaskRecord
broker = sending.broker_of(backend_of('default').settings)
sends = []
send = sending.TaskBroker.send
sending.TaskBroker.send = lambda self, *tasks: (sends.append(len(tasks)), send(self, *tasks))
FAR = datetime(2166, 1, 1, tzinfo=UTC)
def put(*names, task=tasks.note):
    for name in names: print('id', name, task.enqueue(name).id)
def roll_back(*names):
    try:
        with transaction.atomic(): put(*names); raise KeyError
    except KeyError: pass
"""
END = "\nput('end')\n"


def _said(said: str) -> list[str]:
    return [line for line in said.splitlines() if not line.startswith("id ")]


def _sent(served: Served, said: str) -> list[str]:
    """Names of the tasks that the broker has, in order, by the ids that a program said; the last is ``end``."""
    words = [line.split() for line in said.splitlines() if line.startswith("id ")]
    names = {task_id: name for _, name, task_id in words}
    found: list[str] = []
    with Client(served.address) as client:
        while "end" not in found:
            messages = client.receive("django/default", group="django", max_messages=1000, wait=30)
            assert messages, found
            for message in messages:
                found.append(names[json.loads(message.body)["task"]])
                message.ack()
    return found


def test_what_is_rolled_back_is_not_sent(shop: Shop, served: Served) -> None:
    said = shop.run(
        f"{BEGIN}\n"
        "roll_back('x1', 'x2')\n"
        "with transaction.atomic():\n"
        "    roll_back('x3')\n"
        "    put('a')\n"
        "    with transaction.atomic():\n"
        "        put('b'); roll_back('x4', 'x5')\n"
        "    put('c'); roll_back('x6')\n"
        "print(sends)\n"
        "with transaction.atomic():\n"
        "    put('x7'); transaction.set_rollback(True)\n"
        "put('d')\n"
        "with transaction.atomic(): roll_back('x8')\n"
        "with transaction.atomic(): put('e')\n"
        "print(sends[1:], TaskRecord.objects.filter(sent_at=None).count(), 'not sent')\n"
        f"{END}"
    )
    assert _said(said) == ["[3]", "[1, 1] 0 not sent"]
    assert _sent(served, said) == ["a", "b", "c", "d", "e", "end"]


@pytest.mark.rest
def test_tasks_of_a_transaction_are_sent_together(shop: Shop, served: Served) -> None:
    said = shop.run(
        f"{BEGIN}\n"
        "with transaction.atomic():\n"
        "    put(*(f'a{n}' for n in range(600))); tarry.django.cancel(tasks.note.enqueue('cancelled'))\n"
        "print(sends, TaskRecord.objects.filter(sent_at=None).count(), 'not sent')\n"
        f"{END}"
    )
    assert _said(said) == ["[500, 100] 1 not sent"]
    assert _sent(served, said) == [*(f"a{n}" for n in range(600)), "end"]


@pytest.mark.rest
def test_the_others_of_a_refused_task_are_sent(shop: Shop, served: Served) -> None:
    said = shop.run(
        f"{BEGIN}\n"
        "try:\n"
        "    with transaction.atomic():\n"
        "        for n in range(1200):\n"
        "            put(f'a{n}', task=tasks.note.using(run_after=FAR) if n in (250, 1100) else tasks.note)\n"
        "except Exception as error: print(type(error).__name__)\n"
        "print(len(sends) < 50)\n"
        "for each in TaskRecord.objects.filter(sent_at=None).order_by('enqueued_at'): print(each.args, each.status)\n"
        f"{END}"
    )
    assert _said(said) == ["DelayTooLongError", "True", "['a250'] FAILED", "['a1100'] FAILED"]
    others = [f"a{n}" for n in range(1200) if n not in (250, 1100)]
    assert sorted(_sent(served, said)) == sorted([*others, "end"])


@pytest.mark.rest
def test_where_the_broker_is_away_one_part_is_tried_and_workers_send_all(shop: Shop, served: Served) -> None:
    served.stop()
    said = shop.run(
        f"{BEGIN}\n"
        "with transaction.atomic():\n"
        "    put(*(f'a{n}' for n in range(1200))); roll_back('x')\n"
        "print(sends, TaskRecord.objects.filter(sent_at=None).count(), 'not sent')\n"
    )
    assert _said(said) == ["[500] 1200 not sent"]
    served.start()
    with shop.worker():
        noted = [text for [text] in shop.wait_for("note", 1200)]
    assert sorted(noted) == sorted(f"a{n}" for n in range(1200))


@pytest.mark.rest
def test_a_process_that_ends_between_commit_and_sending_loses_nothing(shop: Shop) -> None:
    shop.run(
        f"{BEGIN}\n"
        "with transaction.atomic():\n"
        "    transaction.on_commit(lambda: os._exit(9))\n"
        "    put('a', 'b'); roll_back('x'); put('c')\n",
        code=9,
    )
    counted = "print(TaskRecord.objects.count(), TaskRecord.objects.filter(sent_at=None).count())"
    assert shop.run(f"from tarry.django.models import TaskRecord\n{counted}") == "3 3\n"
    with shop.worker():
        assert sorted(shop.wait_for("note", 3)) == [["a"], ["b"], ["c"]]


@pytest.mark.rest
def test_a_process_that_ends_before_it_notes_what_it_sent_doubles_nothing(shop: Shop, served: Served) -> None:
    first = shop.run(
        f"{BEGIN}\n"
        "records.note_sent = lambda *_: os._exit(9)\n"
        "with transaction.atomic():\n"
        "    put('a', 'b', 'c'); import sys; sys.stdout.flush()\n",
        code=9,
    )
    said = shop.run(f"{BEGIN}\nsending.UNSENT_S = 0\nprint(sending.send_unsent(broker, 'default'), sends)\n{END}")
    assert _said(said) == ["3 [3]"]
    assert _sent(served, first + said) == ["a", "b", "c", "end"]
