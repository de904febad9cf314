"""What a handler may be, and what it is given."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

import tarry
from tarry.base.errors import InvalidArgumentError
from tarry.worker.bodies import decoder_of
from tarry.worker.outcomes import REASON_MAX, AfterFailure, Ending, Reject, Retry, RetryRules


class Model(BaseModel):
    number: int


@dataclass
class Data:
    number: int


class Typed(TypedDict):
    number: int


BODY = b'{"number": 7}'


@pytest.mark.parametrize(
    ("kind", "body", "value"),
    [
        (bytes, BODY, BODY),
        (str, "gr\u00fc\u00df".encode(), "gr\u00fc\u00df"),
        (dict, BODY, {"number": 7}),
        (dict[str, int], BODY, {"number": 7}),
        (list, b"[1, 2]", [1, 2]),
        (Model, BODY, Model(number=7)),
        (Data, BODY, Data(7)),
        (Typed, BODY, {"number": 7}),
        (Model | None, b"null", None),
        (int, b"7", 7),
    ],
)
def test_a_body_is_what_the_annotation_says(kind: Any, body: bytes, value: Any) -> None:
    assert decoder_of(kind, "p")(body) == value


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        (str, b"\xff", "the body is no str: UnicodeDecodeError"),
        (dict, b"[1]", "the body is no dict: Input should be"),
        (dict, b"{", "the body is no dict: Invalid JSON"),
        (Model, b'{"number": "secret"}', "the body is no Model: number: Input should be a valid integer"),
        (list[int], b'["a", "b", "c", "d"]', "and 1 more"),
    ],
)
def test_a_body_that_does_not_fit_says_where_and_not_what(kind: Any, body: bytes, text: str) -> None:
    with pytest.raises(tarry.BodyError) as raised:
        decoder_of(kind, "p")(body)
    assert text in str(raised.value)
    assert "secret" not in str(raised.value)


def test_structs_of_msgspec_are_bodies_too() -> None:
    msgspec = pytest.importorskip("msgspec")
    struct = msgspec.defstruct("Order", [("number", int)])
    assert decoder_of(struct, "p")(BODY).number == 7
    with pytest.raises(tarry.BodyError, match="the body is no Order"):
        decoder_of(struct, "p")(b'{"number": "x"}')


def registered(function: Callable[..., Any], **options: Any) -> Any:
    worker = tarry.Worker()
    worker.on("orders", **{"group": "billing", **options})(function)
    return worker.handlers[0]


class Message:
    """As much of a delivery as arguments are made of."""

    body = BODY


class Called:
    async def __call__(self, message: tarry.Delivery) -> None: ...


def test_arguments_follow_the_signature() -> None:
    message: Any = Message()
    forms: list[tuple[Callable[..., Any], list[Any], dict[str, Any]]] = [
        (lambda message: None, [message], {}),
        (lambda: None, [], {}),
        (lambda message, more=1, *rest, **named: None, [message], {}),
    ]

    def of_a_body(order: Model) -> None: ...
    def of_both(order: Model, message: tarry.Delivery) -> None: ...
    def the_other_way(message: tarry.Delivery, order: Model) -> None: ...
    def by_name(*, message: tarry.Delivery, order: Data, more: int = 2) -> None: ...

    forms += [
        (of_a_body, [Model(number=7)], {}),
        (of_both, [Model(number=7), message], {}),
        (the_other_way, [message, Model(number=7)], {}),
        (by_name, [], {"message": message, "order": Data(7)}),
        (functools.partial(of_both), [Model(number=7), message], {}),
        (Called(), [message], {}),
    ]
    for function, args, kwargs in forms:
        assert registered(function).arguments(message) == (args, kwargs)
    assert registered(Called()).is_async
    assert not registered(of_both).is_async


def of_a_message(message: tarry.Message) -> None: ...
def of_too_much(message: tarry.Delivery, database: object, more: int) -> None: ...
def of_nothing_known(message: NoSuch) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def of_a_module(body: type(sys)) -> None: ...  # type: ignore[valid-type]
def yielding(message: tarry.Delivery) -> Any:
    yield


@pytest.mark.parametrize(
    ("function", "options", "text"),
    [
        (of_a_message, {}, "message of of_a_message is a tarry.Message, which producers make"),
        (of_too_much, {}, "nobody gives of_too_much its parameter more"),
        (of_nothing_known, {}, "a type of of_nothing_known is not known while the program runs"),
        (of_a_module, {}, "body of of_a_module is of type module, of which no message's body is"),
        (yielding, {}, "yielding yields"),
        (print, {"concurrency": 0}, "concurrency is 0"),
        (print, {"timeout": 0}, "timeout of print is 0"),
        (print, {"timeout": -1}, "timeout is -1"),
        (print, {"group": ""}, "group of print is ''"),
        (print, {"prefetch": 0}, "prefetch is 0"),
        (print, {"retry": {3: "fixed 1s"}}, "retry has 3"),
        (print, {"retry": {ValueError: 3}}, "retry of ValueError is 3"),
        (print, {"retry": {ValueError: "sometimes"}}, "retry policy 'sometimes'"),
    ],
)
def test_what_cannot_be_a_handler_is_refused_where_it_is_registered(
    function: Callable[..., Any], options: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        registered(function, **options)
    assert text in str(raised.value)


def test_a_group_has_one_handler() -> None:
    worker = tarry.Worker()
    worker.on("orders", group="billing")(lambda message: None)
    worker.on("orders", group="stock")(lambda message: None)
    with pytest.raises(InvalidArgumentError, match="has a handler"):
        worker.on("orders", group="billing")(lambda message: None)


def test_a_worker_without_handlers_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="no handlers"):
        tarry.Worker().run()


def test_the_address_is_given_or_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARRY_ENDPOINT", "there:1")
    assert tarry.Worker().address == "there:1"
    assert tarry.Worker("here:1").address == "here:1"
    monkeypatch.delenv("TARRY_ENDPOINT")
    assert tarry.Worker().address == "localhost:7611"


def test_a_failure_means_what_the_rules_say() -> None:
    rules = RetryRules({OSError: "exponential 1s max 10s", TimeoutError: Reject, tarry.BodyError: "fixed 1m"})
    assert rules.verdict(ValueError("no"), 1) == AfterFailure(Ending.RETRIED, "ValueError: no")
    assert rules.verdict(Retry("later"), 1) == AfterFailure(Ending.RETRIED, "later")
    assert rules.verdict(Retry(after="5m"), 1) == AfterFailure(Ending.RETRIED, "", 300_000)
    assert rules.verdict(Reject("never"), 1) == AfterFailure(Ending.REJECTED, "never")
    # Of several that fit, the one that is nearest.
    assert rules.verdict(ConnectionError("away"), 3) == AfterFailure(Ending.RETRIED, "ConnectionError: away", 4000)
    assert rules.verdict(TimeoutError(), 3) == AfterFailure(Ending.REJECTED, "TimeoutError")
    assert rules.verdict(tarry.BodyError("no order"), 1) == AfterFailure(Ending.RETRIED, "no order", 60_000)
    assert len(rules.verdict(ValueError("x" * 9999), 1).reason) == REASON_MAX


def test_a_delay_that_is_none_is_refused_where_it_is_raised() -> None:
    with pytest.raises(InvalidArgumentError, match="after"):
        Retry(after=-1)
