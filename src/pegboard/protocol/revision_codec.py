"""The interface of a codec, and the codec for each revision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pegboard.call import Json, Notification, Reply
from pegboard.errors import Refusal
from pegboard.protocol.legacy_codec import LegacyCodec
from pegboard.protocol.revisions import LEGACY, Revision


class RevisionCodec(Protocol):
    """Writes results, notices and errors of one revision."""

    version: str
    revision: Revision

    def result(self, method: str, reply: Reply) -> bytes: ...

    def notice(self, notice: Notification) -> bytes:
        """The notice as a message; nothing if the revision does not have it."""

    def code(self, refusal: Refusal) -> int: ...

    def status(self, refusal: Refusal) -> int: ...


def legacy_codecs(info: Mapping[str, Json]) -> Mapping[str, LegacyCodec]:
    """The codecs of all revisions with sessions, for a server with this name and version."""
    return {version: LegacyCodec(version, info) for version in LEGACY}
