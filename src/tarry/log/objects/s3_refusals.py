"""Answers of S3 that are none, as one sentence: what is wrong, the value, and what is allowed."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import NamedTuple

from tarry.log.objects.store_errors import StoreError, WhyUnanswered

RIGHTS = "a key that may list the bucket, and get, put and delete objects in it"
_REGION = re.compile(r"<Region>(.*?)</Region>|expecting '([\w-]+)'")
_NOT_FOUND = re.compile(r"Bucket '[^']*' not found$")
"""Arrow's own words."""
_REDIRECTED = ("PermanentRedirect", "IllegalLocationConstraintException", "AuthorizationHeaderMalformed")
_UNKNOWN_KEY = ("InvalidAccessKeyId", "XAdminUserNotFound", "InvalidToken")


class AskedStore(NamedTuple):
    """The store that was asked, and how."""

    bucket: str
    endpoint: str
    region: str
    access_key: str

    @classmethod
    def of(cls, uri: str, where: Mapping[str, str]) -> AskedStore:
        """Return the store of ``s3://bucket/prefix``, by the variables in ``where`` (``AWS_…``)."""
        return cls(
            bucket=uri.removeprefix("s3://").partition("/")[0],
            endpoint=where.get("AWS_ENDPOINT_URL") or where.get("AWS_ENDPOINT") or "Amazon S3",
            region=where.get("AWS_REGION") or where.get("AWS_DEFAULT_REGION") or "us-east-1",
            access_key=where.get("AWS_ACCESS_KEY_ID") or "of this machine",
        )


def reason_of(text: str, what: str, asked: AskedStore) -> WhyUnanswered:
    """Return the sentence for an error of obstore or delta-rs with this ``text``; ``what``: the request."""
    error = StoreError.of(text)
    text, code, status, _ = error
    if code == "NoSuchBucket" or _NOT_FOUND.search(text):
        return WhyUnanswered(
            f"there is no bucket {asked.bucket!r} at {asked.endpoint}; allowed: one that is there", True
        )
    if code == "InvalidBucketName":
        return WhyUnanswered(
            f"no bucket is named {asked.bucket!r}; allowed: 3 to 63 small letters, digits, dots and hyphens", True
        )
    if code == "SignatureDoesNotMatch":
        return WhyUnanswered(
            f"the secret does not fit the access key {asked.access_key}; allowed: AWS_SECRET_ACCESS_KEY of that key",
            True,
        )
    if code in _UNKNOWN_KEY:
        return WhyUnanswered(
            f"the access key {asked.access_key} is not known at {asked.endpoint}; allowed: AWS_ACCESS_KEY_ID of one "
            "that is",
            True,
        )
    if code == "ExpiredToken":
        return WhyUnanswered(f"the credentials of {asked.access_key} have expired; allowed: new ones", True)
    if code == "RequestTimeTooSkewed":
        return WhyUnanswered("this machine's clock is more than some minutes wrong; allowed: one that is set", True)
    if code in _REDIRECTED or status.startswith("301"):
        right = _REGION.search(html.unescape(text))
        where = f": {right[1] or right[2]}" if right else ""
        return WhyUnanswered(
            f"the region is {asked.region}; allowed: AWS_REGION of the bucket {asked.bucket!r}{where}", True
        )
    if code == "AccessDenied" or (not code and status.startswith("403") and "169.254" not in text):
        return WhyUnanswered(f"the access key {asked.access_key} may not {what}; allowed: {RIGHTS}", True)
    if "169.254." in text:
        return WhyUnanswered(
            "there are no credentials; allowed: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a machine with a role",
            True,
        )
    why = error.no_connection(f"{asked.endpoint} (AWS_ENDPOINT_URL)", "AWS_ALLOW_HTTP")
    return why or WhyUnanswered(error.other(asked.endpoint))
