"""The image's file tree: packages of Debian, as ``dpkg-query`` prints them. ``test_image.py`` builds it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.modules import module_at
from tests.sources import ROOT


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Any:
    place = ROOT / "container"
    monkeypatch.syspath_prepend(str(place))
    return module_at(place / "root.py")


def test_diversions_are_no_packages(root: Any) -> None:
    """Debian 13 has one for the loader, Debian 12 none."""
    listing = (
        "diversion by libc6 from: /lib64/ld-linux-x86-64.so.2\n"
        "diversion by libc6 to: /lib64/ld-linux-x86-64.so.2.usr-is-merged\n"
        "libc6:amd64: /usr/lib64/ld-linux-x86-64.so.2\n"
        "libssl3t64:amd64, openssl: /usr/lib/ssl\n"
    )
    assert root.owners(listing) == {"libc6:amd64", "libssl3t64:amd64", "openssl"}
