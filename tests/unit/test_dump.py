"""``dump_file`` on sound and on damaged files: it shows what there is, and never stumbles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.base.errors import NotFoundError
from tarry.broker.dump import dump_file
from tarry.log import frame
from tarry.log.frame import LogKind
from tarry.testing import open_broker


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dump")
    with open_broker(path) as broker:
        for k in range(5):
            broker.schedule("orders", b"body %d" % k, delay=k, id=f"m{k}", properties={"n": str(k)})
        broker.advance(10)
        batch = broker.receive("orders", "billing", max_messages=2)
        broker.ack("orders", "billing", batch["lease"].to_numpy(), batch["offset"].to_numpy())
    return path


def log(directory: Path, name: str) -> Path:
    return directory / name / f"{0:020d}.log"


def what(path: Path, kind: str, **options: bool) -> list[dict[str, Any]]:
    return [e for e in dump_file(path, **options) if e["what"] == kind]


def test_the_intake(directory: Path) -> None:
    path = log(directory, "intake")
    [file] = what(path, "file")
    assert file == {"what": "file", "path": str(path), "bytes": path.stat().st_size, "room": "intake", "base": 0}
    assert [f["base"] for f in what(path, "frame")] == [0, 1, 2, 3, 4]
    rows = what(path, "row")
    assert [(r["seq"], r["id"], r["body"], r["properties"]) for r in rows] == [
        (k, f"m{k}", b"body %d" % k, [("n", str(k))]) for k in range(5)
    ]
    assert what(path, "row", rows=False) == []
    assert what(path, "damage") == []


def test_the_ready_log_and_the_journal(directory: Path) -> None:
    ready = log(directory, "ready")
    assert {f["topic"] for f in what(ready, "frame")} == {"orders"}
    assert [r["id"] for r in what(ready, "row")] == [f"m{k}" for k in range(5)]
    acks = log(directory, "acks")
    assert what(acks, "file")[0]["room"] == "acks"
    assert [(r["group"], r["op"], r["first"], r["last"]) for r in what(acks, "row")] == [
        ("billing", 0, 0, 0),
        ("billing", 1, 0, 2),
    ]


def test_reading_goes_on_behind_damage(directory: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    content = bytearray(log(directory, "intake").read_bytes())
    frames = what(log(directory, "intake"), "frame")
    content[frames[1]["offset"] + 5] ^= 1  # a header
    content[frames[3]["offset"] + 100] ^= 1  # a body
    path.write_bytes(content)
    damage = what(path, "damage")
    assert [(d["offset"], d.get("next_frame")) for d in damage] == [
        (frames[1]["offset"], frames[2]["offset"]),
        (frames[3]["offset"], None),
    ]
    assert [r["id"] for r in what(path, "row")] == ["m0", "m2", "m4"]


def test_a_torn_tail(directory: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    content = log(directory, "intake").read_bytes()
    path.write_bytes(content[:-50])
    [damage] = what(path, "damage")
    assert damage["offset"] == what(log(directory, "intake"), "frame")[-1]["offset"]
    assert damage["next_frame"] is None
    assert len(what(path, "row")) == 4


@pytest.mark.parametrize("content", [b"", b"short", b"\xa5" * 1000], ids=["empty", "short", "noise"])
def test_what_is_no_log(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(content)
    assert what(path, "damage")[0] == {"what": "damage", "offset": 0, "reason": "no valid file header"}
    assert what(path, "file")[0]["room"] is None


@pytest.mark.parametrize(("version", "kind", "says"), [(2, LogKind.INTAKE, "version 2"), (1, 9, "kind 9")])
def test_a_log_of_another_program(version: int, kind: int, says: str, directory: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    head = frame.struct.pack("<8sIIqI", frame.FILE_MAGIC, version, kind, 0, 0)
    head += frame.struct.pack("<I", frame.zlib.crc32(head))
    path.write_bytes(head + log(directory, "intake").read_bytes()[32:])
    assert says in what(path, "damage")[0]["reason"]
    assert len(what(path, "frame")) == 5, "frames are shown all the same, without their rows"


def test_frames_of_another_kind_of_log(directory: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(frame.encode_file_header(LogKind.INTAKE, 0) + log(directory, "acks").read_bytes()[32:])
    assert "holds no record batch of the expected schema" in what(path, "damage")[0]["reason"]


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such file"):
        list(dump_file(tmp_path / "none"))
    with pytest.raises(NotFoundError):
        list(dump_file(tmp_path))


@settings(max_examples=80)
@given(st.data())
def test_it_never_raises_for_what_is_in_a_file(directory: Path, data: st.DataObject) -> None:
    content = bytearray(log(directory, data.draw(st.sampled_from(["intake", "ready", "acks"]))).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] ^= data.draw(st.integers(1, 255))
    content = content[: data.draw(st.integers(0, len(content)))]
    path = directory / "changed.log"
    path.write_bytes(content)
    assert next(e["what"] for e in dump_file(path)) == "file"
