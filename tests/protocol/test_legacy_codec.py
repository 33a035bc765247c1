"""The handshake of the older revisions, and our results in their words."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest

from pegboard.call import Done, EncodedResult, Notification
from pegboard.errors import Busy, DuplicateRequestId, InvalidParams, MethodNotFound, Refusal, UnknownTool
from pegboard.protocol.legacy_codec import LegacyCodec, read_handshake
from pegboard.protocol.revisions import LEGACY, NEWEST_LEGACY

REVISIONS = sorted(LEGACY)
ALL = pytest.mark.parametrize("version", REVISIONS)
INFO = {"name": "s", "version": "1", "title": "S", "icons": [], "description": "d", "websiteUrl": "https://s"}
TOOL = {
    "name": "t",
    "title": "T",
    "description": "d",
    "inputSchema": {"type": "object"},
    "outputSchema": {"type": "object", "properties": {}},
    "annotations": {"readOnlyHint": True},
    "icons": [],
    "_meta": {},
    "unheard": 1,
}


def handshake(**changes: Any) -> bytes:
    params = {"protocolVersion": NEWEST_LEGACY, "capabilities": {"roots": {}}, "clientInfo": {"name": "c"}, **changes}
    return json.dumps({name: value for name, value in params.items() if value is not ...}).encode()


def told(version: str, method: str, result: dict[str, Any], wrapped: bool = False) -> Any:
    return json.loads(LegacyCodec(version, INFO).result(method, Done(result, wrapped)))


@ALL
def test_a_revision_that_we_speak_is_agreed_to(version: str) -> None:
    agreed = read_handshake(handshake(protocolVersion=version))
    assert (agreed.version, agreed.client, agreed.capabilities) == (version, {"name": "c"}, {"roots": {}})


@pytest.mark.parametrize("version", ["2026-07-28", "2030-01-01", "1.0", ""])
def test_any_other_is_answered_with_our_newest_that_has_a_handshake(version: str) -> None:
    assert read_handshake(handshake(protocolVersion=version)).version == "2025-11-25"


@pytest.mark.parametrize(
    "params",
    [
        handshake(protocolVersion=...),
        handshake(protocolVersion=1),
        handshake(capabilities=...),
        handshake(capabilities=[]),
        handshake(clientInfo=...),
        handshake(clientInfo="me"),
    ],
)
def test_a_handshake_that_lacks_something_says_what_it_needs(params: bytes) -> None:
    with pytest.raises(InvalidParams, match=r"protocolVersion.*capabilities.*clientInfo"):
        read_handshake(params)


@ALL
def test_discovery_becomes_the_answer_to_initialize(version: str) -> None:
    discovered = {
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}, "extensions": {"x": {}}},
        "ttlMs": 1,
        "cacheScope": "public",
        "instructions": "do",
    }
    answer = told(version, "server/discover", discovered)
    assert set(answer) == {"protocolVersion", "capabilities", "serverInfo", "instructions"}
    assert answer["protocolVersion"] == version
    assert answer["capabilities"] == {"tools": {}}
    assert set(answer["serverInfo"]) == {
        "name",
        "version",
        *(["title"] if version >= "2025-06-18" else []),
        *(["icons", "description", "websiteUrl"] if version >= "2025-11-25" else []),
    }


@ALL
def test_tools_are_listed_with_the_fields_of_the_revision(version: str) -> None:
    answer = told(version, "tools/list", {"tools": [TOOL], "ttlMs": 0, "cacheScope": "public", "nextCursor": "n"})
    assert set(answer) == {"tools", "nextCursor"}
    wanted = {"name", "description", "inputSchema", "unheard"}
    if version >= "2025-03-26":
        wanted |= {"annotations"}
    if version >= "2025-06-18":
        wanted |= {"title", "outputSchema", "_meta"}
    if version >= "2025-11-25":
        wanted |= {"icons"}
    assert set(answer["tools"][0]) == wanted


@ALL
def test_structured_content_is_sent_since_the_revision_that_introduced_it(version: str) -> None:
    result = {"content": [{"type": "text", "text": "7"}], "structuredContent": {"a": 7}, "isError": False}
    answer = told(version, "tools/call", {**result, "resultType": "complete"})
    assert "resultType" not in answer
    assert answer["content"] == result["content"]
    assert answer.get("structuredContent") == ({"a": 7} if version >= "2025-06-18" else None)


SCHEMAS: list[tuple[dict[str, Any], Any]] = [
    ({"type": "integer"}, 7),
    ({"type": "array", "items": {"$ref": "#/$defs/P"}, "$defs": {"P": {"type": "integer"}}}, [1, 2]),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, None),
    ({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "string"}, "x"),
]


@pytest.mark.parametrize(("schema", "value"), SCHEMAS)
def test_a_non_object_value_is_wrapped_in_an_object_that_matches_its_schema(schema: dict[str, Any], value: Any) -> None:
    tool = told("2025-11-25", "tools/list", {"tools": [{**TOOL, "outputSchema": schema}]})["tools"][0]
    wrapped = told("2025-11-25", "tools/call", {"content": [], "structuredContent": value}, wrapped=True)
    assert tool["outputSchema"]["type"] == "object"
    assert wrapped["structuredContent"] == {"result": value}
    assert jsonschema_rs.is_valid(tool["outputSchema"], wrapped["structuredContent"])
    assert not jsonschema_rs.is_valid(tool["outputSchema"], {"result": {"no": "such"}})
    assert tool["outputSchema"].get("$schema") == schema.get("$schema")


def test_an_object_is_not_boxed() -> None:
    tool = told("2025-11-25", "tools/list", {"tools": [TOOL]})["tools"][0]
    assert tool["outputSchema"] == TOOL["outputSchema"]
    assert told("2025-11-25", "tools/call", {"content": [], "structuredContent": {}})["structuredContent"] == {}


def test_translating_leaves_what_was_given_as_it_was() -> None:
    result = {"content": [], "structuredContent": 7, "resultType": "complete"}
    kept = {"tools": [{**TOOL, "outputSchema": {"type": "integer"}}], "ttlMs": 0}
    before = json.dumps([result, kept])
    for version in REVISIONS:
        told(version, "tools/call", result, wrapped=True)
        told(version, "tools/list", kept)
    assert json.dumps([result, kept]) == before


def test_a_kept_result_is_written_once_for_each_revision() -> None:
    kept = Done(EncodedResult({"tools": [TOOL], "ttlMs": 0}))
    old, new = LegacyCodec("2024-11-05", INFO), LegacyCodec("2025-11-25", INFO)
    assert old.result("tools/list", kept) is old.result("tools/list", kept)
    assert old.result("tools/list", kept) != new.result("tools/list", kept)


@ALL
def test_progress_has_a_message_since_the_revision_that_brought_it(version: str) -> None:
    params = {"progressToken": 1, "progress": 1, "total": 2, "message": "m"}
    sent = json.loads(LegacyCodec(version, INFO).notice(Notification("notifications/progress", params)))
    assert ("message" in sent["params"]) is (version >= "2025-03-26")
    assert sent["params"]["total"] == 2


@pytest.mark.parametrize(
    ("refusal", "status"),
    [
        (MethodNotFound("no"), 200),
        (InvalidParams("no"), 200),
        (UnknownTool("no"), 200),
        (Busy("later"), 503),
        (DuplicateRequestId("again"), 409),
    ],
)
def test_an_error_is_an_answer_and_never_the_404_that_ends_a_session(refusal: Refusal, status: int) -> None:
    assert LegacyCodec("2025-11-25", INFO).status(refusal) == status


def test_a_handshake_is_kept_without_large_pictures_and_refused_if_it_is_large_all_the_same() -> None:
    info: dict[str, Any] = {"name": "a", "version": "1", "icons": [{"src": "data:," + "x" * 100_000}]}
    params: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}, "clientInfo": info}
    assert read_handshake(json.dumps(params).encode()).client == {"name": "a", "version": "1"}
    info["icons"] = [{"src": "data:,x"}]
    assert read_handshake(json.dumps(params).encode()).client == info
    info["title"] = "x" * 100_000
    with pytest.raises(InvalidParams, match="16384 bytes"):
        read_handshake(json.dumps(params).encode())


def test_sessions_that_begin_with_the_same_words_share_what_was_made_of_them() -> None:
    params = json.dumps({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a"}}).encode()
    first, second = read_handshake(params), read_handshake(bytes(bytearray(params)))
    assert first is second
    long = params.replace(b'"a"', b'"' + b"a" * 5000 + b'"')
    assert read_handshake(long) == read_handshake(long)
    assert read_handshake(long) is not read_handshake(long)
