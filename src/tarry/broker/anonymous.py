"""The identity of whoever shows no credential: what it may be granted, and by what it is known.

It is kept as any other, without credentials. Where callers are asked it has one that is kept nowhere, so that what
follows identities (rights, the end of connections, the day of the last use) does so here, too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

from tarry.api.identities import ANONYMOUS, Credential, Identity
from tarry.api.needs import Right
from tarry.base.errors import InvalidArgumentError
from tarry.identity.grants import Grant

log = logging.getLogger(__name__)

_NOT_FOR_ANYBODY = (Right.ADMIN, Right.PIPELINE, Right.FRONT)


def check_for_anybody(grants: Iterable[str]) -> None:
    """Refuse rights that whoever reaches a port must not have.

    Raises:
        InvalidArgumentError: one of them is granted, or a line is no grant.
    """
    given = {grant.right for grant in map(Grant.parse, grants) if not grant.is_denied}
    if refused := given.intersection(_NOT_FOR_ANYBODY):
        raise InvalidArgumentError(
            f"{ANONYMOUS} is whoever shows no credential, and grants has {', '.join(sorted(refused))}; allowed: rights "
            "on topics, and bulk"
        )


def with_anonymous(identities: Iterable[Identity]) -> tuple[Identity, ...]:
    """Return identities, the one that is for whoever shows no credential with something to be known by."""
    return tuple(_with_credential(each) if is_for_anybody(each) else each for each in identities)


def is_for_anybody(identity: Identity) -> bool:
    """Return whether an identity is that of whoever shows no credential.

    One of that name may be from before the name had a meaning: with credentials, or with rights that nobody may have
    without one, it is not for others.
    """
    if identity.name != ANONYMOUS or identity.credentials:
        return False
    try:
        check_for_anybody(identity.grants)
    except InvalidArgumentError:
        return False
    return True


def warn_of_another(identities: Iterable[Identity]) -> None:
    """Log that there is an identity of that name, and that it is not for whoever shows no credential."""
    if any(each.name == ANONYMOUS and not is_for_anybody(each) for each in identities):
        log.warning(
            "the identity %r has credentials, or rights that need one, so it is not for whoever shows none; "
            "give its credentials to another, and delete it",
            ANONYMOUS,
        )


def _with_credential(identity: Identity) -> Identity:
    shown = Credential(ANONYMOUS, ANONYMOUS, "shows no credential", identity.created_ms, None)
    return replace(identity, credentials=[shown])
