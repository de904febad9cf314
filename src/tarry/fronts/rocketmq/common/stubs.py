"""The protocol's protobuf classes, taken from the official Python client without importing the client.

Source: apache/rocketmq-apis, ``apache/rocketmq/v2/{definition,service}.proto``, as generated in the package
``rocketmq-python-client``. Importing that package itself would open a log file in the user's home and load a tracing
library, which a server must not. So the two modules are loaded without it, and a program that uses the client as well
finds them as its own.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

_PACKAGE, _PROTOCOL = "rocketmq", "rocketmq.grpc_protocol"


def _load(name: str) -> Any:
    """Import the module ``name`` of the client's protocol package.

    Called while this module is imported, so by one thread at a time.

    Raises:
        ModuleNotFoundError: the package is not installed.
    """
    full = f"{_PROTOCOL}.{name}"
    if full in sys.modules:
        return sys.modules[full]
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"No module named {_PACKAGE!r}", name=_PACKAGE)
    paths = {_PACKAGE: list(spec.submodule_search_locations)}
    paths[_PROTOCOL] = [f"{path}/grpc_protocol" for path in paths[_PACKAGE]]
    added = {package: _stand_in(package, paths[package]) for package in paths if package not in sys.modules}
    sys.modules.update(added)
    try:
        return importlib.import_module(full)
    finally:
        # The modules stay, their packages go: a program that imports the client gets all of it.
        for package in added:
            del sys.modules[package]


def _stand_in(package: str, paths: list[str]) -> ModuleType:
    """Return a package that has submodules and no code."""
    stand_in = ModuleType(package)
    stand_in.__path__ = paths
    return stand_in


definition = _load("definition_pb2")
"""``Message``, ``Resource``, ``Status``, ``Code``, ``Settings`` and the like."""
service = _load("service_pb2")
"""The requests and responses of ``MessagingService``."""
