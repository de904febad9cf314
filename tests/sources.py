"""Where the sources of this repository's distributions are, for processes with an environment of their own."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE_ROOTS = [ROOT / "src", *sorted(ROOT.glob("packages/*/src"))]
"""Of ``tarry``, and of each distribution beside it."""
PYTHON_PATH = os.pathsep.join(map(str, [*SOURCE_ROOTS, ROOT]))
"""All of them, and the tests' own modules."""
