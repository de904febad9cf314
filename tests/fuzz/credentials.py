"""Credentials that no port may take, and good ones that do not reach far enough, drawn from a seed."""

from __future__ import annotations

import base64
import random
import string
from typing import NamedTuple

LONG = (300, 5_000, 70_000)
ALPHABET = string.ascii_letters + string.digits
DATES = ("19990101T000000Z", "20991231T235959Z", "00000000T000000Z", "2026", "", "20261301T250000Z", "x" * 300)
"""Signed dates that are out of bounds, or none."""


class Drawn(NamedTuple):
    """A token as shown, and what is the matter with it."""

    what: str
    token: str | None


def draw_token(admin: str, weak: str, rng: random.Random) -> Drawn:
    """One that is missing, wrong or cut; or ``weak``, which may do nothing that is asked for."""
    match rng.randrange(9):
        case 0:
            return Drawn("missing", None)
        case 1:
            return Drawn("cut", admin[: rng.randrange(len(admin))])
        case 2:
            at = rng.randrange(len(admin))
            other = rng.choice([letter for letter in ALPHABET if letter != admin[at]])
            return Drawn("one letter changed", admin[:at] + other + admin[at + 1 :])
        case 3:
            return Drawn("long", "tarry_" + "x" * rng.choice(LONG))
        case 4:
            return Drawn("doubled", admin + admin)
        case 5:
            return Drawn("base64", base64.b64encode(admin.encode()).decode().rstrip("=") + rng.choice(["", "=", "%"]))
        case 6:
            return Drawn("other case", admin.swapcase())
        case 7:
            return Drawn("nonsense", "".join(rng.choices(string.printable[:94], k=rng.randrange(60))))
        case _:
            return Drawn("too weak", weak)
