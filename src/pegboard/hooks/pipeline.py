"""Composes the middleware of a tool, prompt or resource into one Handler, once for each change.

Adjacent hooks become one stage (`hook_chain`); each `around` is a layer of its own; all observers share one layer around
everything (`observation`). Hooks that are not overridden and
disabled middleware are left out, and a plain `def` is called without an await.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pegboard.call import Around, Call, Done, EncodedResult, Handler, InputRequired, Reply, Subscribed, TaskStarted
from pegboard.call_target import KINDS, UNKNOWN_ITEM, CalledItem, Kind
from pegboard.hooks.hook_chain import Hook, read_hook, wrap_hooks
from pegboard.hooks.middleware import Middleware, is_dynamic, is_overridden, name_of
from pegboard.hooks.observation import Report, clocked, combine_reports, observed, observing
from pegboard.tools.tool import Tool

AttachmentScope: TypeAlias = Literal["board", "toolbox", "group", "category", "tag", "tool", "prompt", "resource"]
_SCOPES: tuple[AttachmentScope, ...] = (
    "board",
    "toolbox",
    "group",
    "category",
    "tag",
    "tool",
    "prompt",
    "resource",
)


class Attachment(Struct, frozen=True):
    """A middleware and what it is attached to."""

    middleware: Middleware | Around
    scope: AttachmentScope
    target: str
    order: float | None
    index: int
    kinds: Collection[Kind] = KINDS

    def covers(self, tool: Tool | CalledItem, kind: Kind) -> bool:
        """Whether it applies to requests of this kind for this tool or item."""
        if kind not in self.kinds or kind not in _kinds_of(self.middleware):
            return False
        if self.scope == "board":
            return True
        if tool is UNKNOWN_ITEM:
            return False
        match self.scope:
            case "toolbox":
                return tool.toolbox == self.target
            case "group":
                listed = tool.listed_name if isinstance(tool, CalledItem) else ""
                return (listed or tool.name).startswith(self.target + ".")
            case "category":
                return tool.category == self.target
            case "tag":
                return self.target in tool.tags
            case "tool":
                return isinstance(tool, Tool) and self.target in (tool.name, tool.versioned)
            case _:
                return isinstance(tool, CalledItem) and tool.item == self.scope and tool.name == self.target


def choose_targets(**named: str | Iterable[str] | None) -> list[tuple[AttachmentScope, str]]:
    """The scope of a middleware: the tools, items and groups that are named, else the whole board."""
    chosen = {scope: names for scope in _SCOPES if (names := named.get(scope)) is not None}
    if not chosen:
        return [("board", "")]
    return [(scope, name) for scope, names in chosen.items() for name in ([names] if isinstance(names, str) else names)]


def in_order(attachments: Iterable[Attachment], tools: Iterable[Tool | CalledItem]) -> list[Middleware]:
    """Every middleware with hooks, attached by the board, a tool or an item, outermost first."""
    chosen = list(attachments)
    chosen += [Attachment(hook, "tool", tool.name, None, 1 << 30) for tool in tools for hook in tool.hooks]
    return [hook.middleware for hook in sorted(chosen, key=_order) if isinstance(hook.middleware, Middleware)]


def compose(
    attachments: Iterable[Attachment],
    tool: Tool | CalledItem,
    inner: Handler,
    kind: Kind = "tool",
    failures: list[BaseException] | None = None,
) -> Handler:
    """The Handler of a tool or item with all its middleware around it, lowest order outermost, and observers outside of it."""
    handler, report = compose_inside(attachments, tool, inner, kind, failures)
    return handler if report is None else observed(handler, report)


def compose_inside(
    attachments: Iterable[Attachment],
    tool: Tool | CalledItem,
    inner: Handler,
    kind: Kind = "tool",
    failures: list[BaseException] | None = None,
) -> tuple[Handler, Report | None]:
    """The Handler without its observers, and how its caller reports the end of each call to them, if there are some.

    What after and error hooks and observers raise is added to `failures`, for tests.
    """
    selected = _select(attachments, tool, kind)
    # The innermost one first, as after-hooks: outer ones see what it has noted.
    reports = [
        report for middleware in reversed(selected) if (report := _find_report(middleware, failures)) is not None
    ]
    # Without other middleware, the tool takes the whole time.
    handler = clocked(inner) if reports and len(reports) < len(selected) else inner
    stage: list[Hook] = []
    for middleware in reversed(selected):
        if not isinstance(middleware, Middleware):
            handler, stage = _layer(middleware, wrap_hooks(stage, handler)), []
            continue
        dynamic = is_dynamic(middleware)
        if not dynamic and not middleware.enabled:
            continue
        hook = read_hook(middleware, failures)
        around: Around | None = getattr(middleware, "around", None)
        if around is not None:
            within = wrap_hooks(stage, handler)
            # Its own hooks are outside its around, those collected so far inside.
            handler, stage = _layer(around, within), []
            if dynamic:
                handler = _switched(middleware, _layer_both(hook, handler), within)
                continue
        if hook is not None:
            stage.insert(0, hook)
    return wrap_hooks(stage, handler), combine_reports(reports)


def _find_report(middleware: Middleware | Around, failures: list[BaseException] | None) -> Report | None:
    """How a middleware learns of the end of calls; None if it does not."""
    if not isinstance(middleware, Middleware):
        return None
    # Of the object itself: a test double has every attribute.
    own: Report | None = middleware.__dict__.get("_report")
    if own is None:
        if not is_overridden(middleware, "observe"):
            return None
        own = observing(middleware.observe, failures)
    if not is_dynamic(middleware):
        return own if middleware.enabled else None
    report = own

    def report_if_enabled(call: Call, began: float, reply: Reply | None, exception: BaseException | None) -> None:
        if middleware.enabled:
            report(call, began, reply, exception)

    return report_if_enabled


def _select(attachments: Iterable[Attachment], tool: Tool | CalledItem, kind: Kind) -> list[Middleware | Around]:
    """The middleware of a tool, outermost first; one that is attached in several ways counts once."""
    chosen = [attachment for attachment in attachments if attachment.covers(tool, kind)]
    # After everything that the board attached to the same tool: an index that no board reaches.
    own = enumerate([attachment for attachment in tool.hooks if kind in _kinds_of(attachment)], 1 << 30)
    chosen += [Attachment(middleware, "tool", tool.name, None, index) for index, middleware in own]
    chosen.sort(key=lambda attachment: (_order(attachment), _SCOPES.index(attachment.scope), attachment.index))
    return list({id(attachment.middleware): attachment.middleware for attachment in chosen}.values())


def _kinds_of(middleware: Middleware | Around) -> Collection[str]:
    return middleware.kinds if isinstance(middleware, Middleware) else KINDS


def _order(attachment: Attachment) -> float:
    order: float = getattr(attachment.middleware, "order", 0) if attachment.order is None else attachment.order
    return order


def _layer(around: Around, inner: Handler) -> Handler:
    async def surrounded(call: Call) -> Reply:
        reply: object = await around(call, inner)
        if type(reply) is Done and (type(reply.result) is dict or isinstance(reply.result, EncodedResult | Mapping)):
            return reply
        if isinstance(reply, InputRequired | TaskStarted | Subscribed):
            return reply
        got = f"Done({type(reply.result).__name__})" if isinstance(reply, Done) else type(reply).__name__
        raise TypeError(f"the middleware {name_of(around)} must return the reply of a call, got {got}")

    return surrounded


def _layer_both(hook: Hook | None, around: Handler) -> Handler:
    """A middleware with hooks, an around and a dynamic `enabled`, which is read once per call for both."""
    if hook is None:
        return around
    return wrap_hooks([replace(hook, dynamic=False)], around)


def _switched(middleware: Middleware, on: Handler, off: Handler) -> Handler:
    async def switched(call: Call) -> Reply:
        return await on(call) if middleware.enabled else await off(call)

    return switched
