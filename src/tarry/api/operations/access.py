"""Access tokens of the HTTP front: create, list, limit, delete. Changes are durable on return."""

from __future__ import annotations

from dataclasses import dataclass

from tarry.api.access import EVERYTHING, AccessToken, CreatedToken
from tarry.api.needs import OnBroker, Right
from tarry.api.operation import NOTHING, Action, Int64, Operation, data, many


@dataclass(frozen=True, slots=True)
class CreateToken(Operation[CreatedToken]):
    """Make a token for a namespace ("*": everything).

    Its ``secret`` is made here, unless one is given; it is in the result and nowhere else.

    Raises:
        InvalidArgumentError: a value is not allowed, or the namespace has a token with this secret.
        DiskFullError: nothing was made.
    """

    wire = Action("create-token", "an access token of the HTTP front", data(CreatedToken))
    needs = OnBroker(Right.ADMIN)
    namespace: str = EVERYTHING
    description: str = ""
    secret: str | None = None


@dataclass(frozen=True, slots=True)
class ListTokens(Operation[list[AccessToken]]):
    """List all tokens, or those of one namespace, oldest first; never with their secrets."""

    wire = Action("tokens", "the access tokens", many(data(AccessToken)))
    needs = OnBroker(Right.ADMIN)
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class LimitToken(Operation[AccessToken]):
    """Limit how often a token may be used in each ``interval_ms``.

    It may ask for messages ``reads_max`` times, and schedule ``writes_max`` times; 0 and 0: any number of times.

    Raises:
        NotFoundError: there is no such token. InvalidArgumentError: a value is not allowed.
        DiskFullError: nothing was changed.
    """

    wire = Action("limit-token", "how often an access token may be used", data(AccessToken))
    needs = OnBroker(Right.ADMIN)
    token: str
    """The token's ``id``."""
    reads_max: Int64 = 0
    writes_max: Int64 = 0
    interval_ms: Int64 = 1000


@dataclass(frozen=True, slots=True)
class DeleteToken(Operation[None]):
    """Delete a token, by its ``id``: whoever shows its secret is refused from then on.

    Raises:
        NotFoundError: there is no such token. DiskFullError: it is there still.
    """

    wire = Action("delete-token", "refuse an access token from now on", NOTHING)
    needs = OnBroker(Right.ADMIN)
    token: str
