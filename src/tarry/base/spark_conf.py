"""Settings for Spark: ``NAME=VALUE`` on a command line, or a file like ``spark-defaults.conf``.

What they mean, Spark knows; refused is what would silently do nothing, or break a job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from tarry.base.errors import InvalidArgumentError

_LINE = re.compile(r"([^\s=:]+)(?:\s*[=:]\s*|\s+)(.*)")
_SECRET = re.compile("password|passphrase|secret|token|credential|key", re.IGNORECASE)
_ELSEWHERE = {
    "spark.master": "a setting of its own says where Spark runs (--spark-master, of the relay --master)",
    "spark.sql.session.timeZone": "jobs reckon in UTC",
}


def parse_pairs(texts: Iterable[str]) -> dict[str, str]:
    """Out of ``NAME=VALUE`` texts; the last of one name counts.

    Raises:
        InvalidArgumentError: one has no value, or a name that is not for here.
    """
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidArgumentError(
                f"spark_conf {text!r} has no value; allowed: NAME=VALUE, as spark.ui.enabled=true"
            )
        pairs[name.strip()] = value.strip()
    return _checked(pairs, "spark_conf")


def parse_lines(text: str) -> dict[str, str]:
    """Parse settings, one a line; empty lines do not count."""
    return parse_pairs(line for line in text.splitlines() if line.strip())


def read_file(path: Path) -> dict[str, str]:
    """Read a file like ``spark-defaults.conf``.

    Each line has a name, a space or ``=``, and a value; ``#`` begins a comment, and a backslash at the end goes on
    with the next line.

    Raises:
        InvalidArgumentError: it cannot be read, or a line is not like that.
    """
    return _checked(properties(path), f"the file {path}")


def lines_of(settings: Mapping[str, str]) -> str:
    """Return a file's text that :func:`read_file` reads as these settings."""
    # A space keeps a backslash at the end of a value from going on with the next line; it is no part of the value.
    return "".join(f"{name}={value} \n" for name, value in settings.items())


def is_secret(name: str) -> bool:
    """Return whether a setting's value may be a secret, by its name."""
    return _SECRET.search(name) is not None


def without_secrets(text: str) -> tuple[str, list[str]]:
    """Lines of ``NAME=VALUE`` without those that may be secrets, and the names of these."""
    lines = [line for line in text.splitlines() if line.strip()]
    names = {line: line.partition("=")[0].strip() for line in lines}
    shown = "\n".join(line for line in lines if not is_secret(names[line]))
    return shown, [names[line] for line in lines if is_secret(names[line])]


def properties(path: Path) -> dict[str, str]:
    """As :func:`read_file`, with any names.

    Raises:
        InvalidArgumentError: the same.
    """
    try:
        lines = path.read_text().replace("\\\n", "").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"the file {path} of settings for Spark cannot be read: {error}") from error
    found = {}
    for number, line in enumerate((line.strip() for line in lines), 1):
        if not line or line.startswith(("#", "!")):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise InvalidArgumentError(f"line {number} of {path} is {line!r:.80}; allowed: NAME VALUE, or NAME=VALUE")
        found[match[1]] = match[2].strip()
    return found


def _checked(settings: dict[str, str], where: str) -> dict[str, str]:
    for name, value in settings.items():
        if not name.startswith("spark."):
            raise InvalidArgumentError(f"{where} names {name!r}; allowed: names of Spark's, which begin with 'spark.'")
        if name in _ELSEWHERE:
            raise InvalidArgumentError(f"{where} sets {name}; allowed: to leave it out, as {_ELSEWHERE[name]}")
        if name == "spark.submit.deployMode" and value != "client":
            raise InvalidArgumentError(f"{where} sets {name} to {value!r}; allowed: client: the driver is this process")
    return settings
