"""The middleware of a board, and what each is attached to."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from itertools import count
from typing import TypeVar

from pegboard.call import Around, Handler
from pegboard.call_target import CalledItem, Kind
from pegboard.catalog.tool_catalog import ToolCatalog
from pegboard.hooks.middleware import Middleware, check_kinds
from pegboard.hooks.observation import Report
from pegboard.hooks.pipeline import Attachment, choose_targets, compose, compose_inside, in_order
from pegboard.tools.tool import Tool

_log = logging.getLogger("pegboard.middleware")

M = TypeVar("M")


class AttachedMiddleware:
    """What `board.use` has attached to the tools, prompts and resources of a board."""

    def __init__(self) -> None:
        self._attachments: list[Attachment] = []
        self._numbers = count()
        self._missed: set[tuple[str, str]] = set()

    def __iter__(self) -> Iterator[Middleware | Around]:
        return (attachment.middleware for attachment in self._attachments)

    def add(
        self,
        middleware: Iterable[Middleware | Around],
        kinds: Collection[Kind],
        order: float | None,
        **named: str | Iterable[str] | None,
    ) -> None:
        """Attach middleware to what is `named`, by the options of `Board.use`; else to everything."""
        check_kinds(kinds, "kind")
        targets = choose_targets(**named)
        for hook in middleware:
            for scope, target in targets:
                self._attachments.append(Attachment(hook, scope, target, order, next(self._numbers), kinds))

    def remove(self, middleware: Middleware | Around) -> None:
        """Remove middleware wherever it is attached."""
        self._attachments = [attached for attached in self._attachments if attached.middleware is not middleware]

    def find(self, kind: type[M]) -> M | None:
        """The first middleware of this class, if there is one."""
        attached: Iterator[object] = iter(self)
        return next((middleware for middleware in attached if isinstance(middleware, kind)), None)

    def in_order(self, called: Iterable[Tool | CalledItem]) -> list[Middleware]:
        """Every middleware with hooks, of the board and of these tools and items, outermost first."""
        return in_order(self._attachments, called)

    def wrap(self, called: Tool | CalledItem, inner: Handler, kind: Kind = "tool") -> Handler:
        """The Handler of a tool or item, with its middleware around it."""
        return compose(self._attachments_of(called), called, inner, kind)

    def wrap_inside(self, called: Tool | CalledItem, inner: Handler) -> tuple[Handler, Report | None]:
        """The same without its observers, and how its caller reports the end of each call to them."""
        return compose_inside(self._attachments_of(called), called, inner)

    def _attachments_of(self, called: Tool | CalledItem) -> Iterable[Attachment]:
        return () if isinstance(called, Tool) and not called.surrounded else self._attachments

    def wrap_unlisted_resource(self, called: CalledItem, inner: Handler, tools: Iterable[Tool]) -> Handler:
        """The Handler for resources that the board does not list: middleware of single tools may serve them."""
        serving = [middleware for middleware in self.in_order(tools) if middleware.serves_resources is True]
        everywhere = (Attachment(middleware, "board", "", None, next(self._numbers)) for middleware in serving)
        return compose([*self._attachments, *everywhere], called, inner, "resource")

    def warn_unmatched(self, called: Iterable[Tool | CalledItem], tools: ToolCatalog) -> None:
        """Log each name that middleware is attached to and that does not exist, once."""
        known = {(target.item if isinstance(target, CalledItem) else "tool", target.name) for target in called}
        for attached in self._attachments:
            wanted = attached.scope, attached.target
            if attached.scope in ("tool", "prompt", "resource") and wanted not in known | self._missed:
                self._missed.add(wanted)
                close = tools.suggest(attached.target) if attached.scope == "tool" else ()
                hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
                _log.warning("middleware is attached to the %s %r, which does not exist%s", *wanted, hint)
