"""Names of queues, their URLs and ARNs.

A queue's topic has its name, so that a message for it can be sent by every other protocol, too.
"""

from __future__ import annotations

import re
import uuid
from functools import lru_cache
from urllib.parse import unquote, urlsplit

from tarry.fronts.http.sqs.errors import SqsError, invalid, missing, no_queue

GROUP = "sqs"
"""The consumer group of all queues."""
ACCOUNT = "000000000000"
FIFO = ".fifo"

_NAME = re.compile(r"[-_A-Za-z0-9]{1,80}")
_NAME_CHARS_MAX = 80
_REGION = re.compile("[-a-z0-9]{1,40}")
_MESSAGES = uuid.UUID("8f2b6c1e-5d0a-4c7e-9a53-2f6d1b7e4a90")
"""The namespace of ids of messages."""
REGION = "us-east-1"
"""The region of whoever names none."""


def check_name(name: object) -> str:
    """Return the name of a queue that is to be made.

    Raises:
        SqsError: it is none.
    """
    if not isinstance(name, str):
        raise missing("QueueName")
    if len(name) > _NAME_CHARS_MAX or not _NAME.fullmatch(name.removesuffix(FIFO)):
        raise invalid(
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
            + (" (with .fifo)" if name.endswith(FIFO) else "")
        )
    return name


def is_fifo(name: str) -> bool:
    """Return whether a queue is one of those that keep order."""
    return name.endswith(FIFO)


def name_in(url: object) -> str:
    """Return the name of a queue by its URL, whatever host it has: clients may have it from elsewhere.

    Raises:
        SqsError: it is no URL of a queue.
    """
    if not isinstance(url, str) or not url:
        raise missing("QueueUrl")
    try:
        path = urlsplit(url).path
    except ValueError:
        raise SqsError("InvalidAddress", f"The address {url!r:.200} is not valid for this endpoint.") from None
    name = unquote(path.rstrip("/").rpartition("/")[2])
    if not _NAME.fullmatch(name.removesuffix(FIFO)):
        raise no_queue()
    return name


def arn_of(name: str, region: str) -> str:
    """Return the ARN of a queue."""
    return f"arn:aws:sqs:{region}:{ACCOUNT}:{name}"


def name_of_arn(arn: object) -> str | None:
    """Return the name of the queue with an ARN; None: it is none of a queue."""
    parts = arn.split(":") if isinstance(arn, str) else []
    is_one = len(parts) == 6 and parts[:3] == ["arn", "aws", "sqs"] and _NAME.fullmatch(parts[5].removesuffix(FIFO))
    return parts[5] if is_one else None


def region_of(text: str) -> str:
    """Return a region if it may be one, else the default."""
    return text if _REGION.fullmatch(text) else REGION


def message_id(name: str, created_ms: int, seq: int) -> str:
    """Return the id of the message with a seq in a queue: a UUID, as SDKs expect it.

    A queue that was made anew, by another broker too, has other ids.
    """
    number = _beginning(name, created_ms) ^ (seq & 0xFFFF_FFFF) ^ (seq >> 32 & 0xFFFF_FFFF) << 96
    return str(uuid.UUID(int=number))


@lru_cache(maxsize=1024)
def _beginning(name: str, created_ms: int) -> int:
    return uuid.uuid5(_MESSAGES, f"{created_ms}/{name}").int
