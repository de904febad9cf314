"""Debian's Chromium, driven by playwright, which brings none of its own."""

from __future__ import annotations

import os
import shutil

from playwright.sync_api import Browser, Playwright


def found() -> str | None:
    """Where Chromium is; None: it is not installed. ``CHROMIUM`` in the environment names another."""
    return os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


def launch(playwright: Playwright) -> Browser:
    """A browser without a window."""
    # As root, and in containers, Chromium's own sandbox cannot be made.
    return playwright.chromium.launch(executable_path=found(), args=["--no-sandbox", "--disable-dev-shm-usage"])
