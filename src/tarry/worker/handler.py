"""A handler: a function for the messages of a topic and group, with what it takes and how it is run."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import typing
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tarry.base.errors import InvalidArgumentError
from tarry.client.consume_options import CheckedConsumeOptions, HoldOptions, check_count, check_seconds
from tarry.client.delivery import Delivery
from tarry.message.message import Message
from tarry.worker.bodies import Decode, decoder_of
from tarry.worker.outcomes import Ending, Reject, Retry, RetryRules, settle

log = logging.getLogger("tarry.worker")

Call = Callable[[Delivery], Awaitable[Any]]
"""Handles a message, to be awaited."""
Middleware = Callable[[Delivery, Call], Awaitable[Any]]
"""Called around a handler: it awaits ``call_next(message)``, or does not, or raises."""
RunSync = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a plain function elsewhere, so that the event loop goes on."""


class HandlerOptions(HoldOptions, total=False):
    """Options of consuming.

    - ``prefetch``: how many unsettled messages may be here at most, 1000 by default.
    """

    prefetch: int


@dataclass(frozen=True, slots=True)
class Handler:
    """A handler as it was registered."""

    function: Callable[..., Any]
    topic: str
    group: str
    concurrency: int
    timeout_s: float | None
    rules: RetryRules
    options: HandlerOptions
    is_async: bool
    parameters: tuple[tuple[str, Decode | None, bool], ...]
    """Of each its name, its decoder of the body, and if it is given by its name.

    Without a decoder it is the message.
    """

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        topic: str,
        group: str,
        concurrency: int,
        timeout_s: float | None,
        rules: RetryRules,
        options: HandlerOptions,
    ) -> Handler:
        """Look at a function, and check how it is to be run.

        Raises:
            InvalidArgumentError: it cannot be a handler, or an option is not allowed.
        """
        name = name_of(function)
        for what, text in (("topic", topic), ("group", group)):
            if not isinstance(text, str) or not text:
                raise InvalidArgumentError(f"{what} of {name} is {text!r}; allowed: a name")
        check_count("concurrency", concurrency)
        check_seconds("timeout", timeout_s, "more than 0")
        if timeout_s == 0:
            raise InvalidArgumentError(f"timeout of {name} is 0; allowed: more than 0, or None")
        CheckedConsumeOptions(**options)
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidArgumentError(f"{name} yields, so it would not run; allowed: a function, or an async one")
        is_async = inspect.iscoroutinefunction(_routine(function))
        parameters = tuple(_parameters(function, name))
        return cls(function, topic, group, concurrency, timeout_s, rules, options, is_async, parameters)

    @property
    def name(self) -> str:
        return name_of(self.function)

    def call(self, middleware: Sequence[Middleware], run_sync: RunSync) -> Call:
        """Return the function, in its time, within the middleware, of which the first is outermost."""
        call = self._plain(run_sync)
        if self.timeout_s is not None:
            call = _timed(call, self.timeout_s)
        for each in reversed(middleware):
            call = _within(each, call)
        return call

    def _plain(self, run_sync: RunSync) -> Call:
        function, arguments = self.function, self.arguments
        if not self.is_async:

            async def call_sync(message: Delivery) -> Any:
                result = await run_sync(functools.partial(self.call_plain, message))
                return await result if inspect.isawaitable(result) else result

            return call_sync
        if [decode for _, decode, _ in self.parameters] == [None] and not self.parameters[0][2]:
            return function

        async def call_async(message: Delivery) -> Any:
            args, kwargs = arguments(message)
            return await function(*args, **kwargs)

        return call_async

    def call_plain(self, message: Delivery) -> Any:
        """Call the function, a plain one, here and now."""
        args, kwargs = self.arguments(message)
        return self.function(*args, **kwargs)

    def arguments(self, message: Delivery) -> tuple[list[Any], dict[str, Any]]:
        """Return the function's arguments for a message.

        Raises:
            BodyError: its body does not fit.
        """
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, decode, by_name in self.parameters:
            value = message if decode is None else decode(message.body)
            if by_name:
                kwargs[name] = value
            else:
                args.append(value)
        return args, kwargs

    def fail(self, message: Delivery, error: BaseException) -> Ending:
        """Settle a message whose handling has failed, by the rules; a line in the log says so. Any thread."""
        verdict = self.rules.verdict(error, message.attempt)
        was_settled = message.settled  # by its handler, and what is said first counts
        settle(message, verdict)
        if verdict.ending is Ending.RELEASED:
            return verdict.ending
        is_meant = isinstance(error, Retry | Reject)  # the handler says so, and where in it is of no interest
        # Whether it comes again, the group knows: this may have been its last try.
        what = "is rejected" if verdict.ending is Ending.REJECTED else "has failed"
        log.warning(
            "%s: message %s of %s, attempt %d, %s: %s",
            self.name, message.id, message.topic, message.attempt,
            "was settled by its handler, which then failed" if was_settled else what, verdict.reason,
            exc_info=None if is_meant else error,
        )  # fmt: skip
        return Ending.HANDLED if was_settled else verdict.ending

    def log_lost(self, message: Delivery) -> None:
        """Say in the log that a message that is handled is not ours any more."""
        log.warning(
            "%s: message %s of %s was lost while it was handled, and comes again", self.name, message.id, message.topic
        )


def name_of(function: Callable[..., Any]) -> str:
    """Return a function's name, for people."""
    name: str = getattr(function, "__qualname__", None) or repr(function)
    return name.rpartition("<locals>.")[2]


def _parameters(function: Callable[..., Any], name: str) -> list[tuple[str, Decode | None, bool]]:
    hints = _hints(function, name)
    found: list[tuple[str, Decode | None, bool]] = []
    has_body = False
    for number, each in enumerate(inspect.signature(function).parameters.values()):
        annotation = hints.get(each.name, each.annotation)
        by_name = each.kind is each.KEYWORD_ONLY
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            continue
        if annotation is Message:
            raise InvalidArgumentError(
                f"{each.name} of {name} is a tarry.Message, which producers make; allowed: tarry.Delivery"
            )
        if annotation is Delivery or (number == 0 and annotation in (each.empty, Any)):
            found.append((each.name, None, by_name))
        elif annotation is not each.empty and not has_body and (number == 0 or each.default is each.empty):
            has_body = True
            found.append((each.name, decoder_of(annotation, f"{each.name} of {name}"), by_name))
        elif each.default is each.empty:
            raise InvalidArgumentError(
                f"nobody gives {name} its parameter {each.name}; allowed: one for the body, with its type, and "
                "`message: tarry.Delivery`; others need a default"
            )
    return found


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(_routine(function), include_extras=True)
    except NameError as error:
        raise InvalidArgumentError(
            f"a type of {name} is not known while the program runs: {error}; allowed: types of the module itself, "
            "not of a function, or imported for type checkers alone"
        ) from error


def _routine(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function itself, of a partial one or of an object that is called."""
    if isinstance(function, functools.partial):
        return _routine(function.func)
    if inspect.isroutine(function):
        return function
    called: Callable[..., Any] = type(function).__call__
    return called


def _timed(call: Call, timeout_s: float) -> Call:
    async def timed(message: Delivery) -> Any:
        try:
            async with asyncio.timeout(timeout_s) as bound:
                return await call(message)
        except TimeoutError as error:
            if bound.expired():
                # Its cause has the place at which the handler was.
                raise TimeoutError(f"not handled within {timeout_s:g} s") from error.__cause__
            raise

    return timed


def _within(middleware: Middleware, call: Call) -> Call:
    return lambda message: middleware(message, call)
