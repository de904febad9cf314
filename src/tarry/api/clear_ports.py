"""Ports at which other machines may speak without TLS, as one process has opened them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class ClearPort(NamedTuple):
    """One address of a front."""

    listener: str
    address: str

    def __str__(self) -> str:
        return (
            f"other machines reach {self.listener} at {self.address}, and clients may come there without TLS: who "
            "listens on the way reads their tokens and messages; with tls_certificate and tls_key, allow TLS alone "
            "(tls, flight_tls or rocketmq_tls = on)"
        )

    def fields(self) -> dict[str, str]:
        """Return what the status has of it: the text says what to do."""
        return {**self._asdict(), "text": str(self)}


class ClearPorts:
    """Those of one process, which doors have noted. Any thread."""

    def __init__(self) -> None:
        self._open: dict[ClearPort, None] = {}

    def note(self, port: ClearPort) -> None:
        """Note a port that is open from now on, until the process ends."""
        self._open[port] = None

    def shown(self) -> list[dict[str, str]]:
        """Return them for the status."""
        return [port.fields() for port in list(self._open)]


def with_workers(own: ClearPorts, workers: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return a broker's ports and those that workers have posted with their status, each once."""
    every = [*own.shown(), *(port for worker in workers for port in worker.get("clear_ports", ()))]
    return list({(port["listener"], port["address"]): port for port in every}.values())
