"""`pegboard history`: search the calls that a server has kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from pegboard.cli.arguments.record_filters import RecordFilter, add_filters, read_filters
from pegboard.cli.arguments.verb_parser import VerbParser
from pegboard.cli.server_store import add_store_flags, open_server_store, store_of
from pegboard.cli.terminal.output import note, show_json_line
from pegboard.cli.terminal.tables import show_wrapped
from pegboard.middleware.observability.call_feed import CallFeed, StoredCall
from pegboard.stores.store import wait_for_hint

OK = 0

_PAGE: Final = 500
_REREAD_SECONDS: Final = 2.0
_encode = msgspec.json.Encoder().encode


def main(argv: list[str]) -> int:
    parser = VerbParser(
        prog="pegboard history",
        description="Show the latest calls of a server, of all its processes, also after it has ended. Values that look "
        "like secrets are masked.",
        examples=("pegboard history --since 1h --json",),
        epilog="`pegboard up` keeps them in its store, unless it runs with --no-history; see docs/console.md.",
    )
    add_filters(parser)
    parser.add_argument("-n", type=int, default=100, metavar="COUNT", help="how many calls to show; default: 100")
    parser.add_argument("--follow", action="store_true", help="go on with new calls, until Ctrl+C")
    add_store_flags(parser)
    chosen = parser.parse_args(argv)
    address = chosen.store or store_of(chosen.config)
    return asyncio.run(_show(address, read_filters(chosen), chosen.n, chosen.follow, chosen.json))


async def _show(address: str, wanted: RecordFilter, count: int, follow: bool, as_json: bool) -> int:
    async with open_server_store(address, "calls") as store:
        feed = CallFeed(store.feeds, 1, 1)
        last = await feed.last()
        found: list[StoredCall] = []
        async for part in feed.backwards():
            found = [*(call for call in part if _matches(wanted, call)), *found]
            if len(found) >= count or part[0].at < wanted.since:
                break
        if not found and not follow:
            note("There are no such calls; a server stores new calls within a second")
        for call in found[len(found) - count :] if count < len(found) else found:
            _print(call, as_json)
        if follow:
            async for call in _follow(feed, last):
                if _matches(wanted, call):
                    _print(call, as_json)
    return OK


async def _follow(feed: CallFeed, last: int) -> AsyncIterator[StoredCall]:
    hint = asyncio.Event()
    leave = feed.watch(hint.set)
    try:
        while True:
            for call in await feed.since(last, _PAGE):
                last = call.number
                yield call
            await wait_for_hint(hint, _REREAD_SECONDS)
    finally:
        leave()


def _matches(wanted: RecordFilter, call: StoredCall) -> bool:
    return wanted.matches(
        name=call.name,
        server=call.lane,
        principal=call.principal,
        outcome=call.outcome,
        at=call.at,
        text=f"{call.name} {bytes(call.details).decode('utf-8', 'replace')}" if wanted.text else "",
    )


def _print(call: StoredCall, as_json: bool) -> None:
    if as_json:
        show_json_line(_encode(call.everything()))
        return
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(call.at))
    who = call.principal or call.client or "-"
    repaired = f"  {call.repairs} repaired" if call.repairs else ""
    where = f"{call.lane}  " if call.lane else ""
    show_wrapped(f"{began}  {who}  {where}{call.name}  {call.outcome}  {call.ms:.1f} ms{repaired}")
