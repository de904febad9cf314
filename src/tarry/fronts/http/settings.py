"""Settings of the HTTP front."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tarry.base.setting_types import Address, Networks, Origin
from tarry.fronts.kit.settings import FrontSettings


class HttpSettings(FrontSettings):
    """Settings of the HTTP front; part of the broker's configuration."""

    http: Address = Field(None, description="HOST:PORT of the HTTP front (lmstfy's API, Tarry's own); empty: off.")
    http_admin: Address = Field(None, description="HOST:PORT of lmstfy's admin API, beside `http`; empty: off.")
    http_access: Literal["auto", "open", "tokens"] = Field(
        "auto", description="REST and console need access tokens, or not; auto: not where only this machine gets."
    )
    http_console_url: Origin = Field(
        None,
        description="URL of the console for browsers: where a provider's login leads back to; "
        "with https, cookies go by TLS alone.",
    )
    http_proxies: Networks = Field(
        "off",
        description="Networks of proxies whose `X-Forwarded-For` tells the console who guesses at its login, and whose "
        "`X-Forwarded-Host` and `-Proto` are in the URLs of SQS's queues.",
    )
    http_sqs_strict: Literal["on", "off"] = Field(
        "off", description="SQS's API refuses what AWS would: delays of more than 15 minutes, above all."
    )
