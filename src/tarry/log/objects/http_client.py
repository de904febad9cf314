"""Options of the HTTP client of ``obstore``: time-outs, and whether TLS may be left out."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from tarry.base.errors import InvalidArgumentError
from tarry.log.objects.s3_refusals import AskedStore


def client_options(asked: AskedStore, timeout: timedelta, given: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the options, with those that are ``given``.

    Raises:
        InvalidArgumentError: the endpoint is without TLS, which the environment does not allow.
    """
    # obstore takes it from the environment only where it is given no options of its client.
    allow_http = os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("true", "1")
    http = {"timeout": timeout, "default_headers": {"cache-control": "no-store"}, "allow_http": allow_http}
    http |= given or {}
    if asked.endpoint.startswith("http://") and not http["allow_http"]:
        raise InvalidArgumentError(
            f"the endpoint is {asked.endpoint}, without TLS; allowed: https://…, or AWS_ALLOW_HTTP=true in a "
            "network that nobody else reads"
        )
    return http
