"""The content objects authors return: where their bytes come from, and what type they have."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from pegboard.media import Audio, File, Image, Link, Text

PNG = b"\x89PNG\r\n\x1a\n and so on"
WAV = b"RIFF\x00\x00\x00\x00WAVEfmt "


def test_an_image_from_bytes_knows_its_type() -> None:
    block = Image(PNG).to_block()
    assert block == {"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"}


def test_an_image_from_base64_is_the_same_as_from_bytes() -> None:
    assert Image(base64=base64.b64encode(PNG).decode()).to_block() == Image(PNG).to_block()


@pytest.mark.parametrize("as_path", [str, Path])
def test_an_image_from_a_path_is_read_at_once(tmp_path: Path, as_path: type) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(b"anything")
    image = Image(as_path(path))
    path.unlink()
    assert image.to_block()["mimeType"] == "image/jpeg"
    assert base64.b64decode(image.to_block()["data"]) == b"anything"


def test_a_missing_file_fails_on_the_authors_line(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Image(tmp_path / "none.png")


def test_a_given_type_wins_over_every_guess() -> None:
    assert Image(PNG, mime_type="image/x-mine").to_block()["mimeType"] == "image/x-mine"


def test_an_image_of_unknown_type_asks_for_one() -> None:
    with pytest.raises(ValueError, match="mime_type"):
        Image(b"words")
    with pytest.raises(ValueError, match="audio/wav"):
        Image(WAV)


@pytest.mark.parametrize("wrong", ["%%%", "YQ", "YQ==\n"])
def test_bad_base64_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="base64"):
        Image(base64=wrong)


def test_one_source_is_wanted_and_no_more() -> None:
    with pytest.raises(ValueError, match="pass one of"):
        Image()
    with pytest.raises(ValueError, match="pass one of"):
        Audio(WAV, base64="YQ==")
    with pytest.raises(ValueError, match="pass one of"):
        File(b"a", text="a")
    with pytest.raises(ValueError, match="pass one of"):
        File()


def test_audio_carries_annotations_and_meta() -> None:
    block = Audio(WAV, annotations={"priority": 1}, meta={"k": 1}).to_block()
    assert (block["type"], block["mimeType"]) == ("audio", "audio/wav")
    assert (block["annotations"], block["_meta"]) == ({"priority": 1}, {"k": 1})


def test_bad_annotations_are_refused_where_they_are_written() -> None:
    with pytest.raises(ValueError, match="audience"):
        Text("a", annotations={"audience": ["everybody"]})


def test_a_text_file_is_embedded_as_text_without_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "my notes.md"
    path.write_text("# é", encoding="utf-8")
    assert File(path).to_block() == {
        "type": "resource",
        "resource": {"uri": "file:///my%20notes.md", "mimeType": "text/markdown", "text": "# é"},
    }


def test_a_binary_file_is_embedded_as_a_blob() -> None:
    resource = File(b"\x00\x01", name="a.bin").to_block()["resource"]
    assert resource == {"uri": "file:///a.bin", "mimeType": "application/octet-stream", "blob": "AAE="}
    assert File(PNG).to_block()["resource"]["mimeType"] == "image/png"


def test_a_file_that_only_claims_to_be_text_is_a_blob() -> None:
    assert "blob" in File(b"\xff\xfe", name="a.txt").to_block()["resource"]


def test_a_file_of_text_and_one_with_its_own_address() -> None:
    resource = File(text="a,b", name="t.csv").to_block()["resource"]
    assert resource == {"uri": "file:///t.csv", "mimeType": "text/csv", "text": "a,b"}
    resource = File(b'{"a":1}', uri="report://one.json").to_block()["resource"]
    assert resource == {"uri": "report://one.json", "mimeType": "application/json", "text": '{"a":1}'}


def test_a_link_names_itself_after_its_address() -> None:
    assert Link("https://example.com/a/report.pdf").to_block() == {
        "type": "resource_link",
        "uri": "https://example.com/a/report.pdf",
        "name": "report.pdf",
        "mimeType": "application/pdf",
    }


def test_a_link_that_is_not_absolute_is_refused() -> None:
    with pytest.raises(ValueError, match="scheme"):
        Link("notes/today")
