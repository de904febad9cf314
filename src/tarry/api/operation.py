"""Base of all operations: a request as typed, frozen data, and its and its result's form on the wire.

A request is a dataclass; its fields are the arguments, with their defaults. ``wire`` is the operation's name on the
wire, and the form of its result; ``needs`` is the right that a caller needs:

    @dataclass(frozen=True, slots=True)
    class Seek(Operation[int]):
        wire = Action("seek", "have a group go on from a time", named("ahead"))
        needs = OnTopic(Right.MANAGE)
        topic: str
        group: str
        to: Int64 | str

On the wire it is a JSON object of the fields that are not at their defaults. A field whose Python type is none of
JSON's is ``Annotated`` with a :class:`Form`. Everything that offers operations is made of this: a broker maps the
class to what carries it out, a client sends it, :mod:`tarry.api.calls` makes methods of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, asdict, dataclass, fields
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Protocol, Self, TypeVar, get_args, get_origin
from typing import get_type_hints as hints_of

from annotated_types import Ge, Lt

from tarry.api.needs import Needs
from tarry.base.delay import INT64_MAX
from tarry.base.errors import InvalidArgumentError, TarryError
from tarry.base.record_batch import RecordBatch
from tarry.base.types import Int64s

if TYPE_CHECKING:
    import pyarrow as pa

R = TypeVar("R")
D = TypeVar("D")

# What the broker refuses (no group name, prefetch 0) it refuses itself; here a value must only be one that it can take.
Int64 = Annotated[int, Ge(-(1 << 63)), Lt(1 << 63)]
Natural = Annotated[int, Ge(0), Lt(1 << 62)]


@dataclass(frozen=True, slots=True)
class FirstThatFits:
    """Mark of a union: a text is read as the first of its types that it fits.

    Not as the one that fits best.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        """Tell pydantic, which a client has not got."""
        return {**handler(source), "mode": "left_to_right"}


@dataclass(frozen=True, slots=True)
class Form:
    """Form of a field's value as JSON: its JSON type, and the conversions in both directions."""

    type: Any
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


def _array(values: list[int] | None) -> Int64s | None:
    return None if values is None else int64_array(values)


def int64_array(values: Any, name: str = "") -> Int64s:
    """Return whole numbers as an array: a list's, also of NumPy's integers, an Arrow column's, an array's.

    Raises:
        InvalidArgumentError: some are none, or have no place in 64 bits; with the ``name`` of the values.
    """
    import numpy as np  # not there in a client without the native link

    try:
        whole = np.asarray(values)
        if whole.dtype == np.uint64 and whole.size and whole.max() > INT64_MAX:  # astype would let it through
            raise TypeError
        return whole.astype(np.int64, casting="same_kind") if len(values) else np.empty(0, np.int64)
    except (TypeError, ValueError) as error:
        given = f"{name} is {values!r:.80}" if name else f"{values!r:.80} is given"
        raise InvalidArgumentError(f"{given}; allowed: whole numbers") from error


def _list(values: Any) -> list[int] | None:
    if values is None or (type(values) is list and all(type(value) is int for value in values)):
        return values
    whole: list[int] = int64_array(values).tolist()
    return whole


def int64s(items: Any) -> Form:
    """Return the form of an array of int64: a JSON array whose type is ``items``."""
    return Form(items, _list, _array)


@dataclass(frozen=True, slots=True)
class Codec(Generic[R]):
    """Conversion of a result to JSON and back.

    ``decode`` raises KeyError, TypeError or ValueError if the JSON is no such result.
    """

    encode: Callable[[R], Any]
    decode: Callable[[Any], R]
    name: str | None = None
    """The JSON is an object that has the value under this name; None: it is the value itself."""
    shape: Any = None
    """The type of the JSON, for those who describe it; None: that of the value."""


def named(name: str) -> Codec[Any]:
    """Return the codec of one value: a JSON object that has it under this name."""
    return Codec(lambda value: {name: value}, lambda answer: answer[name], name)


def data(kind: type[D]) -> Codec[D]:
    """Return the codec of a dataclass as an object of its fields; see :func:`known`."""
    return Codec(_plain, lambda answer: known(kind, answer))


def known(kind: type[D], answer: Mapping[str, Any], **read: Any) -> D:
    """Return a dataclass of a JSON object that a broker of another release may have written.

    Unknown fields of a newer broker are left out, and missing ones of an older broker get their defaults. So a field
    that is added later must have a default. ``read``: fields that were read already.
    """
    given = {f.name: answer[f.name] for f in _fields(kind) if f.name in answer or _is_needed(f)}
    return kind(**(given | read))


def _is_needed(of: Field[Any]) -> bool:
    return of.default is MISSING and of.default_factory is MISSING


def _plain(value: Any) -> dict[str, Any]:
    return asdict(value)


def many(codec: Codec[D]) -> Codec[list[D]]:
    """Return the codec of a list of values."""
    return Codec(
        lambda values: [codec.encode(value) for value in values],
        lambda answer: [codec.decode(value) for value in answer],
    )


PLAIN: Codec[dict[str, Any]] = Codec(dict, dict)
"""A result that is a JSON object already."""
NOTHING: Codec[None] = Codec(lambda _: {}, lambda _: None)
"""No result but that it was done."""


@dataclass(frozen=True, slots=True)
class Action(Generic[R]):
    """An operation that is answered by one JSON value: Flight's DoAction."""

    name: str
    about: str
    """Purpose of the operation, in a few words."""
    codec: Codec[R]


@dataclass(frozen=True, slots=True)
class Rows(Generic[R]):
    """An operation whose answer is record batches: Flight's DoGet.

    The ticket is the request as JSON, with ``op``.
    ``encode`` gives the schema, which may have metadata, and the batches; ``decode`` makes the result of all of them.
    """

    name: str
    encode: Callable[[R], tuple[pa.Schema, Iterable[pa.RecordBatch]]]
    decode: Callable[[pa.Table], R]
    schema_name: str
    """Name of the batches' schema, see :func:`row_schema`.

    The one that ``encode`` returns may have metadata, too.
    """
    goes_on_by: str | None = None
    """Column of positions in the range that is asked for, ``start`` to ``end``; None: an answer is whole.

    An answer by the link may end before the range does; who reads asks on behind its last row.
    """
    range_max: int | None = None
    """Longest range that may be asked for by the link; None: any."""

    @property
    def schema(self) -> pa.Schema:
        """Schema of the batches."""
        return row_schema(self.schema_name)


@cache
def row_schema(name: str) -> pa.Schema:
    """Return a schema of :mod:`tarry.api.row_schemas`, by its name.

    Operations do not import them: a client that speaks HTTP has requests without pyarrow.
    """
    return getattr(import_module("tarry.api.row_schemas"), name)


def one_batch(schema_name: str) -> tuple[Callable[[RecordBatch], Any], Callable[[pa.Table], RecordBatch]]:
    """``encode`` and ``decode`` of a result that is one record batch."""
    return lambda batch: (row_schema(schema_name), [batch]), whole_batch


def whole_batch(table: pa.Table) -> RecordBatch:
    """Return a table as one record batch."""
    import pyarrow as pa

    batches = table.combine_chunks().to_batches()
    whole: RecordBatch = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
    return whole


class Request:
    """Base of requests, which are dataclasses: their form as JSON, and the right that a caller needs."""

    __slots__ = ()
    needs: ClassVar[Needs]

    def to_wire(self) -> dict[str, Any]:
        """Return the request as JSON: its fields but those at their defaults."""
        forms = _forms(type(self))
        values = ((f, getattr(self, f.name)) for f in _fields(self))
        return {
            f.name: forms[f.name].encode(value) if f.name in forms else value
            for f, value in values
            if value is not f.default
        }

    @classmethod
    def from_wire(cls, values: Mapping[str, Any]) -> Self:
        """Return the request that :meth:`to_wire` described, from values of the types of :meth:`wire_fields`."""
        forms = _forms(cls)
        return cls(**{name: forms[name].decode(value) if name in forms else value for name, value in values.items()})

    @classmethod
    def wire_fields(cls) -> dict[str, tuple[Any, Any]] | None:
        """Each field's type as JSON, and its default (``...`` where there is none); None: any object will do."""
        hints, forms = hints_of(cls, include_extras=True), _forms(cls)
        return {f.name: (forms[f.name].type if f.name in forms else hints[f.name], _default(f)) for f in _fields(cls)}


class Operation(Request, Generic[R]):
    """A request whose result is ``R``; see the module."""

    __slots__ = ()
    wire: ClassVar[Action[Any] | Rows[Any]]


def _default(of: Field[Any]) -> Any:
    return ... if of.default is MISSING else of.default


def _fields(of: Any) -> tuple[Field[Any], ...]:
    return fields(of)


def _forms(kind: Any) -> dict[str, Form]:
    """Return the fields of a request's class that have a form of their own."""
    return _forms_of_class(kind)


@cache
def _forms_of_class(kind: Any) -> dict[str, Form]:
    hints = hints_of(kind, include_extras=True)
    return {f.name: form for f in fields(kind) if (form := _form(hints[f.name]))}


def _form(hint: Any) -> Form | None:
    marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((mark for mark in marks if isinstance(mark, Form)), None)


class Caller(Protocol):
    """Carries operations out: a broker, or a client of one."""

    def call(self, operation: Operation[R]) -> R:
        """Carry it out, and wait for its result.

        Raises:
            TarryError: it was refused, or there was no answer.
        """


def decoded(decode: Callable[[], R], answer: Any) -> R:
    """Call ``decode``, which reads a broker's ``answer``.

    Raises:
        TarryError: the answer is none that it can read.
    """
    try:
        return decode()
    except (InvalidArgumentError, TypeError, KeyError, ValueError) as error:
        raise TarryError(f"the broker's answer could not be read: {answer!r:.80}") from error
