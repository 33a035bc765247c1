"""The messages of streams: the layout that is documented, and whatever else may come."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.errors import InvalidRequest, ParseFailure
from pegboard.limits import Limits
from pegboard.protocol.framing import stream_frames
from pegboard.protocol.framing.stream_frames import StreamFailure, StreamMeta

LIMITS = Limits()
NOW = "2026-11-16T10:00:00.000Z"
GUID = "550e8400-e29b-41d4-a716-446655440000"
DOCUMENTED = "00840e559be2d441a71644665544000003000000000000006869"


def read(**message: Any) -> stream_frames.StreamFrame | None:
    return stream_frames.read(json.dumps(message).encode(), LIMITS)


def test_the_documented_bytes_are_written_and_read() -> None:
    written = stream_frames.header(stream_frames.key(GUID), 3) + b"hi"
    assert written.hex() == DOCUMENTED
    key, index, payload = stream_frames.split(bytes.fromhex(DOCUMENTED))
    assert (key, index, bytes(payload)) == (stream_frames.key(GUID), 3, b"hi")


@given(st.uuids(), st.integers(-(2**63), 2**63 - 1), st.binary(max_size=64))
def test_any_chunk_of_bytes_comes_back_as_it_was(guid: UUID, index: int, payload: bytes) -> None:
    key, found, rest = stream_frames.split(stream_frames.header(stream_frames.key(str(guid)), index) + payload)
    assert (UUID(bytes_le=key), found, bytes(rest)) == (guid, index, payload)


@given(st.binary(max_size=23))
def test_a_message_too_short_for_a_header_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest, match="24"):
        stream_frames.split(data)


@pytest.mark.parametrize(
    "other", ["duplex-1", "", GUID.replace("-", ""), "{" + GUID + "}", "urn:uuid:" + GUID, GUID + "\n"]
)
def test_a_non_guid_id_is_encoded_as_zeros(other: str) -> None:
    assert stream_frames.key(other) == bytes(16)
    assert stream_frames.key(GUID.upper()) == stream_frames.key(GUID)


def test_a_start_is_read_with_all_its_labels() -> None:
    labels = {"name": "a.bin", "mime": "x/y", "correlationId": "r", "totalSize": 7, "compression": "c", "encoding": "e"}
    frame = read(
        type="start", id=GUID, timestamp=NOW, meta={"method": "m", "binary": True, "arguments": {"a": 1}, **labels}
    )
    assert frame is not None
    assert isinstance(frame.meta, StreamMeta)
    meta = frame.meta
    assert (meta.method, meta.binary, bytes(meta.arguments)) == ("m", True, b'{"a": 1}')
    assert (meta.name, meta.mime, meta.correlation_id, meta.total_size) == ("a.bin", "x/y", "r", 7)
    assert (meta.compression, meta.encoding) == ("c", "e")


def test_what_is_absent_from_a_start_has_its_meaning() -> None:
    frame = read(type="start", id="s", meta={"method": "m"})
    assert frame is not None
    assert isinstance(frame.meta, StreamMeta)
    assert not frame.meta.binary
    assert bytes(frame.meta.arguments) == b"{}"


def test_a_message_without_a_timestamp_or_with_more_members_is_one_too() -> None:
    frame = read(type="chunk", id="s", index=0, data=None, later="version")
    assert frame is not None
    assert (frame.index, bytes(frame.data)) == (0, b"null")


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"arguments": {"type": "start"}}},
        {"jsonrpc": "2.0", "id": "1", "method": "ping", "type": "start", "meta": {"method": "x"}},
        {"jsonrpc": "2.0", "id": 1, "type": "start"},
        {"id": 1, "method": "type"},
        ["type"],
        "type",
    ],
)
def test_all_else_is_left_to_json_rpc(message: Any) -> None:
    assert stream_frames.read(json.dumps(message).encode(), LIMITS) is None


BAD: dict[str, dict[str, Any]] = {
    "an unknown type": {"type": "begin", "id": "s"},
    "no id": {"type": "done"},
    "an empty id": {"type": "done", "id": ""},
    "an id of null": {"type": "done", "id": None},
    "an id too long": {"type": "done", "id": "x" * 129},
    "a start without meta": {"type": "start", "id": "s"},
    "a start without a method": {"type": "start", "id": "s", "meta": {}},
    "arguments that are a list": {"type": "start", "id": "s", "meta": {"method": "m", "arguments": []}},
    "a chunk without an index": {"type": "chunk", "id": "s", "data": 1},
    "a chunk without data": {"type": "chunk", "id": "s", "index": 0},
    "an index that is text": {"type": "chunk", "id": "s", "index": "0", "data": 1},
    "an index with a fraction": {"type": "chunk", "id": "s", "index": 0.5, "data": 1},
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_message_is_refused_under_its_id(name: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read(**BAD[name])
    found = BAD[name].get("id")
    assert refused.value.request_id == (found if found == "s" else None)


@pytest.mark.parametrize(
    "text",
    [
        b'{"type":"start","id":"s","meta":{"method":"a","method":"b"}}',
        b'{"type":"start","id":"s","meta":{"method":"a"},"meta":{"method":"b"}}',
        b'{"type":"start","id":"s","meta":{"method":"a","arguments":{"x":{"y":1,"y":2}}}}',
        b'{"type":"chunk","id":"s","index":0,"index":1,"data":1}',
        b'{"type":"chunk","id":"s","index":0,"data":[{"a":1,"a":2}]}',
        b'{"type":"done","id":"s","summary":{"a":1,"a":2}}',
        b'{"type":"error","id":"s","error":{"code":1,"code":2}}',
    ],
)
def test_a_frame_with_a_repeated_member_is_refused_under_its_id(text: bytes) -> None:
    with pytest.raises(InvalidRequest, match="is repeated") as refused:
        stream_frames.read(text, LIMITS)
    assert refused.value.request_id == "s"


def test_depth_is_bounded_as_everywhere() -> None:
    deep = b'{"type":"chunk","id":"s","index":0,"data":' + b"[" * 200 + b"]" * 200 + b"}"
    with pytest.raises(ParseFailure):
        stream_frames.read(deep, LIMITS)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(st.text(min_size=1, max_size=128), st.integers(0, 2**40), JSON)
def test_what_is_written_is_read_back(stream_id: str, index: int, data: Any) -> None:
    frame = stream_frames.read(stream_frames.chunk(stream_id, NOW, index, data), LIMITS)
    assert frame is not None
    assert (frame.type, frame.id, frame.index, json.loads(bytes(frame.data))) == ("chunk", stream_id, index, data)
    ended = stream_frames.read(stream_frames.done(stream_id, NOW, data), LIMITS)
    assert ended is not None
    assert (json.loads(bytes(ended.summary)) if bytes(ended.summary) else None) == data
    failed = stream_frames.read(stream_frames.error(stream_id, NOW, StreamFailure(-32000, "x", data)), LIMITS)
    assert failed is not None
    assert stream_frames.read_failure(failed.error) == StreamFailure(-32000, "x", data)


def test_a_start_always_says_whether_it_is_binary() -> None:
    told = json.loads(stream_frames.start(GUID, NOW, StreamMeta(method="m", correlation_id=4, total_size=0)))
    assert told == {
        "type": "start",
        "id": GUID,
        "timestamp": NOW,
        "meta": {"method": "m", "binary": False, "correlationId": 4, "totalSize": 0},
    }


@given(st.binary(max_size=80) | JSON.map(lambda value: json.dumps(value).encode()))
def test_whatever_comes_it_is_read_refused_or_left(text: bytes) -> None:
    try:
        stream_frames.read(text, LIMITS)
    except (InvalidRequest, ParseFailure):
        pass


@pytest.mark.parametrize("error", [b"1", b'"x"', b'{"code":"x"}'])
def test_an_error_that_cannot_be_read_is_one_all_the_same(error: bytes) -> None:
    assert stream_frames.read_failure(stream_frames.Raw(error)).code == -32000
