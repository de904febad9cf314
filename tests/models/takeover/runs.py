"""Runs of the two models, and what each has to find.

A run without a clause of the design has to break the named invariant; a run with all clauses has to see every state and
break none. The number of states is part of what is expected: a model that was changed in its meaning has another one.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

SOURCES = Path(__file__).parent
MODELS = ("log", "lease")
SWITCH = re.compile(r'arguments\.clear\("(without-[\w-]+)"')
VERDICT = re.compile(
    r"^(?P<run>[^:]+): (?P<states>\d+) states, \d+ steps, (?P<verdict>violation|complete|bound reached)[,;]"
)
BROKEN = re.compile(r"^  (I\w+): ", re.MULTILINE)
STUCK = re.compile(r"^  progress: (\d+) states where .*; from (\d+) of", re.MULTILINE)


class Run(NamedTuple):
    """One run. ``verdict``: the invariant that breaks, ``complete``, or ``bound reached``: not all states were seen."""

    model: str
    arguments: str
    states: int
    verdict: str

    @property
    def name(self) -> str:
        return f"{self.model} {self.arguments}".rstrip()

    @property
    def taken_away(self) -> list[str]:
        """The clauses that it does without."""
        return [word for word in self.arguments.split() if word.startswith("without-")]


class Found(NamedTuple):
    """What a run has found. ``stuck``: states without a way to the goal, of a run that looks for them."""

    run: str
    states: int
    verdict: str
    stuck: int | None
    output: str


def clauses(model: str) -> list[str]:
    """Return the switches of a model that take away a clause, as its source has them."""
    return SWITCH.findall((SOURCES / f"{model}.cpp").read_text())


def build(compiler: str, directory: Path) -> None:
    """Build both models into a directory. Raises CalledProcessError."""
    for model in MODELS:
        source, program = SOURCES / f"{model}.cpp", directory / model
        subprocess.run([compiler, "-O2", "-std=c++17", "-Wall", "-Wextra", "-o", program, source], check=True)


def execute(run: Run, directory: Path, memory_bytes_max: int) -> Found:
    """Carry out a run of the models that were built there, in so much memory.

    Raises:
        RuntimeError: it ended without a verdict; the memory did not suffice, or a switch is unknown.
    """
    limited = f'ulimit -v {memory_bytes_max >> 10} && exec "$@"'
    command = ["sh", "-c", limited, "sh", str(directory / run.model), *run.arguments.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = VERDICT.match(done.stdout)
    if found is None:
        raise RuntimeError(f"{run.name} ended with {done.returncode} and no verdict: {done.stdout}{done.stderr}")
    broken, progress = BROKEN.search(done.stdout), STUCK.search(done.stdout)
    goals, stuck = map(int, progress.groups()) if progress else (0, 0)
    if progress and not goals:
        raise RuntimeError(f"{run.name}: no state has what it looks for, so none could be stuck")
    verdict = broken[1] if broken else found["verdict"]
    return Found(found["run"], int(found["states"]), verdict, stuck if progress else None, done.stdout)


def faults(run: Run, found: Found) -> list[str]:
    """Return what of a run is not as it has to be."""
    asks_progress = "progress" in run.arguments.split()
    compared = [
        ("run", found.run, run.name),
        ("verdict", found.verdict, run.verdict),
        ("states", found.states, run.states),
        ("states without a way on", found.stuck, 0 if asks_progress else None),
    ]
    return [f"{what}: {is_} instead of {due}" for what, is_, due in compared if is_ != due]


def _table(text: str) -> tuple[Run, ...]:
    """Return the runs of a table: model and switches, states, verdict."""
    runs = []
    for line in text.strip().splitlines():
        if not line.startswith("#"):
            words, states, verdict = (each.strip() for each in line.split("|"))
            model, *switches = words.split()
            runs.append(Run(model, " ".join(switches), int(states), verdict))
    return tuple(runs)


CHANGED = "no-released no-acks no-delivered"
"""Nothing but hand-outs, cancels and moves."""
CANCELS = f"no-moves {CHANGED}"
"""Nothing but hand-outs and cancels."""

WITHOUT_ONE = _table(f"""
log without-consecutive-epochs no-trim no-standby | 2648 | I1a
log without-keeping-epochs no-trim no-standby | 6769 | I1a
log without-keeping-ends no-standby | 42099 | I1c
log without-looking-after-the-put no-trim no-standby | 4676 | I1a
log without-all-before no-trim no-standby | 2994 | I1a
log without-new-gets no-trim | 5309 | I1a
log without-list-after-404 no-standby | 5554 | I1a
log without-list-after-404 no-standby rounds=111 copies=1 | 1089 | I1a
log without-giving-up-beyond-the-end no-trim | 18884 | I1c
log without-reading-up-to-the-end no-trim no-standby | 9144 | I1c
log without-answered-bases no-standby | 804 | I1e
lease without-log-clock-bound owners=2 rounds=220 due=4 clock-steps {CANCELS} | 13333 | I3
lease without-clocks-of-before rounds=112 due=3 first_offset=2 offsets=1 {CANCELS} | 17109 | I3
lease without-answered-reasons owners=2 rounds=220 due=6 offsets=1 {CHANGED} | 6872 | I3
lease without-answered-reasons owners=2 rounds=230 due=2 new-message {CANCELS} | 74226 | I3
lease without-wait-of-acks owners=2 rounds=220 due=2 | 124202 | I5
lease without-wait-of-released rounds=111 due=2 no-moves no-acks no-cancels | 119026 | I2
lease without-floor owners=2 rounds=220 due=2 offsets=1 {CANCELS} | 3579 | I3
# The bound by the log's clock needs an answered round of one's own epoch as well.
lease without-answered-lease without-log-clock-bound rounds=211 due=2 no-moves no-acks no-cancels | 90909 | I2
lease without-lease-from-the-put owners=2 rounds=320 due=2 no-moves no-released no-cancels | 347502 | I2
lease without-lease owners=2 rounds=220 due=2 | 97291 | I2
# Clocks that do not run alike, where the wait has no margin; and what the design leaves over.
lease owners=2 rounds=220 due=2 drift=1 no-moves no-released no-acks no-cancels | 11417 | I2
lease owners=2 rounds=220 due=2 stops-before-send {CANCELS} | 47152 | I2
""")
"""A violation for each clause; all others hold, but where a comment says why not."""

DONE = "unchecked-I2 unchecked-I5"
"""Without a lease two owners may hand out the same, and after an acknowledgement; "done" holds all the same."""

COMPLETE = _table(f"""
log no-standby rounds=111 copies=1 progress | 73264 | complete
log rounds=111 copies=1 progress | 83456 | complete
log no-trim | 313877 | complete
log rounds=111 copies=2 | 426828 | complete
log rounds=211 copies=1 | 994622 | complete
log without-answered-bases bases-checked-by-readers no-standby rounds=111 copies=1 | 506271 | complete
lease owners=2 rounds=220 due=2 | 761630 | complete
lease owners=2 rounds=220 due=4 clock-steps | 1224812 | complete
lease owners=2 rounds=230 due=2 new-message no-moves no-released no-acks | 1219203 | complete
lease rounds=112 due=3 first_offset=2 offsets=1 no-released no-acks | 355277 | complete
lease rounds=111 due=2 no-moves no-acks | 273705 | complete
lease owners=2 rounds=320 due=2 drift=1 margin=1 no-moves no-released no-acks no-cancels | 358286 | complete
lease owners=2 rounds=220 due=2 without-lease {DONE} | 864044 | complete
lease owners=2 rounds=220 due=2 stops-before-send {DONE} | 1896860 | complete
""")
"""No violation, all states."""

CHANGES = "changes-wait changes-need-lease"
"""Changes wait for former leases, and need one. The design asks for neither; an older form of it did."""


def _older(*with_them: str) -> str:
    """Return the switches of an older form of the design, which lacked five clauses, with some of them added."""
    lacking = ("log-clock-bound", "clocks-of-before", "answered-reasons", "wait-of-acks", "wait-of-released")
    return " ".join([*(f"without-{each}" for each in lacking if each not in with_them), CHANGES])


OLDER = _older()
BOUNDED, CLOCKED, REASONED = _older("log-clock-bound"), _older("clocks-of-before"), _older("answered-reasons")
ACKS_WAIT, RELEASED_WAITS = _older("wait-of-acks"), _older("wait-of-released")
ACKS_ALONE = "unchecked-I2 unchecked-I3 unchecked-I4 unchecked-I6"

LONG = _table(f"""
log no-standby | 8683030 | complete
log | 9519646 | complete
log rounds=311 copies=1 | 8730078 | complete
log no-standby rounds=221 copies=1 | 7103692 | complete
log no-standby no-trim rounds=321 copies=1 | 644540 | complete
# One clause is needed, and enough, against the violation that it is there for.
lease {OLDER} owners=2 rounds=320 due=2 {ACKS_ALONE} | 379437 | I5
lease {ACKS_WAIT} owners=2 rounds=320 due=2 {ACKS_ALONE} | 7391977 | complete
lease {OLDER} owners=2 rounds=220 due=6 offsets=1 {CHANGED} | 26065 | I3
lease {REASONED} owners=2 rounds=320 due=6 offsets=1 {CHANGED} | 268554 | complete
lease {OLDER} owners=2 rounds=230 due=2 new-message {CANCELS} | 275520 | I3
lease {REASONED} owners=2 rounds=330 due=2 new-message {CANCELS} | 3778545 | complete
lease {OLDER} owners=2 rounds=220 due=4 clock-steps {CANCELS} | 111227 | I3
lease {BOUNDED} owners=2 rounds=320 due=4 clock-steps {CANCELS} | 1157856 | complete
lease {OLDER} rounds=112 due=3 first_offset=2 offsets=1 {CANCELS} | 55268 | I3
lease {CLOCKED} rounds=112 due=3 first_offset=2 offsets=1 {CANCELS} | 60361 | complete
lease {OLDER} rounds=111 due=2 no-moves no-acks no-cancels | 119527 | I2
lease {RELEASED_WAITS} rounds=221 due=2 no-moves no-acks no-delivered | 8535769 | complete
lease {OLDER} owners=2 rounds=220 due=2 drift=1 no-moves no-released no-acks no-cancels | 11417 | I2
lease {OLDER} owners=2 rounds=320 due=2 drift=1 margin=1 no-moves no-released no-acks no-cancels | 358286 | complete
lease {OLDER} without-floor owners=2 rounds=220 due=2 offsets=1 {CANCELS} | 34028 | I3
lease {RELEASED_WAITS} without-answered-lease rounds=211 due=2 no-moves no-acks no-cancels | 90909 | I2
lease {CHANGES} without-lease-from-the-put owners=2 rounds=320 due=2 no-moves no-released no-cancels | 347502 | I2
# All clauses.
lease {CHANGES} owners=2 rounds=320 | 2822577 | complete
lease {CHANGES} owners=2 rounds=320 due=2 | 6431075 | complete
lease {CHANGES} owners=2 rounds=320 due=4 clock-steps | 9824932 | complete
lease {CHANGES} rounds=211 | 2304510 | complete
lease {CHANGES} rounds=221 offsets=1 | 3214986 | complete
lease {CHANGES} rounds=221 due=2 no-acks | 25000001 | bound reached
lease {CHANGES} owners=2 rounds=330 due=2 new-message no-moves no-acks no-delivered | 8403382 | complete
lease {CHANGES} owners=2 rounds=220 due=2 stops-before-send {CANCELS} | 44048 | I2
lease {CHANGES} owners=2 rounds=320 due=2 stops-before-send no-released {DONE} | 12193379 | complete
# As the design is, where changes wait for no lease; and without any lease, what "done" rests on.
lease owners=2 rounds=320 due=2 no-released | 5847811 | complete
lease owners=2 rounds=320 due=2 without-lease no-released {DONE} | 7030520 | complete
lease owners=2 rounds=320 due=4 clock-steps without-lease no-released {DONE} | 12100087 | complete
lease rounds=221 due=2 first_offset=2 offsets=1 without-lease no-released {DONE} | 12286862 | complete
lease owners=2 rounds=320 due=4 without-lease without-log-clock-bound {DONE} {CHANGED} | 96656 | I3
""")
"""Runs of minutes, of up to 4 GiB: ``make models``."""
