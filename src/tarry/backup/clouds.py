"""Kinds of object storage, by the scheme of a URI: how each is reached, and its refusals as sentences."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from tarry.backup.azure_refusals import AskedContainer, azure_reason
from tarry.backup.google_refusals import AskedGoogleBucket, google_reason
from tarry.log.objects.http_client import client_options
from tarry.log.objects.s3_refusals import AskedStore, reason_of
from tarry.log.objects.store_errors import WhyUnanswered

_ABSENT = re.compile(
    r"<Code>(NoSuchBucket|ContainerNotFound|ContainerBeingDeleted|ResourceNotFound)</Code>"
    r"|The specified container (does not exist|is being deleted)"
)


@dataclass(frozen=True)
class Cloud:
    """One kind of object storage, and what is asked there."""

    form: str
    """The form of its URIs, for people."""
    endpoint: str
    allows_http: str
    """The variable of the environment that allows an endpoint without TLS."""
    reason: Callable[[str, str], WhyUnanswered]
    """Returns the sentence for the text of an error, and what was asked."""

    def http_options(self, timeout: timedelta) -> dict[str, Any]:
        """Return the options of the HTTP client.

        Raises:
            InvalidArgumentError: the endpoint is without TLS, which the environment does not allow.
        """
        return client_options(self.endpoint, timeout, variable=self.allows_http)


def cloud_of(uri: str, where: Mapping[str, str]) -> Cloud:
    """Return the kind of ``uri``, by the variables in ``where``."""
    scheme = uri.partition("://")[0]
    if scheme == "s3":
        store = AskedStore.of(uri, where)
        return Cloud("s3://BUCKET/PREFIX", store.endpoint, "AWS_ALLOW_HTTP", partial(reason_of, asked=store))
    if scheme == "gs":
        bucket = AskedGoogleBucket(urlsplit(uri).netloc, where.get("GOOGLE_BASE_URL", ""))
        return Cloud("gs://BUCKET/PREFIX", bucket.endpoint, "GOOGLE_ALLOW_HTTP", partial(google_reason, asked=bucket))
    container = AskedContainer.of(uri, where)
    form = "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX"
    return Cloud(form, container.endpoint, "AZURE_ALLOW_HTTP", partial(azure_reason, asked=container))


def is_bucket_absent(text: str) -> bool:
    """Return whether an answer that something is not there speaks of the bucket, not of an object."""
    return _ABSENT.search(text) is not None
