"""A broker with identities in a process of its own, what strangers must not see or change there, and whose calls go
on meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import httpx

from tarry.client import Client
from tests.fuzz.served import ServedBroker

CANARY = "what-no-stranger-may-read"
"""The body of a message of another topic: an answer with it needed a right."""
SECRET_TOPIC = "secret.pay"
WEAK_KEY = ("weak-key", "a-secret-of-weak")
ADMIN_KEY = ("admin-key", "a-secret-of-admin")
WEAK = ("produce weak.*",)
ANONYMOUS = ("produce weak.*",)
MEMORY_MB_MAX = 64
"""By which a broker's memory may grow after it has warmed up."""
CONNECTIONS_SPARE = 32
"""Descriptors beyond those of the start: those of the good callers, and of files."""
GIVE_BACK_S = 60.0


class DoorTarget:
    """Use it in a ``with`` block. Identities: "admin", and "weak", which may produce to ``weak.*`` alone."""

    def __init__(self, directory: Path, weak: Sequence[str] = WEAK, anonymous: Sequence[str] = ()) -> None:
        """``weak``: other grants, to see that this finds what it looks for; ``anonymous``: of who shows nothing."""
        self._weak, self._anonymous = list(weak), list(anonymous)
        self._broker = ServedBroker(directory)
        self.address, self.ports = self._broker.address, self._broker.ports
        try:
            self._make_identities()
        except BaseException:
            self._broker.close()
            raise
        self._memory_mb: int | None = None
        self._descriptors = self._count_descriptors()

    def _make_identities(self) -> None:
        with Client(self.address("link")) as first:
            first.schedule(SECRET_TOPIC, CANARY, delay="30d", key="pay")
            first.schedule(SECRET_TOPIC, CANARY, delay=0)
            first.set_identity("admin", ["admin"])
            self.admin = first.add_credential("admin").secret
        self._client = Client(self.address("link"), token=self.admin)
        self._client.add_credential("admin", kind="access_key", access_key=ADMIN_KEY[0], secret=ADMIN_KEY[1])
        self._client.set_identity("weak", self._weak)
        self.weak = self._client.add_credential("weak").secret
        self._client.add_credential("weak", kind="access_key", access_key=WEAK_KEY[0], secret=WEAK_KEY[1])
        if self._anonymous:
            self._client.set_identity("anonymous", self._anonymous)
        self._before = self._state()

    def _state(self) -> object:
        """What a stranger could change: who is known, what is pending there, and its groups."""
        known = [(i.name, i.grants, len(i.credentials)) for i in self._client.list_identities()]
        pending = [row for row in self._client.pending(next_due=False) if row.topic == SECRET_TOPIC]
        groups = sorted((g.topic, g.group) for g in self._client.groups() if g.group != "good")
        return known, pending, groups, [token.id for token in self._client.tokens()]

    def check(self) -> None:
        """The broker lives and its log has no bug; others' calls go on; nothing was changed; memory is as it was."""
        self._broker.check(self._client)
        headers = {"authorization": f"Bearer {self.weak}"}
        answer = httpx.get(f"http://{self.address('http')}/v1/ping", headers=headers, timeout=30)
        assert answer.status_code == 200, answer.text
        state = self._state()
        assert state == self._before, f"a stranger has changed something: {self._before} became {state}"
        text = self._broker.log()
        shown = next((s for s in (self.admin, self.weak, WEAK_KEY[1], ADMIN_KEY[1]) if s in text), None)
        assert shown is None, f"a secret is in the broker's log:\n{self._broker.tail()}"

    def check_memory(self) -> None:
        """Memory is within :data:`MEMORY_MB_MAX` of what it was at the first call of this."""
        resident = self.memory_mb()
        if self._memory_mb is None:
            self._memory_mb = resident
        assert resident <= self._memory_mb + MEMORY_MB_MAX, f"memory went from {self._memory_mb} to {resident} MB"

    def check_given_back(self) -> None:
        """Descriptors come back to those of the start, within what a half request may take to be cut off."""
        end = time.monotonic() + GIVE_BACK_S
        while (now := self._count_descriptors()) > self._descriptors + CONNECTIONS_SPARE:
            assert time.monotonic() < end, f"{self._descriptors} descriptors at the start, {now} at the end"
            time.sleep(0.1)

    def memory_mb(self) -> int:
        text = Path(f"/proc/{self._broker.process.pid}/status").read_text()
        return int(text.partition("VmRSS:")[2].split()[0]) // 1024

    def memory_text(self) -> str:
        return f"{self._memory_mb or self.memory_mb()} MB when warm, {self.memory_mb()} MB at the end"

    def _count_descriptors(self) -> int:
        return sum(1 for _ in Path(f"/proc/{self._broker.process.pid}/fd").iterdir())

    def __enter__(self) -> DoorTarget:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._broker.end()
