"""Who may import whom, and where time may come from: read from the source, so that it holds for every line of it.

The packages stand in the order of ``LAYERS``: each may import those before it, and no later one. Type-only imports and
imports inside functions count like any other.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.sources import SOURCE_ROOTS

import tarry

ROOT = Path(tarry.__file__).parent
BESIDE = ("tarry_relay", "tarry_demo")
"""Packages of the distributions that use Tarry and belong to it; loopgrpc, which it uses, has tests of its own."""
SHARED = ("base", "outbound", "repeat", "message", "batching", "api", "link", "identity")
"""What a client and every front may import."""
LAYERS = (
    *SHARED,
    *("log", "intake", "store", "names", "wheel", "queue", "groups", "verify", "broker"),
    *("backup", "client", "worker", "bridge", "celery", "fronts", "spark", "cli", "django"),
)
CORE = LAYERS[: LAYERS.index("broker") + 1]
PUBLIC = ("__init__", "__main__", "errors", "testing", "pytest_plugin")
"""The modules at the top: names for users, who import nothing else."""
CLOCK_READERS = {
    ("time", "time"), ("time", "time_ns"), ("time", "localtime"), ("time", "gmtime"), ("time", "ctime"),
    ("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today"),
}  # fmt: skip

CHANGING = {
    "add",
    "append",
    "appendleft",
    "clear",
    "discard",
    "extend",
    "pop",
    "popitem",
    "put",
    "setdefault",
    "update",
}
"""Methods by which a collection changes."""
MADE_TO_CHANGE = {
    "BoundedCache",
    "Condition",
    "Event",
    "Footers",
    "Lock",
    "LruCache",
    "RLock",
    "WeakKeyDictionary",
    "WeakSet",
    "deque",
    "local",
}
"""Types whose objects are there to be changed."""
MODULE_STATE = {
    ("client/background.py", "_lock"),  # the one event loop of a process, and who makes it
    ("client/background.py", "_running"),
    ("client/feed.py", "_running"),  # what the interpreter's end closes, as settlements are on their way still
    ("client/forks.py", "_process"),  # which process this is, for what was made before a fork
    ("client/sync.py", "_open_clients"),  # what the interpreter's end closes, of which there is one in a process
    ("log/objects/store.py", "_warned_s"),  # of each event loop: requests that wait for a bucket are warned of once
    ("store/footers.py", "FOOTERS"),  # bounded; files never change, and Spark's tasks begin with nothing but a path
}

# What is not there yet: each entry is a debt, to be taken out when it is paid.
DEBTS: set[tuple[str, str]] = set()


def files(*packages: str) -> list[Path]:
    return [path for package in packages for path in sorted((ROOT / package).rglob("*.py"))]


def beside(package: str) -> list[Path]:
    return [path for root in SOURCE_ROOTS for path in sorted((root / package).rglob("*.py"))]


ALL = [*sorted(ROOT.rglob("*.py")), *(path for package in BESIDE for path in beside(package))]
"""Every file of Tarry, and of what belongs to it."""


def place(path: Path) -> Path:
    """Where a file is in its distribution, beginning with the package."""
    return next(path.relative_to(root) for root in SOURCE_ROOTS if path.is_relative_to(root))


class Source(NamedTuple):
    """All that is asked of a file here, so that each is parsed once."""

    imports: tuple[tuple[int, str], ...]
    """Every module that it names in an import, also inside functions, with its line."""
    clock_readings: tuple[str, ...]
    state: frozenset[str]
    """Names of a module under which it keeps something that changes while the process runs."""
    classes: tuple[tuple[int, str], ...]


@cache
def read(path: Path) -> Source:
    tree = ast.parse(path.read_text())
    nodes = list(ast.walk(tree))
    classes = tuple((node.lineno, node.name) for node in nodes if isinstance(node, ast.ClassDef))
    return Source(
        tuple(imports(nodes, place(path).parts[:-1])), tuple(clock_readings(nodes)), module_state(tree, nodes), classes
    )


def imports(nodes: Sequence[ast.AST], package: Sequence[str]) -> Iterator[tuple[int, str]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(p for p in (base, node.module) if p)
            yield node.lineno, module
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def clock_readings(nodes: Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Attribute):
            owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            if (owner, node.attr) in CLOCK_READERS:
                yield f"{node.lineno}: {owner}.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            for alias in node.names:
                if ("time", alias.name) in CLOCK_READERS:
                    yield f"{node.lineno}: from time import {alias.name}"


def functions(body: Sequence[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Those of a module and of its classes, each with those inside of it, whatever statement they are in."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        else:
            for field in ("body", "orelse", "finalbody", "handlers", "cases"):
                yield from functions(getattr(node, field, ()))


def module_state(tree: ast.Module, nodes: Sequence[ast.AST]) -> frozenset[str]:
    values = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    state = {
        name
        for name, value in values.items()
        if isinstance(value, ast.Call) and ast.unparse(value.func).split("[")[0].split(".")[-1] in MADE_TO_CHANGE
    }
    if not values:
        return frozenset()
    inside = (node for function in functions(tree.body) for node in ast.walk(function))
    for node in inside:
        match node:
            case ast.Global(names=names):
                state.update(names)
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
                state.add(name)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if method in CHANGING:
                state.add(name)
    return frozenset(state & values.keys())


def names_for(paths: Collection[Path], forbidden: Collection[str]) -> list[str]:
    assert paths
    forbidden = {f"tarry.{package}" for package in forbidden}
    return [
        f"{id_of(path)}:{line} imports {module}"
        for path in paths
        for line, module in read(path).imports
        if ".".join(module.split(".")[:2]) in forbidden
    ]


def module_of(path: Path) -> str:
    parts = place(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules_needed(path: Path, modules: Collection[str]) -> set[str]:
    """Of ``from tarry.log import files``, the module ``tarry.log.files``, and not the package that it is in."""
    needed = [(line, module) for line, module in read(path).imports if module in modules]
    parents = {(line, module.rpartition(".")[0]) for line, module in needed}
    return {module for line, module in needed if (line, module) not in parents}


def id_of(path: Path) -> str:
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else place(path))


def test_imports_go_downwards() -> None:
    found = []
    for number, package in enumerate(LAYERS):
        above = tuple(p for p in LAYERS[number + 1 :] if (package, p) not in DEBTS)
        found += names_for(files(package), above)
    assert found == []


def test_a_distribution_needs_those_below_alone() -> None:
    """Tarry needs neither of those beside it, and they do not need each other."""
    for package in (tarry.__name__, *BESIDE):
        others = {other for other in BESIDE if other != package}
        paths = beside(package)
        assert paths
        needed = {module.split(".")[0] for path in paths for _, module in read(path).imports}
        assert needed & others == set()


def test_the_client_needs_no_broker() -> None:
    assert names_for(files("client"), tuple(p for p in LAYERS if p not in (*SHARED, "client"))) == []


def test_a_worker_knows_the_client_alone() -> None:
    assert names_for(files("worker"), tuple(p for p in LAYERS if p not in (*SHARED, "client", "worker"))) == []


def test_a_front_knows_api_alone() -> None:
    assert names_for(files("fronts"), tuple(p for p in LAYERS if p not in (*SHARED, "fronts"))) == []


def test_no_private_name_is_imported() -> None:
    names = [
        (f"{id_of(path)}:{line}", module.rsplit(".", 1)[-1])
        for path in ALL
        for line, module in read(path).imports
        if module.startswith("tarry")
    ]
    assert len(names) > len(ALL)
    assert [f"{where}: {name}" for where, name in names if name.startswith("_")] == []


def test_no_circles() -> None:
    """Of modules, type-only imports included: what needs each other is one thing, or one of them wants a protocol."""
    names = {module_of(path): path for path in ALL}
    needs = {name: modules_needed(path, names.keys()) for name, path in names.items()}
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_wall_clock_time_enters_through_clock_alone() -> None:
    readings = {id_of(path): read(path).clock_readings for path in files(*CORE)}
    assert readings.pop("base/clock.py") != ()
    assert {name: found for name, found in readings.items() if found} == {}, "ask the Clock that was passed in"


def test_no_module_keeps_state() -> None:
    """But for caches by ``lru_cache`` of values that do not change: who needs something that changes is handed it."""
    state = {(id_of(path), name) for path in ALL for name in read(path).state}
    assert state == MODULE_STATE


def test_every_package_was_looked_at() -> None:
    seen = {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in ROOT.rglob("*.py")}
    assert seen <= {*LAYERS, *PUBLIC}
    assert all(files(package) for package in LAYERS)


ROLES = {
    "Command",
    *("Authenticator", "ClientRegistry", "Components", "Offsets", "Recaller", "Routes", "Sender", "Service", "Settler"),
    *("Transactions", "WriteBatch"),
}
"""Classes of the same role in several fronts, or a protocol and the class that implements it."""


def test_a_class_name_has_one_meaning() -> None:
    places: dict[str, list[str]] = {}
    for path in ALL:
        for line, name in read(path).classes:
            if not name.startswith("_"):
                places.setdefault(name, []).append(f"{id_of(path)}:{line}")
    assert {name: found for name, found in places.items() if len(found) > 1 and name not in ROLES} == {}
