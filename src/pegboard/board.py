"""The Board: tools hung on it, served in any revision through one Handler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar, overload

from pegboard.call import Handler, Json
from pegboard.catalog.catalog import ToolCatalog
from pegboard.execution.dispatch import Dispatcher
from pegboard.execution.run import SPECIAL, Runner, settle
from pegboard.execution.services import Services
from pegboard.execution.threads import Threads
from pegboard.limits import Limits
from pegboard.serve import Settings, run
from pegboard.tools.tool import Tool, tool_from_function
from pegboard.transports.asgi import AsgiApp
from pegboard.transports.guard import Guard
from pegboard.transports.http import HttpEndpoint

F = TypeVar("F", bound=Callable[..., Any])


class Board:
    """One board of tools, reached by every agent through one endpoint."""

    def __init__(
        self,
        name: str = "pegboard",
        *,
        version: str = "0",
        title: str | None = None,
        instructions: str | None = None,
        arguments: Literal["lenient", "strict"] = "lenient",
        limits: Limits | None = None,
    ) -> None:
        self.name = name
        self.version = version
        self.limits = limits or Limits()
        self.services = Services()
        self.tools = ToolCatalog()
        self._title = title
        self._arguments: Literal["lenient", "strict"] = arguments
        self._threads = Threads(self.limits.threads, self.limits.thread_queue)
        self._runner = Runner(self.services, self._threads)
        self._dispatcher = Dispatcher(self.tools, self._chain, instructions)

    @property
    def info(self) -> Mapping[str, Json]:
        """Who this server is, as clients are told."""
        info = {"name": self.name, "version": self.version}
        return info if self._title is None else {**info, "title": self._title}

    @property
    def handler(self) -> Handler:
        """The board as a Handler: all that doors and clients need of it."""
        return self._dispatcher

    # -- hanging tools -----------------------------------------------------------------------------------------------

    @overload
    def tool(self, name: F, /) -> F: ...

    @overload
    def tool(
        self,
        name: str | None = None,
        /,
        *,
        title: str | None = None,
        description: str | None = None,
        input_schema: Mapping[str, Json] | None = None,
        output_schema: Mapping[str, Json] | None = None,
        **options: Any,
    ) -> Callable[[F], F]: ...

    def tool(self, name: Any = None, /, **options: Any) -> Any:
        """Hang a function on the board, as it is: `@board.tool` or `@board.tool("name", title=…, input_schema=…)`."""
        if callable(name):
            self.add(name)
            return name
        if name is not None:
            options["name"] = name

        def hang(function: F) -> F:
            self.add(function, **options)
            return function

        return hang

    def add(self, tool: Any, **options: Any) -> Tool:
        """Hang a Tool, or any callable with the options of `@board.tool`."""
        if isinstance(tool, Tool):
            made = tool.prepare(self._is_injected)
        else:
            options.setdefault("arguments", self._arguments)
            made = tool_from_function(tool, is_injected=self._is_injected, **options)
        self.tools.add(made)
        return made

    def remove(self, name: str) -> Tool:
        """Take a tool down."""
        return self.tools.remove(name)

    def _is_injected(self, annotation: object) -> bool:
        return annotation in SPECIAL or annotation in self.services

    def _chain(self, tool: Tool) -> Handler:
        return settle(tool, self._runner.handler(tool))

    # -- serving -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Be ready for calls; there is nothing to wire, and starting twice does no harm."""

    async def stop(self) -> None:
        """Clean up what lived with the application."""
        await self.services.close()

    def run(self, **settings: Any) -> None:
        """Serve until stopped: stdio where a client holds our stdin, HTTP on a terminal or without one."""
        run(self, Settings(**settings))

    def asgi(self, *, path: str = "/mcp", hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> AsgiApp:
        """The board as an ASGI application: `app.routes.append(board.asgi())`, or mounted, or served by itself.

        `hosts` and `origins` name those it answers to beside this machine.
        """
        guard = Guard(hosts=hosts, origins=origins)
        endpoint = HttpEndpoint(self.handler, self.info, limits=self.limits, guard=guard)
        return AsgiApp(endpoint, self.limits, path=path)
