"""Small files of the front's own state: replaced whole, so that a crash leaves the former or the new one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def replace_json(path: Path, content: Any) -> None:
    """Write a file, durably when it returns. It waits for the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    with fresh.open("w") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
