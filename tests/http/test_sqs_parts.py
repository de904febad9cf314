"""The parts of SQS's API that need no broker: signatures, digests, receipt handles, names, forms."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tarry.fronts.http.sqs import message_attributes as kept
from tarry.fronts.http.sqs import signature
from tarry.fronts.http.sqs.errors import SqsError
from tarry.fronts.http.sqs.handles import SqsHeld, handle_of, held_by
from tarry.fronts.http.sqs.message_attributes import (
    as_properties,
    attributes_of,
    check_text,
    digest_of,
    from_properties,
    wanted,
)
from tarry.fronts.http.sqs.names import check_name, message_id, name_in, name_of_arn
from tarry.fronts.http.sqs.query_protocol import QueryProtocol
from tarry.fronts.http.sqs.queue_attributes import Queue, checked
from tarry.fronts.http.sqs.received import SqsDelivery, id_of, message_of
from tarry.fronts.http.sqs.request import whole_of
from tarry.message.options import ORDER_KEY

BODY = b'{"QueueName":"orders"}'


def signed(url: str = "http://localhost:7070/?b=%20x&a=1", secret: str = "s3cret") -> list[tuple[bytes, bytes]]:
    """The headers of a request that botocore has signed."""
    request = AWSRequest("POST", url, {"X-Amz-Target": "AmazonSQS.CreateQueue", "Host": "localhost:7070"}, BODY)
    SigV4Auth(Credentials("KEY", secret), "sqs", "eu-central-1").add_auth(request)
    return [(name.lower().encode(), str(value).encode()) for name, value in request.headers.items()]


def test_a_signature_holds_for_its_request_alone() -> None:
    headers = signed()
    shown = signature.shown_by(headers, "sqs")
    assert shown is not None and (shown.access_key, shown.region) == ("KEY", "eu-central-1")
    right = ("POST", b"/?b=%20x&a=1", headers, BODY)

    def holds(method: str, target: bytes, headers: Any, body: bytes, secret: bytes = b"s3cret") -> bool:
        return signature.is_right(shown, secret, method, target, headers, body)

    assert holds(*right)
    assert holds("POST", b"/?a=1&b=%20x", headers, BODY), "the query's order is not signed"
    assert not holds(*right, secret=b"another")
    assert not holds("GET", *right[1:])
    assert not holds("POST", b"/x?b=%20x&a=1", headers, BODY)
    assert not holds("POST", b"/?b=%20y&a=1", headers, BODY)
    assert not holds(*right[:3], BODY + b" ")
    forged = [(name, b"AmazonSQS.DeleteQueue" if name == b"x-amz-target" else value) for name, value in headers]
    assert not holds("POST", right[1], forged, BODY)


def test_the_canonical_request_is_that_of_the_published_vectors() -> None:
    headers = [(b"host", b"example.amazonaws.com"), (b"x-amz-date", b"20150830T123600Z")]
    found = signature.canonical_request("GET", b"/?Param2=value2&Param1=value1", headers, ("host", "x-amz-date"), b"")
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert found.decode() == (
        "GET\n/\nParam1=value1&Param2=value2\nhost:example.amazonaws.com\nx-amz-date:20150830T123600Z\n\n"
        f"host;x-amz-date\n{empty}"
    )


def test_a_signature_ends_after_five_minutes() -> None:
    shown = signature.shown_by(signed(), "sqs")
    assert shown is not None
    shown = shown._replace(time="20260101T000000Z")
    now_ms = 1_767_225_600_000
    for at_ms in (now_ms, now_ms + 299_000, now_ms - 299_000):
        signature.check_time(shown, at_ms)
    for at_ms in (now_ms + 301_000, now_ms - 301_000):
        with pytest.raises(SqsError, match="more than 5 minutes"):
            signature.check_time(shown, at_ms)


@pytest.mark.parametrize(
    "change",
    [(b"/sqs/", b"/s3/"), (b"host;", b""), (b"Signature=", b"Signature=Z"), (b"AWS4-HMAC-SHA256", b"AWS4-X")],
)
def test_an_incomplete_signature_is_refused(change: tuple[bytes, bytes]) -> None:
    headers = [(name, value.replace(*change) if name == b"authorization" else value) for name, value in signed()]
    with pytest.raises(SqsError) as refused:
        signature.shown_by(headers, "sqs")
    assert refused.value.code == "IncompleteSignature"


def test_the_digest_of_attributes_is_that_of_sdks() -> None:
    given = {"timestamp": {"StringValue": "1493147359900", "DataType": "Number"}}
    assert digest_of(attributes_of(given)) == "235c5c510d26fb653d073faed50ae77c"
    both = {**given, "b": {"BinaryValue": "AAH/", "DataType": "Binary"}}
    assert digest_of(attributes_of(both)) == digest_of(attributes_of(dict(reversed(both.items()))))
    assert digest_of([]) is None


def test_attributes_come_back_from_properties() -> None:
    given = {
        "s": {"DataType": "String", "StringValue": "ü"},
        "n.a": {"DataType": "Number.int", "StringValue": "-1e3"},
        "n.b": {"DataType": "Binary.png", "BinaryValue": "AAH/"},
    }
    found = from_properties(dict(as_properties(attributes_of(given))))
    assert {each.name: each.form() for each in found} == given
    assert [each.name for each in wanted(found, ["n.*"])] == ["n.a", "n.b"]
    assert wanted(found, ["All"]) == found and wanted(found, []) == []
    # Of somebody who speaks another protocol, and writes what it likes.
    assert [each.form() for each in from_properties({"x": "1", "sqs/types": "[", "tarry.order": "o", "a b": "1"})] == [
        {"DataType": "String", "StringValue": "1"}
    ]
    assert from_properties({"x": "no base64", "sqs/types": '{"x":"Binary"}'})[0].kind == "String"


@pytest.mark.parametrize(
    "odd",
    [
        {kept.TYPES: "[" * 60_000},
        {kept.TYPES: '{"x": "String.\uffff"}'},
        {kept.SENT: "9" * 5000},
        {kept.SENT: "\u0663"},
        *({name: "\x01"} for name in (kept.ID, kept.GROUP_ID, kept.DEDUPLICATION, kept.SENDER, kept.TRACE)),
        {ORDER_KEY: "\x01"},
    ],
    ids=lambda odd: next(iter(odd)),
)
def test_what_others_write_in_the_fronts_properties_spoils_no_receive(odd: dict[str, str]) -> None:
    """One such message was an internal error of each receive that had it, and held back the others of its batch."""
    queue = Queue("orders", {}, {}, 1, 1)
    delivery = SqsDelivery(SqsHeld(1, 0, 1, 1), b"x", {"x": "v", **odd}, 5, 1, id_of(queue, odd, 1))
    message = message_of(queue, delivery, "x", 5, {"All"}, ["All"])
    assert message["Attributes"]["SentTimestamp"] == "5"
    assert message["MessageAttributes"]["x"] == {"DataType": "String", "StringValue": "v"}
    text = QueryProtocol().answer("ReceiveMessage", {"Messages": [message]}, "r").body
    assert ElementTree.fromstring(text).findtext(".//{*}Body") == "x"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS.x", {"DataType": "String", "StringValue": "v"}),
        (".x", {"DataType": "String", "StringValue": "v"}),
        ("x..y", {"DataType": "String", "StringValue": "v"}),
        ("tarry.x", {"DataType": "String", "StringValue": "v"}),
        ("x", {"DataType": "Text", "StringValue": "v"}),
        ("x", {"DataType": "String.\ud800", "StringValue": "v"}),
        ("x", {"DataType": "String.\uffff", "StringValue": "v"}),
        ("x", {"DataType": "String", "StringValue": ""}),
        ("x", {"DataType": "Number", "StringValue": "one"}),
        ("x", {"DataType": "Binary", "BinaryValue": "%"}),
        ("x", {"StringValue": "v"}),
        ("x", {"DataType": "String", "StringValue": "v", "BinaryValue": "AAH/"}),
        ("x", {"DataType": "Binary.png", "StringValue": "v", "BinaryValue": "AAH/"}),
        ("x", {"DataType": "Number", "BinaryValue": "AAH/"}),
    ],
)
def test_an_attribute_that_sqs_does_not_have_is_refused(name: str, value: dict[str, str]) -> None:
    with pytest.raises(SqsError) as refused:
        attributes_of({name: value})
    assert refused.value.code == "InvalidParameterValue"


def test_an_attribute_has_one_value() -> None:
    """What SDKs fill in for nothing is none; a list is refused, as AWS does it."""
    nothing = {"BinaryValue": "", "StringListValues": [], "BinaryListValues": None}
    [found] = attributes_of({"x": {"DataType": "String", "StringValue": "v", **nothing}})
    assert found.form() == {"DataType": "String", "StringValue": "v"}
    with pytest.raises(SqsError, match="'x' with type 'String' must use field 'String'"):
        attributes_of({"x": {"DataType": "String", "StringValue": "v", "BinaryValue": "AAH/"}})
    with pytest.raises(SqsError, match="list values") as refused:
        attributes_of({"x": {"DataType": "String", "StringValue": "v", "StringListValues": ["w"]}})
    assert refused.value.query_code == "AWS.SimpleQueueService.UnsupportedOperation"


def test_a_number_beyond_its_bounds_is_refused_in_the_words_of_aws() -> None:
    words = {
        "MaxNumberOfMessages": "Must be between 1 and 10, if provided.",
        "WaitTimeSeconds": "Must be >= 1 and <= 10, if provided.",
        "DelaySeconds": "DelaySeconds must be >= 1 and <= 10.",
    }
    for name, why in words.items():
        for value in (0, 11, -1, 1.5, "x", True, 10**30, []):
            with pytest.raises(SqsError) as refused:
                whole_of({name: value}, name, 5, 1, 10)
            expected = f"Value {value!s:.60} for parameter {name} is invalid. Reason: {why}"
            assert (refused.value.code, str(refused.value)) == ("InvalidParameterValue", expected)
        assert [whole_of({name: value}, name, 5, 1, 10) for value in (None, 1, "10")] == [5, 1, 10]


def test_bodies_have_the_characters_of_xml() -> None:
    check_text("\t\n\r ~\x7f퟿�\U0001f600")
    for character in "\x00\x0b\x1f￾\ud800":
        with pytest.raises(SqsError, match="Invalid characters"):
            check_text(f"a{character}")


def test_a_handle_is_of_its_queue() -> None:
    held = SqsHeld(1 << 62, 7, -5, 1_767_225_600_000)
    handle = handle_of("orders", held)
    assert held_by("orders", handle) == held
    for queue, text in (("others", handle), ("orders", handle[:-4]), ("orders", "ü"), ("orders", "x" + handle[1:])):
        with pytest.raises(SqsError) as refused:
            held_by(queue, text)
        assert refused.value.code == "ReceiptHandleIsInvalid"


def test_names_of_queues() -> None:
    for name in ("a", "a-b_C9", "x" * 80, "a.fifo"):
        assert check_name(name) == name
        assert name_in(f"https://sqs.us-east-1.amazonaws.com/1234/{name}") == name_in(name) == name
        assert name_of_arn(f"arn:aws:sqs:us-east-1:000000000000:{name}") == name
    for name in ("", "a.b", "a/b", "x" * 81, "ü", ".fifo"):
        with pytest.raises(SqsError):
            check_name(name)
    assert name_of_arn("arn:aws:sns:us-east-1:1:x") is None
    ids = {message_id("a", 1, seq) for seq in (0, 1, 1 << 32, -1, 1 << 40)} | {message_id("b", 1, 0)}
    assert len(ids) == 6 and all(len(each) == 36 for each in ids)


def test_forms_become_parameters() -> None:
    form = (
        b"Action=SendMessageBatch&QueueUrl=http%3A%2F%2Fx%2Fq&SendMessageBatchRequestEntry.2.Id=b"
        b"&SendMessageBatchRequestEntry.1.Id=a&SendMessageBatchRequestEntry.1.MessageAttribute.1.Name=n"
        b"&SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.DataType=Number"
        b"&SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.StringValue=3&AttributeName.1=All"
    )
    action, parameters = QueryProtocol().read([], "/", b"", form)
    assert action == "SendMessageBatch"
    number = {"DataType": "Number", "StringValue": "3"}
    assert parameters == {
        "QueueUrl": "http://x/q",
        "Entries": [{"Id": "a", "MessageAttributes": {"n": number}}, {"Id": "b"}],
        "AttributeNames": ["All"],
    }
    _, at_its_url = QueryProtocol().read([], "/000000000000/q", b"Action=SendMessage&MessageBody=x", b"")
    assert at_its_url == {"MessageBody": "x", "QueueUrl": "/000000000000/q"}
    # One name without a number, as in AWS's own examples.
    assert QueryProtocol().read([], "/", b"Action=a&AttributeName=All", b"")[1] == {"AttributeNames": ["All"]}
    deep = b".".join([b"SendMessageBatchRequestEntry.1"] * 5000)
    for bad in (b"Action=a&Tag.x.Key=1", b"Action=a&Tag.1.Value=1", b"Action=a&A=1&A.1=2", b"\xff", deep + b".Id=a"):
        with pytest.raises(SqsError):
            QueryProtocol().read([], "/", b"", bad)


def test_attributes_of_queues_have_bounds() -> None:
    assert checked("a", {"DelaySeconds": 5, "VisibilityTimeout": "43200"}, 900) == {
        "DelaySeconds": "5",
        "VisibilityTimeout": "43200",
    }
    bad = {
        "DelaySeconds": "901",
        "MessageRetentionPeriod": "59",
        "ReceiveMessageWaitTimeSeconds": "21",
        "VisibilityTimeout": "-1",
        "MaximumMessageSize": "1023",
        "KmsMasterKeyId": "alias/x",
        "RedrivePolicy": '{"maxReceiveCount": 3}',
        "Policy": '{"Statement": [{"Effect": "Deny"}]}',
        "FifoQueue": "true",
        "QueueArn": "x",
        "Unheard": "x",
    }
    for name, value in bad.items():
        with pytest.raises(SqsError):
            checked("a", {name: value}, 900)
