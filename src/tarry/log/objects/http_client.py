"""Options of the HTTP client of ``obstore``: time-outs, and whether TLS may be left out."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from tarry.base.errors import InvalidArgumentError


def client_options(
    endpoint: str, timeout: timedelta, given: dict[str, Any] | None = None, *, variable: str = "AWS_ALLOW_HTTP"
) -> dict[str, Any]:
    """Return the options, with those that are ``given``.

    ``variable``: the one of the environment that allows ``endpoint`` to be without TLS.

    Raises:
        InvalidArgumentError: the endpoint is without TLS, which the environment does not allow.
    """
    # obstore takes it from the environment only where it is given no options of its client.
    allow_http = os.environ.get(variable, "").lower() in ("true", "1")
    http = {"timeout": timeout, "default_headers": {"cache-control": "no-store"}, "allow_http": allow_http}
    http |= given or {}
    if endpoint.startswith("http://") and not http["allow_http"]:
        raise InvalidArgumentError(
            f"the endpoint is {endpoint}, without TLS; allowed: https://…, or {variable}=true in a network that nobody "
            "else reads"
        )
    return http
