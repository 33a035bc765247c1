"""Serves a board to a client in the same process, over messages as on a wire."""

from __future__ import annotations

from pegboard.call import Channel
from pegboard.client.links.in_process import LineServer, MemoryLink
from pegboard.client.links.link import Identity, LinkOptions, ServerLink


class MemoryServer:
    """A target for a client: a board or gateway that is reached over messages in memory, in any protocol revision.

    `Client(MemoryServer(board))` encodes and decodes every message; with `version=` a client of a board does so as well,
    unless that is the newest revision. `board` is started and stopped with the client.
    """

    def __init__(self, board: LineServer) -> None:
        self._board = board

    def link(self, identity: Identity, unattributed: Channel, options: LinkOptions) -> ServerLink:
        """Return a link for the `identity` of a client, its `options`, and the channel of `unattributed` messages."""
        return MemoryLink(self._board, identity, unattributed, options)
