"""Finds the endpoint of a request, by its method and the segments of its path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tarry.fronts.http.errors import HttpError
from tarry.fronts.http.rest.answer import Answer
from tarry.fronts.http.rest.description import Description
from tarry.fronts.http.rest.request import RestRequest

Names: TypeAlias = Mapping[str, str]
"""The parts of a path that are in braces, decoded."""
Endpoint: TypeAlias = Callable[[RestRequest, Names], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Route:
    """``path`` has names in braces: ``/v1/topics/{topic}/messages``."""

    method: str
    path: str
    endpoint: Endpoint
    about: Description
    finds: bool = False
    """True if the right is asked for on a message that is found first: only the broker's process can."""

    @property
    def segments(self) -> list[str]:
        return self.path.split("/")[1:]


class Router:
    """The routes by the number of their segments.

    If several fit, the one with the fewest names in braces wins.
    """

    def __init__(self, routes: Iterable[Route]) -> None:
        self._by_length: dict[int, list[tuple[list[str | None], Route]]] = {}
        for route in sorted(routes, key=lambda r: r.path.count("{")):
            pattern = [None if part.startswith("{") else part for part in route.segments]
            self._by_length.setdefault(len(pattern), []).append((pattern, route))

    def find(self, request: RestRequest) -> tuple[Route, Names]:
        """Find the request's route, and the names in its path.

        Raises:
            HttpError: 404, there is no such path; 405, it has other methods.
        """
        given, method = request.segments, request.method
        if method == "HEAD":
            method = "GET"
        allowed: list[str] = []
        path = ""
        for pattern, route in self._by_length.get(len(given), ()):
            if all(part == own if own is not None else part for own, part in zip(pattern, given, strict=True)):
                if route.method == method:
                    return route, _names(route, given)
                # Of a word in braces, another word without them is no value: its path has methods of its own.
                path = path or route.path
                if route.path == path:
                    allowed.append(route.method)
        if not allowed:
            asked = "/".join(given)
            raise HttpError(404, "not_found", f"no path /{asked[:200]}; allowed: those of /openapi.json")
        methods = ", ".join(sorted({*allowed, *(["HEAD"] if "GET" in allowed else [])}))
        raise HttpError(
            405, "method_not_allowed", f"the method is {request.method}; allowed: {methods}", {"allow": methods}
        )


def _names(route: Route, given: list[str]) -> Names:
    return {part[1:-1]: value for part, value in zip(route.segments, given, strict=True) if part.startswith("{")}
