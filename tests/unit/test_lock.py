"""What `make setup` installs is locked: the lock and what is declared agree, for each Python that is supported."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from tests.audit import HOLES, NONE, UNKNOWN, judge, write
from tests.sources import ROOT

LOCKS = ROOT / "requirements"
PLACES = [ROOT, *sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))]
DECLARED = {place.name: tomllib.loads((place / "pyproject.toml").read_text()) for place in PLACES}
OURS = {each["project"]["name"] for each in DECLARED.values()}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
APART = {"spark43"}
"""Extras that stand in the place of another, and are not in the lock beside it."""
PINNED = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ;]+)(?: ; (?P<marker>.+?))? \\")


def locked(name: str) -> Iterator[tuple[Requirement, Version, int]]:
    """Each line of a lock: the requirement, its version, and its number of hashes."""
    for block in re.split(r"\n(?=\S)", (LOCKS / name).read_text().rstrip()):
        head, *hashes = block.splitlines()
        if head.startswith("#"):
            assert not hashes
            continue
        found = PINNED.fullmatch(head)
        assert found, head
        assert all(re.fullmatch(r" {4}--hash=sha256:[0-9a-f]{64}( \\)?", line) for line in hashes), block
        yield Requirement(head.removesuffix(" \\")), Version(found["version"]), len(hashes)


def versions(name: str, python: str) -> dict[str, Version]:
    """What a lock has for one Python on this platform."""
    environment = {**default_environment(), "python_version": python, "python_full_version": f"{python}.0"}
    found: dict[str, Version] = {}
    for requirement, version, _ in locked(name):
        if requirement.marker is None or requirement.marker.evaluate(environment):
            assert canonicalize_name(requirement.name) not in found, requirement
            found[canonicalize_name(requirement.name)] = version
    return found


def declared(python: str) -> Iterator[tuple[str, Requirement]]:
    """What `make setup` has to install: dependencies, all extras but those apart, and what builds."""
    for name, each in DECLARED.items():
        extras = each["project"].get("optional-dependencies", {})
        for texts in (
            each["project"]["dependencies"],
            each["build-system"]["requires"],
            *(extras[extra] for extra in extras.keys() - APART),
        ):
            for requirement in map(Requirement, texts):
                if requirement.name not in OURS and (
                    requirement.marker is None or requirement.marker.evaluate({"python_version": python})
                ):
                    yield name, requirement


@pytest.mark.parametrize("python", PYTHONS)
def test_each_dependency_is_locked_at_a_version_that_is_allowed(python: str) -> None:
    found = versions("dev.lock", python)
    for place, requirement in declared(python):
        version = found.get(canonicalize_name(requirement.name))
        assert version is not None, f"{place}: {requirement} is not in requirements/dev.lock: make lock"
        assert requirement.specifier.contains(version, prereleases=True), f"{place}: {requirement}, locked: {version}"


@pytest.mark.parametrize("name", ["build", "tools", "container"])
def test_each_tool_is_locked_at_a_version_that_is_allowed(name: str) -> None:
    found = versions(f"{name}.lock", PYTHONS[0])
    lines = (LOCKS / f"{name}.in").read_text().splitlines()
    for requirement in (Requirement(line) for line in lines if not line.startswith(("#", "-r"))):
        assert requirement.specifier.contains(found[canonicalize_name(requirement.name)]), requirement


@pytest.mark.parametrize("python", PYTHONS)
def test_what_builds_is_of_the_same_versions(python: str) -> None:
    assert versions("build.lock", python).items() <= versions("dev.lock", python).items()
    assert versions("build.lock", python).items() <= versions("container.lock", python).items()


def test_these_pythons_are_those_that_are_supported() -> None:
    for each in DECLARED.values():
        named = [line.rpartition(" ")[2] for line in each["project"]["classifiers"] if ":: Python :: 3." in line]
        assert tuple(named) == PYTHONS


@pytest.mark.parametrize("lock", sorted(path.name for path in LOCKS.glob("*.lock")))
def test_a_lock_has_names_versions_and_hashes_alone(lock: str) -> None:
    """No address of an index, no path of somebody's machine."""
    entries = list(locked(lock))
    assert len(entries) > 5
    assert all(hashes for _, _, hashes in entries)
    assert not OURS & {requirement.name for requirement, _, _ in entries}


def test_setup_is_made_again_when_the_lock_changes() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(
        r"^\$\(STAMP\): pyproject\.toml .*packages/\*/pyproject\.toml\) \$\(LOCKED\)$", makefile, re.MULTILINE
    )
    [names] = re.findall(r"^LOCKED := (.+)$", makefile, re.MULTILINE)
    assert names.split() == ["requirements/build.lock", "requirements/dev.lock"]
    installs = [line for line in makefile.splitlines() if "$(PIP) " in line]
    assert len(installs) == 3
    assert all("--require-hashes" in line or "--no-index" in line for line in installs)


def test_an_audit_that_could_not_look_is_none() -> None:
    good = {"name": "a", "version": "1", "vulns": []}
    skipped = {"name": "b", "skip_reason": "Dependency not found on PyPI"}
    hole = {"name": "c", "version": "2", "vulns": [{"id": "X-1", "aliases": ["CVE-1"], "fix_versions": ["3"]}]}
    assert judge([good]) == (NONE, ["1 packages, no known holes"])
    assert judge([])[0] == judge([skipped])[0] == judge([good, skipped])[0] == UNKNOWN
    assert judge([good, skipped, hole]) == (HOLES, ["c 2: X-1, CVE-1; fixed in 3"])


def test_an_audit_asks_for_each_version_that_is_locked(tmp_path: Path) -> None:
    pins = {f"{pin.name}=={version}" for lock in LOCKS.glob("*.lock") for pin, version, _ in locked(lock.name)}
    files = [path.read_text().split() for path in write(tmp_path)]
    assert set().union(*files) == pins
    for lines in files:
        names = [line.partition("==")[0] for line in lines]
        assert len(names) == len(set(names))
