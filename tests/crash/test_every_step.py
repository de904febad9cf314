"""A crash at every single step between append, fsync, commit, snapshot, load, ready append and acknowledgement.

Each scenario runs once to count its steps (writes, syncs, replacements and removals, before and after each), and then
again for each step with a crash there, for each of the ways in which a crash loses what was not synced. Recovery is
crashed as well, at each of its steps in turn over the runs. ``make test`` takes a sample of the steps.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tarry.broker.verification import plan_checks
from tarry.verify import Finding
from tests.crash.tools import LOSSES, PARTS, KeepNothing, World, crash_at, steps_of

SETTINGS = {"horizon_ms": 2_000}


def accepts(w: World) -> None:
    """Batches of many sizes, into several segments; some due at once, some within the horizon, some after it."""
    w.schedule("a", [0])
    w.schedule("a", [0, 1500, 90_000], body=500)
    w.schedule("b", [0, 700, 3000] * 25)
    w.schedule("b", [10] * 40, body=200)
    w.b.step()
    w.schedule("a", [-5000, 700], body=3000)


def delivers(w: World) -> None:
    """Due rows become ready, over several ready segments; acknowledged, given back, or held."""
    w.schedule("a", [300 * (i // 10) for i in range(40)], body=150)
    w.schedule("b", [5, 5, 5, 800, 60_000], body=2000)
    w.b.advance(0.9)
    batch = w.receive("a", 4)
    w.ack("a", batch.slice(0, 2))
    w.nack("a", batch.slice(2), 300)
    w.ack("b", w.receive("b", 2))
    w.b.advance(2)
    w.ack("a", w.receive("a"))
    w.receive("b")
    w.b.checkpoint()


def acknowledges(w: World) -> None:
    """Many small acknowledgements with gaps: the journal rolls, and each new file begins with a snapshot."""
    w.schedule("a", [0] * 30)
    w.b.step()
    held = w.receive("a")
    for i in range(0, 28, 4):
        w.ack("a", held.slice(i, 1))
        w.nack("a", held.slice(i + 1, 1), 10_000)
    w.ack("a", held.slice(2, 1))


def moves_to_the_store(w: World) -> None:
    """The pipeline commits; what is in the store and what has fired is deleted; the rest comes from the store."""
    w.schedule("a", [50, 3_000, 10_000, 50_000], body=3000)
    w.schedule("a", [60, 3_100, 10_100, 50_100], body=3000)
    w.schedule("b", [0, 20_000], body=3000)
    w.b.advance(0.1)
    w.pipeline_commits()
    w.b.step()
    w.b.advance(4)
    w.ack("a", w.receive("a", 3))
    w.b.advance(8)
    w.ack("b", w.receive("b"))
    w.b.checkpoint()
    w.b.step()


def stops_and_starts(w: World) -> None:
    """A clean stop in the middle, twice, with a clock that was set back while it was down."""
    w.schedule("a", [0, 10, 5_000], body=3000)
    w.b.advance(0.02)
    w.ack("a", w.receive("a", 1))
    w.reopen()
    w.schedule("b", [0, 20], body=3000)
    w.b.advance(0.05)
    w.clock.advance_ms(-40)
    w.reopen()
    w.b.step()
    w.receive("b")


def changes(w: World) -> None:
    """Cancelled in the wheel, the intake and the store; replaced by key, twice; a series goes on beside it."""
    first = w.schedule("a", [500, 500, 5_000, 5_000, 50_000, 50_000], body=1500)
    [k] = w.schedule("a", [40_000], key="k")
    w.b.step()
    w.cancel(first[::2])
    found = w.b.find_key("a", "k")
    assert found is not None
    k = w.replace("a", "k", k, 30_000, if_seq=found.seq)
    w.pipeline_commits()
    w.b.advance(1)
    w.ack("a", w.receive("a", 1))
    w.schedule("b", [0, 60_000], body=3000)
    w.replace("a", "k", k, 45_000)
    w.cancel(first[5:6])
    w.pipeline_commits()
    w.b.step()
    w.b.checkpoint()


def keeps_small_files(w: World) -> None:
    """Files that are there once somebody needs them: a crash between a file and the checkpoint is no loss of it."""
    w.schedule("a", [0, 5_000])
    w.b.step()
    w.b.set_group("a", "g", tries=7)
    w.b.step()
    w.b.create_token("everything")
    w.b.front_state("positions").write({"groups": []})
    w.b.checkpoint()
    w.b.set_push("s", topic="p", url="https://example.com/")
    w.reopen()
    w.b.set_topic("a", declared=True)
    w.b.front_state("positions").write({"groups": [], "resets": {}})
    w.b.checkpoint()


EVERY = {"nothing": 1, "part": 2, "all": 5}
"""A killed process finds all that it wrote, so that many steps leave the same behind."""
SCENARIOS: list[Callable[[World], None]] = [
    accepts,
    delivers,
    acknowledges,
    moves_to_the_store,
    stops_and_starts,
    changes,
    keeps_small_files,
]


def damage_in(directory: Path) -> list[Finding]:
    """What `tarry verify` would say of it."""
    checks = plan_checks(directory, str(directory / "store"))
    return [each for check in checks for each in check.run(lambda _: None) if isinstance(each, Finding)]


def survives(directory: Path, scenario: Callable[[World], None], step: int | None, loss: str, recovery: int) -> int:
    """Run it, crash it, recover it (perhaps crashing again), check it, open it once more. The steps of a whole run."""
    w = World(directory, settings=SETTINGS)

    def work() -> None:
        w.open()
        scenario(w)

    crashed = crash_at(work, w.files, step)
    steps = w.files.steps
    w.crashed(LOSSES[loss](step or 0))
    assert damage_in(directory) == [], "what a crash leaves is no damage"
    if crashed and crash_at(w.open, w.files, recovery):
        w.crashed(LOSSES[loss](recovery))
    if w.broker is None:
        w.open()
    # What it now shows must be durable, also what the first crash left in no more than the system's memory.
    w.b.step()
    for topic in w.topics:
        w.receive(topic)
    w.crashed(KeepNothing())
    # Opening once more changes nothing: what recovery did is durable, or is done again in the same way.
    w.open()
    for topic in sorted(w.topics):
        w.schedule(topic, [0, 40])
    w.drain()
    w.reopen()
    assert all(w.receive(t).num_rows == 0 for t in w.topics), "delivered again after a clean stop"
    w.b.close()
    return steps


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.__name__)
def test_a_crash_at_every_step(scenario: Callable[[World], None], loss: str, part: str, fast_path: Path) -> None:
    whole = survives(fast_path / "whole", scenario, None, loss, 0)
    assert whole > 20
    for step in steps_of(part, range(1, whole + 1, EVERY[loss]), scenario.__name__ + loss):
        try:
            survives(fast_path / str(step), scenario, step, loss, 1 + step % 7)
        except BaseException as error:
            error.add_note(f"crashed at step {step} of {whole}, keeping {loss}")
            raise
