"""One program against one broker, with two keys of its own: runs it, removes them when it says so, gives its lines."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tarry.client import Client
from tarry.errors import NotFoundError
from tests.compat.identities.expected import DONE, READY
from tests.compat.rocketmq.running import environment_of

LIMIT_S = 300.0
"""For a program; generous, for a machine that has other things to do."""
SETTLED_S = 30.0


@dataclass(frozen=True)
class Names:
    """What a program is given: names that no other one has."""

    topic: str
    group: str
    other: str
    keys: dict[str, str]
    """Of the sender and the receiver, in this order: their names, and what they show."""
    stored: tuple[str, str]
    """Topic and group, as the broker has them."""

    @property
    def words(self) -> list[str]:
        """As the command line has them."""
        return [
            "identities",
            self.topic,
            self.group,
            self.other,
            *(word for pair in self.keys.items() for word in pair),
        ]


@dataclass
class Session:
    """What came of a program: its answers by name, and when keys were removed, by the same clock."""

    answers: dict[str, str] = field(default_factory=dict)
    at_s: dict[str, float] = field(default_factory=dict)
    removed_s: float | None = None
    problems: list[str] = field(default_factory=list)


def run(
    command: list[str], endpoint: str, names: Names, admin: Client, removable: list[str], directory: Path
) -> Session:
    """Run a program from its beginning to its end.

    Args:
        command: what starts it.
        removable: the ids of its two credentials.
        directory: where it works, and what it says is kept.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "logs").mkdir(exist_ok=True)
    words = [*command, endpoint, *names.words]
    with (directory / "stderr").open("wb") as stderr:
        process = subprocess.Popen(
            words, cwd=directory, env=environment_of(directory), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=stderr, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
    session = Session()
    try:
        with (directory / "stdout").open("w") as kept:
            for at_s, line in _lines(process):
                kept.write(f"{line}\n")
                _take(session, at_s, line, names, admin, removable)
        code = process.wait()
        if code:
            said = (directory / "stderr").read_text(errors="replace").strip()
            session.problems.append(f"the program ended with {code}: {said[-600:]}")
    except TimeoutError as error:
        session.problems.append(str(error))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return session


def _lines(process: subprocess.Popen[str]) -> Iterator[tuple[float, str]]:
    """Its lines with the moment at which each came; raises TimeoutError after :data:`LIMIT_S`."""
    lines: queue.Queue[tuple[float, str] | None] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put((time.monotonic(), line.rstrip("\n")))
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            found = lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise TimeoutError(f"the program has not ended after {LIMIT_S:g} s") from None
        if found is None:
            return
        yield found


def _take(session: Session, at_s: float, line: str, names: Names, admin: Client, removable: list[str]) -> None:
    if line == READY:
        for id in removable:
            admin.remove_credential(id)
        session.removed_s = time.monotonic()
        return
    name, separator, answer = line.partition(": ")
    if not separator or not name.replace("-", "").isalpha():
        return  # some clients log to stdout
    if name in session.answers:
        session.problems.append(f"{name} was said twice: {answer}")
    session.answers[name], session.at_s[name] = answer, at_s
    if name == "receive" and answer == DONE and not _is_settled(admin, names):
        session.problems.append(f"what was received was not acknowledged within {SETTLED_S:g} s")


def _is_settled(admin: Client, names: Names) -> bool:
    """Whether the group has settled a message of the topic, by the broker's own word. More are sent meanwhile."""
    topic, group = names.stored
    deadline = time.monotonic() + SETTLED_S
    while time.monotonic() < deadline:
        with suppress(NotFoundError):
            sent = admin.queue_state([topic])[topic][1]
            if admin.group_info(topic, group).lag < sent:
                return True
        time.sleep(0.05)
    return False
