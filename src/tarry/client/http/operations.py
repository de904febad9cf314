"""Operations as requests of Tarry's HTTP API, by :mod:`tarry.api.paths`; and their answers."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from tarry.api.operation import Action, Operation, Rows, decoded
from tarry.api.operations import FindKey
from tarry.api.paths import KEY, Resource, resources
from tarry.base.errors import InvalidArgumentError
from tarry.base.extras import needs_arrow, needs_native
from tarry.client.encoding import encoded
from tarry.client.http.exchange import JSON, Answered, Asked

R = TypeVar("R")
ARROW = "application/vnd.apache.arrow.stream"
IN_QUERY = ("GET", "DELETE")


def request_of(operation: Operation[Any], address: str) -> Asked:
    """Return the request that has an operation carried out; ``address``: the broker's, for a refusal.

    Raises:
        NativeOnlyError: HTTP has no path for it, or its answer is Arrow's, and pyarrow is not installed.
        InvalidArgumentError: a value cannot be sent.
    """
    kind: Any = type(operation)
    fields = operation.to_wire()
    if kind is FindKey:
        return Asked("GET", path_of(KEY, fields))
    resource = _resource_of(kind)
    if resource is None:
        raise needs_native(f"to {kind.wire.name}", address)
    accept = JSON
    if isinstance(kind.wire, Rows):
        if not _has_arrow():
            raise needs_arrow(kind.wire.name)
        accept = ARROW
    path = path_of(resource.path, fields)
    if resource.method not in IN_QUERY:
        return Asked(resource.method, path, encoded(fields), accept=accept)
    pairs = [(name, _text(each)) for name, value in fields.items() for each in _each(value)]
    try:
        query = urlencode(pairs)
    except UnicodeEncodeError as error:
        raise _no_text(error) from error
    return Asked(resource.method, f"{path}?{query}" if query else path, accept=accept)


def result_of(operation: Operation[R], answered: Answered) -> R:
    """Return the result that the answer to :func:`request_of` has.

    Raises:
        TarryError: it has none.
    """
    wire: Action[R] | Rows[R] = operation.wire
    if isinstance(wire, Rows):
        decode = wire.decode
        return decoded(lambda: decode(_table(answered.body)), answered.body)
    codec, values = wire.codec, answered.json()
    if isinstance(operation, FindKey):
        values = {"receipt": values}
    return decoded(lambda: codec.decode(values), values)


def path_of(path: str, fields: dict[str, Any]) -> str:
    """Return a path with its names filled in, which are taken out of the fields.

    Raises:
        InvalidArgumentError: one is empty, or cannot be sent.
    """
    try:
        return "/".join(_name(each[1:-1], fields) if each.startswith("{") else each for each in path.split("/"))
    except UnicodeEncodeError as error:
        raise _no_text(error) from error


def _name(name: str, fields: dict[str, Any]) -> str:
    text = str(fields.pop(name))
    if not text:
        raise InvalidArgumentError(f"{name} is empty; allowed: 1 or more characters")
    return quote(text, safe="")


@cache
def _resource_of(kind: Any) -> Resource | None:
    """Return the place of an operation: the first, whose path has the fewest names."""
    return next((each for each in resources() if each.kind is kind), None)


def _no_text(error: UnicodeEncodeError) -> InvalidArgumentError:
    return InvalidArgumentError(f"{error.object!r:.80} has half a surrogate pair at {error.start}; allowed: Unicode")


def _each(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _has_arrow() -> bool:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        return False
    return True


def _table(raw: bytes) -> Any:
    import pyarrow as pa

    return pa.ipc.open_stream(raw).read_all()
