"""What S3 answers where a setting is wrong, as one sentence."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from tarry.base.errors import InvalidArgumentError, TarryError, UnavailableError
from tarry.log.objects.s3 import S3Objects
from tarry.log.objects.s3_refusals import AskedStore, reason_of
from tarry.store.place import Place
from tarry.store.publisher import Publisher
from tarry.verify.store import store_checks

ASKED = AskedStore("b", "http://h:9000", "us-east-1", "AK")

DELTA_RS = (
    "Kernel error -> Generic S3 error\n  \x1b[31m↳\x1b[0m Error performing GET http://h in 1.7ms - Server returned "
    "non-2xx status code\n  \x1b[31m↳\x1b[0m {}\n  \x1b[31m↳\x1b[0m {}\n"
)

ARROW = "AWS Error NETWORK_CONNECTION during HeadBucket operation:"


def answered(status: str, code: str, more: str = "") -> str:
    said = f"<Error><Code>{code}</Code><Message>m &#34;x&#34;</Message>{more}</Error>"
    return f"Generic S3 error: status code: {status}: {said}"


@pytest.mark.parametrize(
    ("text", "says", "is_refusal"),
    [
        (answered("404 Not Found", "NoSuchBucket"), "there is no bucket 'b' at http://h:9000", True),
        (answered("400 Bad Request", "InvalidBucketName"), "no bucket is named 'b'; allowed: 3 to 63", True),
        (answered("403 Forbidden", "SignatureDoesNotMatch"), "the secret does not fit the access key AK", True),
        (answered("403 Forbidden", "InvalidAccessKeyId"), "the access key AK is not known at http://h:9000", True),
        (answered("403 Forbidden", "AccessDenied"), "the access key AK may not list epoch/; allowed: a key that", True),
        ("Generic S3 error: status code: 403 Forbidden: ", "may not list epoch/", True),
        (answered("403 Forbidden", "ExpiredToken"), "have expired", True),
        (answered("403 Forbidden", "RequestTimeTooSkewed"), "clock", True),
        (answered("301 Moved", "PermanentRedirect"), "the region is us-east-1; allowed: AWS_REGION of", True),
        (
            answered("400 Bad Request", "AuthorizationHeaderMalformed", "<Region>eu-x</Region>"),
            "the region is us-east-1; allowed: AWS_REGION of the bucket 'b': eu-x",
            True,
        ),
        (answered("503 Slow Down", "SlowDown"), 'http://h:9000 answered 503 Slow Down, SlowDown, m "x"', False),
        ("Generic S3 error: status code: 502 Bad Gateway: <html>", "http://h:9000 answered 502 Bad Gateway", False),
        ("error sending request Debug source: kind: ConnectionRefused", "nothing listens there", False),
        ("error sending request Debug source: InvalidContentType", "it does not speak TLS", True),
        ("PUT http://169.254.169.254/latest/api/token status code: 403 Forbidden", "there are no credentials", True),
        (DELTA_RS.format("404 Not Found", "<Error><Code>NoSuchBucket</Code></Error>"), "there is no bucket 'b'", True),
        (DELTA_RS.format("503 Slow Down", ""), "http://h:9000 answered 503 Slow Down", False),
        ("HTTP error\n \x1b[31m↳\x1b[0m Connection refused (os error 111)", "nothing listens there", False),
        ("When resolving region for bucket 'b': Bucket 'b' not found", "there is no bucket 'b' at http://h:9000", True),
        (f"When resolving region for bucket 'b': {ARROW} curlCode: 6, Could not", "the name is not known", False),
        (f"When resolving region for bucket 'b': {ARROW} curlCode: 7, Could not", "nothing listens there", False),
        (f"{ARROW} curlCode: 28, Timeout was reached", "no answer in time", False),
        ("something else Debug source: Foo", "no answer from http://h:9000: something else", False),
    ],
)
def test_each_is_a_sentence(text: str, says: str, is_refusal: bool) -> None:
    reason = reason_of(text, "list epoch/", ASKED)
    assert says in reason.text
    assert ("<" in reason.text, len(reason.text) < 200) == (False, True)
    assert reason.is_refusal is is_refusal


def test_an_endpoint_without_tls_has_to_be_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ALLOW_HTTP", raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(InvalidArgumentError, match="AWS_ALLOW_HTTP=true"):
        S3Objects("s3://bucket/prefix")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    S3Objects("s3://bucket/prefix")


def test_a_store_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ALLOW_HTTP", raising=False)
    for name, value in (("ENDPOINT_URL", "http://127.0.0.1:9"), ("ACCESS_KEY_ID", "A"), ("SECRET_ACCESS_KEY", "S")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    with pytest.raises(InvalidArgumentError, match=r"the store s3://bucket/store .* it is without TLS; allowed"):
        Publisher("s3://bucket/store", shard=0)
    with pytest.raises(InvalidArgumentError, match="it is without TLS"):
        list(store_checks("s3://bucket/store"))
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    with pytest.raises(UnavailableError, match=r"no connection to http://127.0.0.1:9 .*: nothing listens there"):
        list(store_checks("s3://bucket/store"))


@pytest.fixture
def amazon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Amazon's S3, with credentials, and no region."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "A")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "S")


@pytest.mark.parametrize("name", ["AWS_REGION", "AWS_DEFAULT_REGION"])
@pytest.mark.usefixtures("amazon")
def test_arrow_has_the_region_that_is_set_and_does_not_ask_for_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "eu-west-9")
    place = Place.of("s3://bucket/store")
    assert (place.filesystem.region, place.base, place.uri) == ("eu-west-9", "bucket/store", "s3://bucket/store")


@pytest.mark.parametrize(
    ("said", "kind", "told"),
    [
        ("Bucket 'bucket' not found", InvalidArgumentError, "there is no bucket 'bucket' at Amazon S3; allowed: one"),
        (f"{ARROW} curlCode: 6, Could not resolve", UnavailableError, "no connection to Amazon S3 .* not known"),
    ],
)
@pytest.mark.usefixtures("amazon")
def test_a_region_that_is_not_set_and_not_told(
    said: str, kind: type[TarryError], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(uri: str) -> None:
        raise OSError(f"When resolving region for bucket 'bucket': {said}")

    monkeypatch.setattr("tarry.store.place.fs", SimpleNamespace(FileSystem=SimpleNamespace(from_uri=ask)))
    with pytest.raises(kind, match=rf"the store s3://bucket/store cannot be asked: {told}.*; AWS_REGION is not set"):
        Place.of("s3://bucket/store")
