"""Where a request is forwarded, and how the result or error of its server is converted for the caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from pegboard.call import Call, Done, Json, Question
from pegboard.catalog.caching import Caching
from pegboard.errors import (
    Busy,
    DelegationFailed,
    InternalFailure,
    InvalidParams,
    LimitReached,
    MalformedMessage,
    PegboardError,
    Refusal,
    ResourceNotFound,
    ServerFault,
    ToolError,
    UnsupportedVersion,
)
from pegboard.gateway.servers.downstream import Downstream
from pegboard.protocol.json_values import as_object
from pegboard.protocol.params import PREFIX
from pegboard.protocol.revisions import REVISIONS
from pegboard.tools.qualified_names import delegation_error

CALL: Final = "tools/call"
READ: Final = "resources/read"

LINKS_FIRST: Final = -32042
"""The error of revision 2025-11-25 if a link must be opened first; newer revisions request it as input."""

# The list in each result, and the member that its items must have: results for older revisions are made from these.
_MEMBERS: Final[Mapping[str, tuple[str, str | None]]] = {
    READ: ("contents", None),
    "prompts/get": ("messages", "content"),
}
_SERVER: Final = PREFIX + "serverInfo"
_NOT_KEPT: Final = Caching().hints()
_OLD_NOT_FOUND: Final = -32002
# "Implementations MUST NOT emit any code from this sub-range that is not defined" (Error Codes).
_RESERVED: Final = range(-32099, -32022)


def unchanged_result(result: dict[str, Json]) -> dict[str, Json]:
    """The `map_result` of a result without names to translate."""
    return result


class Destination(Struct, frozen=True, kw_only=True, eq=False):
    """One tool, resource or prompt of a server.

    `tool` is the server's own name for it, `tell` converts a tool's result (`ResultWriter.pass_on`), `map_result`
    translates the URIs in its content, and the metadata. A `repeatable` tool may be called again if the outcome of a call is unknown; one that runs `as_task`
    is called as a task of its (legacy) server, and polled.
    """

    downstream: Downstream
    tool: str = ""
    tell: Callable[[dict[str, Json]], Done] = Done
    map_result: Callable[[dict[str, Json]], dict[str, Json]] = unchanged_result
    repeatable: bool = False
    as_task: bool = False


def to_reply(destination: Destination, method: str, result: Mapping[str, Json]) -> Done:
    """The reply for a server's result; raises ResultProblem if it violates the server's own schema."""
    if method == CALL:
        return to_tool_reply(destination, result)
    own = cleaned(result)
    if method == READ:
        # Older servers send no caching hints; without them a result must not be cached.
        own = {**_NOT_KEPT, **own}
    member, needed = _MEMBERS.get(method, ("", None))
    if member:
        items = own.get(member)
        for item in items if isinstance(items, list) else (None,):
            if not isinstance(item, dict) or (needed is not None and needed not in item):
                raise MalformedMessage(f"answered {method} without a valid list of {member}")
    return Done(destination.map_result(own))


def to_tool_reply(destination: Destination, result: Mapping[str, Json]) -> Done:
    """The same for the result of a tool, almost all of which have nothing to translate."""
    own = dict(result)
    own.pop("resultType", None)
    meta = own.pop("_meta", None)
    translates = isinstance(meta, dict) and (len(meta) > 1 or _SERVER not in meta)
    if translates:
        own["_meta"] = {name: value for name, value in as_object(meta).items() if name != _SERVER}
    if "isError" in own:
        own["isError"] = own["isError"] is True
    content = own.setdefault("content", [])
    for block in content if isinstance(content, list) else (None,):
        if not isinstance(block, dict) or "type" not in block:
            raise MalformedMessage(f"answered {CALL} without a valid list of content")
        if block["type"] in ("resource", "resource_link"):
            translates = True
    return destination.tell(destination.map_result(own) if translates else own)


def cleaned(result: Mapping[str, Json]) -> dict[str, Json]:
    """A result without the members that each hop sets for itself: its type, and the server's name."""
    own = dict(result)
    own.pop("resultType", None)
    meta = own.pop("_meta", None)
    if isinstance(meta, dict):
        kept = {name: value for name, value in meta.items() if name != _SERVER}
        if kept:
            own["_meta"] = kept
    return own


def links_in(refusal: Refusal) -> dict[str, Question]:
    """The links that must be opened before a legacy server accepts the call; empty for any other error."""
    data = refusal.data if refusal.code == LINKS_FIRST and isinstance(refusal.data, dict) else {}
    listed = data.get("elicitations")
    links = [link for link in listed if isinstance(link, dict)] if isinstance(listed, list) else []
    return {
        f"link-{number}": Question("elicitation/create", {"mode": "url", **link})
        for number, link in enumerate(links, 1)
    }


def failure_of(destination: Destination, call: Call, problem: PegboardError) -> PegboardError:
    """The error for the caller: the server's own error, or a failure that names the server.

    Errors of tools name the toolbox, the server and the tool.
    """
    method = call.method
    match problem:
        case Busy():
            # This one is ours: errors of servers are never read as Busy.
            if method != CALL:
                return problem
            return LimitReached(_told(destination, problem.message), "busy", retry_after=problem.retry_after)
        case UnsupportedVersion():
            return _failed(destination, method, "changed its protocol revision")
        case Refusal() if method == CALL:
            named = _as(type(problem), problem, _told(destination, problem.message))
            named.code = problem.code
            return with_caller_code(named, call)
        case Refusal():
            return with_caller_code(problem, call)
        case ServerFault():
            return _failed(destination, method, destination.downstream.explain(problem))
        case _:
            return problem


def with_caller_code(refusal: Refusal, call: Call) -> Refusal:
    """A server's error with a code that the caller's revision has."""
    code, data = refusal.code, refusal.data
    missing = code == _OLD_NOT_FOUND or (
        call.method == READ and code == InvalidParams.code and isinstance(data, dict) and "uri" in data
    )
    if missing:
        return _as(ResourceNotFound, refusal)
    if code not in _RESERVED or (code == LINKS_FIRST and REVISIONS[call.caller.version].links_in_errors):
        return refusal
    return _as(InternalFailure, refusal)


def expired_error(destination: Destination) -> ToolError:
    """The error if the process that held a call has died."""
    return ToolError(_told(destination, "the question expired; call the tool again"))


def _failed(destination: Destination, method: str, why: str) -> PegboardError:
    text = _told(destination, why)
    return DelegationFailed(text) if method == CALL else InternalFailure(text)


def _told(destination: Destination, why: str) -> str:
    downstream = destination.downstream
    if not destination.tool:
        return f"[{downstream.toolbox}/{downstream.name}] Error: {why}"
    return delegation_error(downstream.toolbox, downstream.name, destination.tool, why)


def _as(kind: type[Refusal], refusal: Refusal, message: str | None = None) -> Refusal:
    made = kind.__new__(kind)
    # Some classes compose their own text; this one comes from the server.
    Refusal.__init__(made, refusal.message if message is None else message, refusal.data)
    return made
