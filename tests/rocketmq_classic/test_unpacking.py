"""Packed bodies: all of a request count against one limit, and large ones are not unpacked on the loop."""

from __future__ import annotations

import gzip
import threading
import zlib
from typing import Any

import pyarrow as pa
import pytest

from loopgrpc import ByteBudget
from tarry.fronts.rocketmq.classic.batches import BatchEntry, encode_batch
from tarry.fronts.rocketmq.classic.codes import RequestCode, ResponseCode
from tarry.fronts.rocketmq.common import unpacking
from tarry.fronts.rocketmq.common.unpacking import LOOP_BYTES_MAX, REQUEST_BYTES_MAX
from tests.rocketmq.conftest import Place as V5Place
from tests.rocketmq.rpc import Code, d, message, s
from tests.rocketmq_classic.conftest import Place
from tests.rocketmq_classic.remoting import Remoting, send_fields

BODY = bytes(4 << 20)
COUNT = REQUEST_BYTES_MAX // len(BODY) + 1
PACK = {
    0: zlib.compress, 1 << 8: lambda body: pa.Codec("lz4").compress(body).to_pybytes(),
    2 << 8: lambda body: pa.Codec("zstd").compress(body).to_pybytes(),
}  # fmt: skip


class Limits(list[int]):
    """How much was to be unpacked at most by each call on the loop's thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, thread: str) -> None:
        for name in ("_of_gzip", "_of_arrow"):
            monkeypatch.setattr(unpacking, name, self._noting(getattr(unpacking, name), thread))

    def _noting(self, unpack: Any, thread: str) -> Any:
        def noting(*args: Any) -> Any:
            if threading.current_thread().name == thread:
                self.append(args[-1])
            return unpack(*args)

        return noting


def send_batch(client: Remoting, bodies: list[bytes], flag: int) -> Any:
    body = encode_batch([BatchEntry(body, {}) for body in bodies])
    return client.ask(RequestCode.SEND_BATCH_MESSAGE, send_fields("orders") | {"f": flag, "m": "true"}, body)


@pytest.mark.parametrize("codec", PACK)
def test_a_batch_that_grows_beyond_the_limit_is_refused(place: Place, client: Remoting, codec: int) -> None:
    packed = PACK[codec](BODY)
    answer = send_batch(client, [packed] * COUNT, 1 | codec)
    assert (answer.code, str(REQUEST_BYTES_MAX) in answer.remark) == (ResponseCode.MESSAGE_ILLEGAL, True)
    assert [topic.topic for topic in place.broker.pending()] == ["tarry.halves"]
    assert send_batch(client, [packed] * (COUNT - 1), 1 | codec).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("codec", PACK)
def test_what_is_large_is_not_unpacked_on_the_loop(
    client: Remoting, codec: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = Limits(monkeypatch, "tarry-remoting")
    assert client.send("orders", b"x").code == ResponseCode.SUCCESS
    fields = send_fields("orders") | {"f": 1 | codec}
    for size in (1000, len(BODY)):
        body = bytes(size)
        assert client.ask(RequestCode.SEND_MESSAGE_V2, fields, PACK[codec](body)).code == ResponseCode.SUCCESS
    assert send_batch(client, [PACK[codec](bytes(500_000))] * 4, 1 | codec).code == ResponseCode.SUCCESS
    assert limits
    assert max(limits) <= LOOP_BYTES_MAX
    assert sorted(len(m["body"]) for m in client.pull_until(7, "orders", "g")) == [1, 1000, *[500_000] * 4, len(BODY)]


def test_so_is_it_of_v5(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    place = V5Place(tmp_path)
    try:
        limits = Limits(monkeypatch, "tarry-rocketmq")
        rpc, packed = place.client(), gzip.compress(BODY)
        messages = [message("orders", packed, body_encoding=d.Encoding.GZIP) for _ in range(COUNT)]
        answer = rpc.ask("SendMessage", s.SendMessageRequest(messages=messages))
        assert answer.status.code == Code.MESSAGE_BODY_TOO_LARGE
        assert [topic.topic for topic in place.broker.pending()] == ["tarry.halves"]
        answer = rpc.ask("SendMessage", s.SendMessageRequest(messages=messages[1:]))
        assert [entry.status.code for entry in answer.entries] == [Code.OK] * (COUNT - 1)
        assert max(limits) <= LOOP_BYTES_MAX
    finally:
        place.close()


def test_one_address_has_half_of_a_budget() -> None:
    budget = ByteBudget("bodies", 100)
    assert budget.take(50, "a") is None
    assert "bodies of a would take 51 bytes; allowed: 50" in str(budget.take(1, "a"))
    assert budget.take(50, "b") is None
    assert "bodies would take 101 bytes; allowed: 100" in str(budget.take(1, "c"))
    budget.give_back(50, "a")
    assert (budget.take(1, "c"), budget.held) == (None, 51)
