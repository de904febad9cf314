"""A broker with identities: an administrator, and one who may use ``orders.*`` as the group ``billing``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tarry.base.config import Config
from tarry.broker import Broker

BILLING = ["produce orders.*", "consume orders.* group:billing", "deny produce orders.cards"]


@dataclass
class Known:
    """A broker, and the tokens of its identities."""

    broker: Broker
    admin: str
    billing: str


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory where a client looks for tokens, with nobody's real files; and no other place that has one."""
    for name in ("TARRY_TOKEN", "TARRY_TOKEN_FILE", "TARRY_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def known(tmp_path: Path) -> Iterator[Known]:
    with opened(tmp_path / "data") as found:
        yield found


@pytest.fixture(scope="module")
def common(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Known]:
    """One broker for all that a module has refused, since nothing of it is kept."""
    with opened(tmp_path_factory.mktemp("common") / "data") as found:
        yield found


@contextmanager
def opened(directory: Path) -> Iterator[Known]:
    with Broker.open(Config(data=directory, pipeline="off", lease_ms=20_000)) as broker:
        broker.set_identity("admin", ["admin"])
        admin = broker.add_credential("admin").secret
        broker.set_identity("billing", BILLING)
        yield Known(broker, admin, broker.add_credential("billing").secret)


def add_access_keys(broker: Broker, grants: Mapping[str, list[str]], secrets: Mapping[str, str]) -> dict[str, str]:
    """Make an administrator, "root", and these identities, each with an access key of its name; the keys' ids."""
    ids = {}
    for name, lines in {"root": ["admin"], **grants}.items():
        broker.set_identity(name, lines)
        if name == "root":
            broker.add_credential(name)  # a key alone would not do: it changes no identities
        ids[name] = broker.add_credential(name, kind="access_key", access_key=name, secret=secrets[name]).id
    return ids
