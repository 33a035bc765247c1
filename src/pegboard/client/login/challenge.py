"""Parses WWW-Authenticate."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct, field

_LONGEST = 8192
_BETWEEN = re.compile(r"[\s,]*+")
_PIECE = re.compile(
    r"""(?P<name>[!\#$%&'*+.^_`|~0-9A-Za-z-]++) \s*+=\s*+ (?: "(?P<quoted>(?:[^"\\]|\\.)*+)" | (?P<plain>[^\s,"]++) )
      | (?P<word>[^\s,"]++)""",
    re.VERBOSE,
)
_ESCAPED = re.compile(r"\\(.)")


class Challenge(Struct, frozen=True):
    """One scheme and its parameters."""

    scheme: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def error(self) -> str:
        return self.parameters.get("error", "")

    @property
    def metadata_url(self) -> str:
        return self.parameters.get("resource_metadata", "")

    @property
    def scopes(self) -> list[str]:
        return self.parameters.get("scope", "").split()


def read_challenges(text: str) -> list[Challenge]:
    """All challenges of a field, or of several joined ones; invalid ones are skipped."""
    found: list[tuple[str, dict[str, str]]] = []
    text = text[:_LONGEST]
    place = 0
    alone = False
    while place < len(text):
        # Skipped before the match, so that a long run of them is not tried from each position.
        between = _BETWEEN.match(text, place)
        place = between.end() if between else place
        piece = _PIECE.match(text, place)
        if piece is None:
            place += 1
            continue
        place = piece.end()
        if piece["word"] is not None:
            # A word right after a scheme is its token68; any other starts a challenge.
            if not alone or (between and "," in between[0]):
                found.append((piece["word"].lower(), {}))
                alone = True
            else:
                alone = False
            continue
        alone = False
        if found:
            quoted = piece["quoted"]
            value = piece["plain"] if quoted is None else _ESCAPED.sub(r"\1", quoted)
            found[-1][1].setdefault(piece["name"].lower(), value)
    return [Challenge(scheme, parameters) for scheme, parameters in found]


def read_bearer(text: str) -> Challenge:
    """The challenge for a bearer token; an empty one if there is none."""
    return next((challenge for challenge in read_challenges(text) if challenge.scheme == "bearer"), Challenge())
