"""All official clients against Tarry: ``python -m tests.compat [--language NAME] …``; see each protocol's ``run``.

A language whose name begins with ``lmstfy-`` is one of lmstfy's clients, one with ``sqs-`` a program for SQS's API, one
with ``rabbitmq-`` a program for RabbitMQ beside the bridge, one with ``django-`` a suite for Django's tasks, any other
one RocketMQ's; none: all of them.
"""

from __future__ import annotations

import sys
from itertools import pairwise

from tests.compat.django import run as django
from tests.compat.lmstfy import run as lmstfy
from tests.compat.rabbitmq import run as rabbitmq
from tests.compat.rocketmq import run as rocketmq
from tests.compat.sqs import run as sqs


def main(words: list[str]) -> int:
    """Hand the words over to whom they are for."""
    named = [following for word, following in pairwise(words) if word == "--language"]
    others = (lmstfy, sqs, rabbitmq, django)
    for other in others:
        if named and all(name.startswith(other.PREFIX) for name in named):
            return other.main(words)
    if code := rocketmq.main(words):
        return code
    return 0 if words else next((code for each in others if (code := each.main([]))), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
