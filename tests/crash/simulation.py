"""One broker through many crashes: a life, drawn from a seed, of producers, consumers, the pipeline and faults.

A life goes from fault to fault. In between its callers schedule, replace and cancel, receive and settle; the pipeline
commits to the store and its upkeep merges and expires files, so that the intake deletes segments; the clock moves. A
fault is one of :data:`FAULTS`. Behind each the broker is opened again, crashing on the way now and then, and what it
then has is compared with what its callers were told (``tools.World``):

- nothing that was acknowledged is lost, and nothing comes early, after its acknowledgement or after its cancellation;
- nothing that a consumer was handed is cancelled, moved or replaced with the answer "done";
- the list of what is pending, and the counts, have exactly that;
- damage is reported as such (``CorruptError``, exit code 4), or it harms nothing.
"""

from __future__ import annotations

import random
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from tarry.base.errors import CorruptError, TarryError
from tarry.spark.broker_client import IntakeState
from tarry.spark.pipeline.compact import Upkeep, in_process
from tarry.spark.pipeline.upkeep import UpkeepSettings
from tarry.store import Store
from tests.crash.power import PowerDisk
from tests.crash.tools import World, crash_at

CRASHES = 25
"""In one life."""
OPERATIONS = 12
"""At most so many between two faults."""
STEPS = 150
"""A crash comes within so many steps of the disk."""
NOT_CHECKED: tuple[str, ...] = ()
TOPICS, KEYS = ("a", "b"), ("k", "l", "m")
DELAYS_MS = ((0, 500), (0, 3_000), (5_000, 60_000), (600_000, 7_200_000))
ADVANCES_S = (0.05, 0.5, 2.0, 2.0, 31.0, 600.0)


@dataclass
class Life:
    """Of one seed, in a directory of its own."""

    seed: int
    directory: Path
    done: Counter[str] = field(default_factory=Counter)
    """What happened how often: faults, operations, and what the files show of them."""
    log: list[str] = field(default_factory=list)
    """The same in order, for a failure."""

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.disk = PowerDisk(self.directory / "data", self.directory / "spare")
        self.world = World(self.directory / "data", files=self.disk)
        self.keys: dict[tuple[str, str], str] = {}
        """Who holds a key, as far as it is known."""

    def run(self, crashes: int = CRASHES) -> Counter[str]:
        """Live; raise what must not be."""
        with self.disk.attached(random.Random(self.seed)):
            try:
                self.world.open()
                for _ in range(crashes):
                    fault = self.rng.choices(list(FAULTS), [weight for weight, _ in FAULTS.values()])[0]
                    self.note(fault)
                    FAULTS[fault][1](self)
                    self.check()
                self.world.drain()
                self.world.b.close()
            except BaseException as error:
                error.add_note(f"seed {self.seed}; the last that happened: {', '.join(self.log[-30:])}")
                raise
            finally:
                self.world.crashed(None)
        return self.done

    def note(self, what: str) -> None:
        self.done[what] += 1
        self.log.append(what)

    # -- faults ------------------------------------------------------------------------------------------------------

    def power_cut(self) -> None:
        """At any step, or behind a few operations; what was not synced is lost, torn or zeroed."""
        self.crash(self.rng)

    def kill(self) -> None:
        """The process is killed, and the machine goes on."""
        self.crash(None)

    def crash(self, losses: random.Random | None) -> None:
        crash_at(self.work, self.disk, self.rng.randint(1, STEPS))
        self.world.crashed(losses)
        self.keys.clear()  # who holds a key that was just replaced is not known
        while crash_at(self.world.open, self.disk, self.rng.choice([None, None, self.rng.randint(1, 20)])):
            self.note("crash in recovery")
            self.world.crashed(losses)
        for _ in range(self.rng.randint(0, 6)):
            # At once: what was handed out and is not in the ready log is loaded in the first step.
            self.note(f"a due message is changed after a crash: {self.world.change_due(self.rng)}")

    def failing_read(self) -> None:
        """A read of the disk fails, in recovery or later: an error, and the next start goes on as if nothing was."""
        self.work()
        self.world.crashed(None)
        self.disk.reads_until_error = self.rng.randint(0, 40)
        try:
            self.world.open()
            self.work()
        except (TarryError, OSError):
            self.note("the read was reported")
        self.disk.reads_until_error = None
        self.world.crashed(None)
        self.keys.clear()
        self.world.open()

    def flipped_byte(self) -> None:
        """A byte of some file changes while the broker is down. It is reported, or it harms nothing."""
        self.work()
        self.world.b.close()
        self.world.crashed(None)
        path, at = self.flip()
        kind = kind_of(path.relative_to(self.world.directory))
        self.note(f"flipped a byte of {kind}: {path.name} at {at}")
        inode, damaged = path.stat().st_ino, path.read_bytes()
        try:
            self.world.open()
            self.check()
            self.work()
            self.check()
        except CorruptError:
            self.note("the damage was reported")
            self.done[f"reported: {kind}"] += 1
        except (TarryError, OSError) as error:
            if not is_of_damage(error):
                raise
            self.note("the damage was reported")
            self.done[f"reported: {kind}"] += 1
        else:
            self.done[f"harmless: {kind}"] += 1
        self.world.crashed(None)
        # It is mended where it is still there: in the same file, or in the copy that stands for what a kill leaves. A
        # broker may have made a file again in its place, a log that had no frame yet.
        left = path.read_bytes() if path.exists() else b""
        in_place = bool(left) and path.stat().st_ino == inode and left[at : at + 1] == damaged[at : at + 1]
        if in_place or left.startswith(damaged):
            flip(path, at)
        self.keys.clear()
        self.world.open()

    def flip(self) -> tuple[Path, int]:
        files: dict[str, list[Path]] = {}
        for path in sorted(self.world.directory.rglob("*")):
            if path.is_file() and path.stat().st_size and path.name not in NOT_CHECKED:
                files.setdefault(kind_of(path.relative_to(self.world.directory)), []).append(path)
        path = self.rng.choice(files[self.rng.choice(sorted(files))])
        at = self.rng.randrange(path.stat().st_size)
        flip(path, at)
        return path, at

    # -- what goes on in between -------------------------------------------------------------------------------------

    def work(self) -> None:
        """Some operations."""
        for _ in range(self.rng.randint(1, OPERATIONS)):
            name = self.rng.choices(list(WORK), [weight for weight, _ in WORK.values()])[0]
            self.note(name)
            WORK[name][1](self)

    def schedule(self) -> None:
        low, high = self.rng.choice(DELAYS_MS)
        delays = [self.rng.randint(low, high) for _ in range(self.rng.randint(1, 30))]
        self.world.schedule(self.rng.choice(TOPICS), delays, body=self.rng.choice([5, 200, 3_000]))

    def schedule_key(self) -> None:
        """A message with a key, or another in its place."""
        topic, key = self.rng.choice(TOPICS), self.rng.choice(KEYS)
        delay = self.rng.randint(5_000, 900_000)
        former = self.keys.pop((topic, key), None)
        if former is not None and former in self.pending():
            self.keys[topic, key] = self.world.replace(topic, key, former, delay)
        elif former is None and not any(name[1] == key for name in self.keys):
            # A key that nobody has held: after a crash it is not known who holds one.
            fresh = f"{key}{len(self.world.due_ms)}"
            [self.keys[topic, fresh]] = self.world.schedule(topic, [delay], key=fresh)

    def replace_key(self) -> None:
        held = [name for name, holder in self.keys.items() if holder in self.pending()]
        if held:
            topic, key = self.rng.choice(held)
            former = self.keys.pop((topic, key))
            self.keys[topic, key] = self.world.replace(topic, key, former, self.rng.randint(5_000, 900_000))

    def cancel(self) -> None:
        pending = sorted(self.pending() - set(self.keys.values()))
        if pending:
            self.world.cancel(self.rng.sample(pending, min(len(pending), self.rng.randint(1, 8))))

    def receive(self) -> None:
        """Some of what is due; most of it is acknowledged."""
        topic = self.rng.choice(TOPICS)
        batch = self.world.receive(topic, self.rng.choice([1, 7, 1000]))
        settled = self.rng.choice([0, batch.num_rows // 2, batch.num_rows, batch.num_rows])
        if settled:
            self.world.ack(topic, batch.slice(0, settled))
        if settled < batch.num_rows and self.rng.random() < 0.5:
            self.world.nack(topic, batch.slice(settled), self.rng.choice([0, 1_000, 20_000]))

    def receive_unwritten(self) -> None:
        """What has just fallen due, handed out before the ready log has it on disk."""
        self.world.clock.advance_ms(self.rng.choice([50, 500, 3_000]))
        parts = self.world.b.components
        parts.loader.step()
        while parts.dispatcher.step():
            pass
        self.receive()

    def advance(self) -> None:
        self.world.b.advance(self.rng.choice(ADVANCES_S))

    def pipeline(self) -> None:
        before = set(self.world.directory.glob("intake/*.log"))
        self.world.b.step()
        self.world.pipeline_commits()
        self.world.b.step()
        self.world.b.checkpoint()
        self.world.b.step()
        self.done["intake segments deleted"] += len(before - set(self.world.directory.glob("intake/*.log")))

    def upkeep(self) -> None:
        store = Store.open(self.world.b.intake_state()["store_uri"])
        settings = UpkeepSettings(file_bytes_max=50_000)
        upkeep = Upkeep(store, _UpkeepClient(self.world), _NoReports(), settings, in_process)  # type: ignore[arg-type]
        while upkeep.round(threading.Event()):
            pass
        self.done.update({f"store: {name}": count for name, count in upkeep.totals.items()})

    def checkpoint(self) -> None:
        self.world.b.checkpoint()

    def restart(self) -> None:
        """A clean stop and start."""
        self.world.reopen()

    # -- what must hold ----------------------------------------------------------------------------------------------

    def pending(self) -> set[str]:
        """What is certainly accepted, not due and not cancelled."""
        w, now = self.world, self.world.clock.now_ms()
        return {i for i in w.accepted - w.perhaps_cancelled if w.due_ms[i] > now}

    def check(self) -> None:
        """The list of what is pending, and the counts, are right."""
        w = self.world
        w.b.step()
        now = w.clock.now_ms()
        certain = self.pending()
        unsure = {i for ids in w.perhaps for i in ids} | (w.perhaps_cancelled - w.cancelled)
        unsure = {i for i in unsure if w.due_ms[i] > now}
        listed: list[str] = []
        cursor = None
        while True:
            page = w.b.list_pending(limit=1000, cursor=cursor)
            listed += page.rows["id"].to_pylist()
            cursor = page.cursor
            if cursor is None:
                break
        assert len(listed) == len(set(listed)), "listed twice"
        assert certain <= set(listed), f"not listed: {sorted(certain - set(listed))[:5]}"
        assert set(listed) <= certain | unsure, f"listed: {sorted(set(listed) - certain - unsure)[:5]}"
        for entry in w.b.pending():
            count = sum(i.startswith(entry.topic) for i in listed)
            assert entry.pending == count, f"{entry.pending} are counted in {entry.topic}, and {count} listed"
            least, most = self.ready(entry.topic)
            assert least <= entry.ready <= most, (
                f"{entry.ready} are ready in {entry.topic}; {least} to {most} should be"
            )

    def ready(self, topic: str) -> tuple[int, int]:
        """How many messages wait for the group, at least and at most."""
        w, now = self.world, self.world.clock.now_ms()
        perhaps = {i for ids in w.perhaps for i in ids}
        due = {
            i for i in (w.accepted | perhaps) - w.cancelled - w.settled if w.due_ms[i] <= now and i.startswith(topic)
        }
        return len(due - perhaps - w.perhaps_cancelled - w.perhaps_settled), len(due)


def flip(path: Path, at: int) -> None:
    """In place: the inode stays."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))


def kind_of(path: Path) -> str:
    """What a file of the data directory is, by its name relative to it."""
    name = path.name
    if path.parts[0] == "registry":
        return f"registry {path.suffix or name.partition('-')[0]}"
    if path.parts[0] == "store":
        return f"store {'log ' if '_delta_log' in path.parts else ''}{path.suffix or name}"
    return f"{path.parts[0]} {path.suffix}" if len(path.parts) > 1 else name


def is_of_damage(error: BaseException | None) -> bool:
    """Whether a CorruptError is what it came of."""
    while error is not None:
        if isinstance(error, CorruptError):
            return True
        error = error.__cause__ or error.__context__
    return False


@dataclass
class _UpkeepClient:
    world: World

    def state(self) -> IntakeState:
        state = self.world.b.intake_state()
        return IntakeState(**{each.name: state[each.name] for each in fields(IntakeState)})

    def store_committed(self) -> None:
        self.world.b.store_committed()


class _NoReports:
    def update(self, **status: Any) -> None:
        pass


Weighted = dict[str, tuple[int, Callable[[Life], None]]]
FAULTS: Weighted = {
    "power cut": (60, Life.power_cut),
    "kill": (15, Life.kill),
    "failing read": (10, Life.failing_read),
    "flipped byte": (15, Life.flipped_byte),
}
WORK: Weighted = {
    "schedule": (8, Life.schedule),
    "schedule with a key": (2, Life.schedule_key),
    "replace": (2, Life.replace_key),
    "cancel": (3, Life.cancel),
    "receive": (6, Life.receive),
    "receive unwritten": (3, Life.receive_unwritten),
    "advance": (5, Life.advance),
    "pipeline": (2, Life.pipeline),
    "upkeep": (1, Life.upkeep),
    "checkpoint": (1, Life.checkpoint),
    "restart": (1, Life.restart),
}


def simulate(seed: int, directory: Path, crashes: int = CRASHES) -> Counter[str]:
    """A life of so many faults; what happened in it. Its directory is removed, also after a failure.

    Raises:
        AssertionError: something does not hold. Anything else: it was not to be raised.
    """
    try:
        return Life(seed, directory).run(crashes)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
