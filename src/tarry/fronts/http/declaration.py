"""Declaration of the HTTP front."""

from __future__ import annotations

from tarry.fronts.http.settings import HttpSettings
from tarry.fronts.kit.front import Front

HTTP = Front(
    name="http",
    settings=HttpSettings,
    title="HTTP",
    start="tarry.fronts.http.front:start",
    check="tarry.fronts.kit.tls_settings:check",
    extra="http",
    worker_needs="tarry.fronts.http.front",
    knows_tokens=True,
    asks_callers=True,
    home="tarry.fronts.http.front:start_home",
)
