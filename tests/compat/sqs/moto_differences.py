"""Where moto's tests of SQS (``tests/test_sqs/test_sqs.py``) differ from Tarry, and why.

They run with ``http_sqs_strict``, which has AWS's bound of 15 minutes. Whatever is not listed here passes.
"""

from __future__ import annotations

from collections.abc import Mapping

REPLACED: Mapping[str, tuple[str, str]] = {
    "http://localhost:5000": ("{url}", "the address that moto's own server has"),
    ":123456789012:": (":000000000000:", "the account that one test spells out"),
    '"VisibilityTimeout "': (
        '"VisibilityTimeout"',
        "a slip with a space behind the name, which AWS refuses as an unknown attribute and moto does not look at",
    ),
}
"""Texts in the file, with what is put in their place, and what they are."""

DIFFERENCES: Mapping[str, str] = {
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
"""Tests that do not pass, and why."""
