"""What all pages share that Tarry shows in a browser: the console's, and those of reports."""

from __future__ import annotations

from pathlib import Path

LOOK = Path(__file__).parent / "look"
"""The directory of ``colours.css``, which names the colours, light and dark."""
