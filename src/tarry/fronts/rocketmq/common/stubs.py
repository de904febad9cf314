"""The protocol's messages: the classes that the official Python client brings, without the client.

Source: apache/rocketmq-apis, ``apache/rocketmq/v2/{definition,service}.proto``, as generated in the package
``rocketmq-python-client``. To import that package itself would open a log file in the user's home and load a tracing
library, which a server must not; so the two modules are loaded beside it, and a program that uses the client as well
finds them as its own.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from types import ModuleType
from typing import Any

from tarry.base.errors import NotFoundError

_PACKAGE, _PROTOCOL = "rocketmq", "rocketmq.grpc_protocol"
_lock = threading.Lock()


def _load(name: str) -> Any:
    """The module ``name`` of the client's protocol package.

    Raises:
        NotFoundError: the package is not installed.
    """
    full = f"{_PROTOCOL}.{name}"
    with _lock:
        if full in sys.modules:
            return sys.modules[full]
        spec = importlib.util.find_spec(_PACKAGE)
        if spec is None or not spec.submodule_search_locations:
            raise NotFoundError("the package rocketmq-python-client is not installed; the RocketMQ front needs it")
        places = {_PACKAGE: list(spec.submodule_search_locations)}
        places[_PROTOCOL] = [f"{place}/grpc_protocol" for place in places[_PACKAGE]]
        stands = {package: sys.modules.get(package) or _stand_in(package, paths) for package, paths in places.items()}
        added = {package: stand for package, stand in stands.items() if package not in sys.modules}
        sys.modules.update(added)
        try:
            return importlib.import_module(full)
        finally:
            # The modules stay, their packages go: who imports the client gets it whole.
            for package in added:
                del sys.modules[package]


def _stand_in(package: str, paths: list[str]) -> ModuleType:
    """A package that has submodules and no code."""
    stand = ModuleType(package)
    stand.__path__ = paths
    return stand


definition = _load("definition_pb2")
"""``Message``, ``Resource``, ``Status``, ``Code``, ``Settings`` and their like."""
service = _load("service_pb2")
"""The requests and responses of ``MessagingService``."""
