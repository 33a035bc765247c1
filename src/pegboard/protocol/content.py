"""Content blocks: how each is written, and which revision can carry it.

Every function is pure; the classes for authors (`Image`, `Audio`, `File`, `Link`, `Text`) are in `media.py`, because
they may read a file.
"""

from __future__ import annotations

import binascii
from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeAlias
from urllib.parse import unquote, urlsplit

from pegboard.call import Json
from pegboard.protocol.json_values import as_object, objects_in

Block: TypeAlias = dict[str, Json]
Annotations: TypeAlias = Mapping[str, Json]
Meta: TypeAlias = Mapping[str, Json]

# The first revision that has a block type; types that are not listed are in all revisions.
BLOCK_SINCE: dict[str, str] = {"audio": "2025-03-26", "resource_link": "2025-06-18"}
_ALL_BLOCKS_SINCE = max(BLOCK_SINCE.values())  # revisions are ISO dates, so their order is the order of their text

TYPE_BY_SUFFIX: dict[str, str] = {
    "aac": "audio/aac",
    "avif": "image/avif",
    "bmp": "image/bmp",
    "css": "text/css",
    "csv": "text/csv",
    "flac": "audio/flac",
    "gif": "image/gif",
    "gz": "application/gzip",
    "heic": "image/heic",
    "htm": "text/html",
    "html": "text/html",
    "ico": "image/x-icon",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "js": "text/javascript",
    "json": "application/json",
    "jsonl": "application/jsonl",
    "log": "text/plain",
    "m4a": "audio/mp4",
    "md": "text/markdown",
    "mp3": "audio/mpeg",
    "mp4": "video/mp4",
    "oga": "audio/ogg",
    "ogg": "audio/ogg",
    "opus": "audio/ogg",
    "parquet": "application/vnd.apache.parquet",
    "pdf": "application/pdf",
    "png": "image/png",
    "py": "text/x-python",
    "rst": "text/x-rst",
    "sql": "application/sql",
    "svg": "image/svg+xml",
    "tif": "image/tiff",
    "tiff": "image/tiff",
    "toml": "application/toml",
    "ts": "text/x-typescript",
    "tsv": "text/tab-separated-values",
    "txt": "text/plain",
    "wav": "audio/wav",
    "weba": "audio/webm",
    "webp": "image/webp",
    "xml": "application/xml",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "zip": "application/zip",
}

# Offset, bytes, type: the longest and most specific signatures first.
_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (8, b"WEBP", "image/webp"),
    (8, b"WAVE", "audio/wav"),
    (4, b"ftypavif", "image/avif"),
    (4, b"ftypheic", "image/heic"),
    (4, b"ftypM4A", "audio/mp4"),
    (4, b"ftyp", "video/mp4"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (0, b"%PDF-", "application/pdf"),
    (0, b"OggS", "audio/ogg"),
    (0, b"fLaC", "audio/flac"),
    (0, b"PK\x03\x04", "application/zip"),
    (0, b"II*\x00", "image/tiff"),
    (0, b"MM\x00*", "image/tiff"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"\xff\xfb", "audio/mpeg"),
    (0, b"\xff\xf3", "audio/mpeg"),
    (0, b"\xff\xf1", "audio/aac"),
    (0, b"\x1f\x8b", "application/gzip"),
    (0, b"BM", "image/bmp"),
)

_TEXTUAL = frozenset(
    {
        "application/json",
        "application/jsonl",
        "application/javascript",
        "application/sql",
        "application/toml",
        "application/xml",
        "application/yaml",
        "image/svg+xml",
    }
)


def guess_by_suffix(name: str) -> str | None:
    """The media type for the extension of a file name or URI path, if it is known."""
    _, dot, suffix = name.rpartition(".")
    return TYPE_BY_SUFFIX.get(suffix.lower()) if dot else None


def guess_by_magic(data: bytes) -> str | None:
    """The media type for the first bytes."""
    for offset, mark, mime_type in _MAGIC:
        if data.startswith(mark, offset):
            return mime_type
    head = data[:256].lstrip()
    if head.startswith((b"<svg", b"<?xml")) and b"<svg" in data[:1024]:
        return "image/svg+xml"
    return None


def is_textual(mime_type: str) -> bool:
    """Whether content of this type is sent as text when it decodes as UTF-8."""
    essence = mime_type.partition(";")[0].strip().lower()
    return essence.startswith("text/") or essence in _TEXTUAL or essence.endswith(("+json", "+xml", "+yaml"))


def check_annotations(annotations: Annotations) -> None:
    """Reject annotations that clients would misread; raises ValueError."""
    audience = annotations.get("audience")
    if audience is not None and not _is_audience(audience):
        raise ValueError(f'audience must be a list of "user" and "assistant", got {audience!r}')
    priority = annotations.get("priority")
    if priority is not None and not (isinstance(priority, int | float) and 0 <= priority <= 1):
        raise ValueError(f"priority must be between 0 (optional) and 1 (required), got {priority!r}")


def _is_audience(value: Json) -> bool:
    if not isinstance(value, Collection) or isinstance(value, str):
        return False
    return all(role in ("user", "assistant") for role in value)


def encode_base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def _dressed(block: Block, annotations: Annotations | None, meta: Meta | None) -> Block:
    if annotations:
        block["annotations"] = dict(annotations)
    if meta:
        block["_meta"] = dict(meta)
    return block


def text_block(text: str, annotations: Annotations | None = None, meta: Meta | None = None) -> Block:
    return _dressed({"type": "text", "text": text}, annotations, meta)


def media_block(
    kind: str, base64: str, mime_type: str, annotations: Annotations | None = None, meta: Meta | None = None
) -> Block:
    """An image or audio."""
    return _dressed({"type": kind, "data": base64, "mimeType": mime_type}, annotations, meta)


def resource_block(
    uri: str,
    content: str | bytes,
    mime_type: str | None = None,
    annotations: Annotations | None = None,
    meta: Meta | None = None,
) -> Block:
    """An embedded resource: text as it is, bytes as a base64 blob."""
    resource: dict[str, Json] = {"uri": uri}
    if mime_type is not None:
        resource["mimeType"] = mime_type
    if isinstance(content, str):
        resource["text"] = content
    else:
        resource["blob"] = encode_base64(content)
    return _dressed({"type": "resource", "resource": resource}, annotations, meta)


def link_block(
    uri: str,
    name: str,
    *,
    title: str | None = None,
    description: str | None = None,
    mime_type: str | None = None,
    size: int | None = None,
    annotations: Annotations | None = None,
    meta: Meta | None = None,
) -> Block:
    """A link to a resource that the client can read itself."""
    block: Block = {"type": "resource_link", "uri": uri, "name": name}
    optional = {"title": title, "description": description, "mimeType": mime_type, "size": size}
    block.update({key: value for key, value in optional.items() if value is not None})
    return _dressed(block, annotations, meta)


NOTE: Final = "dev.pegboard/note"
"""The `_meta` key of a block that the server added for the model: it is not part of what the tool returned."""


def note_block(kind: str, text: str, *, beside_structured: bool) -> Block:
    """A note for the model beside what the tool returned.

    Claude Code and Pydantic AI, among others, drop the text blocks beside structured content and keep embedded
    resources. The text also stays what it is without the note: the JSON of the structured content.
    """
    audience: Annotations = {"audience": ["assistant"]}
    if beside_structured:
        return resource_block(f"pegboard:{kind}", text, "text/plain", audience, {NOTE: kind})
    return text_block(text, audience, {NOTE: kind})


def is_note(block: Mapping[str, Json]) -> bool:
    """Whether a server added this block for the model."""
    return NOTE in as_object(block.get("_meta"))


def joined_text(blocks: Json) -> str:
    """The texts of the text blocks that the tool returned, joined by newlines."""
    return "\n".join(
        str(block.get("text", ""))
        for block in objects_in(blocks)
        if block.get("type") == "text" and not ("_meta" in block and is_note(block))
    )


def name_of(uri: str) -> str:
    """The default name of a resource: the last part of its URI."""
    parts = urlsplit(uri)
    last = parts.path.rstrip("/").rpartition("/")[2]
    return unquote(last) or parts.netloc or uri


def blocks_for(version: str, blocks: Sequence[Mapping[str, Json]]) -> Sequence[Mapping[str, Json]]:
    """The blocks that a client of this revision can read; a newer type becomes text that describes it.

    Returns the same sequence if nothing changes. Unknown types are kept: they come from a downstream server, and the
    client may know them.
    """
    if version >= _ALL_BLOCKS_SINCE:
        return blocks
    too_new = {kind for kind, since in BLOCK_SINCE.items() if version < since}
    if not any(block.get("type") in too_new for block in blocks):
        return blocks
    return [_as_text(block) if block.get("type") in too_new else block for block in blocks]


def _as_text(block: Mapping[str, Json]) -> Block:
    if block.get("type") == "resource_link":
        text = _describe_link(block)
    else:
        size = len(str(block.get("data") or "").rstrip("=")) * 3 // 4
        text = f"[audio, {block.get('mimeType', 'unknown type')}, {size} bytes: not readable in this protocol revision]"
    return text_block(text, as_object(block.get("annotations")), as_object(block.get("_meta")))


def _describe_link(block: Mapping[str, Json]) -> str:
    label = block.get("title") or block.get("name") or "resource"
    kind = f" ({block['mimeType']})" if block.get("mimeType") else ""
    about = f": {block['description']}" if block.get("description") else ""
    return f"[link] {label}{kind} <{block.get('uri', '')}>{about}"
