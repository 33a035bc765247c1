"""Makes PNG images of screens small: 256 colours in place of millions, and the best compression."""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterator

SIGNATURE = b"\x89PNG\r\n\x1a\n"
COLOURS = 256
_TRUE_COLOUR = {2: 3, 6: 4}
"""The bytes of a pixel, by the colour type."""


def shrink(image: bytes) -> bytes:
    """The same image with a palette; colours that are rare become the nearest common one."""
    width, height, rows = _read(image)
    pixels = [row[at : at + 3] for row in rows for at in range(0, len(row), len(row) // width)]
    counts = Counter(pixels)
    palette = [colour for colour, _ in counts.most_common(COLOURS)]
    places = {colour: place for place, colour in enumerate(palette)}
    for colour in counts:
        if colour not in places:
            places[colour] = min(range(len(palette)), key=lambda place: _distance(palette[place], colour))
    lines = (bytes(places[pixel] for pixel in pixels[at : at + width]) for at in range(0, len(pixels), width))
    data = zlib.compress(b"".join(b"\0" + line for line in lines), 9)
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"PLTE", b"".join(palette)), (b"IDAT", data), (b"IEND", b""))
    return SIGNATURE + b"".join(map(_chunk, *zip(*chunks, strict=True)))


def _distance(one: bytes, other: bytes) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _chunks(image: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(SIGNATURE)
    while at < len(image):
        (length,) = struct.unpack_from(">I", image, at)
        yield image[at + 4 : at + 8], image[at + 8 : at + 8 + length]
        at += length + 12


def _read(image: bytes) -> tuple[int, int, list[bytes]]:
    """The size of an image, and the bytes of each row."""
    parts = list(_chunks(image))
    width, height, depth, colour_type, *_ = struct.unpack(">IIBBBBB", parts[0][1])
    assert depth == 8, "only images with 8 bits for each colour are read"
    step = _TRUE_COLOUR[colour_type]
    data = zlib.decompress(b"".join(content for kind, content in parts if kind == b"IDAT"))
    length = width * step
    rows, above = [], bytes(length)
    for at in range(0, height * (length + 1), length + 1):
        above = _unfilter(data[at], bytearray(data[at + 1 : at + 1 + length]), above, step)
        rows.append(above)
    return width, height, rows


def _unfilter(kind: int, row: bytearray, above: bytes, step: int) -> bytes:
    """Undo the filter of a row (PNG specification, 9.2)."""
    for at in range(len(row)):
        left = row[at - step] if at >= step else 0
        corner = above[at - step] if at >= step else 0
        match kind:
            case 1:
                row[at] = (row[at] + left) & 255
            case 2:
                row[at] = (row[at] + above[at]) & 255
            case 3:
                row[at] = (row[at] + (left + above[at]) // 2) & 255
            case 4:
                row[at] = (row[at] + _paeth(left, above[at], corner)) & 255
    return bytes(row)


def _paeth(left: int, above: int, corner: int) -> int:
    guess = left + above - corner
    return min((abs(guess - left), 0, left), (abs(guess - above), 1, above), (abs(guess - corner), 2, corner))[2]
