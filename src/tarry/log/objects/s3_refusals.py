"""Answers of S3 that are none, as one sentence: what is wrong, the value, and what is allowed."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import NamedTuple

RIGHTS = "a key that may list the bucket, and get, put and delete objects in it"
_CODE, _MESSAGE = re.compile(r"<Code>(.*?)</Code>"), re.compile(r"<Message>(.*?)</Message>", re.DOTALL)
_STATUS = re.compile(r"status code:? (\d+[^:<]*)")
_DECORATION = re.compile(r"\x1b\[\d*m|\u21b3")
"""Colours and arrows that delta-rs puts into its errors."""
_REGION = re.compile(r"<Region>(.*?)</Region>|expecting '([\w-]+)'")
_NOT_FOUND = re.compile(r"Bucket '[^']*' not found$")
"""Arrow's own words."""
_REDIRECTED = ("PermanentRedirect", "IllegalLocationConstraintException", "AuthorizationHeaderMalformed")
_UNKNOWN_KEY = ("InvalidAccessKeyId", "XAdminUserNotFound", "InvalidToken")
_CAUSES = (
    ("ConnectionRefused", "nothing listens there"),
    ("Connection refused", "nothing listens there"),
    ("dns error", "the name is not known"),
    ("curlCode: 7,", "nothing listens there"),
    ("curlCode: 6,", "the name is not known"),
    ("curlCode: 28,", "no answer in time"),
    ("TimedOut", "no answer in time"),
    ("timed out", "no answer in time"),
)
_SETTINGS = (
    ("InvalidContentType", "it does not speak TLS; allowed: http://… with AWS_ALLOW_HTTP=true, or one that does"),
    ("URL scheme is not allowed", "it is without TLS; allowed: https://…, or AWS_ALLOW_HTTP=true"),
    ("certificate", "its certificate is not trusted; allowed: one of an authority that this machine trusts"),
)
"""Causes that somebody has to mend before it is of use to ask again."""


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


class WhyUnanswered(NamedTuple):
    """The reason for which there is no answer.

    ``is_refusal``: to ask again is of no use before somebody mends it.
    """

    text: str
    is_refusal: bool = False


def reason_of(text: str, what: str, asked: AskedStore) -> WhyUnanswered:
    """Return the sentence for an error of obstore or delta-rs with this ``text``; ``what``: the request."""
    text = " ".join(_DECORATION.sub("", text).split())
    found = _CODE.search(text)
    code, status = found[1] if found else "", _STATUS.search(text)
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
    if code in _REDIRECTED or (status and status[1].startswith("301")):
        right = _REGION.search(html.unescape(text))
        where = f": {right[1] or right[2]}" if right else ""
        return WhyUnanswered(
            f"the region is {asked.region}; allowed: AWS_REGION of the bucket {asked.bucket!r}{where}", True
        )
    if code == "AccessDenied" or (not code and status and status[1].startswith("403") and "169.254" not in text):
        return WhyUnanswered(f"the access key {asked.access_key} may not {what}; allowed: {RIGHTS}", True)
    if "169.254." in text:
        return WhyUnanswered(
            "there are no credentials; allowed: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a machine with a role",
            True,
        )
    setting = next((why for sign, why in _SETTINGS if sign in text), None)
    if setting is not None and not code and not status:
        return WhyUnanswered(f"no connection to {asked.endpoint} (AWS_ENDPOINT_URL): {setting}", True)
    return WhyUnanswered(_other(text, code, asked))


def _other(text: str, code: str, asked: AskedStore) -> str:
    if code or _STATUS.search(text):
        status, message = _STATUS.search(text), _MESSAGE.search(text)
        parts = (status and status[1].strip(), code, message and html.unescape(message[1]))
        return f"{asked.endpoint} answered {', '.join(part for part in parts if part)}"
    cause = next((why for sign, why in _CAUSES if sign in text), None)
    if cause is not None:
        return f"no connection to {asked.endpoint} (AWS_ENDPOINT_URL): {cause}"
    return f"no answer from {asked.endpoint}: {text.partition('Debug source')[0].strip()[-200:]}"
