"""A worker by its name on a command line: ``module:worker``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from tarry.base.errors import InvalidArgumentError
from tarry.worker.worker import Worker


def load(target: str) -> Worker:
    """Import a module as a program in the working directory would, and return the worker in it.

    Args:
        target: MODULE, or MODULE:NAME; without a name, the one worker that the module has.

    Raises:
        InvalidArgumentError: there is no such module, or no such worker in it. What the module itself raises.
    """
    module_name, _, name = target.partition(":")
    if module_name.endswith(".py") or "/" in module_name:
        raise InvalidArgumentError(f"{target!r} is a path; allowed: MODULE:NAME, as in shop.work:worker")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise  # something that the module needs is missing
        raise InvalidArgumentError(f"there is no module {module_name!r} in {here}, nor on PYTHONPATH") from error
    workers = {key: value for key, value in vars(module).items() if isinstance(value, Worker)}
    if name in workers or (not name and len({id(each) for each in workers.values()}) == 1):
        return workers[name] if name else next(iter(workers.values()))
    found = ", ".join(f"{module_name}:{key}" for key in workers) or "none"
    raise InvalidArgumentError(f"{target!r} names no worker; in the module there are: {found}")
