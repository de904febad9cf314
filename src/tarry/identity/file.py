"""Looks into a data directory for identities, before a broker opens it."""

from __future__ import annotations

import json
from pathlib import Path

FILE = "identities.json"
VERSION = 1


def asks_callers(data: Path) -> bool:
    """Return whether a broker of this directory will ask callers: an identity has a credential.

    A damaged file is for the broker to refuse; here it counts as one with identities.
    """
    try:
        content = json.loads((data / FILE).read_text())
        return any(identity["credentials"] for identity in content["identities"])
    except FileNotFoundError:
        return False
    except (OSError, ValueError, KeyError, TypeError):
        return True
