"""The stored table of a sealed segment of the ready log: what of it is damaged is never used."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tarry.queue.frame_table import SUFFIX, FrameEntry, load_frames, read_frames, store_frames

FRAMES = [FrameEntry(f"topic-{i}", 10 * i, 10, 32 + 100 * i, i, i + 5, 0) for i in range(4)]

FLIPS = [0xFF, *(1 << bit for bit in range(8))]


def test_no_flipped_byte_is_taken_for_truth(tmp_path: Path) -> None:
    log_path = tmp_path / "1.log"
    log_path.write_bytes(bytes(432))
    store_frames(log_path, FRAMES)
    assert read_frames(log_path) == FRAMES
    table_path = log_path.with_suffix(SUFFIX)
    content = table_path.read_bytes()
    for at in range(len(content)):
        # All bits, and any one of them: a column's type is one byte, too, and another type reads well.
        for flipped in (content[at] ^ bits for bits in FLIPS):
            table_path.write_bytes(content[:at] + bytes([flipped]) + content[at + 1 :])
            assert read_frames(log_path) is None


def test_a_table_of_an_older_version_is_read(tmp_path: Path) -> None:
    """It is an Arrow file alone."""
    log_path = tmp_path / "1.log"
    log_path.write_bytes(bytes(432))
    store_frames(log_path, FRAMES)
    path = log_path.with_suffix(SUFFIX)
    content = path.read_bytes()
    arrow = content[:-12]
    assert pa.ipc.open_file(pa.BufferReader(arrow)).read_all().num_rows == len(FRAMES)
    path.write_bytes(arrow)
    assert load_frames(log_path) == FRAMES
    assert path.read_bytes() == arrow, "it stays as it is"
    path.write_bytes(arrow.replace(b"topic-2", b"topic-9"))
    assert read_frames(log_path) is None
