"""Requests of producers that wait for a reply, and the replies that are handed on to them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tarry.fronts.rocketmq.classic import connection
from tarry.fronts.rocketmq.classic.codes import RequestCode, ResponseCode, ToClient
from tarry.fronts.rocketmq.classic.frames import RemotingCommand, encode
from tarry.fronts.rocketmq.classic.message_bytes import decode_properties
from tests.rocketmq_classic.conftest import Place
from tests.rocketmq_classic.remoting import Remoting, send_fields


def be_producer(client: Remoting, client_id: str) -> None:
    body = {"clientID": client_id, "producerDataSet": [{"groupName": "producers"}], "consumerDataSet": []}
    assert client.ask(RequestCode.HEART_BEAT, body=json.dumps(body).encode()).code == ResponseCode.SUCCESS


def begin_reply(client: Remoting, to: str | None, **more: Any) -> int:
    properties = {"CORRELATION_ID": "c-1", "MSG_TYPE": "reply"} | ({} if to is None else {"REPLY_TO_CLIENT": to})
    fields = send_fields("tarry_REPLY_TOPIC", **properties) | more
    return client.begin(RequestCode.SEND_REPLY_MESSAGE_V2, fields, b"answer")


def test_who_handles_a_request_knows_where_its_reply_goes(client: Remoting) -> None:
    client.send("orders", b"?", REPLY_TO_CLIENT="asker", CORRELATION_ID="c-1", TTL="3000", CLUSTER="theirs")
    client.send("orders", b"x")
    asked, plain = client.pull_until(2, "orders", "g")
    assert asked["properties"]["CLUSTER"] == "DefaultCluster"
    assert (asked["properties"]["CORRELATION_ID"], asked["properties"]["TTL"]) == ("c-1", "3000")
    assert "CLUSTER" not in plain["properties"]
    route = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "tarry_REPLY_TOPIC"})
    assert route.code == ResponseCode.SUCCESS


@pytest.mark.parametrize("code", [ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR])
def test_a_reply_is_handed_on_and_answered_as_its_producer_answers(place: Place, code: int) -> None:
    asker, replier = place.client(), place.client()
    be_producer(asker, "asker")
    number = begin_reply(replier, "asker")
    question = asker.next_question()
    assert (question.code, question.body) == (ToClient.PUSH_REPLY_MESSAGE_TO_CLIENT, b"answer")
    properties = decode_properties(question.fields["properties"])
    assert (properties["CORRELATION_ID"], "PUSH_REPLY_TIME" in properties) == ("c-1", True)
    needed = {"producerGroup", "topic", "sysFlag", "flag", "bornTimestamp", "bornHost", "storeHost", "storeTimestamp"}
    assert needed <= question.fields.keys()
    # An answer to a question that was never asked is nobody's.
    asker.socket.sendall(encode(RemotingCommand(0, opaque=question.opaque + 5, flag=1)))
    asker.socket.sendall(encode(question.answer(code, remark="no")))
    assert replier.finish(number).code == code


def test_a_reply_for_nobody_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    asker, replier = place.client(), place.client()
    for to in (None, "nobody"):
        assert replier.finish(begin_reply(replier, to)).code == ResponseCode.SYSTEM_ERROR
    be_producer(asker, "asker")
    monkeypatch.setattr(connection, "QUESTION_S", 0.05)
    assert replier.finish(begin_reply(replier, "asker")).code == ResponseCode.SYSTEM_ERROR
    monkeypatch.undo()
    number = begin_reply(replier, "asker")
    asker.next_question()
    asker.next_question()
    asker.close()
    assert replier.finish(number).code == ResponseCode.SYSTEM_ERROR
