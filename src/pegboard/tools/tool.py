"""The one Tool that everything above sees, whichever style its author chose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, TypeAlias

from msgspec import Raw, Struct

from pegboard.call import Json
from pegboard.errors import DeclarationError
from pegboard.tools.infer import IsInjected, Kind, infer, unwrap
from pegboard.tools.naming import check_name, humanise, snake_case
from pegboard.tools.parameters import Parameter, ToolExecutionContext
from pegboard.tools.work import Arguments, Parsed, Work

OnParseError: TypeAlias = Literal["refuse", "pass"]


class Options(Struct, frozen=True, kw_only=True):
    """How a tool runs as a task, kept as its author gave it."""

    task: Any = None
    detach: Any = None
    once: bool = False


def never(_annotation: Any) -> bool:
    """No services: only what comes with the call is injected."""
    return False


class Tool:
    """A tool. Subclass it to declare one: name, description and parameters as class attributes, and `execute`.

    Functions become tools through `tool_from_function`; nothing here wraps or changes the function.
    """

    name: str = ""
    title: str = ""
    description: str = ""
    parameters: Sequence[Parameter] = ()
    annotations: Mapping[str, Json] | None = None
    icons: Sequence[Mapping[str, Json]] = ()
    meta: Mapping[str, Json] | None = None
    category: str = ""
    tags: Iterable[str] = frozenset()
    middleware: Sequence[Any] = ()
    timeout: float | None = None
    inline: bool = False
    requires: Sequence[str] = ()
    options: Options = Options()
    arguments: Arguments | None = None
    on_parse_error: OnParseError = "refuse"
    source: str = ""
    function: Callable[..., Any] | None = None
    _is_injected: IsInjected = staticmethod(never)

    def execute(self, _context: ToolExecutionContext, /, *_args: Any, **_kwargs: Any) -> Any:
        """What a declared tool does; may be async, and may take injected services after the context."""
        raise NotImplementedError(f"{type(self).__name__} declares a tool and has no execute()")

    def prepare(self, is_injected: IsInjected = never) -> Tool:
        """Check the declaration and compile it; a mistake is a DeclarationError here and not at the first call."""
        self._is_injected = is_injected
        self.__dict__.pop("_work", None)
        check_name(self.name, self._work.source)
        return self

    @property
    def input_schema(self) -> Mapping[str, Json]:
        return self._work.input_schema

    @property
    def output_schema(self) -> Mapping[str, Json] | None:
        return self._work.output_schema

    @property
    def injected(self) -> Mapping[str, Any]:
        """Parameter name → the type it wants; never in the schema, never from the caller."""
        return self._work.injected

    @property
    def kind(self) -> Kind:
        return self._work.kind

    def parse(self, raw: bytes | Raw, mode: Arguments = "lenient") -> Parsed:
        """Read the arguments of a call. `mode` is the board's; the tool's own `arguments` goes before it."""
        work = self._work
        bound = work.bind_raw(raw)
        if bound is not None:
            return Parsed(bound, (), (), work.view)
        return work.parse_slowly(raw, self.arguments or mode)

    def invoke(self, value: Any, injected: Mapping[str, Any]) -> Any:
        """Call the author's code with `Parsed.value` and return whatever it returns."""
        return self._work.call(value, injected)

    def definition(self) -> dict[str, Json]:
        """The tool as `tools/list` shows it in revision 2026-07-28."""
        shown = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.input_schema,
            "outputSchema": self.output_schema,
            "annotations": self.annotations,
            "icons": list(self.icons),
            "_meta": self.meta,
        }
        return {key: value for key, value in shown.items() if value or key in {"name", "inputSchema"}}

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"

    @cached_property
    def _work(self) -> Work:
        function = self.execute
        inferred = infer(function, self._is_injected, of_the_call=ToolExecutionContext)
        where = f"{inferred.source}: {type(self).__name__}.execute"
        if type(self).execute is Tool.execute:
            raise DeclarationError(f"{type(self).__name__} declares a tool and has no execute(self, context)")
        if inferred.fields:
            raise DeclarationError(f"{where}: {inferred.fields[0].attribute!r} is neither the context nor a registered service")
        return Work(inferred, function, parameters=self.parameters, output_schema=self.__class__.__dict__.get("output"))


class FunctionTool(Tool):
    """A tool that is a function."""

    def __init__(self, function: Callable[..., Any], work: Work) -> None:
        self.function = function
        self.source = work.source
        self._work = work


def tool_from_function(
    function: Callable[..., Any],
    name: str | None = None,
    *,
    title: str | None = None,
    description: str | None = None,
    input_schema: Mapping[str, Json] | None = None,
    output_schema: Mapping[str, Json] | None = None,
    annotations: Mapping[str, Json] | None = None,
    icons: str | Mapping[str, Json] | Sequence[Mapping[str, Json]] = (),
    meta: Mapping[str, Json] | None = None,
    category: str = "",
    tags: Iterable[str] = (),
    middleware: Sequence[Any] = (),
    timeout: float | None = None,
    inline: bool = False,
    requires: Sequence[str] = (),
    task: Any = None,
    detach: Any = None,
    once: bool = False,
    arguments: Arguments | None = None,
    on_parse_error: OnParseError = "refuse",
    is_injected: IsInjected = never,
) -> Tool:
    """A tool from a function, method, callable object or partial; what is not said is read from it."""
    inferred = infer(function, is_injected)
    work = Work(inferred, function, input_schema=input_schema, output_schema=output_schema)
    tool = FunctionTool(function, work)
    own_name = name_of(function)
    tool.name = name if name is not None else snake_case(own_name)
    check_name(tool.name, work.source)
    tool.title = title or humanise(own_name) or tool.name
    tool.description = inferred.docs.summary if description is None else description
    tool.annotations = annotations
    tool.icons = read_icons(icons)
    tool.meta = meta
    tool.category = category
    tool.tags = frozenset(tags)
    tool.middleware = tuple(middleware)
    tool.timeout = timeout
    tool.inline = inline
    tool.requires = tuple(requires)
    tool.options = Options(task=task, detach=detach, once=once)
    tool.arguments = arguments
    if on_parse_error == "pass" and inferred.fields:
        raise DeclarationError(
            f"{work.source}: on_parse_error='pass' hands over arguments that do not fit; "
            f"take them as a JsonRpcMessage instead of plain parameters"
        )
    tool.on_parse_error = on_parse_error
    return tool


def name_of(function: Callable[..., Any]) -> str:
    """What the author calls the function; for an object with `__call__`, its class."""
    inner = function
    while hasattr(inner, "func"):
        inner = inner.func
    own = getattr(inner, "__name__", None)
    return own if isinstance(own, str) else type(inner).__name__


def read_icons(icons: str | Mapping[str, Json] | Sequence[Mapping[str, Json]]) -> tuple[Mapping[str, Json], ...]:
    """Icons as the protocol lists them; a lone address is one icon."""
    if isinstance(icons, str):
        return ({"src": icons},)
    return (icons,) if isinstance(icons, Mapping) else tuple({"src": icon} if isinstance(icon, str) else icon for icon in icons)
