"""gRPC's own client against the server: every kind of call, and what goes with it."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from loopgrpc import Call, Limits
from tests.loopgrpc.certificates import Certificate
from tests.loopgrpc.serving import Served, in_thread
from tests.waiting import wait_until

WITHOUT_RETRIES = (("grpc.enable_retries", 0), ("grpc.max_receive_message_length", -1))


@pytest.fixture(params=["asyncio", "uvloop"], scope="module")
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    with in_thread(fast=request.param == "uvloop") as served:
        yield served


@pytest.fixture
def channel(served: Served) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(served.address, options=WITHOUT_RETRIES) as channel:
        yield channel


def unary(channel: grpc.Channel, method: str):
    return channel.unary_unary(f"/test.Test/{method}")


def failed(error: pytest.ExceptionInfo[grpc.RpcError]) -> tuple[grpc.StatusCode, str]:
    return error.value.code(), error.value.details()


@pytest.mark.parametrize("method", ["Echo", "Later", "Promise", "EchoLater", "EchoKept"])
def test_unary(channel: grpc.Channel, method: str) -> None:
    assert unary(channel, method)(b"soon") == b"soon"


@pytest.mark.parametrize("size", [0, 1, 16_379, 16_380, 65_535, 65_536, 4 << 20])
def test_messages_of_all_sizes_come_back_whole(channel: grpc.Channel, size: int) -> None:
    message = bytes(range(256)) * (size // 256) + bytes(size % 256)
    assert unary(channel, "Echo")(message) == message


def test_an_answer_may_be_larger_than_a_request(channel: grpc.Channel) -> None:
    assert len(unary(channel, "Big")(b"20000000")) == 20_000_000


def test_server_stream(channel: grpc.Channel) -> None:
    assert list(channel.unary_stream("/test.Test/Count")(b"3")) == [b"0", b"1", b"2"]
    assert list(channel.unary_stream("/test.Test/Count")(b"0")) == []
    assert sum(1 for _ in channel.unary_stream("/test.Test/Count")(b"20000")) == 20_000


def test_a_coroutine_gives_one_answer_or_all(channel: grpc.Channel) -> None:
    for message, answers in ((b"?", [b"?"]), (b"3", [b"0", b"1", b"2"])):
        assert list(channel.unary_stream("/test.Test/Awaited")(message)) == answers
        assert list(channel.stream_stream("/test.Test/AwaitedChat")(iter([message]))) == answers


@pytest.mark.parametrize("size", [0, 10, 16_384, 200_000])
def test_all_answers_in_one_piece(channel: grpc.Channel, size: int) -> None:
    message = bytes(size)

    def answers(method: str) -> list[bytes]:
        return list(channel.unary_stream(f"/test.Test/{method}")(message))

    assert answers("Piece") == answers("PieceKept") == [message]
    assert answers("Pieces") == answers("PiecesLater") == [message, b"", message]
    assert answers("Assembled") == [message + b"!"]


def test_promised_answers(channel: grpc.Channel) -> None:
    assert list(channel.unary_stream("/test.Test/StreamLater")(b"3")) == [b"0", b"1", b"2"]
    with pytest.raises(grpc.RpcError) as error:
        list(channel.unary_stream("/test.Test/NoPiece")(b""))
    assert error.value.code() is grpc.StatusCode.UNKNOWN


def test_a_promise_that_nobody_waits_for_any_more(channel: grpc.Channel, served: Served) -> None:
    service = served.service

    def calls() -> list[Call]:
        return [call for call in service.calls if call.method.endswith("PromisedPiece")]

    before = len(calls())
    waiting = channel.unary_stream("/test.Test/PromisedPiece")(b"x")
    wait_until(lambda: len(calls()) > before)
    waiting.cancel()
    wait_until(lambda: calls()[-1].cancelled)
    served.loop.call_soon_threadsafe(service.pieces[-1].set_result, b"late")
    assert unary(channel, "Echo")(b"on") == b"on"


def test_client_stream(channel: grpc.Channel) -> None:
    assert channel.stream_unary("/test.Test/Sum")(iter([b"a" * 70_000] * 100)) == b"7000000"
    assert channel.stream_unary("/test.Test/Sum")(iter([])) == b"0"


def test_an_answer_before_the_end_of_a_request_ends_both(channel: grpc.Channel) -> None:
    assert channel.stream_unary("/test.Test/First")(itertools.repeat(b"again")) == b"again"


def test_both_ways(channel: grpc.Channel) -> None:
    go_on = threading.Semaphore(1)

    def questions() -> Iterator[bytes]:
        for n in range(50):
            go_on.acquire()  # the next question only after the last answer: a conversation, not two streams
            yield b"q%d" % n

    answers = []
    for answer in channel.stream_stream("/test.Test/Chat")(questions()):
        answers.append(answer)
        go_on.release()
    assert answers == [b"Q%d" % n for n in range(50)]


def test_many_calls_at_a_time(channel: grpc.Channel) -> None:
    method = unary(channel, "Later")
    futures = [method.future(b"%d" % n) for n in range(900)]
    assert [f.result() for f in futures] == [b"%d" % n for n in range(900)]


def test_a_handlers_error_is_the_callers(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as error:
        unary(channel, "Abort")(b"")
    assert failed(error) == (grpc.StatusCode.NOT_FOUND, "nö: 100 %\n")
    assert dict(error.value.trailing_metadata()) == {"why": "because", "raw-bin": b"\0\xff"}
    with pytest.raises(grpc.RpcError) as error:
        unary(channel, "Detail")(b"")
    assert failed(error) == (grpc.StatusCode.UNKNOWN, "no")
    assert dict(error.value.trailing_metadata()) == {"code": "5", "grpc-status-details-bin": b"\0detail"}
    with pytest.raises(grpc.RpcError) as error:
        list(channel.stream_stream("/test.Test/Chat")(iter([b"fail"])))
    assert failed(error) == (grpc.StatusCode.ABORTED, "as the client wants it")


@pytest.mark.parametrize("method", ["Fail", "Wrong"])
def test_a_mistake_is_logged_and_not_told(channel: grpc.Channel, caplog: pytest.LogCaptureFixture, method: str) -> None:
    with pytest.raises(grpc.RpcError) as error:
        unary(channel, method)(b"")
    code, text = failed(error)
    assert code is grpc.StatusCode.UNKNOWN
    assert "secret" not in text
    assert [r.levelno for r in caplog.records if r.name.startswith("loopgrpc")] == [logging.ERROR]
    assert unary(channel, "Echo")(b"on") == b"on"


def test_metadata_both_ways(channel: grpc.Channel, served: Served) -> None:
    sent = (("text", "a"), ("text", "b, c"), ("raw-bin", b"\0\x01"), ("raw-bin", b""), ("x-1_2.3", "~ !"))
    answer, call = unary(channel, "Metadata").with_call(b"", metadata=sent)
    assert answer.startswith(b"/test.Test/Metadata 127.0.0.1:")
    assert dict(call.trailing_metadata()) == {"text": "a,b, c", "raw-bin": b"\0\x01|"}
    seen = served.service.calls[-1].metadata
    assert seen["x-1_2.3"] == "~ !"
    assert not {"te", "content-type", ":path", "grpc-timeout"} & set(seen)


def test_a_method_that_is_not_there(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as error:
        unary(channel, "Nothing")(b"")
    assert failed(error) == (grpc.StatusCode.UNIMPLEMENTED, "there is no method /test.Test/Nothing")
    with pytest.raises(grpc.RpcError) as error:
        list(channel.stream_stream("/test.Test/Nothing")(itertools.repeat(b"x" * 1000)))
    assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compressed_requests(channel: grpc.Channel, compression: grpc.Compression) -> None:
    assert unary(channel, "Echo")(b"a" * 100_000, compression=compression) == b"a" * 100_000
    total = channel.stream_unary("/test.Test/Sum")(iter([b"a" * 100_000] * 9), compression=compression)
    assert total == b"900000"


def test_messages_above_the_limit(channel: grpc.Channel) -> None:
    for compression in (None, grpc.Compression.Gzip):
        with pytest.raises(grpc.RpcError) as error:
            unary(channel, "Echo")(bytes((4 << 20) + 1), compression=compression)
        assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert unary(channel, "Echo")(b"on") == b"on"


def test_a_deadline_ends_the_call_and_its_handler(channel: grpc.Channel, served: Served) -> None:
    before = len(served.service.cancelled)
    with pytest.raises(grpc.RpcError) as error:
        unary(channel, "Wait")(b"", timeout=0.2)
    assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    wait_until(lambda: len(served.service.cancelled) > before)
    assert served.service.calls[-1].cancelled


def test_cancelling_reaches_the_handler(channel: grpc.Channel, served: Served) -> None:
    before = len(served.service.cancelled)
    seen = len(served.service.calls)
    call = unary(channel, "Wait").future(b"")
    wait_until(lambda: len(served.service.calls) > seen)
    call.cancel()
    wait_until(lambda: len(served.service.cancelled) > before)
    stream = channel.unary_stream("/test.Test/Endless")(b"x")
    next(stream)
    stream.cancel()
    wait_until(lambda: served.service.cancelled[-1] == "Endless")


def test_a_slow_reader_makes_its_handler_wait_and_nobody_else(channel: grpc.Channel, served: Served) -> None:
    served.service.yielded = 0
    slow = channel.unary_stream("/test.Test/Endless")(bytes(100_000))
    next(slow)
    wait_until(lambda: _is_still(served))
    assert served.service.yielded * 100_000 < 64 << 20
    assert unary(channel, "Echo")(b"beside it") == b"beside it"
    before = served.service.yielded
    for _ in range(before):
        next(slow)
    wait_until(lambda: served.service.yielded > before)
    slow.cancel()


def _is_still(served: Served) -> bool:
    before = served.service.yielded

    async def turns() -> None:
        for _ in range(1000):
            await asyncio.sleep(0)

    served.do(turns)
    return before == served.service.yielded


def test_tls(certificate: Certificate) -> None:
    with in_thread(tls=certificate.server_context()) as served:
        credentials = grpc.ssl_channel_credentials(certificate.certificate.read_bytes())
        with grpc.secure_channel(served.address, credentials) as channel:
            assert unary(channel, "Echo")(b"x" * 200_000) == b"x" * 200_000
            assert list(channel.stream_stream("/test.Test/Chat")(iter([b"a", b"b"]))) == [b"A", b"B"]
            assert len(list(channel.unary_stream("/test.Test/Count")(b"5000"))) == 5000


def test_more_calls_than_there_may_be_wait_in_the_client() -> None:
    with in_thread(limits=Limits(streams_max=4)) as served, grpc.insecure_channel(served.address) as channel:
        futures = [unary(channel, "Later").future(b"%d" % n) for n in range(50)]
        assert [f.result() for f in futures] == [b"%d" % n for n in range(50)]


def test_a_stop_with_grace_lets_calls_end_and_refuses_new_ones() -> None:
    with in_thread() as served, grpc.insecure_channel(served.address, options=WITHOUT_RETRIES) as channel:
        running = unary(channel, "Wait").future(b"let me end")
        wait_until(lambda: served.service.release is not None)
        with ThreadPoolExecutor(1) as pool:
            stopping = pool.submit(served.do, lambda: served.server.stop(30))
            wait_until(lambda: any(usage.draining for usage in served.server.usage()))
            with pytest.raises(grpc.RpcError) as error:
                unary(channel, "Echo")(b"too late")
            assert error.value.code() is grpc.StatusCode.UNAVAILABLE
            assert not stopping.done()
            assert served.service.release is not None
            served.loop.call_soon_threadsafe(served.service.release.set)
            assert running.result() == b"let me end"
            stopping.result(20)
        assert served.server.connections == 0


def test_when_grace_is_over_calls_are_cancelled() -> None:
    with in_thread() as served, grpc.insecure_channel(served.address, options=WITHOUT_RETRIES) as channel:
        running = unary(channel, "Wait").future(b"")
        wait_until(lambda: served.service.release is not None)
        served.do(lambda: served.server.stop(0))
        assert isinstance(running.exception(), grpc.RpcError)
        assert served.service.cancelled == ["Wait"]
