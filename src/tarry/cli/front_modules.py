"""Fronts whose modules may not be installed: what to install, where one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from tarry.base.errors import NotFoundError
from tarry.base.extras import missing_extra

if TYPE_CHECKING:
    from tarry.fronts.http.front import HttpFront
    from tarry.fronts.rocketmq import RocketMQFront
    from tarry.fronts.rocketmq.classic.front import RemotingFront


def check_rocketmq() -> None:
    """See that a process of its own will find what the v5 front needs, before one is started.

    Raises:
        NotFoundError: it lacks a module.
    """
    with _named_extra("rocketmq", "RocketMQ"):
        import_module("tarry.fronts.rocketmq.common.stubs")


def rocketmq_front() -> type[RocketMQFront]:
    """Import the front for v5 clients.

    Raises:
        NotFoundError: it lacks a module.
    """
    with _named_extra("rocketmq", "RocketMQ"):
        from tarry.fronts.rocketmq import RocketMQFront
    return RocketMQFront


def remoting_front() -> type[RemotingFront]:
    """Import the front for classic clients. Raises NotFoundError as well."""
    with _named_extra("remoting", "RocketMQ"):
        from tarry.fronts.rocketmq.classic.front import RemotingFront
    return RemotingFront


def http_front() -> type[HttpFront]:
    """Import the HTTP front. Raises NotFoundError as well."""
    with _named_extra("http", "HTTP"):
        from tarry.fronts.http.front import HttpFront
    return HttpFront


@contextmanager
def _named_extra(setting: str, front: str) -> Iterator[None]:
    """Say what to install, where a front lacks a module.

    Raises:
        NotFoundError: it lacks one.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        text = missing_extra(f"the {front} front", front.lower(), error, f"no {setting} address")
        raise NotFoundError(text) from error
