"""The file of access keys."""

from __future__ import annotations

import re
from pathlib import Path

from tarry.base.errors import InvalidArgumentError


def read_keys(name: str | None) -> dict[str, str]:
    """Read the secrets by access key from a file, if one is given.

    Each line is ``ACCESS_KEY SECRET``; ``#`` begins a comment.

    Raises:
        InvalidArgumentError: it cannot be read, or a line is none.
    """
    if name is None:
        return {}
    path = Path(name)
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"rocketmq_keys {str(path)!r}: {error}") from error
    keys: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        # The file's content is not repeated: it would be in the log.
        if len(words) != 2 or not re.fullmatch(r"[^,/\s]+", words[0]) or words[0] in keys:
            raise InvalidArgumentError(
                f"rocketmq_keys {str(path)!r}, line {number}; allowed: ACCESS_KEY SECRET, each key once"
            )
        keys[words[0]] = words[1]
    if not keys:
        raise InvalidArgumentError(f"rocketmq_keys {str(path)!r} has no keys; needed: lines of ACCESS_KEY SECRET")
    return keys
