"""Bodies of messages as what a handler's annotation says: JSON for everything but bytes and text."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from tarry.base.errors import InvalidArgumentError
from tarry.worker.outcomes import Reject

Decode = Callable[[bytes], Any]
ERRORS_MAX = 3
"""So many places of a body that does not fit are named."""


class BodyError(Reject):
    """The body of a message is not what its handler takes: it will not get better."""


def decoder_of(annotation: Any, place: str) -> Decode:
    """Return what makes a value of a body; it raises BodyError for one that does not fit.

    Args:
        annotation: bytes, str, or a type whose JSON the body is: dict, list, a dataclass, a TypedDict, a model of
            pydantic, a Struct of msgspec, or anything else that pydantic knows.
        place: the handler and parameter, for an error.

    Raises:
        InvalidArgumentError: ``annotation`` is none of these.
    """
    if annotation is bytes:
        return lambda body: body
    name = getattr(annotation, "__name__", str(annotation))
    return _Decoder(name, _decode(annotation, name, place))


class _Decoder:
    def __init__(self, name: str, decode: Decode) -> None:
        self._name, self._decode = name, decode

    def __call__(self, body: bytes) -> Any:
        try:
            return self._decode(body)
        except ValidationError as error:
            # Not the input: a reason is shown to people who may not read bodies.
            raise BodyError(f"the body is no {self._name}: {_places(error)}") from error
        except Exception as error:  # a validator of the user's, or msgspec's errors, which have no common class
            raise BodyError(f"the body is no {self._name}: {type(error).__name__}: {error}") from error


def _decode(annotation: Any, name: str, place: str) -> Decode:
    if annotation is str:
        return lambda body: body.decode()
    msgspec = sys.modules.get("msgspec")  # who has such a type has imported it
    if msgspec is not None and isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        decode: Decode = msgspec.json.Decoder(annotation).decode
        return decode
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    except PydanticUserError as error:
        raise InvalidArgumentError(
            f"{place} is of type {name}, of which no message's body is ({str(error).splitlines()[0]}); allowed: "
            "tarry.Delivery, bytes, str, dict, list, a dataclass, a pydantic model, a msgspec Struct"
        ) from error
    return adapter.validate_json


def _places(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False, include_context=False)
    texts = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}".removeprefix(": ") for each in found[:ERRORS_MAX]]
    more = len(found) - ERRORS_MAX
    return "; ".join(texts) + (f"; and {more} more" if more > 0 else "")
