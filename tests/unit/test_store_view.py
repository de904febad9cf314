"""The store as the broker reads it: the first message that is due from a place on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.crash.tools import World, damage

from tarry.base.types import Key
from tarry.broker import store_view
from tarry.broker.store_view import View

HOUR_MS = 3_600_000


@pytest.fixture
def view(tmp_path: Path) -> View:
    """Of a store with two messages, due in one hour and in two."""
    w = World(tmp_path / "data")
    w.open()
    w.schedule("a", [HOUR_MS, 2 * HOUR_MS])
    w.pipeline_commits()
    w.b.step()
    found = w.b.components.loader.view
    w.b.close()
    assert isinstance(found, View)
    return found


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Key]:
    """The places from which files were read."""
    places: list[Key] = []
    read = store_view.read_window

    def noted(snapshot: Any, after: Key, *arguments: Any, **more: Any) -> Any:
        places.append(after)
        return read(snapshot, after, *arguments, **more)

    monkeypatch.setattr(store_view, "read_window", noted)
    return places


def test_it_is_read_again_once_it_is_passed(view: View, reads: list[Key]) -> None:
    start, first = Key(0, 0), view.first_due_ms(Key(0, 0))
    assert first is not None
    second = first + HOUR_MS
    for after, expected in (
        *((start, first), (Key(first - 1, 9), first), (Key(first, 0), first)),
        *((Key(first, 1), second), (Key(second, 1), second)),
        *((Key(second, 2), None), (Key(second + 1, 0), None)),
        (start, first),  # what lies before is another question
    ):
        assert view.first_due_ms(after) == expected, after
    assert reads == [start, Key(first, 1), Key(second, 2), start]


def test_what_could_not_be_read_is_looked_at_again(view: View, reads: list[Key]) -> None:
    [path] = view.snapshot.files.path
    file = Path(view.snapshot.root) / path
    sound = file.read_bytes()
    damage(file, -6)
    assert view.first_due_ms(Key(0, 0)) is None
    file.write_bytes(sound)
    assert view.first_due_ms(Key(0, 0)) is not None
    assert len(reads) == 2
