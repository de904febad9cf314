"""The look of all that Tarry shows in a browser, which the console shares with the pages of reports."""

from __future__ import annotations

from pathlib import Path

LOOK = Path(__file__).parent / "look"
"""The directory of ``colours.css``, which names the colours, light and dark."""
