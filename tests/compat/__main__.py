"""All official clients against Tarry: ``python -m tests.compat [--language NAME] …``; see each protocol's ``run``.

A language whose name begins with ``lmstfy-`` is one of lmstfy's clients, one with ``sqs-`` a program for SQS's API, one
with ``rabbitmq-`` a program for RabbitMQ beside the bridge, any other one RocketMQ's; none: all of them.
"""

from __future__ import annotations

import sys
from itertools import pairwise

from tests.compat.lmstfy import run as lmstfy
from tests.compat.rabbitmq import run as rabbitmq
from tests.compat.rocketmq import run as rocketmq
from tests.compat.sqs import run as sqs


def main(words: list[str]) -> int:
    """Hand the words over to whom they are for."""
    named = [following for word, following in pairwise(words) if word == "--language"]
    for other in (lmstfy, sqs, rabbitmq):
        if named and all(name.startswith(other.PREFIX) for name in named):
            return other.main(words)
    return rocketmq.main(words) or (0 if words else lmstfy.main([]) or sqs.main([]) or rabbitmq.main([]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
