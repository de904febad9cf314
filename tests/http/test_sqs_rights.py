"""SQS's API where identities have access keys: they sign, and have rights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.http.rest import serving
from tests.http.scheduler_place import scheduler_at
from tests.http.sqs_place import REGION, client_of, error_of, make_queue, received
from tests.identity.conftest import add_access_keys


@pytest.mark.rest
def test_identities_sign_and_have_rights(tmp_path: Path) -> None:
    with serving(tmp_path) as place:
        grants = {"shop": ["produce orders", "consume orders group:sqs", "look orders"]}
        add_access_keys(place.broker, grants, {"root": "root-secret", "shop": "shop/secret+1"})
        root, shop = client_of(place, "root", "root-secret"), client_of(place, "shop", "shop/secret+1")
        url, other = make_queue(root), make_queue(root, "other")
        shop.send_message(QueueUrl=url, MessageBody="x")
        [message] = received(shop, url)
        assert message["Attributes"]["SenderId"] == "shop"
        shop.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        assert shop.list_queues()["QueueUrls"] == [url]
        for call, arguments in (
            (shop.send_message, {"QueueUrl": other, "MessageBody": "x"}),
            (shop.receive_message, {"QueueUrl": other}),
            (shop.delete_message, {"QueueUrl": other, "ReceiptHandle": message["ReceiptHandle"]}),
            (shop.get_queue_attributes, {"QueueUrl": other, "AttributeNames": ["All"]}),
            (shop.purge_queue, {"QueueUrl": url}),
            (shop.delete_queue, {"QueueUrl": url}),
            (shop.create_queue, {"QueueName": "mine"}),
            (shop.set_queue_attributes, {"QueueUrl": url, "Attributes": {"DelaySeconds": "1"}}),
        ):
            code, status = error_of(shop, call, **arguments)
            assert (code, status) in (("AccessDeniedException", 403), ("ReceiptHandleIsInvalid", 400)), arguments
        for key, secret, code in (
            ("shop", "wrong", "SignatureDoesNotMatch"),
            ("nobody", "x", "InvalidClientTokenId"),
        ):
            stranger = client_of(place, key, secret)
            assert error_of(stranger, stranger.list_queues) == (code, 403)
        for key, secret, code in (
            ("shop", "wrong", "InvalidSignatureException"),
            ("nobody", "x", "UnrecognizedClientException"),
        ):
            scheduler = scheduler_at(f"http://{place.front.address}", key, secret)
            assert error_of(scheduler, scheduler.list_schedules) == (code, 403)
        unsigned = place.post("/", {}, headers={"x-amz-target": "AmazonSQS.ListQueues"})
        assert unsigned.status_code == 403 and unsigned.headers["x-amzn-query-error"].startswith("MissingAuth")


def test_whether_a_queue_of_others_is_there_is_not_told(tmp_path: Path) -> None:
    """Nor whether a parameter is missing; and a redrive policy puts no messages into it."""
    with serving(tmp_path) as place:
        grants = {"shop": ["produce shop*", "consume shop*", "manage shop*"]}
        add_access_keys(place.broker, grants, {"root": "root-secret", "shop": "shop-secret"})
        root, shop = client_of(place, "root", "root-secret"), client_of(place, "shop", "shop-secret")
        url, _ = make_queue(shop, "shop"), make_queue(root, "other")
        for name in ("other", "none"):
            theirs, arn = url.replace("/shop", f"/{name}"), f"arn:aws:sqs:{REGION}:000000000000:{name}"
            policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
            for call, arguments in (
                (shop.get_queue_url, {"QueueName": name}),
                (shop.send_message, {"QueueUrl": theirs, "MessageBody": ""}),
                (shop.receive_message, {"QueueUrl": theirs, "MaxNumberOfMessages": 11}),
                (shop.delete_message, {"QueueUrl": theirs, "ReceiptHandle": "x"}),
                (shop.delete_queue, {"QueueUrl": theirs}),
                (shop.list_message_move_tasks, {"SourceArn": arn}),
                (shop.set_queue_attributes, {"QueueUrl": url, "Attributes": {"RedrivePolicy": policy}}),
                (shop.create_queue, {"QueueName": "shop2", "Attributes": {"RedrivePolicy": policy}}),
            ):
                assert error_of(shop, call, **arguments) == ("AccessDeniedException", 403), (call, arguments)
        assert error_of(shop, shop.get_queue_url, QueueName="shop9") == ("AWS.SimpleQueueService.NonExistentQueue", 400)
        make_queue(shop, "shop-dead")
        policy = json.dumps({"deadLetterTargetArn": arn.replace("none", "shop-dead"), "maxReceiveCount": 1})
        shop.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy})
