"""The filters of `pegboard audit show` and `pegboard history`."""

from __future__ import annotations

import argparse
import math
import time
from fnmatch import fnmatchcase

from msgspec import Struct

from pegboard.cli.arguments.time_argument import read_moment


class RecordFilter(Struct, frozen=True):
    """Which calls to show; an empty text matches every call."""

    tool: str = ""
    server: str = ""
    principal: str = ""
    outcome: str = ""
    since: float = -math.inf
    until: float = math.inf
    text: str = ""

    def matches(self, *, name: str, server: str, principal: str, outcome: str, at: float, text: str) -> bool:
        """Whether a call is to be shown; `text` is everything that is recorded of it."""
        return (
            self.since <= at < self.until
            and (not self.tool or fnmatchcase(name, self.tool))
            and (not self.server or fnmatchcase(server, self.server))
            and self.principal in ("", principal)
            and self.outcome in ("", outcome)
            and (not self.text or self.text in text.casefold())
        )


def add_filters(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("filters")
    group.add_argument("--tool", default="", metavar="NAME", help="the tool, prompt or URI; * stands for any text")
    group.add_argument("--server", default="", metavar="NAME", help="toolbox/server, such as office/*")
    group.add_argument("--principal", default="", metavar="ID", help="who called or decided; key:NAME for an API key")
    group.add_argument(
        "--outcome", default="", choices=("ok", "failed", "refused", "cancelled", "asked", "task"), help="how it ended"
    )
    group.add_argument("--since", metavar="TIME", help="not older than this: 2h, 3d, 2026-01-31 or 2026-01-31T12:00")
    group.add_argument("--until", metavar="TIME", help="older than this")
    group.add_argument("--text", default="", metavar="TEXT", help="a text anywhere in the record")
    parser.add_argument("--json", action="store_true", help="print JSON lines")


def read_filters(chosen: argparse.Namespace) -> RecordFilter:
    now = time.time()
    return RecordFilter(
        tool=chosen.tool,
        server=chosen.server,
        principal=chosen.principal,
        outcome=chosen.outcome,
        since=-math.inf if chosen.since is None else read_moment("--since", chosen.since, now),
        until=math.inf if chosen.until is None else read_moment("--until", chosen.until, now),
        text=chosen.text.casefold(),
    )
