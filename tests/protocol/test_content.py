"""Content blocks: their form, and what older revisions get in their place."""

from __future__ import annotations

from typing import Any

import pytest

from pegboard.protocol.content import (
    blocks_for,
    check_annotations,
    encode_base64,
    guess_by_magic,
    guess_by_suffix,
    is_textual,
    link_block,
    media_block,
    name_of,
    resource_block,
    text_block,
)

ALL = [
    text_block("hello", {"audience": ["user"]}, {"k": 1}),
    media_block("image", encode_base64(b"img"), "image/png"),
    media_block("audio", encode_base64(b"RIFF"), "audio/wav", {"priority": 0.5}),
    resource_block("file:///a.txt", "text", "text/plain"),
    resource_block("file:///a.bin", b"\x00"),
    link_block("notes://a", "a", title="A note", description="about a", mime_type="text/plain", size=3),
]


def kinds(blocks: Any) -> list[str]:
    return [block["type"] for block in blocks]


def test_blocks_have_the_form_of_the_protocol() -> None:
    assert ALL[0] == {"type": "text", "text": "hello", "annotations": {"audience": ["user"]}, "_meta": {"k": 1}}
    assert ALL[1] == {"type": "image", "data": "aW1n", "mimeType": "image/png"}
    assert ALL[2] == {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav", "annotations": {"priority": 0.5}}
    assert ALL[3] == {
        "type": "resource",
        "resource": {"uri": "file:///a.txt", "mimeType": "text/plain", "text": "text"},
    }
    assert ALL[4] == {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": "AA=="}}
    assert ALL[5] == {
        "type": "resource_link",
        "uri": "notes://a",
        "name": "a",
        "title": "A note",
        "description": "about a",
        "mimeType": "text/plain",
        "size": 3,
    }


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2024-11-05", ["text", "image", "text", "resource", "resource", "text"]),
        ("2025-03-26", ["text", "image", "audio", "resource", "resource", "text"]),
        ("2025-06-18", ["text", "image", "audio", "resource", "resource", "resource_link"]),
        ("2026-07-28", ["text", "image", "audio", "resource", "resource", "resource_link"]),
    ],
)
def test_a_client_gets_only_the_kinds_its_revision_knows(version: str, expected: list[str]) -> None:
    assert kinds(blocks_for(version, ALL)) == expected


def test_what_replaces_a_block_says_what_it_was_and_keeps_its_annotations() -> None:
    told = blocks_for("2024-11-05", ALL)
    assert told[2]["text"] == "[audio, audio/wav, 4 bytes: not readable in this protocol revision]"
    assert told[2]["annotations"] == {"priority": 0.5}
    assert told[5]["text"] == "[link] A note (text/plain) <notes://a>: about a"


def test_blocks_that_need_no_change_are_returned_unchanged() -> None:
    assert blocks_for("2026-07-28", ALL) is ALL
    plain = ALL[:2]
    assert blocks_for("2024-11-05", plain) is plain


def test_a_kind_we_do_not_know_passes_untouched() -> None:
    strange = [{"type": "hologram", "data": "x"}]
    assert blocks_for("2024-11-05", strange) is strange


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\x89PNG\r\n\x1a\nxx", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
        (b"RIFF\x00\x00\x00\x00WAVEfmt ", "audio/wav"),
        (b"\x00\x00\x00\x1cftypavif", "image/avif"),
        (b"\x00\x00\x00\x1cftypM4A ", "audio/mp4"),
        (b"ID3\x04", "audio/mpeg"),
        (b"OggS\x00", "audio/ogg"),
        (b"%PDF-1.7", "application/pdf"),
        (b'<?xml version="1.0"?>\n<svg xmlns="x"/>', "image/svg+xml"),
        (b"  <svg/>", "image/svg+xml"),
        (b"plain words", None),
        (b"", None),
    ],
)
def test_the_first_bytes_give_the_type_away(data: bytes, expected: str | None) -> None:
    assert guess_by_magic(data) == expected


def test_a_suffix_gives_the_type_away_in_any_case() -> None:
    assert guess_by_suffix("photo.of.me.JPG") == "image/jpeg"
    assert guess_by_suffix("README") is None
    assert guess_by_suffix("strange.zzz") is None


def test_types_that_are_read_as_text() -> None:
    assert all(map(is_textual, ["text/plain", "text/html; charset=utf-8", "application/problem+json", "image/svg+xml"]))
    assert not any(map(is_textual, ["image/png", "application/pdf", "application/octet-stream"]))


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("file:///a/main%20file.rs", "main file.rs"),
        ("notes://today", "today"),
        ("https://example.com/a/b/?q=1", "b"),
        ("urn:isbn:1", "isbn:1"),
        ("x://", "x://"),
    ],
)
def test_a_resource_without_a_name_is_called_by_the_end_of_its_address(uri: str, name: str) -> None:
    assert name_of(uri) == name


@pytest.mark.parametrize("wrong", [{"audience": "user"}, {"audience": ["robot"]}, {"priority": 2}, {"priority": -0.1}])
def test_annotations_a_client_would_misread_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"audience|priority"):
        check_annotations(wrong)
    check_annotations({"audience": ["user", "assistant"], "priority": 1, "lastModified": "2026-07-28T00:00:00Z"})
