"""SQS's API by boto3 as it is: queues, delays without a bound, leases, order, dead letters, identities."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tarry.base.clock import TestClock
from tarry.fronts.http.front import HttpFront
from tarry.testing import open_broker
from tests.http.rest import Rest, serving
from tests.http.sqs_place import REGION, Client, client_at, client_of, error_of, make_queue, received
from tests.snippets import snippets
from tests.waiting import wait_until

YEAR_S = 365 * 86_400


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Rest]:
    with serving(tmp_path / "data") as place:
        yield place


@pytest.fixture
def client(place: Rest) -> Client:
    return client_of(place)


def test_twenty_years_later(tmp_path: Path) -> None:
    """One way through everything, with the test clock."""
    clock = TestClock(1_767_225_600_000)
    with open_broker(tmp_path / "data", clock=clock) as broker, HttpFront.start(broker, "127.0.0.1:0") as front:
        client = client_at(f"http://{front.address}")
        url = make_queue(client)
        client.send_message(
            QueueUrl=url,
            MessageBody="far",
            DelaySeconds=20 * YEAR_S,
            MessageAttributes={"price": {"DataType": "Number", "StringValue": "3"}},
        )
        broker.advance_to(clock.now_ms() + 20 * YEAR_S * 1000 - 1)
        assert received(client, url, WaitTimeSeconds=0) == []
        broker.advance_to(clock.now_ms() + 1)
        [message] = received(client, url, WaitTimeSeconds=0)
        assert message["Body"] == "far"
        assert message["MessageAttributes"] == {"price": {"DataType": "Number", "StringValue": "3"}}
        assert message["Attributes"]["SentTimestamp"] == "1767225600000"
        client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        broker.advance("1h")
        assert received(client, url, WaitTimeSeconds=0) == []


@pytest.mark.rest
class TestQueues:
    def test_a_queue_is_made_once(self, place: Rest, client: Client) -> None:
        url = make_queue(client, VisibilityTimeout="7")
        assert url == f"http://{place.front.address}/000000000000/orders"
        assert make_queue(client, VisibilityTimeout="7") == make_queue(client) == url
        assert error_of(client, partial(make_queue, client), VisibilityTimeout="8") == ("QueueAlreadyExists", 400)
        assert client.get_queue_url(QueueName="orders")["QueueUrl"] == url
        attributes = client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        assert attributes["VisibilityTimeout"] == "7"
        assert attributes["QueueArn"] == f"arn:aws:sqs:{REGION}:000000000000:orders"
        client.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "9"})
        assert client.get_queue_attributes(QueueUrl=url, AttributeNames=["VisibilityTimeout"])["Attributes"] == {
            "VisibilityTimeout": "9"
        }
        assert place.broker.group_info("orders", "sqs").lease_ms == 9000

    def test_queues_outlive_a_restart(self, tmp_path: Path) -> None:
        for turn in range(2):
            with serving(tmp_path) as place:
                client = client_of(place)
                if not turn:
                    url = make_queue(client, ReceiveMessageWaitTimeSeconds="1")
                    client.tag_queue(QueueUrl=url, Tags={"team": "shop"})
                    sent = client.send_message(QueueUrl=url, MessageBody="kept")
                    continue
                url = client.get_queue_url(QueueName="orders")["QueueUrl"]
                assert client.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "shop"}
                [message] = received(client, url)
                assert (message["Body"], message["MessageId"]) == ("kept", sent["MessageId"])

    def test_a_url_of_another_host_will_do(self, client: Client) -> None:
        make_queue(client)
        client.send_message(QueueUrl="https://sqs.eu-west-1.amazonaws.com/123456789012/orders", MessageBody="x")
        assert len(received(client, "http://elsewhere/1/orders")) == 1

    def test_behind_a_proxy_a_url_leads_to_it(self, tmp_path: Path) -> None:
        told = {"x-forwarded-host": "queues.example:8443", "x-forwarded-proto": "https"}
        found = []
        for proxies in ("off", "127.0.0.1"):
            with serving(tmp_path / proxies, http_proxies=proxies, http_access="tokens") as place:
                token = place.broker.create_token("*", "all").secret
                headers = {"x-amz-target": "AmazonSQS.CreateQueue", "authorization": f"Bearer {token}", **told}
                answer = place.post("/", {"QueueName": "orders"}, headers=headers)
                found.append(answer.json()["QueueUrl"])
                own = f"http://{place.front.address}/000000000000/orders"
        assert found[1] == "https://queues.example:8443/000000000000/orders"
        assert found[0].startswith("http://127.0.0.1:") and own.startswith("http://127.0.0.1:")

    def test_purging_drops_what_is_ready_held_and_delayed(self, client: Client) -> None:
        url = make_queue(client)
        for delay_s in (0, 0, YEAR_S):
            client.send_message(QueueUrl=url, MessageBody="x", DelaySeconds=delay_s)
        [held] = received(client, url)
        names = [f"ApproximateNumberOfMessages{each}" for each in ("", "NotVisible", "Delayed")]

        def counts() -> list[str]:
            told = client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
            return [told[name] for name in names]

        assert counts() == ["1", "1", "1"]
        client.purge_queue(QueueUrl=url)
        assert counts() == ["0", "0", "0"]
        client.delete_message(QueueUrl=url, ReceiptHandle=held["ReceiptHandle"])

    def test_a_deleted_queue_is_gone_with_its_messages(self, client: Client) -> None:
        url = make_queue(client, "a.fifo")
        given = {"MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "d"}
        client.send_message(QueueUrl=url, DelaySeconds=1, **given)
        client.delete_queue(QueueUrl=url)
        assert error_of(client, client.send_message, QueueUrl=url, **given) == (
            "AWS.SimpleQueueService.NonExistentQueue",
            400,
        )
        make_queue(client, "a.fifo")
        client.send_message(QueueUrl=url, **{**given, "MessageBody": "new"})
        assert [each["Body"] for each in received(client, url)] == ["new"]


@pytest.mark.rest
class TestMessages:
    def test_keys_and_due_times(self, place: Rest, client: Client) -> None:
        url = make_queue(client)
        due_ms = place.broker.clock.now_ms() + 60_000

        def send(body: str, **attributes: str) -> None:
            texts = {f"tarry-{name}": {"DataType": "String", "StringValue": text} for name, text in attributes.items()}
            client.send_message(QueueUrl=url, MessageBody=body, MessageAttributes=texts)

        send("first", key="k", due=str(due_ms))
        found = place.broker.find_key("orders", "k")
        assert found is not None and found.due_ms == due_ms
        send("second", key="k", due=str(due_ms - 59_900))
        assert [each["Body"] for each in received(client, url)] == ["second"]
        send("third", key="k", due=str(due_ms))
        assert place.http.delete("/v1/topics/orders/keys/k").json() == {"outcome": "done"}
        assert error_of(client, send, body="x", due="soon") == ("InvalidParameterValue", 400)

    def test_each_entry_of_a_batch_for_itself(self, client: Client) -> None:
        url = make_queue(client)
        entries = [
            {"Id": "good", "MessageBody": "x"},
            {"Id": "bad", "MessageBody": "\x00"},
            {"Id": "long", "MessageBody": "x", "DelaySeconds": 41 * YEAR_S},
        ]
        answer = client.send_message_batch(QueueUrl=url, Entries=entries)
        assert [each["Id"] for each in answer["Successful"]] == ["good"]
        assert {each["Id"]: each["Code"] for each in answer["Failed"]} == {
            "bad": "InvalidMessageContents",
            "long": "InvalidParameterValue",
        }
        many = [{"Id": str(number), "MessageBody": "x"} for number in range(11)]
        mebibyte = [{"Id": str(number), "MessageBody": "x" * 600_000} for number in range(2)]
        old = "AWS.SimpleQueueService."
        for given, code in (
            (many, "TooManyEntriesInBatchRequest"),
            ([many[0]] * 2, "BatchEntryIdsNotDistinct"),
            ([{"Id": "a b", "MessageBody": "x"}], "InvalidBatchEntryId"),
            (mebibyte, "BatchRequestTooLong"),
        ):
            refused = error_of(client, client.send_message_batch, QueueUrl=url, Entries=given)
            assert refused == (old + code, 400)

    def test_a_mebibyte_and_no_more(self, client: Client) -> None:
        url = make_queue(client)
        client.send_message(QueueUrl=url, MessageBody="\n" * (1 << 20))
        [message] = received(client, url)
        assert len(message["Body"]) == 1 << 20
        refused = error_of(client, client.send_message, QueueUrl=url, MessageBody="x" * ((1 << 20) + 1))
        assert refused == ("InvalidParameterValue", 400)

    def test_strict_is_as_narrow_as_aws(self, tmp_path: Path) -> None:
        with serving(tmp_path, http_sqs_strict="on") as place:
            client = client_of(place)
            url = make_queue(client)
            client.send_message(QueueUrl=url, MessageBody="x", DelaySeconds=900)
            refused = error_of(client, client.send_message, QueueUrl=url, MessageBody="x", DelaySeconds=901)
            assert refused == ("InvalidParameterValue", 400)

    def test_messages_of_other_protocols(self, place: Rest, client: Client) -> None:
        url = make_queue(client)
        place.post("/v1/topics/orders/messages", {"body": "text", "properties": {"color": "red"}})
        [message] = received(client, url)
        assert message["Body"] == "text"
        assert message["MessageAttributes"] == {"color": {"DataType": "String", "StringValue": "red"}}
        place.schedule(b"\xff\x00")
        [message] = received(client, url)
        assert message["Body"] == "/wA="
        assert message["MessageAttributes"]["tarry-encoding"]["StringValue"] == "base64"


@pytest.mark.rest
class TestLeases:
    def test_a_receipt_handle_is_good_after_a_change(self, client: Client) -> None:
        url = make_queue(client, VisibilityTimeout="600")
        client.send_message(QueueUrl=url, MessageBody="x")
        [message] = received(client, url)
        held = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]}
        for visible_s in (300, 600, 0):
            client.change_message_visibility(**held, VisibilityTimeout=visible_s)
        [again] = received(client, url)
        assert again["Attributes"]["ApproximateReceiveCount"] == "2"
        assert again["MessageId"] == message["MessageId"]
        first, second = (each["Attributes"]["ApproximateFirstReceiveTimestamp"] for each in (message, again))
        assert first == second
        refused = error_of(client, client.change_message_visibility, **held, VisibilityTimeout=5)
        assert refused == ("AWS.SimpleQueueService.MessageNotInflight", 400)
        # Deleted by an earlier handle: the message goes all the same.
        client.delete_message(**held)
        client.delete_message(**held)
        client.change_message_visibility_batch(
            QueueUrl=url,
            Entries=[{"Id": "a", "ReceiptHandle": again["ReceiptHandle"], "VisibilityTimeout": 0}],
        )
        assert received(client, url, WaitTimeSeconds=0) == []

    def test_who_waits_gets_it_at_once(self, client: Client) -> None:
        url = make_queue(client)
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.extend(received(client, url, WaitTimeSeconds=20)))
        thread.start()
        client.send_message(QueueUrl=url, MessageBody="x")
        thread.join(15)
        assert [each["Body"] for each in found] == ["x"]


@pytest.mark.rest
class TestFifo:
    def test_one_of_a_group_at_a_time(self, client: Client) -> None:
        url = make_queue(client, "a.fifo", ContentBasedDeduplication="true")
        sent = [
            client.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=group)
            for body, group in (("a1", "a"), ("a2", "a"), ("a2", "a"), ("b1", "b"))
        ]
        numbers = [each["SequenceNumber"] for each in sent]
        assert numbers[1] == numbers[2] and sent[1]["MessageId"] == sent[2]["MessageId"]
        assert sorted(set(numbers)) == [numbers[0], numbers[1], numbers[3]]
        found: list[dict[str, Any]] = []
        wait_until(
            lambda: found.extend(received(client, url, MaxNumberOfMessages=10, WaitTimeSeconds=0)) or len(found) > 1
        )
        assert [(each["Body"], each["Attributes"]["MessageGroupId"]) for each in found] == [("a1", "a"), ("b1", "b")]
        client.delete_message(QueueUrl=url, ReceiptHandle=found[0]["ReceiptHandle"])
        [second] = received(client, url)
        assert second["Body"] == "a2" and second["Attributes"]["SequenceNumber"] == numbers[1]

    def test_what_such_a_queue_needs(self, client: Client) -> None:
        url = make_queue(client, "a.fifo")
        send = client.send_message
        assert error_of(client, send, QueueUrl=url, MessageBody="x") == ("MissingParameter", 400)
        refused = error_of(client, send, QueueUrl=url, MessageBody="x", MessageGroupId="g")
        assert refused == ("InvalidParameterValue", 400)


def test_the_pages_program_runs(place: Rest, capsys: pytest.CaptureFixture[str]) -> None:
    [program] = [each.code for each in snippets("python") if each.page == "docs/sqs.md"]
    exec(compile(program.replace("localhost:7777", place.front.address), "docs/sqs.md", "exec"), {})
    assert capsys.readouterr().out == "unpaid?\n"
