"""The broker as gateways need it: whoever serves them has the board, and hears of changed tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tarry.api.board import Board
from tarry.api.local import AnyBroker
from tarry.identity.issuers import PublishedIssuer
from tarry.identity.refusals import Refusals


class ServedBroker(AnyBroker, Protocol):
    """The broker that serves gateways."""

    @property
    def board(self) -> Board: ...
    @property
    def lease_left_ms(self) -> int | None:
        """So long messages may be handed out, if nothing extends it; None: nobody can take the logs over."""
        ...

    @property
    def refusals(self) -> Refusals:
        """Is told who was refused, here and by workers."""
        ...

    @property
    def published_issuers(self) -> Sequence[PublishedIssuer]:
        """The providers of JSON Web Tokens: another object after each change of their keys."""
        ...

    def listen_to_issuers(self, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call ``on_change`` after each change of providers' keys, from any thread; return what ends this."""
        ...

    def ask_issuer(self, url: str) -> None:
        """Have newer keys of a provider looked for."""
        ...

    def listen_to_tokens(self, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call ``on_change`` after each change of the access tokens, from any thread; return what ends this."""
        ...
