"""`pegboard approvals TARGET [approve|refuse ID]`: list calls that wait for an approval, and decide them."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote, urlsplit

import msgspec

from pegboard import __version__
from pegboard.approvals.approval_store import Approvals
from pegboard.auth.local_user import local_user
from pegboard.cli.arguments.target_argument import add_url_flags, read_headers
from pegboard.cli.arguments.verb_parser import VerbParser
from pegboard.cli.audited import audit_of
from pegboard.cli.server_store import add_store_flag, open_server_store, store_of
from pegboard.cli.terminal.output import ask_for, note, note_lines, show, show_json, show_text
from pegboard.cli.terminal.terminal_form import on_terminal
from pegboard.client.http.address import read_address
from pegboard.client.http.http_pool import HttpPool, PooledRequest
from pegboard.config.gateway_config import read_config
from pegboard.errors import MalformedMessage, Refusal, ServerFault, SetupError
from pegboard.limits import Limits
from pegboard.loading import load_board
from pegboard.server.endpoint_names import APPROVALS
from pegboard.server.pages.approval_pages import describe_event, describe_request

OK, NOT_DECIDED, CANNOT_CONNECT = 0, 1, 3
_BYTES: Final = 32 * 1024 * 1024
_SECONDS: Final = 30.0


class _Server(Protocol):
    """Where the approvals are: in the store of a server, or behind its URL."""

    async def list(self) -> Mapping[str, Any]:
        """The requests and the history, as the pages return them."""

    async def get(self, request_id: str) -> Mapping[str, Any] | None: ...

    async def decide(self, request_id: str, approve: bool, reason: str) -> Mapping[str, Any]: ...


class _NotDecided(Exception):
    """The text says why a request cannot be decided."""


def main(argv: list[str]) -> int:
    parser = VerbParser(
        prog="pegboard approvals",
        usage="pegboard approvals [options] TARGET [approve|refuse ID]",
        description="List the calls that wait for an approval, and approve or refuse them.",
        examples=("pegboard approvals gateway.json", "pegboard approvals gateway.json approve 3f2a"),
        codes="0 ok, 1 not decided, 2 wrong usage or set-up, 3 cannot connect",
        epilog="With a configuration or a board, you decide as the user who runs the server, on a terminal. With a URL, you decide as the principal of the credentials in --header.",
    )
    parser.add_argument(
        "target",
        metavar="TARGET",
        help="a configuration file, FILE.py[:board], the folder of a board, or the URL of a server",
    )
    parser.add_argument(
        "action", nargs="?", choices=("approve", "refuse"), metavar="approve|refuse", help="the decision"
    )
    parser.add_argument("id", nargs="?", metavar="ID", help="the id of the request")
    parser.add_argument("--reason", default="", metavar="TEXT", help="the reason, which the model reads if you refuse")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_store_flag(parser)
    add_url_flags(parser)
    chosen = parser.parse_intermixed_args(argv)
    if chosen.action is not None and chosen.id is None:
        parser.error(f"name the request: pegboard approvals {chosen.target} {chosen.action} ID")
    try:
        return asyncio.run(_run(chosen))
    except _NotDecided as problem:
        note(f"pegboard approvals: {problem}")
        return NOT_DECIDED
    except Refusal as refusal:
        note(f"pegboard approvals: {refusal.message}")
        return NOT_DECIDED
    except ServerFault as fault:
        note(f"pegboard approvals: {fault}")
        return CANNOT_CONNECT


async def _run(chosen: argparse.Namespace) -> int:
    async with _connect(chosen) as server:
        if chosen.action is None:
            _print_list(await server.list(), chosen.json)
            return OK
        if chosen.action == "approve" and isinstance(server, _StoredApprovals):
            await _confirm(server, chosen.id)
        decided = await server.decide(chosen.id, chosen.action == "approve", chosen.reason)
    if chosen.json:
        show_json(decided)
    else:
        note(f"{decided['state']}: {_place(decided)} for {decided['requester'] or 'an anonymous caller'}")
    return OK


@asynccontextmanager
async def _connect(chosen: argparse.Namespace) -> AsyncIterator[_Server]:
    target: str = chosen.target
    if target.startswith(("http://", "https://")):
        pool = HttpPool(ca=chosen.ca)
        try:
            yield _RemoteApprovals(pool, target, read_headers(chosen.header))
        finally:
            await pool.close()
        return
    is_board = _is_board(target)
    if is_board:
        name = load_board(target).name
        address = chosen.store or os.environ.get("PEGBOARD_STORE")
        if not address:
            raise SetupError(f"{target}: name the store that the server uses: --store sqlite:PATH or redis://HOST")
    else:
        name, address = read_config(target, os.environ).name, chosen.store or store_of(target)
    async with (
        open_server_store(address, "approvals") as store,
        audit_of(None if is_board else target, address) as audit,
    ):
        approvals = Approvals(name, Limits(), find_audit=lambda: audit)
        approvals.use_store(store)
        yield _StoredApprovals(approvals)


def _is_board(target: str) -> bool:
    return target.partition(":")[0].endswith(".py") or Path(target).is_dir()


class _StoredApprovals:
    """The approvals in a store, for the user who runs the server."""

    def __init__(self, approvals: Approvals) -> None:
        self._approvals = approvals
        self._user = local_user()

    async def list(self) -> Mapping[str, Any]:
        approvals, user = self._approvals, self._user
        return {
            "open": [*map(describe_request, await approvals.open_for(user))],
            "own": [*map(describe_request, await approvals.made_by(user))],
            "history": [*map(describe_event, await approvals.history(user, 20))],
        }

    async def get(self, request_id: str) -> Mapping[str, Any] | None:
        found = await self._approvals.get(request_id)
        return None if found is None or not found.concerns(self._user) else describe_request(found)

    async def decide(self, request_id: str, approve: bool, reason: str) -> Mapping[str, Any]:
        decided = await self._approvals.decide(request_id, self._user, approve=approve, reason=reason, how="cli")
        return describe_request(decided)


class _RemoteApprovals:
    """The approvals of a server behind a URL, for the principal of the headers."""

    def __init__(self, pool: HttpPool, url: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        root = parts.path.rstrip("/").removesuffix("/mcp").removesuffix(APPROVALS)
        self._url = parts._replace(path=root + APPROVALS, query="", fragment="").geturl()
        self._pool = pool
        self._secrets = "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode()

    async def list(self) -> Mapping[str, Any]:
        return await self._send("GET", self._url)

    async def get(self, request_id: str) -> Mapping[str, Any] | None:
        return await self._send("GET", f"{self._url}/{quote(request_id, safe='')}")

    async def decide(self, request_id: str, approve: bool, reason: str) -> Mapping[str, Any]:
        body = msgspec.json.encode({"action": "approve" if approve else "refuse", "reason": reason})
        return await self._send("POST", f"{self._url}/{quote(request_id, safe='')}", body)

    async def _send(self, method: str, url: str, body: bytes = b"") -> Mapping[str, Any]:
        fields = f"User-Agent: pegboard/{__version__}\r\nAccept: application/json\r\n"
        if body:
            fields += "Content-Type: application/json\r\n"
        request = PooledRequest(method, read_address(url), fields.encode(), self._secrets, body, follows=False)
        try:
            async with asyncio.timeout(_SECONDS):
                response = await self._pool.send(request)
                try:
                    content = await response.read_all(_BYTES)
                finally:
                    response.close()
        except TimeoutError:
            raise ServerFault(f"{url}: no response within {_SECONDS:g} s") from None
        try:
            document = msgspec.json.decode(content, type=dict[str, Any])
        except msgspec.MsgspecError:
            document = {}
        if response.is_success and document:
            return document
        if response.status == 401:
            raise _NotDecided(f'{url}: needs credentials; add --header "Authorization: Bearer …"')
        if isinstance(document.get("error"), str):
            raise _NotDecided(document["error"].rstrip("."))
        if response.status == 404:
            raise _NotDecided(f"{url}: this server has no approvals; its rules have no 'approve'")
        raise MalformedMessage(f"{url}: unexpected response with status {response.status}")


async def _confirm(server: _StoredApprovals, request_id: str) -> None:
    """Let the person at the terminal read the call: a program that runs this command must not approve calls."""
    request = await server.get(request_id)
    if request is None or request["state"] != "open":
        # The decision says why it is not possible.
        return
    if not on_terminal():
        raise SetupError("run this on a terminal: a person has to read the call before it is approved")
    _print_request(request, note)
    note_lines(f"Its arguments:\n{request['arguments']}")
    ask_for("Approve this call? [y/N] ")
    answer = await asyncio.to_thread(sys.stdin.readline)
    if answer.strip().lower() not in ("y", "yes"):
        raise _NotDecided("not approved; the request stays open")


def _print_list(listed: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        show_json(listed)
        return
    for request in listed["open"]:
        _print_request(request, show)
        show_text(str(request["arguments"]))
    if not listed["open"]:
        note("No call waits for your approval")
    shown = {request["id"] for request in listed["open"]}
    for request in listed["own"]:
        if request["id"] not in shown:
            note(f"your own call, {request['state']}: {request['id']}  {_place(request)}")
    for event in listed["history"]:
        reason = f": {event['reason']}" if event.get("reason") else ""
        note(f"{_time(event['at'])}  {event['call']} {event['step']} by {event['by'] or 'an anonymous caller'}{reason}")


def _print_request(request: Mapping[str, Any], write: Callable[[str], None]) -> None:
    who = request["requester"] or "an anonymous caller"
    write(f"{request['id']}  {_place(request)}  for {who}, {request['wanted']}, until {_time(request['expires'])}")


def _place(request: Mapping[str, Any]) -> str:
    return "/".join(str(request[part]) for part in ("toolbox", "server", "tool") if request.get(part))


def _time(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(at))
