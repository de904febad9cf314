"""Refusals of Google Cloud Storage as one sentence: what is wrong, and what is allowed."""

from __future__ import annotations

from typing import NamedTuple

from tarry.backup.identity_errors import refused_identity
from tarry.log.objects.store_errors import StoreError, WhyUnanswered

CREDENTIALS = (
    "GOOGLE_SERVICE_ACCOUNT (a file) or GOOGLE_SERVICE_ACCOUNT_KEY (its text) of a service account, "
    "GOOGLE_APPLICATION_CREDENTIALS, or a machine with a service account"
)
RIGHTS = "a service account with the role Storage Object User (roles/storage.objectUser) on the bucket"


class AskedGoogleBucket(NamedTuple):
    """The bucket that was asked, and where; "" is Google's own endpoint, or the service account's."""

    bucket: str
    endpoint: str


def google_reason(text: str, what: str, asked: AskedGoogleBucket) -> WhyUnanswered:
    """Return the sentence for an error of obstore with this ``text``; ``what``: the request."""
    error, endpoint = StoreError.of(text), asked.endpoint or "Google Cloud Storage"
    if "performing token request" in error.text:
        return refused_identity(error, CREDENTIALS)
    if "service account file" in error.text or "pem file" in error.text:
        unread = error.text.partition("Debug source")[0].strip()[-200:]
        return WhyUnanswered(f"the credentials cannot be read: {unread}; allowed: {CREDENTIALS}", True)
    # A list has no object that could be missing. Not every server says a code.
    is_list_of_none = "performing list request" in error.text and error.status.startswith("404")
    if error.code == "NoSuchBucket" or (is_list_of_none and not error.code):
        return WhyUnanswered(f"there is no bucket {asked.bucket!r} at {endpoint}; allowed: one that is there", True)
    if error.code == "InvalidBucketName":
        return WhyUnanswered(
            f"no bucket is named {asked.bucket!r}; allowed: 3 to 63 small letters, digits, dots, hyphens and "
            "underscores",
            True,
        )
    if error.status.startswith("401"):
        return WhyUnanswered(
            f"the credentials for the bucket {asked.bucket!r} are not known at {endpoint}, or have expired; allowed: "
            f"{CREDENTIALS}",
            True,
        )
    if error.status.startswith("403") and error.code in ("", "AccessDenied"):
        return WhyUnanswered(
            f"the credentials may not {what} in the bucket {asked.bucket!r} at {endpoint}, or it is not there; "
            f"allowed: {RIGHTS}",
            True,
        )
    if error.status.startswith("403"):  # its billing, its organisation's rules …
        return WhyUnanswered(f"{error.other(endpoint)}; allowed: a bucket {asked.bucket!r} that may be used", True)
    why = error.no_connection(f"{endpoint} (GOOGLE_BASE_URL)", "GOOGLE_ALLOW_HTTP")
    return why or WhyUnanswered(error.other(endpoint))
