"""The parts by themselves: fields against the library's decoder, messages cut anywhere, metadata, statuses."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from urllib.parse import unquote

import pytest
from hpack import Decoder, Encoder
from hpack.exceptions import HPACKError
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hpack.huffman_table import decode_huffman as library_huffman
from hypothesis import given
from hypothesis import strategies as st

from loopgrpc import Call, GrpcError, StatusCode
from loopgrpc.frames import CONTINUATION, DATA, FRAME_HEADER, HEADERS, ConnectionFault
from loopgrpc.framing import Deframer, prefix
from loopgrpc.header_table import HeaderTable
from loopgrpc.hpack_decoder import HpackDecoder
from loopgrpc.huffman import decode_huffman
from loopgrpc.metadata import encode_metadata
from loopgrpc.request import MalformedError, Request, check_values, parse_request, parse_similar
from loopgrpc.request_decoder import RequestDecoder
from loopgrpc.responses import RESPONSE_HEADERS, encode_literal, encode_trailers, headers_frames, unary_response
from loopgrpc.status import encode_message
from tests.loopgrpc.wire import CALL

HARD = 65_536
names = st.sampled_from([b":path", b"te", b"accept", b"x", b"long-name-of-a-field", b"text"])
values = st.one_of(st.sampled_from([b"", b"trailers", b"a"]), st.binary(max_size=100))
field_lists = st.lists(st.tuples(names, values), max_size=12)


@given(st.lists(st.tuples(field_lists, st.booleans(), st.sampled_from([None, 0, 60, 200, 4096])), max_size=8))
def test_fields_are_those_of_the_library(blocks: list[tuple[list[tuple[bytes, bytes]], bool, int | None]]) -> None:
    encoder, theirs, table = Encoder(), Decoder(HARD), HeaderTable()
    ours = HpackDecoder(table, HARD)
    for fields, huffman, size in blocks:
        if size is not None:
            encoder.header_table_size = size
        block = encoder.encode(fields, huffman=huffman)
        assert ours.decode(block) == [tuple(f) for f in theirs.decode(block, raw=True)] == fields
        assert table.dynamic == list(theirs.header_table.dynamic_entries)
        assert ours.list_bytes == sum(len(n) + len(v) + 32 for n, v in fields)


start_of_field = st.sampled_from(
    [b"\x82", b"\x87", b"\xbe", b"\xbf", b"\x20", b"\x3f\xe1\x1f", b"\x40", b"\x00", b"\x10"]
)
strings = st.sampled_from([b"\x01a", b"\x00", b"\x82\xff\xff", b"\x03abc", b"\x84\x1c\x64\x96\xdf", b"\x7f\x00"])
pieces = st.one_of(
    st.tuples(start_of_field, strings, strings).map(b"".join),
    st.sampled_from([b"\x82", b"\xbe", b"\x44\x01/", b"\x0f\x10\x01a", b"\xff\x80\x00", b"\x20"]),
    st.binary(max_size=6),
)


@given(st.lists(st.lists(pieces, max_size=6).map(b"".join), min_size=1, max_size=5))
def test_both_take_and_refuse_the_same_blocks(blocks: list[bytes]) -> None:
    theirs, table = Decoder(HARD), HeaderTable()
    ours = HpackDecoder(table, HARD)
    for block in blocks:
        try:
            expected = [tuple(f) for f in theirs.decode(block, raw=True)]
        except (HPACKError, IndexError):
            with pytest.raises(ConnectionFault):
                ours.decode(block)
            return  # neither knows its table any more
        before = table.dynamic
        assert ours.decode(block) == expected
        assert table.dynamic == list(theirs.header_table.dynamic_entries)
        if ours.table_unchanged:
            assert table.dynamic == before
            assert ours.decode(block) == expected  # so a memo may answer for it


@given(st.binary(max_size=60))
def test_texts_come_back_from_huffmans_code(text: bytes) -> None:
    assert decode_huffman(HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH).encode(text)) == text


@given(st.binary(max_size=12))
def test_both_take_and_refuse_the_same_code(code: bytes) -> None:
    try:
        expected = library_huffman(code)
    except HPACKError:
        with pytest.raises(HPACKError):
            decode_huffman(code)
    else:
        assert decode_huffman(code) == expected


def test_a_list_of_fields_is_bounded_while_it_is_decoded() -> None:
    with pytest.raises(ConnectionFault):
        HpackDecoder(HeaderTable(), 100).decode(encode_literal(b"a", b"b" * 100))


@given(st.lists(st.binary(max_size=50), max_size=6), st.lists(st.integers(1, 30), min_size=1, max_size=60))
def test_messages_come_out_however_they_are_cut(messages: list[bytes], cuts: list[int]) -> None:
    data = b"".join(map(prefix, messages))
    deframer, cut_out = Deframer(b"identity", 1000), []
    while data:
        size = cuts.pop() if cuts else len(data)
        cut_out += deframer.feed(data[:size])
        data = data[size:]
    assert (cut_out, deframer.incomplete_bytes) == (messages, 0)


@pytest.mark.parametrize(("encoding", "bits"), [(b"gzip", 31), (b"deflate", 15)])
def test_messages_are_inflated_up_to_the_limit(encoding: bytes, bits: int) -> None:
    def packed(size: int) -> bytes:
        packer = zlib.compressobj(9, zlib.DEFLATED, bits)
        data = packer.compress(bytes(size)) + packer.flush()
        return b"\x01" + len(data).to_bytes(4, "big") + data

    assert Deframer(encoding, 1000).feed(packed(1000) + prefix(b"plain")) == [bytes(1000), b"plain"]
    with pytest.raises(GrpcError) as error:
        Deframer(encoding, 999).feed(packed(1000))
    assert error.value.status is StatusCode.RESOURCE_EXHAUSTED


@given(st.text(max_size=50))
def test_messages_of_statuses_survive(text: str) -> None:
    encoded = encode_message(text)
    assert all(0x20 <= byte < 0x7F for byte in encoded)
    if not any(0xD800 <= ord(c) < 0xE000 for c in text):
        assert unquote(encoded.decode()) == text


@given(st.lists(st.text(alphabet="ab \t\r\n\0", max_size=4).map(str.encode), max_size=5))
def test_values_are_looked_at_as_one_and_judged_as_each(values_sent: list[bytes]) -> None:
    bad = any(set(v) & set(b"\r\n\0") or v != v.strip(b" \t") for v in values_sent)
    fields = [(b"a", v) for v in values_sent]
    if bad:
        with pytest.raises(MalformedError):
            check_values(fields)
    else:
        check_values(fields)


changing = st.lists(
    st.sampled_from(
        [
            *((name, value) for name in (b"x-id", b"x-time") for value in (b"1", b"2", b"", b" 3", b"a\nb", b"a b")),
            *((b"grpc-timeout", value) for value in (b"1S", b"20m", b"soon")),
            *((b"grpc-encoding", value) for value in (b"identity", b"gzip", b"none")),
            *((b"content-length", value) for value in (b"1", b"2")),
            *((b"te", value) for value in (b"trailers", b"gzip")),
        ]
    ),
    max_size=4,
)


@given(st.lists(changing, min_size=2, max_size=6))
def test_a_call_like_the_last_one_is_the_same_as_by_itself(calls: list[list[tuple[bytes, bytes]]]) -> None:
    def parsed(parse: Callable[[], Request | None]) -> tuple[object, ...] | None:
        try:
            request = parse()
        except MalformedError:
            return ("malformed",)
        if request is None:
            return None
        whole = [getattr(request, name) for name in Request.__slots__ if name != "refusal"]
        return *whole, request.refusal and request.refusal.text

    def alone(fields: list[tuple[bytes, bytes]]) -> Request:
        return parse_request(fields)

    former: tuple[Request, list[tuple[bytes, bytes]]] | None = None
    for more in calls:
        fields = [*CALL, *more]
        expected = parsed(lambda fields=fields: alone(fields))
        if former is not None:
            assert parsed(lambda fields=fields, former=former: parse_similar(fields, *former)) in (None, expected)
        former = (alone(fields), fields) if expected != ("malformed",) else None


def test_a_call_that_differs_in_metadata_and_timeout_is_like_the_last_one() -> None:
    before = [*CALL, (b"x-id", b"1"), (b"grpc-timeout", b"1S")]
    request = parse_similar([*CALL, (b"x-id", b"2"), (b"grpc-timeout", b"2S")], parse_request(before), before)
    assert request is not None
    assert (request.path, request.metadata, request.timeout_s) == (b"/test.Test/Echo", [(b"x-id", b"2")], 2.0)


@given(
    st.lists(st.tuples(changing, st.booleans(), st.sampled_from([b"/test.Test/Echo", b"/test.Test/None"])), max_size=8),
    st.booleans(),
)
def test_requests_from_caches_are_those_that_are_parsed(
    calls: list[tuple[list[tuple[bytes, bytes]], bool, bytes]], indexed: bool
) -> None:
    """Blocks that come again, blocks that change the table, and blocks like the previous one of their method."""
    encoder, plain = Encoder(), HpackDecoder(HeaderTable(), HARD)
    decoder = RequestDecoder({b"/test.Test/Echo"}, HARD // 4)

    def parsed(parse: Callable[[], Request]) -> object:
        try:
            request = parse()
        except MalformedError:
            return "malformed"
        refusal = request.refusal and request.refusal.text
        return request.path, request.metadata, request.timeout_s, request.encoding, request.content_length, refusal

    for more, huffman, path in calls:
        fields = [(name, path if name == b":path" else value) for name, value in (*CALL, *more)]
        if indexed:
            block = encoder.encode(fields, huffman=huffman)
        else:
            block = b"".join(encode_literal(*field) for field in fields)
        expected = parsed(lambda block=block: parse_request(plain.decode(block)))
        assert parsed(lambda block=block: decoder.decode_request(block)) == expected


def call_with(*fields: tuple[bytes, bytes]) -> Call:
    return Call(parse_request([*CALL, *fields]), "here:1", None)


def test_metadata_is_read_by_name() -> None:
    call = call_with((b"a", b"1"), (b"b-bin", b"AAE"), (b"a", b"2"), (b"b-bin", b"/w=="))
    assert call.metadata == {"a": "1,2", "b-bin": "AAE,/w=="}
    assert call.binary("b-bin") == [b"\0\x01", b"\xff"]
    assert call.binary("none-bin") == []
    with pytest.raises(GrpcError):
        call_with((b"b-bin", b"?")).binary("b-bin")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("A", ""),
        ("", ""),
        ("a b", ""),
        ("grpc-status", "0"),
        ("a", "ä"),
        ("a", "a\n"),
        ("a", " a"),
        ("a", b"a"),
        ("a-bin", "a"),
    ],
)
def test_metadata_that_the_wire_cannot_carry_is_refused(name: str, value: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"metadata|ascii"):
        encode_metadata(name, value)


def test_callbacks_at_the_end_are_called_once_and_may_fail() -> None:
    call, seen = call_with(), []
    call.on_done(lambda _: 1 / 0)
    call.on_done(seen.append)
    call.end(cancelled=True)
    call.end(cancelled=False)
    call.on_done(seen.append)
    assert (seen, call.cancelled) == ([call, call], True)


@pytest.mark.parametrize(
    ("raw", "seconds"), [(b"1H", 3600), (b"90M", 5400), (b"0S", 0), (b"5m", 0.005), (b"99999999n", 0.1)]
)
def test_timeouts(raw: bytes, seconds: float) -> None:
    assert parse_request([*CALL, (b"grpc-timeout", raw)]).timeout_s == pytest.approx(seconds)


def test_answers_are_frames_of_constant_blocks() -> None:
    data, frames = unary_response(7, b"hello"), []
    while data:
        word, _, stream = FRAME_HEADER.unpack_from(data)
        frames.append((word & 0xFF, stream, data[9 : 9 + (word >> 8)]))
        data = data[9 + (word >> 8) :]
    assert [f[:2] for f in frames] == [(HEADERS, 7), (DATA, 7), (HEADERS, 7)]
    assert Decoder().decode(frames[0][2]) == [(":status", "200"), ("content-type", "application/grpc")]
    assert frames[1][2] == prefix(b"hello")
    assert Decoder().decode(frames[2][2]) == [("grpc-status", "0")]


def test_long_blocks_are_continued() -> None:
    block = RESPONSE_HEADERS + encode_trailers(StatusCode.OK, "", [(b"a", b"b" * 40_000)])
    data, kinds, whole = headers_frames(1, block, end=True), [], b""
    while data:
        word, flags, _ = FRAME_HEADER.unpack_from(data)
        kinds.append((word & 0xFF, flags))
        whole += data[9 : 9 + (word >> 8)]
        data = data[9 + (word >> 8) :]
    assert kinds == [(HEADERS, 1), (CONTINUATION, 0), (CONTINUATION, 4)]
    assert Decoder().decode(whole)[-1] == ("a", "b" * 40_000)
