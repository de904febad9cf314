"""Refusals of Azure Blob Storage as one sentence: what is wrong, and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from tarry.backup.identity_errors import refused_identity
from tarry.log.objects.store_errors import StoreError, WhyUnanswered

CREDENTIALS = (
    "AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN, AZURE_CLIENT_ID with AZURE_CLIENT_SECRET and AZURE_TENANT_ID, "
    "or a machine with an identity"
)
RIGHTS = "the role Storage Blob Data Contributor, or a SAS token for read, add, create, write, delete and list"
_EMULATED = "devstoreaccount1"
_BULK_DELETE = re.compile(r"Bulk delete request failed for key .*?: (.*?) \(code: (\d+)\)")
"""The answer for one of several objects, which has no code of Azure's."""
_ABSENT = ("ContainerNotFound", "ResourceNotFound")
_NAMES = ("InvalidResourceName", "OutOfRangeInput", "InvalidUri")
_UNKNOWN = ("AuthenticationFailed", "InvalidAuthenticationInfo", "NoAuthenticationInformation")


class AskedContainer(NamedTuple):
    """The container that was asked, and where."""

    container: str
    account: str
    endpoint: str

    @classmethod
    def of(cls, uri: str, where: Mapping[str, str]) -> AskedContainer:
        """Return that of ``abfss://container@account…/prefix``, by the variables in ``where`` (``AZURE_…``)."""
        container, _, host = urlsplit(uri).netloc.partition("@")
        if where.get("AZURE_STORAGE_USE_EMULATOR", "").lower() in ("true", "1"):
            at = where.get("AZURITE_BLOB_STORAGE_URL") or "the emulator at 127.0.0.1:10000"
            return cls(container, _EMULATED, at.removeprefix("http://"))  # which needs no TLS
        account = host.partition(".")[0] or where.get("AZURE_STORAGE_ACCOUNT_NAME", "")
        given = where.get("AZURE_STORAGE_ENDPOINT") or where.get("AZURE_ENDPOINT")
        return cls(container, account, given or f"https://{account}.blob.core.windows.net")


def _parsed(text: str) -> StoreError:
    error = StoreError.of(text)
    of_one = _BULK_DELETE.search(error.text)
    return error if of_one is None else error._replace(status=of_one[2], message=of_one[1])


def azure_reason(text: str, what: str, asked: AskedContainer) -> WhyUnanswered:
    """Return the sentence for an error of obstore with this ``text``; ``what``: the request."""
    error, account = _parsed(text), f"the account {asked.account!r} at {asked.endpoint}"
    if "performing token request" in error.text:
        return refused_identity(error, CREDENTIALS)
    if error.code in _ABSENT or "The specified container does not exist" in error.text:
        return WhyUnanswered(
            f"there is no container {asked.container!r} in {account}; allowed: one that is there", True
        )
    if error.code in _NAMES:
        return WhyUnanswered(
            f"no container is named {asked.container!r}; allowed: 3 to 63 small letters, digits and hyphens", True
        )
    if "Request date header too old" in error.text:
        return WhyUnanswered("this machine's clock is more than some minutes wrong; allowed: one that is set", True)
    if error.code == "KeyBasedAuthenticationNotPermitted":
        return WhyUnanswered(
            f"{account} takes no keys; allowed: AZURE_CLIENT_ID with AZURE_CLIENT_SECRET and AZURE_TENANT_ID, or a "
            "machine with an identity",
            True,
        )
    # Azurite has the code of a missing right here.
    if error.code in _UNKNOWN or "failed to authenticate" in error.message or error.status.startswith("401"):
        return WhyUnanswered(
            f"the credentials do not fit {account}, or have expired; allowed for the container {asked.container!r}: "
            f"{CREDENTIALS}",
            True,
        )
    if error.status.startswith("403"):
        return WhyUnanswered(
            f"the credentials may not {what} in the container {asked.container!r} of {account}"
            f"{f' ({error.code})' if error.code else ''}; allowed: {RIGHTS}",
            True,
        )
    if "Invalid Access Key" in error.text:
        return WhyUnanswered("AZURE_STORAGE_ACCOUNT_KEY is no key; allowed: the text in base64 that Azure shows", True)
    if "Account must be specified" in error.text:
        return WhyUnanswered(
            f"no account of the container {asked.container!r} is named; allowed: "
            "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX, or AZURE_STORAGE_ACCOUNT_NAME",
            True,
        )
    why = error.no_connection(f"{asked.endpoint} (AZURE_STORAGE_ENDPOINT)", "AZURE_ALLOW_HTTP")
    return why or WhyUnanswered(error.other(asked.endpoint))
