"""The tongues a server answers in: one per revision, all with the same few sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pegboard.call import Json, Notice, Reply
from pegboard.errors import Refusal
from pegboard.protocol.legacy import Legacy
from pegboard.protocol.modern import Modern
from pegboard.protocol.versions import LEGACY, MODERN


class Tongue(Protocol):
    """How results, notices and refusals are put in one revision."""

    version: str

    def result(self, method: str, reply: Reply) -> bytes: ...

    def notice(self, notice: Notice) -> bytes:
        """The notice as a message; nothing where the revision does not have it."""

    def code(self, refusal: Refusal) -> int: ...

    def status(self, refusal: Refusal) -> int: ...


def legacy_tongues(info: Mapping[str, Json]) -> Mapping[str, Legacy]:
    """Every revision that has sessions, for a server of this name and version."""
    return {version: Legacy(version, info) for version in LEGACY}


def tongues(info: Mapping[str, Json]) -> Mapping[str, Tongue]:
    """Every revision we speak."""
    return {**legacy_tongues(info), MODERN: Modern(info)}
