"""Errors of services that hand out tokens for object storage, as one sentence."""

from __future__ import annotations

import re

from tarry.log.objects.store_errors import StoreError, WhyUnanswered

_MACHINE = re.compile(r"//(169\.254\.|metadata\.)")
_SERVICE = re.compile(r"performing [A-Z]+ (https?://[^/ ]+)")
_DESCRIPTION = re.compile(r'"error_description": ?"([^"]*)')
_TRY_AGAIN = ("408", "429", "5")


def refused_identity(error: StoreError, allowed: str) -> WhyUnanswered:
    """Return the sentence for a token that could not be had; ``allowed``: the credentials that there are."""
    is_later = error.status.startswith(_TRY_AGAIN)
    if _MACHINE.search(error.text) and not is_later:  # asked where nothing else is given; elsewhere nobody is there
        return WhyUnanswered(f"there are no credentials; allowed: {allowed}", True)
    found, said = _SERVICE.search(error.text), _DESCRIPTION.search(error.text)
    service = found[1] if found else "the service that hands out tokens"
    why = f": {said[1][:150]}" if said else ""
    if error.status.startswith("4") and not is_later:
        return WhyUnanswered(f"{service} refuses the credentials ({error.status}{why}); allowed: {allowed}", True)
    return error.no_connection(service, "TLS") or WhyUnanswered(error.other(service))
