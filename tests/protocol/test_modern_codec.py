"""The envelope of revision 2026-07-28, and the form its results have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pegboard.call import Done, EncodedResult, Notification
from pegboard.errors import HeaderMismatch, InvalidParams, MethodNotFound, UnsupportedVersion
from pegboard.protocol.modern_codec import ModernCodec, check_version, read_envelope
from pegboard.protocol.revisions import MODERN, SUPPORTED

PREFIX = "io.modelcontextprotocol/"
FULL: dict[str, Any] = {
    PREFIX + "protocolVersion": MODERN,
    PREFIX + "clientInfo": {"name": "c", "version": "1", "later": True},
    PREFIX + "clientCapabilities": {"sampling": {}},
    PREFIX + "logLevel": "info",
    "progressToken": "t",
    "com.example/other": 1,
}
INFO = {"name": "s", "version": "1"}


def envelope(**changes: Any) -> bytes:
    meta = {**FULL, **{PREFIX + name: value for name, value in changes.items()}}
    return json.dumps({name: value for name, value in meta.items() if value is not ...}).encode()


def test_a_request_says_who_sent_it_and_what_that_client_can_do() -> None:
    read = read_envelope(envelope())
    assert read.version == MODERN
    assert read.client == {"name": "c", "version": "1", "later": True}
    assert read.capabilities == {"sampling": {}}
    assert (read.log_level, read.token) == ("info", "t")


def test_a_client_need_not_say_who_it_is() -> None:
    assert read_envelope(envelope(clientInfo=...)).client == {}


@pytest.mark.parametrize(
    ("meta", "text"),
    [
        (b"", "protocolVersion"),
        (b"{}", "protocolVersion"),
        (envelope(protocolVersion=...), "protocolVersion"),
        (envelope(protocolVersion=1), "must be a string"),
        (envelope(clientCapabilities=...), "clientCapabilities"),
        (envelope(clientCapabilities=[]), "must be an object"),
        (envelope(clientCapabilities=None), "must be an object"),
        (envelope(clientInfo="me"), "must be an object"),
        (b"[]", "must be an object"),
    ],
)
def test_an_envelope_without_a_required_field_is_invalid_params(meta: bytes, text: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        read_envelope(meta)
    assert text in caught.value.message
    assert caught.value.status == 400


def test_the_header_has_to_say_the_version_of_the_body() -> None:
    check_version(read_envelope(envelope()), MODERN)
    check_version(read_envelope(envelope()), None)
    for header in ("v999", "2025-11-25", "2026-07-28 ", ""):
        with pytest.raises(HeaderMismatch):
            check_version(read_envelope(envelope()), header)
    with pytest.raises(HeaderMismatch):
        check_version(read_envelope(envelope(protocolVersion="v999")), MODERN)


def test_a_version_we_do_not_speak_is_answered_with_those_we_do() -> None:
    with pytest.raises(UnsupportedVersion) as caught:
        check_version(read_envelope(envelope(protocolVersion="v999")), "v999")
    assert (caught.value.code, caught.value.status) == (-32022, 400)
    assert caught.value.data == {"requested": "v999", "supported": list(SUPPORTED)}


def test_a_revision_of_the_handshake_cannot_be_spoken_in_an_envelope() -> None:
    with pytest.raises(UnsupportedVersion) as caught:
        check_version(read_envelope(envelope(protocolVersion="2025-11-25")), "2025-11-25")
    assert caught.value.data == {"requested": "2025-11-25", "supported": [MODERN]}


# -- results -----------------------------------------------------------------------------------------------------------


def test_every_result_says_its_type_and_who_made_it() -> None:
    codec = ModernCodec(INFO)
    for result in ({}, {"content": []}, {"content": [], "_meta": {"a": 1}}):
        told = json.loads(codec.result("tools/call", Done(result)))
        assert told["resultType"] == "complete"
        assert told["_meta"] == {PREFIX + "serverInfo": INFO, **result.get("_meta", {})}
        assert {key: value for key, value in told.items() if key not in ("resultType", "_meta")} == {
            key: value for key, value in result.items() if key != "_meta"
        }


def test_a_result_may_state_another_type() -> None:
    told = json.loads(ModernCodec(INFO).result("tools/call", Done({"resultType": "input_required"})))
    assert told["resultType"] == "input_required"


def test_structured_content_is_sent_unchanged() -> None:
    told = json.loads(
        ModernCodec(INFO).result("tools/call", Done({"content": [], "structuredContent": 7}, wrapped=True))
    )
    assert told["structuredContent"] == 7


def test_a_kept_result_is_written_once() -> None:
    codec, kept = ModernCodec(INFO), EncodedResult({"tools": []})
    assert codec.result("tools/list", Done(kept)) is codec.result("tools/list", Done(kept))


def test_a_notice_is_a_notification() -> None:
    sent = json.loads(ModernCodec(INFO).notice(Notification("notifications/progress", {"progress": 1, "message": "m"})))
    assert sent == {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1, "message": "m"}}


def test_the_code_decides_the_status() -> None:
    assert ModernCodec(INFO).status(MethodNotFound("no")) == 404
