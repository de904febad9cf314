"""Refusals of Google Cloud Storage and Azure, as sentences; what somebody has to mend is exit code 2."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests.ports import free_port

from tarry.backup import bucket as bucket_module
from tarry.backup.azure_refusals import AskedContainer, azure_reason
from tarry.backup.bucket import Bucket
from tarry.backup.google_refusals import AskedGoogleBucket, google_reason
from tarry.base.errors import InvalidArgumentError, UnavailableError

GOOGLE = AskedGoogleBucket("b", "")
AZURE = AskedContainer.of("abfss://c@acct.dfs.core.windows.net/p", {})
KEY = "a2V5"
URIS = {"gs": "gs://b/p", "abfss": "abfss://c@acct.dfs.core.windows.net/p", "s3": "s3://b/p"}
ENDPOINTS = {"gs": "GOOGLE_BASE_URL", "abfss": "AZURE_STORAGE_ENDPOINT", "s3": "AWS_ENDPOINT_URL"}
HTTP = {"gs": "GOOGLE_ALLOW_HTTP", "abfss": "AZURE_ALLOW_HTTP", "s3": "AWS_ALLOW_HTTP"}
CREDENTIALS = {
    "GOOGLE_BEARER_TOKEN": "t", "AZURE_STORAGE_ACCOUNT_KEY": KEY,
    "AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "S", "AWS_REGION": "us-east-1",
}  # fmt: skip


def answered(status: str, code: str, message: str = "m", request: str = "GET") -> str:
    said = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>" if code else ""
    return f"Error performing {request} https://h/x in 2ms - Server returned non-2xx status code: {status}: {said}"


def token(status: str, at: str, said: str = "") -> str:
    return f"Error performing token request: Error performing POST {at} in 1ms - status code: {status}: {said}"


METADATA = "http://169.254.169.254/computeMetadata/v1/token"


@pytest.mark.parametrize(
    ("text", "says", "is_refusal"),
    [
        (answered("404 Not Found", "NoSuchBucket"), "there is no bucket 'b' at Google Cloud Storage; allowed", True),
        (f"performing list request: {answered('404 Not Found', '')}", "there is no bucket 'b'", True),
        (answered("400 Bad Request", "InvalidBucketName"), "no bucket is named 'b'; allowed: 3 to 63", True),
        (answered("401 Unauthorized", "AuthenticationRequired"), "for the bucket 'b' are not known", True),
        (answered("403 Forbidden", "AccessDenied"), "may not list p in the bucket 'b' .*; allowed: .*objectUser", True),
        (answered("403 Forbidden", ""), "may not list p in the bucket 'b'", True),
        (answered("403 Forbidden", "AccountProblem"), "AccountProblem, m; allowed: a bucket 'b' that may", True),
        (token("404 Not Found", METADATA), "there are no credentials; allowed: GOOGLE_SERVICE_ACCOUNT", True),
        (token("503 Away", METADATA), "http://169.254.169.254 answered 503 Away", False),
        (
            token("400 Bad Request", "https://oauth2.example/token", '{"error_description":"Invalid JWT."}'),
            r"https://oauth2.example refuses the credentials \(400 Bad Request: Invalid JWT.\)",
            True,
        ),
        (answered("503 Slow Down", "SlowDown"), "Google Cloud Storage answered 503 Slow Down, SlowDown, m", False),
        (answered("429 Too Many", ""), "answered 429 Too Many", False),
        ("error sending request Debug source: ConnectionRefused", r"\(GOOGLE_BASE_URL\): nothing listens there", False),
        ("builder error Debug source: BadScheme", "without TLS; allowed: https://…, or GOOGLE_ALLOW_HTTP=true", True),
        ("something else Debug source: Foo", "no answer from Google Cloud Storage: something else", False),
    ],
)
def test_of_google_each_is_a_sentence(text: str, says: str, is_refusal: bool) -> None:
    check_sentence(google_reason(text, "list p", GOOGLE), says, is_refusal)


@pytest.mark.parametrize(
    ("text", "says", "is_refusal"),
    [
        (
            answered("404 Not Found", "ContainerNotFound"),
            "no container 'c' in the account 'acct' at https://acct",
            True,
        ),
        ("for key p/a: The specified container does not exist. (code: 404)", "there is no container 'c'", True),
        ("Bulk delete request failed for key p/a: Not permitted. (code: 403)", "may not list p in the container", True),
        ("Bulk delete request failed for key p/a: Busy. (code: 503)", "core.windows.net answered 503, Busy.", False),
        (answered("400 Bad", "InvalidResourceName"), "no container is named 'c'; allowed: 3 to 63", True),
        (answered("403 Forbidden", "AuthenticationFailed"), "do not fit the account 'acct' .* container 'c'", True),
        (
            answered("403 Forbidden", "AuthorizationFailure", "Server failed to authenticate the request."),
            "do not fit the account 'acct'",
            True,
        ),
        (
            answered("403 Forbidden", "AuthenticationFailed", "Request date header too old: x"),
            "this machine's clock",
            True,
        ),
        (
            answered("403 Forbidden", "AuthorizationPermissionMismatch"),
            r"may not list p in the container 'c' of .* \(AuthorizationPermissionMismatch\); allowed: the role",
            True,
        ),
        (answered("403 Forbidden", ""), "may not list p in the container 'c' of the account 'acct'", True),
        (answered("403 Forbidden", "KeyBasedAuthenticationNotPermitted"), "takes no keys; allowed: AZURE_CLIENT", True),
        ("Invalid Access Key: Invalid symbol 38", "AZURE_STORAGE_ACCOUNT_KEY is no key; allowed", True),
        (token("403 Forbidden", METADATA), "there are no credentials; allowed: AZURE_STORAGE_ACCOUNT_KEY", True),
        (token("401 Unauthorized", "https://login.example/t"), "https://login.example refuses the credentials", True),
        (token("502 Bad Gateway", "https://login.example/t"), "https://login.example answered 502 Bad Gateway", False),
        (answered("503 Busy", "ServerBusy"), "https://acct.blob.core.windows.net answered 503 Busy, ServerBusy", False),
        ("error Debug source: dns error", r"\(AZURE_STORAGE_ENDPOINT\): the name is not known", False),
    ],
)
def test_of_azure_each_is_a_sentence(text: str, says: str, is_refusal: bool) -> None:
    check_sentence(azure_reason(text, "list p", AZURE), says, is_refusal)


def check_sentence(reason: Any, says: str, is_refusal: bool) -> None:
    with pytest.raises(AssertionError, match=says):
        raise AssertionError(reason.text)
    assert ("<" in reason.text, "\n" in reason.text, len(reason.text) < 400) == (False, False, True)
    assert reason.is_refusal is is_refusal


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Credentials of each, and nothing else of theirs."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "AZURITE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(bucket_module, "RETRIES", {"max_retries": 0})
    return monkeypatch


@contextmanager
def answering(status: int, code: str) -> Iterator[tuple[str, list[str | None]]]:
    """An endpoint that answers each request so, and the values of Cache-Control that came."""
    body, seen = f"<Error><Code>{code}</Code><Message>m</Message></Error>".encode(), []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers["Cache-Control"])
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", seen
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("scheme", "status", "code", "says"),
    [
        ("gs", 404, "NoSuchBucket", "there is no bucket 'b'"),
        ("gs", 403, "AccessDenied", "may not get p/x in the bucket 'b'"),
        ("abfss", 404, "ContainerNotFound", "there is no container 'c' in the account 'acct'"),
        ("abfss", 403, "AuthenticationFailed", "do not fit the account 'acct'"),
        ("s3", 404, "NoSuchBucket", "there is no bucket 'b'"),
        ("s3", 403, "SignatureDoesNotMatch", "the secret does not fit the access key A"),
    ],
)
def test_a_refusal_is_no_missing_answer(
    environment: pytest.MonkeyPatch, scheme: str, status: int, code: str, says: str
) -> None:
    environment.setenv(HTTP[scheme], "true")
    with answering(status, code) as (endpoint, seen):
        environment.setenv(ENDPOINTS[scheme], endpoint)
        bucket = Bucket(URIS[scheme])
        with pytest.raises(InvalidArgumentError, match=f"{URIS[scheme]} cannot be asked: .*{says}"):
            bucket.get("x")
        with pytest.raises(InvalidArgumentError):
            bucket.sizes("")
    assert set(seen) == {"no-store"}


@pytest.mark.parametrize("scheme", URIS)
def test_an_answer_of_no_use_is_no_refusal(environment: pytest.MonkeyPatch, scheme: str) -> None:
    environment.setenv(HTTP[scheme], "true")
    with answering(503, "SlowDown") as (endpoint, _):
        environment.setenv(ENDPOINTS[scheme], endpoint)
        with pytest.raises(UnavailableError, match="answered 503 Service Unavailable, SlowDown, m"):
            Bucket(URIS[scheme]).get("x")
    environment.setenv(ENDPOINTS[scheme], f"http://127.0.0.1:{free_port()}")
    with pytest.raises(UnavailableError, match="nothing listens there"):
        Bucket(URIS[scheme]).get("x")


@pytest.mark.parametrize("scheme", URIS)
def test_an_endpoint_without_tls_has_to_be_allowed(environment: pytest.MonkeyPatch, scheme: str) -> None:
    environment.setenv(ENDPOINTS[scheme], "http://127.0.0.1:9")
    with pytest.raises(InvalidArgumentError, match=f"http://127.0.0.1:9, without TLS; allowed: .*{HTTP[scheme]}=true"):
        Bucket(URIS[scheme])
    environment.setenv(HTTP[scheme], "true")
    Bucket(URIS[scheme])


def test_an_endpoint_of_a_service_account_has_to_be_allowed_too(environment: pytest.MonkeyPatch) -> None:
    account = {"gcs_base_url": "http://127.0.0.1:9", "disable_oauth": True, "client_email": "", "private_key": ""}
    environment.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", json.dumps(account | {"private_key_id": ""}))
    with pytest.raises(InvalidArgumentError, match=r"without TLS; allowed: .*GOOGLE_ALLOW_HTTP=true"):
        Bucket("gs://b/p").get("x")


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("gs://", "allowed: gs://BUCKET/PREFIX"),
        ("abfss://", "allowed: abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX"),
        ("abfss://c/p", "no account of the container 'c' is named; allowed: abfss://CONTAINER@ACCOUNT"),
    ],
)
def test_a_uri_that_lacks_something_is_refused_in_one_line(
    environment: pytest.MonkeyPatch, uri: str, says: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=says) as caught:
        Bucket(uri)
    assert "\n" not in str(caught.value)


def test_an_account_may_be_named_by_the_environment(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("AZURE_STORAGE_ACCOUNT_NAME", "acct")
    assert AskedContainer.of("abfss://c/p", os.environ) == AZURE
    assert Bucket("az://c/p").uri == "abfss://c/p"


def test_a_file_of_credentials_that_is_missing_is_named(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("GOOGLE_SERVICE_ACCOUNT", "/nowhere.json")
    with pytest.raises(InvalidArgumentError, match=r"gs://b/p: .*/nowhere.json.*; allowed: GOOGLE_SERVICE_ACCOUNT"):
        Bucket("gs://b/p")
    environment.setenv("AZURE_STORAGE_ACCOUNT_KEY", "&&")
    with pytest.raises(InvalidArgumentError, match="AZURE_STORAGE_ACCOUNT_KEY is no key"):
        Bucket("abfss://c@acct.dfs.core.windows.net/p").get("x")
