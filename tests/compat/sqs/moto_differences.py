"""Where moto's tests of SQS and of EventBridge Scheduler differ from Tarry, and why.

They run with ``http_sqs_strict``, which has AWS's bound of 15 minutes. Whatever is not listed here passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Suite(NamedTuple):
    """Some of moto's tests."""

    files: tuple[str, ...]
    replaced: Mapping[str, tuple[str, str]]
    """Texts in the files, with what is put in their place, and what they are."""
    differences: Mapping[str, str]
    """Tests that do not pass, and why; by name, or by the name before the parameters in brackets."""
    queues: tuple[str, ...] = ()
    """Queues that are there before each test."""


_REPLACED_OF_SQS: Mapping[str, tuple[str, str]] = {
    "http://localhost:5000": ("{url}", "the address that moto's own server has"),
    ":123456789012:": (":000000000000:", "the account that one test spells out"),
    '"VisibilityTimeout "': (
        '"VisibilityTimeout"',
        "a slip with a space behind the name, which AWS refuses as an unknown attribute and moto does not look at",
    ),
}

_DIFFERENCES_OF_SQS: Mapping[str, str] = {
    "test_create_queue_with_different_attributes_fail": (
        "Sets FifoQueue to 'tru'. AWS and Tarry refuse it; moto does not look at it."
    ),
    "test_create_queue_kms": (
        "Tarry encrypts nothing, so it refuses to be told a key: a queue that looks encrypted would be worse."
    ),
    "test_message_retention_period": "Sets a retention of one second; AWS and Tarry allow 60 seconds and more.",
    "test_create_queues_in_multiple_region": "Tarry has one region: a queue is there whatever region a client names.",
    "test_change_message_visibility_on_old_message": (
        "A receipt handle whose time-out has passed holds nothing here. With AWS it changes the time for whoever has "
        "received the message since."
    ),
    "test_batch_change_message_visibility_on_old_message": "The same, in a batch.",
    "test_purge_queue_twice_raises_purge_in_progress": (
        "AWS purges in the background and refuses another purge for 60 seconds. Here, a purge has ended when it is "
        "answered, and the next one may come at once."
    ),
    "test_receive_messages_with_message_group_id": (
        "Of one message group, a receive hands out one message, which has to be deleted before the next one. AWS may "
        "hand out several of a group in one answer."
    ),
}

_ARN = "arn:aws:sqs:us-east-1:000000000000:"
_NO_CRON = "no expression: AWS and Tarry refuse it, moto does not look at it"
_NO_ARN = "no ARN: AWS and Tarry refuse it, moto does not look at it"
_REPLACED_OF_SCHEDULER: Mapping[str, tuple[str, str]] = {
    ":123456789012:": (":000000000000:", "the account that one test spells out"),
    "some cron *": ("cron(0 8 * * ? *)", _NO_CRON),
    "some cron": ("rate(1 hour)", _NO_CRON),
    "new cron": ("rate(2 hours)", _NO_CRON),
    "not supported yet": (f"{_ARN}first", _NO_ARN),
    "different arn": (f"{_ARN}second", _NO_ARN),
    '"arn1"': (f'"{_ARN}first"', _NO_ARN),
    '"Mode": "OFF"': ('"Mode": "FLEXIBLE"', "a window of some minutes with the mode OFF, which AWS and Tarry refuse"),
}
_DIFFERENCES_OF_SCHEDULER: Mapping[str, str] = {
    "test_create_get_schedule__with_start_date": (
        "The dates have microseconds. Tarry's times are milliseconds, which it returns."
    ),
    "test_schedule_tags": "Tags a schedule. With AWS and Tarry, tags are those of groups alone.",
}

SUITES: Mapping[str, Suite] = {
    "sqs": Suite(("tests/test_sqs/test_sqs.py",), _REPLACED_OF_SQS, _DIFFERENCES_OF_SQS),
    "scheduler": Suite(
        tuple(f"tests/test_scheduler/test_{name}.py" for name in ("scheduler", "schedule_groups", "scheduler_tags")),
        _REPLACED_OF_SCHEDULER,
        _DIFFERENCES_OF_SCHEDULER,
        queues=("first", "second"),
    ),
}
"""``tests/test_scheduler/test_server.py`` is not among them: it asks moto's own server in its process."""
