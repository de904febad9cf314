"""Commands on the wire: there and back, byte-exact examples, and bytes that are none."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.fronts.rocketmq.classic.authentication import signature_of
from tarry.fronts.rocketmq.classic.frames import (
    BINARY,
    JSON,
    LANGUAGES,
    BadFrame,
    RemotingCommand,
    decode,
    encode,
    frame_length,
)

INT = st.integers(-(1 << 31), (1 << 31) - 1)
SHORT = st.integers(-(1 << 15), (1 << 15) - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
COMMANDS = st.builds(
    RemotingCommand,
    code=SHORT,
    fields=st.dictionaries(TEXT, TEXT, max_size=5),
    body=st.binary(max_size=100),
    opaque=INT,
    flag=INT,
    remark=TEXT,
    language=st.sampled_from(LANGUAGES),
    version=SHORT,
    form=st.sampled_from([JSON, BINARY]),
)


@given(COMMANDS)
def test_a_command_comes_back_as_it_was(command: RemotingCommand) -> None:
    frame = encode(command)
    assert frame_length(frame, 1 << 24) == len(frame)
    assert decode(frame) == command


@given(COMMANDS, st.data())
def test_a_cut_or_changed_frame_is_read_or_refused(command: RemotingCommand, data: st.DataObject) -> None:
    frame = bytearray(encode(command))
    frame[data.draw(st.integers(0, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    for damaged in (bytes(frame), bytes(frame[: data.draw(st.integers(0, len(frame)))])):
        try:
            decode(damaged)
        except BadFrame:
            pass


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    for form in (JSON, BINARY, 7):
        try:
            decode(struct.pack(">ii", 4 + len(content), form << 24 | len(content)) + content)
        except BadFrame:
            pass


def test_a_binary_header_is_byte_exact() -> None:
    # As RocketMQSerializable writes it: a heartbeat's answer, and a field.
    command = RemotingCommand(
        34, {"a": "bc"}, b"body", opaque=7, flag=1, remark="r", language="GO", version=479, form=BINARY
    )
    header = bytes.fromhex(
        "0022" "09" "01df" "00000007" "00000001" "00000001" "72" "00000009" "0001" "61" "00000002" "6263"
    )  # fmt: skip
    assert encode(command) == struct.pack(">ii", 4 + len(header) + 4, 1 << 24 | len(header)) + header + b"body"


def test_a_json_header_is_byte_exact() -> None:
    header = (
        b'{"code":0,"flag":1,"language":"JAVA","opaque":3,"serializeTypeCurrentRPC":"JSON","version":479,'
        b'"extFields":{"offset":"5"}}'
    )
    frame = struct.pack(">ii", 4 + len(header), len(header)) + header
    assert encode(RemotingCommand(0, {"offset": "5"}, opaque=3, flag=1)) == frame


def test_what_clients_write_as_numbers_and_truths_is_text() -> None:
    header = b'{"code":10,"extFields":{"a":5,"b":true,"c":null}}'
    command = decode(struct.pack(">ii", 4 + len(header), len(header)) + header)
    assert command.fields == {"a": "5", "b": "true"}


@pytest.mark.parametrize(
    "header",
    [b"", b"[]", b"{", b'{"code":"x"}', b'{"code":1e3}', b'{"extFields":[1]}', b'{"opaque":4294967296}', b"[" * 99_999],
)
def test_json_that_is_no_header_is_refused(header: bytes) -> None:
    with pytest.raises(BadFrame):
        decode(struct.pack(">ii", 4 + len(header), len(header)) + header)


@pytest.mark.parametrize("length", [-1, 0, 3, 1 << 20])
def test_a_frame_that_cannot_be_is_refused_by_its_length(length: int) -> None:
    with pytest.raises(BadFrame):
        frame_length(struct.pack(">i", length), 1000)


def test_too_little_says_nothing_of_the_length() -> None:
    assert frame_length(b"\0\0\0", 1000) is None


def test_a_signature_is_that_of_the_official_client() -> None:
    # AclUtils.calSignature of the values in the order of their names, and the body.
    command = RemotingCommand(10, {"topic": "T", "AccessKey": "ak", "Signature": "ignored"}, b"body")
    assert signature_of(command, b"secret") == "henhmmfv9X7aCpzl6f+4e/lxhE4="
