"""Content that a tool returns besides text and JSON: images, audio, files, links.

A path is read when the object is created: a missing file then fails on the author's own line, a temporary file may be
deleted afterwards, and a sync tool reads it in its thread. Base64 is computed when the block is requested.
"""

from __future__ import annotations

import binascii
import os
from pathlib import Path

from pegboard.protocol.content import (
    Annotations,
    Block,
    Meta,
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


class Content:
    """One content block of a result; a tool may return it alone, in a list, or in a `ToolResult`."""

    __slots__ = ("annotations", "meta")

    def __init__(self, annotations: Annotations | None, meta: Meta | None) -> None:
        if annotations is not None:
            check_annotations(annotations)
        self.annotations = annotations
        self.meta = meta

    def to_block(self) -> Block:
        """The block in wire format."""
        raise NotImplementedError


class Text(Content):
    """Text with annotations or metadata; without these, return a plain `str`."""

    __slots__ = ("text",)

    def __init__(self, text: str, *, annotations: Annotations | None = None, meta: Meta | None = None) -> None:
        super().__init__(annotations, meta)
        self.text = text

    def to_block(self) -> Block:
        return text_block(self.text, self.annotations, self.meta)


class Media(Content):
    """Bytes with a media type: passed as bytes, read from a path (`str` or `Path`), or decoded from base64."""

    __slots__ = ("data", "mime_type")

    family = ""

    def __init__(
        self,
        source: bytes | bytearray | memoryview | str | os.PathLike[str] | None = None,
        mime_type: str | None = None,
        *,
        base64: str | None = None,
        annotations: Annotations | None = None,
        meta: Meta | None = None,
    ) -> None:
        super().__init__(annotations, meta)
        self.data, name = _read(source, base64, type(self).__name__)
        guessed = mime_type or guess_by_suffix(name) or guess_by_magic(self.data)
        if guessed is None or (mime_type is None and not guessed.startswith(f"{self.family}/")):
            found = (
                f"it looks like {guessed}" if guessed else "its type cannot be guessed from the name or the first bytes"
            )
            kind = type(self).__name__
            raise ValueError(f"{kind}: not known to be {self.family} ({found}); pass it: {kind}(…, mime_type=…)")
        self.mime_type = guessed

    def to_block(self) -> Block:
        return media_block(self.family, encode_base64(self.data), self.mime_type, self.annotations, self.meta)


class Image(Media):
    """An image for the model or the user.

    source: the bytes, or the path of a file.
    base64: the bytes in Base64, in place of `source`.
    mime_type: the media type; without it, guessed from the name or the bytes.
    annotations: audience, priority and lastModified, as in the protocol.
    meta: the `_meta` of the content block.
    """

    __slots__ = ()

    family = "image"


class Audio(Media):
    """Audio for the model or the user; clients older than 2025-03-26 get a sentence instead.

    source: the bytes, or the path of a file.
    base64: the bytes in Base64, in place of `source`.
    mime_type: the media type; without it, guessed from the name or the bytes.
    annotations: audience, priority and lastModified, as in the protocol.
    meta: the `_meta` of the content block.
    """

    __slots__ = ()

    family = "audio"


class File(Content):
    """A file embedded in the result: as text if its type and bytes are text, otherwise as a blob.

    Its URI is `file:///` and the file name, which hides the folders of the server; pass `uri` to choose another. As the
    content of a resource it has the URI that was read.

    source: the bytes, or the path of a file.
    text: the text, in place of `source`.
    base64: the bytes in Base64, in place of `source`.
    name: the name of the file.
    uri: the URI.
    mime_type: the media type; without it, guessed from the name or the bytes.
    annotations: audience, priority and lastModified, as in the protocol.
    meta: the `_meta` of the content block.
    """

    __slots__ = ("content", "has_uri", "mime_type", "uri")

    def __init__(
        self,
        source: bytes | bytearray | memoryview | str | os.PathLike[str] | None = None,
        mime_type: str | None = None,
        *,
        text: str | None = None,
        base64: str | None = None,
        name: str | None = None,
        uri: str | None = None,
        annotations: Annotations | None = None,
        meta: Meta | None = None,
    ) -> None:
        super().__init__(annotations, meta)
        if text is not None:
            if source is not None or base64 is not None:
                raise ValueError("File: pass one of bytes, a path, text or base64")
            data, found = text.encode("utf-8"), ""
        else:
            data, found = _read(source, base64, "File")
        name = name or (Path(found).name if found else "") or (name_of(uri) if uri else "file")
        mime_type = mime_type or guess_by_suffix(name) or (None if text is not None else guess_by_magic(data))
        self.content: str | bytes = data if text is None else text
        if text is None and (mime_type is None or is_textual(mime_type)):
            self.content = _as_text(data)
        if mime_type is None:
            mime_type = "text/plain" if isinstance(self.content, str) else "application/octet-stream"
        self.mime_type = mime_type
        self.has_uri = bool(uri)
        self.uri = uri or Path("/", name).as_uri()

    def to_block(self) -> Block:
        return resource_block(self.uri, self.content, self.mime_type, self.annotations, self.meta)


class Link(Content):
    """A resource that the client can read itself; clients older than 2025-06-18 get its address as text.

    uri: the absolute URI.
    name: its name; without it, the last part of the URI.
    title: the name for people.
    description: what it contains.
    mime_type: its media type; without it, guessed from the URI.
    size: its size in bytes.
    annotations: audience, priority and lastModified, as in the protocol.
    meta: the `_meta` of the content block.
    """

    __slots__ = ("description", "mime_type", "name", "size", "title", "uri")

    def __init__(
        self,
        uri: str,
        name: str | None = None,
        *,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        annotations: Annotations | None = None,
        meta: Meta | None = None,
    ) -> None:
        super().__init__(annotations, meta)
        if ":" not in uri:
            raise ValueError(f"Link: {uri!r} is not absolute; a URI starts with a scheme, such as file: or https:")
        self.uri = uri
        self.name = name or name_of(uri)
        self.title = title
        self.description = description
        self.mime_type = mime_type or guess_by_suffix(name_of(uri))
        self.size = size

    def to_block(self) -> Block:
        return link_block(
            self.uri,
            self.name,
            title=self.title,
            description=self.description,
            mime_type=self.mime_type,
            size=self.size,
            annotations=self.annotations,
            meta=self.meta,
        )


def _read(
    source: bytes | bytearray | memoryview | str | os.PathLike[str] | None, base64: str | None, kind: str
) -> tuple[bytes, str]:
    """The bytes, and the name of the file they came from."""
    if source is not None and base64 is None:
        if isinstance(source, bytes | bytearray | memoryview):
            return bytes(source), ""
        path = Path(source)
        return path.read_bytes(), path.name
    if base64 is not None and source is None:
        try:
            return binascii.a2b_base64(base64, strict_mode=True), ""
        except binascii.Error as problem:
            raise ValueError(f"{kind}: the base64 text is not valid ({problem})") from problem
    raise ValueError(f"{kind}: pass one of bytes, a path, or base64")


def _as_text(data: bytes) -> str | bytes:
    if b"\x00" in data:
        return data
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data
