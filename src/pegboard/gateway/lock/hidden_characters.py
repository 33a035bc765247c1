"""Finds characters that a model reads and a person does not see."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from msgspec import Struct

from pegboard.logs.printable import printable


class HiddenText(Struct, frozen=True):
    """Where and how a text hides something; `shown` is the hidden text, if it can be decoded."""

    rule: str
    at: int
    shown: str


REASONS: Final = {
    "hidden-tags": "characters of the tag block spell out invisible text",
    "hidden-variation": "variation selectors without effect can carry invisible text",
    "hidden-zero-width": "zero-width characters hide text, or split words to evade searches",
    "hidden-bidi": "bidirectional controls show text in another order than it is read",
    "hidden-control": "control characters can rewrite what a terminal shows",
    "hidden-private-use": "private-use characters can carry invisible text",
    "hidden-padding": "a gap this long moves the following text out of sight",
    "too-long": "the text is too long to review; only its start was scanned",
    "mixed-scripts": "letters of another script imitate Latin ones",
}

_TAGS: Final = re.compile("[\U000e0000-\U000e007f]+")
# The three emoji flags that use tags: England, Scotland, Wales.
_FLAGS: Final = re.compile(
    "\U0001f3f4\U000e0067\U000e0062(?:\U000e0065\U000e006e\U000e0067|\U000e0073\U000e0063\U000e0074"
    "|\U000e0077\U000e006c\U000e0073)\U000e007f"
)
_SELECTORS: Final = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]+")
_ZERO_WIDTH: Final = re.compile(
    "[\u00ad\u034f\u115f\u1160\u180e\u200b-\u200d\u2060-\u2064\u206a-\u206f\u3164\ufeff\uffa0]"
)
_BIDI: Final = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_BIDI_MARKS: Final = "\u061c\u200e\u200f"
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_PRIVATE: Final = re.compile("[\ue000-\uf8ff\U000f0000-\U0010ffff]")
# A run is tried from its first character only, or from each of twenty line breaks: not from every position in it.
_BLANK: Final = r"[ \t\u00a0\u2000-\u200a\u3000]"
_PADDING: Final = re.compile(rf"(?<!{_BLANK}){_BLANK}{{120,}}+(?=\S)|\n(?:[^\S\n]*+\n){{19}}")
_WORDS: Final = re.compile(r"[^\W\d_]{2,}")
# `normalize` sorts the combining marks of a letter in pairs: text of marks alone would take quadratic time.
_BLOCK: Final = 512

# Letters that look like Latin ones in most fonts.
_LOOKALIKES: Final = {
    **dict(
        zip("авеёкмнопрстухАВЕЁКМНОРСТУХЗіІїјЈѕЅԁԌһԛԝҮүь", "abeekmhonpctyxABEEKMHOPCTYX3iIijJsSdGhqwYyb", strict=True)
    ),
    **dict(zip("αβγεικνορτυχωΑΒΕΖΗΙΚΜΝΟΡΤΥΧϲϳ", "aByeikvoptuxwABEZHIKMNOPTYXcj", strict=True)),
    **dict(zip("օսցհոԱՏՕ", "ougnnUSO", strict=True)),
    **dict(zip("ɑɡıȷℓ", "agijl", strict=True)),
    **dict(zip("ᎪᏴᏟᎬᎻᎫᏦᏞᎷᏢᏒᏚᎢᏙᏃ", "ABCEHJKLMPRSTVZ", strict=True)),
}
_TABLE: Final = str.maketrans(_LOOKALIKES)
_FOREIGN: Final = re.compile("[" + "".join(letter for letter in _LOOKALIKES if letter not in "αβγωτɑɡıȷℓ") + "]")
_LATIN: Final = re.compile(r"[A-Za-z]")
_INVISIBLE: Final = re.compile(
    f"{_TAGS.pattern}|{_SELECTORS.pattern}|{_ZERO_WIDTH.pattern}|{_BIDI.pattern}|{_CONTROL.pattern}|{_PRIVATE.pattern}"
)


def find_hidden(text: str) -> list[HiddenText]:
    """What a text hides, the first finding of each kind."""
    found = []
    if not text.isascii():
        found = [
            finding for find in (_tags, _selectors, _zero_width, _bidi, _private, _mixed) if (finding := find(text))
        ]
    if control := _CONTROL.search(text):
        found.append(HiddenText("hidden-control", control.start(), printable(control[0])))
    # Blanks at the end of a text hide nothing.
    if padding := _PADDING.search(text.rstrip()):
        found.append(HiddenText("hidden-padding", padding.start(), f"{len(padding[0])} blanks"))
    return found


def remove_hidden(text: str) -> str:
    """The text as a model may read it: normalized, without invisible characters."""
    if text.isascii():
        return text if _CONTROL.search(text) is None else _CONTROL.sub("", text)
    blocks = (text[at : at + _BLOCK] for at in range(0, len(text), _BLOCK))
    return _INVISIBLE.sub("", "".join(unicodedata.normalize("NFKC", block) for block in blocks))


def latinise(text: str) -> str:
    """The text with Latin letters in place of look-alikes."""
    return text if text.isascii() else text.translate(_TABLE)


def skeleton(name: str) -> str:
    """The form in which look-alike names are equal; also ignores case and separators."""
    plain = re.sub(r"[\s_.\-/:]+", "", latinise(remove_hidden(name))).casefold()
    return plain.replace("0", "o").replace("1", "l").replace("rn", "m").replace("i", "l").replace("vv", "w")


def read_tags(text: str) -> str:
    """The text written in tags."""
    return "".join(chr(ord(letter) - 0xE0000) for letter in text if 0xE0020 <= ord(letter) <= 0xE007E)


def read_selectors(text: str) -> str:
    """The text written in variation selectors, one byte each."""
    data = bytes(code - 0xFE00 if (code := ord(letter)) < 0xE0100 else code - 0xE0100 + 16 for letter in text)
    return data.decode("utf-8", "replace")


def _tags(text: str) -> HiddenText | None:
    if "\U0001f3f4" in text:
        text = _FLAGS.sub(lambda flag: " " * len(flag[0]), text)
    found = _TAGS.search(text)
    return found and HiddenText("hidden-tags", found.start(), read_tags("".join(_TAGS.findall(text))))


def _selectors(text: str) -> HiddenText | None:
    for found in _SELECTORS.finditer(text):
        before = text[found.start() - 1] if found.start() else " "
        if len(found[0]) > 1 or not _selectable(before, ord(found[0])):
            return HiddenText("hidden-variation", found.start(), printable(read_selectors(found[0])))
    return None


def _selectable(letter: str, selector: int) -> bool:
    """Whether a selector after this letter can affect its display."""
    if selector >= 0xE0100:
        return unicodedata.category(letter) == "Lo" and ord(letter) >= 0x3400
    if selector >= 0xFE0E:
        return not letter.isalpha() and not letter.isspace()
    return unicodedata.category(letter) in ("Sm", "Lo")


def _zero_width(text: str) -> HiddenText | None:
    for found in _ZERO_WIDTH.finditer(text):
        before = text[found.start() - 1] if found.start() else " "
        after = text[found.end()] if found.end() < len(text) else " "
        if found[0] not in "\u200c\u200d" or not _joinable(before, after):
            return HiddenText("hidden-zero-width", found.start(), printable(found[0]))
    return None


def _joinable(before: str, after: str) -> bool:
    """Whether a joiner affects the display: in emoji, and in scripts whose letters join."""
    emoji = unicodedata.category(after) == "So" and unicodedata.category(before) in ("So", "Sk", "Mn")
    return emoji or (0x0590 <= ord(before) < 0x1100 and (0x0590 <= ord(after) < 0x1100 or not after.isalnum()))


def _bidi(text: str) -> HiddenText | None:
    right_to_left = any(
        unicodedata.bidirectional(letter) in ("R", "AL") and letter not in _BIDI_MARKS for letter in text
    )
    for found in _BIDI.finditer(text):
        if found[0] not in _BIDI_MARKS or not right_to_left:
            return HiddenText("hidden-bidi", found.start(), printable(found[0]))
    return None


def _private(text: str) -> HiddenText | None:
    found = _PRIVATE.search(text)
    return found and HiddenText("hidden-private-use", found.start(), printable(found[0]))


def _mixed(text: str) -> HiddenText | None:
    for word in _WORDS.finditer(text):
        foreign = _FOREIGN.search(word[0])
        if foreign and _LATIN.search(word[0]):
            return HiddenText(
                "mixed-scripts",
                word.start(),
                f"{word[0]} has U+{ord(foreign[0]):04X} {unicodedata.name(foreign[0], '')}",
            )
    return None
