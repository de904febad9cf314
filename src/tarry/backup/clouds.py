"""Kinds of object storage, by the scheme of a URI: how each is reached, and its refusals as sentences."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Protocol
from urllib.parse import urlsplit

from tarry.backup.azure_refusals import AskedContainer, azure_reason
from tarry.backup.google_refusals import AskedGoogleBucket, google_reason
from tarry.base.errors import InvalidArgumentError
from tarry.log.objects.http_client import client_options
from tarry.log.objects.s3_refusals import AskedStore, reason_of
from tarry.log.objects.store_errors import WhyUnanswered

_ABSENT = re.compile(
    r"<Code>(NoSuchBucket|ContainerNotFound|ContainerBeingDeleted|ResourceNotFound)</Code>"
    r"|The specified container (does not exist|is being deleted)"
)


class Cloud(Protocol):
    """One kind of object storage, and what is asked there."""

    form: str
    """The form of its URIs, for people."""

    def http_options(self, timeout: timedelta) -> dict[str, Any]:
        """Return the options of the HTTP client.

        Raises:
            InvalidArgumentError: the endpoint is without TLS, which the environment does not allow.
        """
        ...

    def reason(self, text: str, what: str) -> WhyUnanswered:
        """Return the sentence for an error with this ``text``; ``what``: the request."""
        ...


def cloud_of(uri: str, where: Mapping[str, str]) -> Cloud:
    """Return the kind of ``uri``, by the variables in ``where``."""
    scheme = uri.partition("://")[0]
    return S3Cloud(uri, where) if scheme == "s3" else GoogleCloud(uri, where) if scheme == "gs" else Azure(uri, where)


def is_bucket_absent(text: str) -> bool:
    """Return whether an answer that something is not there speaks of the bucket, not of an object."""
    return _ABSENT.search(text) is not None


class S3Cloud:
    """Amazon S3, and what speaks S3."""

    form = "s3://BUCKET/PREFIX"

    def __init__(self, uri: str, where: Mapping[str, str]) -> None:
        self._asked = AskedStore.of(uri, where)

    def http_options(self, timeout: timedelta) -> dict[str, Any]:
        return client_options(self._asked, timeout)

    def reason(self, text: str, what: str) -> WhyUnanswered:
        return reason_of(text, what, self._asked)


class GoogleCloud:
    """Google Cloud Storage."""

    form = "gs://BUCKET/PREFIX"

    def __init__(self, uri: str, where: Mapping[str, str]) -> None:
        self._where = where
        self._asked = AskedGoogleBucket(urlsplit(uri).netloc, where.get("GOOGLE_BASE_URL", ""))

    def http_options(self, timeout: timedelta) -> dict[str, Any]:
        return _http_options(timeout, self._where, "GOOGLE_ALLOW_HTTP", self._asked.endpoint)

    def reason(self, text: str, what: str) -> WhyUnanswered:
        return google_reason(text, what, self._asked)


class Azure:
    """Azure Blob Storage."""

    form = "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX"

    def __init__(self, uri: str, where: Mapping[str, str]) -> None:
        self._where = where
        self._asked = AskedContainer.of(uri, where)

    def http_options(self, timeout: timedelta) -> dict[str, Any]:
        return _http_options(timeout, self._where, "AZURE_ALLOW_HTTP", self._asked.endpoint)

    def reason(self, text: str, what: str) -> WhyUnanswered:
        return azure_reason(text, what, self._asked)


def _http_options(timeout: timedelta, where: Mapping[str, str], variable: str, endpoint: str) -> dict[str, Any]:
    # obstore takes it from the environment only where it is given no options of its client.
    allow_http = where.get(variable, "").lower() in ("true", "1")
    if endpoint.startswith("http://") and not allow_http:
        raise InvalidArgumentError(
            f"the endpoint is {endpoint}, without TLS; allowed: https://…, or {variable}=true in a network that nobody "
            "else reads"
        )
    return {"timeout": timeout, "default_headers": {"cache-control": "no-store"}, "allow_http": allow_http}
