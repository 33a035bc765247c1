"""The Tool that the rest of the code sees, whichever style its author chose."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, Final, Literal, TypeAlias, TypedDict, Unpack, get_args

import msgspec
from msgspec import UNSET, Raw

from pegboard.auth.request_credentials import is_scope
from pegboard.call import CallScoped, Json
from pegboard.call_target import ItemKind
from pegboard.errors import DeclarationError
from pegboard.limits import Limits
from pegboard.protocol.json_values import as_object, texts_in
from pegboard.repair.repairer import LIMITS
from pegboard.schema.schema_check import check_schema
from pegboard.schema.types.pydantic_types import Dump
from pegboard.tools.argument_mapping import ArgumentMapping, ArgumentOverride
from pegboard.tools.argument_parser import (
    ArgumentParser,
    Invoke,
    Mode,
    ParsedArguments,
    SchemaParser,
    choose_output,
    compile_call,
    parser_of_function,
    parser_of_parameters,
)
from pegboard.tools.naming import check_name, humanise, snake_case, suggest
from pegboard.tools.parameters import Parameter, ToolExecutionContext
from pegboard.tools.signature import InferredFunction, IsInjected, Kind, find_oversights, infer
from pegboard.tools.tool_result import RepairNotes

OnParseError: TypeAlias = Literal["refuse", "pass"]
TaskSupport: TypeAlias = Literal["optional", "required"]
Detach: TypeAlias = Literal["start", "manual"]
Transport: TypeAlias = Literal["http", "stdio", "ws"]
Icons: TypeAlias = str | Mapping[str, Json] | Sequence[str | Mapping[str, Json]]

VERSION: Final = "dev.pegboard/version"
"""The key of a tool's version in the `_meta` of its definition."""
_VERSION: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
TRANSPORTS: Final[tuple[Transport, ...]] = get_args(Transport)
_CHOICES: Final = {
    "arguments": get_args(Mode),
    "repair_notes": get_args(RepairNotes),
    "on_parse_error": get_args(OnParseError),
}
_TYPES: Final = {"title": str, "description": str, "category": str, "inline": bool, "once": bool, "version": str}
# The capabilities of clients, and their named parts; other parts may have any name.
_CLIENT_CAPABILITIES: Final[Mapping[str, tuple[str, ...] | None]] = {
    "elicitation": ("form", "url"),
    "experimental": None,
    "extensions": None,
    "roots": ("listChanged",),
    "sampling": ("context", "tools"),
    "tasks": None,
}


class ToolOptions(TypedDict, total=False):
    """The options of a tool besides its name; each decorator takes the same.

    title: the name for people.
    description: what it does, for the model; without it, the docstring.
    input_schema: your own JSON Schema of the arguments.
    output_schema: your own JSON Schema of the structured result.
    annotations: hints for clients, such as readOnlyHint.
    icons: URLs, or icons as in the protocol.
    meta: the `_meta` of the definition.
    category: a category, for middleware and rules.
    tags: tags, for middleware and rules.
    middleware: middleware for this tool alone.
    timeout: seconds after which a call fails.
    inline: run a plain function on the event loop, in place of a thread; it must not block.
    requires: client capabilities that a caller must have declared, such as "sampling".
    transports: list and allow the tool only for callers of these transports.
    arguments: "lenient" or "strict", in place of the board's.
    repair_notes: where results report repairs ("text", "meta" or "off"), in place of the board's.
    on_parse_error: "pass" runs the tool even if its arguments are wrong.
    task: whether it can ("optional") or must ("required") run as a task.
    detach: "manual" lets the tool ask before it becomes a task.
    once: accept each answer to a question only once.
    version: the version of the tool, such as "2"; the highest of several with one name is listed (docs/composition.md).
    scopes: the scopes that a caller needs, such as {"notes.write"}.
    """

    title: str
    description: str
    input_schema: Mapping[str, Json] | str
    output_schema: Mapping[str, Json] | str
    annotations: Mapping[str, Json]
    icons: Icons
    meta: Mapping[str, Json]
    category: str
    tags: Iterable[str]
    middleware: Sequence[Any]
    timeout: float
    inline: bool
    requires: Sequence[str]
    transports: Sequence[Transport]
    arguments: Mode
    repair_notes: RepairNotes
    on_parse_error: OnParseError
    task: TaskSupport
    detach: Detach
    once: bool
    version: str
    scopes: Iterable[str]


def no_services(_annotation: Any) -> bool:
    """Inject only what comes with the call."""
    return False


class Tool:
    """A tool. Subclass it to declare one: name, description and parameters as class attributes, and `execute`.

    Functions become tools through `tool_from_function`; the function is neither wrapped nor changed. Attributes that
    are annotated here without a value are set when the tool is prepared.
    """

    name: str = ""
    title: str = ""
    description: str = ""
    parameters: Sequence[Parameter] = ()
    input_schema: Mapping[str, Json]
    output_schema: Mapping[str, Json] | None = None
    annotations: Mapping[str, Json] | None = None
    icons: Icons = ()
    meta: Mapping[str, Json] | None = None
    category: str = ""
    tags: Iterable[str] = ()
    middleware: Sequence[Any] = ()
    timeout: float | None = None
    inline: bool = False
    requires: Sequence[str] = ()
    transports: Sequence[Transport] = ()
    """The transports over which callers see the tool and can call it; empty for all."""
    arguments: Mode | None = None
    repair_notes: RepairNotes | None = None
    on_parse_error: OnParseError = "refuse"
    task: TaskSupport | None = None
    detach: Detach = "start"
    once: bool = False
    version: str = ""
    versioned: str = ""
    """The name of the tool that this entry is one version of."""
    listed: bool = True
    """Whether lists show it; an entry for one version is only called."""
    scopes: Iterable[str] = ()
    item: ItemKind = "tool"
    toolbox: str = ""
    server: str = ""
    own_name: str = ""
    """The name of the tool at its server, if another server has it under another name."""
    surrounded: bool = True
    """Whether the board's middleware applies; not for a tool that only forwards to one with middleware."""
    relay: Callable[..., Any] | None = None
    """What answers calls in place of the author's code: `tools/relayed_tool.py`."""
    original: Tool | None = None
    """The tool that a transformed one runs."""
    mapping: ArgumentMapping | None = None
    """The arguments of a transformed tool and of its original, if they differ."""
    mounted: tuple[tuple[Any, Tool], ...] = ()
    """The boards that it is mounted from, outermost first, and the tool of each; the last one runs it."""

    function: Callable[..., Any]
    source: str
    kind: Kind
    injected: Mapping[str, Any]
    dump: Dump | None = None
    """Converts a returned value that only pydantic can write."""
    oversights: Sequence[str] = ()
    """What its author has probably overlooked."""
    argument_types: Mapping[str, Any] = {}
    """The types of the parameters whose values a caller sends, by name."""
    hooks: tuple[Any, ...]
    _parser: ArgumentParser
    author: Invoke
    """The author's code behind `invoke`, for callers on the hot path."""

    def execute(self, _context: ToolExecutionContext, /, *_args: Any, **_kwargs: Any) -> Any:
        """The code of a declared tool; may be async, and may take injected services after the context."""
        raise NotImplementedError(f"{type(self).__name__} declares a tool and has no execute()")

    async def start(self) -> None:
        """The first board that the tool was added to starts to serve: open what `execute` needs.

        A tool that is added to a running board is started soon after; it may be called before that.
        """

    async def stop(self) -> None:
        """The tool was removed, or the last board has stopped: close it."""

    def prepare(self, is_injected: IsInjected = no_services) -> Tool:
        """Check and compile a declared tool; called once by the board or catalog that adds it."""
        if "_parser" in self.__dict__:
            return self
        if type(self).execute is Tool.execute:
            raise DeclarationError(f"{type(self).__qualname__} declares a tool and has no execute(self, context)")
        inferred = infer(self.execute, is_injected, leading=(ToolExecutionContext,))
        if inferred.fields:
            name = inferred.fields[0].attribute
            raise DeclarationError(f"{inferred.source}: parameter {name!r} of execute is not a registered service")
        given_options = {name: getattr(self, name, None) for name in ToolOptions.__annotations__}
        _check_values({name: value for name, value in given_options.items() if value is not None}, inferred.source)
        if isinstance(self.parameters, str | Parameter) or not isinstance(self.parameters, Iterable):
            raise DeclarationError(f"{inferred.source}: parameters={self.parameters!r:.80}; use a tuple of Parameters")
        given = _read_schema(getattr(self, "input_schema", None), "input_schema", inferred.source)
        output = _read_schema(self.output_schema, "output_schema", inferred.source)
        self._configure(self.execute, inferred, parser_of_parameters(inferred, self.parameters, given), output)
        self.description = self.description or type(self).__dict__.get("__doc__") or ""
        self.title = self.title or humanise(self.name)
        return self

    def _configure(
        self,
        function: Callable[..., Any],
        inferred: InferredFunction,
        work: ArgumentParser,
        output_schema: Mapping[str, Json] | None,
    ) -> None:
        check_name(self.name, inferred.source)
        if self.version and not _VERSION.fullmatch(self.version):
            raise DeclarationError(
                f"{inferred.source}: version={self.version!r:.40}; use letters, digits, _, - and dots, such as '2' or '1.4'"
            )
        if self.task not in (None, "optional", "required"):
            raise DeclarationError(f"{inferred.source}: task={self.task!r}; use 'optional' or 'required'")
        if self.detach not in ("start", "manual") or (self.detach == "manual" and self.task is None):
            raise DeclarationError(
                f"{inferred.source}: detach={self.detach!r}; use 'start' or 'manual', for a tool with task='optional' or "
                f"'required'"
            )
        if self.inline and inferred.kind == "sync":
            for name, kind in inferred.injected.items():
                if isinstance(kind, type) and issubclass(kind, CallScoped) and kind.awaited:
                    raise DeclarationError(
                        f"{inferred.source}: inline=True runs the function on the event loop, where it cannot wait for "
                        f"{name!r} ({kind.__name__}); write `async def`, which costs no more, or remove inline"
                    )
        self.function = function
        self.source = inferred.source
        self.kind = inferred.kind
        self.injected = inferred.injected
        self.argument_types = inferred.argument_types
        self.input_schema = work.schema
        self.output_schema = choose_output(inferred, output_schema)
        self.dump = inferred.dump
        self.icons = read_icons(self.icons)
        self.tags = frozenset(self.tags)
        self.scopes = _read_scopes(self.scopes, inferred.source)
        # Read once: a property may return new ones each time.
        self.hooks = tuple(self.middleware)
        self._parser = work
        self.author = compile_call(function, inferred, work)

    def parse(self, raw: bytes | Raw, mode: Mode = "lenient", limits: Limits = LIMITS) -> ParsedArguments:
        """Parse the arguments of a call. `mode` is the board's; the tool's own `arguments` takes precedence."""
        work = self._parser
        bound = work.bind_raw(raw)
        if bound is not None:
            return ParsedArguments(bound, (), (), work.view)
        return work.repair_and_parse(raw, self.arguments or mode, limits)

    @property
    def parser(self) -> ArgumentParser:
        """What `parse` uses; a Handler of the tool binds arguments that fit as sent without a call of `parse`."""
        return self._parser

    def invoke(self, value: Any, injected: Mapping[str, Any]) -> Any:
        """Call the author's code with `Parsed.value` and return its value."""
        return self.author(value, injected)

    @property
    def promises(self) -> Mapping[str, Json]:
        """The annotations that this server may rely on."""
        return self.annotations or {}

    def transformed(
        self,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: Mapping[str, Json] | None = None,
        category: str | None = None,
        tags: Iterable[str] | None = None,
        timeout: float | None = None,
        arguments: Mapping[str, Mapping[str, Any]] | None = None,
        around: Any = None,
    ) -> Tool:
        """Another tool that runs this one: `board.add(tool.transformed(name="search_docs", arguments={…}))`.

        What is not given stays as it is. The tool must have been added to a board or a catalog.

        name: its name.
        title: the name for people.
        description: what it does, for the model.
        annotations: changes to its annotations.
        category: its category.
        tags: its tags, in place of the original's.
        timeout: seconds after which a call fails.
        arguments: changes to arguments, by their names: `{"unit": {"value": "km"}}` fixes and hides one, and `name`,
            `description`, `default`, `hidden` and `schema` change one, as in the file of a gateway.
        around: middleware for this tool alone: a Middleware, or `async def around(call, next)`.
        """
        if "_parser" not in self.__dict__:
            raise DeclarationError(f"{self.name or type(self).__name__} was not added to a board; add it first")
        made = self.renamed(self.name if name is None else name)
        check_name(made.name, self.source)
        made.original = self
        made.mapping = None
        made.mounted = ()
        made.version, made.versioned, made.listed = "", "", True
        if arguments:
            mapping = made.mapping = ArgumentMapping(self.input_schema, _read_overrides(arguments, self))
            check_schema(mapping.schema, f"{self.source}: {made.name}")
            made.input_schema = mapping.schema
            made._parser = SchemaParser(mapping.schema)
        if annotations is not None:
            made.annotations = {**(self.annotations or {}), **annotations}
        changed = {"title": title, "description": description, "category": category, "timeout": timeout}
        for member, value in changed.items():
            if value is not None:
                setattr(made, member, value)
        if tags is not None:
            made.tags = frozenset(tags)
        if around is not None:
            made.hooks = (*self.hooks, around)
        made._show_changes()
        return made

    def _show_changes(self) -> None:
        """Attributes were changed that the definition shows."""

    def pinned(self) -> Tool:
        """The entry under which this version can be called as long as it exists: `name.vVERSION`."""
        pinned = self.renamed(f"{self.name}.v{self.version}")
        pinned.versioned, pinned.listed = self.name, False
        # Rules and approvals for the tool hold for all of its versions.
        pinned.own_name = self.own_name or self.name
        return pinned

    def renamed(self, name: str) -> Tool:
        """The same prepared tool under another name."""
        renamed = copy(self)
        renamed.name = name
        return renamed

    def definition(self) -> dict[str, Json]:
        """The definition of the tool in `tools/list` of revision 2026-07-28."""
        shown: dict[str, Json] = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.input_schema,
            "outputSchema": self.output_schema,
            "annotations": self.annotations,
            "icons": list(self.icons),
            "_meta": self.meta,
        }
        if self.version:
            shown["_meta"] = {**(self.meta or {}), VERSION: self.version}
        return {key: value for key, value in shown.items() if value or value == {}}

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"


def tool_from_function(
    function: Callable[..., Any],
    name: str | None = None,
    *,
    is_injected: IsInjected = no_services,
    owner: type | None = None,
    **options: Unpack[ToolOptions],
) -> Tool:
    """A tool from a function, method, callable object or partial; missing options are derived from it.

    `owner` is the class of a method without its object: an instance is injected for each call.
    """
    inferred = infer(function, is_injected, leading=() if owner is None else (owner,))
    _check_options(options, inferred)
    tool = Tool()
    own_name = name_of(function)
    tool.name = snake_case(own_name) if name is None else name
    tool.title = options.get("title") or humanise(own_name if own_name.isidentifier() else tool.name) or tool.name
    tool.description = options.get("description", inferred.docs.summary)
    tool.annotations = options.get("annotations")
    tool.icons = options.get("icons", ())
    tool.meta = options.get("meta")
    tool.category = options.get("category", "")
    tool.tags = options.get("tags", ())
    tool.middleware = options.get("middleware", ())
    tool.timeout = options.get("timeout")
    tool.inline = options.get("inline", False)
    tool.requires = tuple(options.get("requires", ()))
    tool.transports = tuple(options.get("transports", ()))
    tool.arguments = options.get("arguments")
    tool.repair_notes = options.get("repair_notes")
    tool.on_parse_error = options.get("on_parse_error", "refuse")
    tool.task = options.get("task")
    tool.detach = options.get("detach", "start")
    tool.once = options.get("once", False)
    tool.version = options.get("version", "")
    tool.scopes = options.get("scopes", ())
    given = _read_schema(options.get("input_schema"), "input_schema", inferred.source)
    output = _read_schema(options.get("output_schema"), "output_schema", inferred.source)
    tool._configure(function, inferred, parser_of_function(inferred, given), output)
    if given is None and own_name.isidentifier():
        tool.oversights = tuple(find_oversights(inferred))
    return tool


def _read_overrides(arguments: Mapping[str, Mapping[str, Any]], tool: Tool) -> dict[str, ArgumentOverride]:
    known = as_object(tool.input_schema.get("properties"))
    overrides: dict[str, ArgumentOverride] = {}
    for name, changes in arguments.items():
        if name not in known:
            meant = suggest(name, known, 1)
            hint = f"; did you mean {meant[0]!r}?" if meant else f"; it has {', '.join(known) or 'none'}"
            raise DeclarationError(f"{tool.name} has no argument {name!r}{hint}")
        for member in changes:
            if member not in ArgumentOverride.__struct_fields__:
                near = suggest(member, ArgumentOverride.__struct_fields__, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"use {', '.join(ArgumentOverride.__struct_fields__)}"
                raise DeclarationError(f"{tool.name}: arguments[{name!r}] has no key {member!r}; {hint}")
        override = overrides[name] = ArgumentOverride(**changes)
        needed = name in texts_in(tool.input_schema.get("required"))
        if override.hidden and needed and override.value is UNSET and override.default is UNSET:
            raise DeclarationError(
                f"{tool.name} requires {name!r}, which would be hidden; give it a value or a default"
            )
    shown = [overrides[name].name if name in overrides and overrides[name].name else name for name in known]
    if len(set(shown)) < len(shown):
        raise DeclarationError(f"{tool.name} would have two arguments of one name; rename one of them")
    return overrides


def name_of(function: Callable[..., Any]) -> str:
    """The name that the author gave the function; for an object with `__call__`, its class."""
    inner: Any = function
    while isinstance(inner, partial):
        inner = inner.func
    own = getattr(inner, "__name__", None)
    return own if isinstance(own, str) else type(inner).__name__


def read_icons(icons: Icons) -> tuple[Mapping[str, Json], ...]:
    """Icons in protocol format; a URL alone is an icon."""
    listed = [icons] if isinstance(icons, str | Mapping) else icons
    return tuple({"src": icon} if isinstance(icon, str) else icon for icon in listed)


def _read_schema(given: Any, name: str, source: str) -> Mapping[str, Json] | None:
    """A schema that an author wrote as a dict, or as JSON text."""
    schema = given
    if isinstance(given, str):
        try:
            schema = msgspec.json.decode(given)
        except ValueError as problem:
            raise DeclarationError(f"{source}: {name} is not JSON: {problem}") from None
    if not isinstance(schema, Mapping | None):
        raise DeclarationError(f"{source}: {name}={given!r:.80}; use a dict, or the JSON text of an object")
    return schema


def _read_scopes(scopes: Any, source: str) -> frozenset[str]:
    if isinstance(scopes, str) or not isinstance(scopes, Iterable):
        raise DeclarationError(f"{source}: scopes={scopes!r:.80}; use a set of texts, for example {{'notes.write'}}")
    read = frozenset(scopes)
    if not all(isinstance(scope, str) and is_scope(scope) for scope in read):
        raise DeclarationError(
            f"{source}: scopes={sorted(map(str, read))}; a scope is a text without spaces and quotes"
        )
    return read


def _check_options(options: ToolOptions, inferred: InferredFunction) -> None:
    known = ToolOptions.__annotations__
    for name in options:
        if name not in known:
            meant = suggest(name, known, 1)
            hint = f"; did you mean {meant[0]!r}?" if meant else f"; the options are {', '.join(known)}"
            raise DeclarationError(f"{inferred.source}: unknown option {name!r}{hint}")
    _check_values(options, inferred.source)
    if options.get("on_parse_error") == "pass" and (inferred.fields or inferred.record is not None):
        raise DeclarationError(
            f"{inferred.source}: on_parse_error='pass' passes arguments that do not fit, which typed parameters cannot "
            "take; take the request as a JsonRpcMessage"
        )


def _check_values(options: Mapping[str, Any], source: str) -> None:
    """Reject options that a call would fail on, or that would have no effect, in every style of tool."""
    _check_types(options, source)
    timeout: Any = options.get("timeout", 1.0)
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise DeclarationError(f"{source}: timeout={timeout!r}; use seconds greater than 0")
    _check_requires(options.get("requires", ()), source)
    transports: Any = options.get("transports", ())
    if isinstance(transports, str) or not set(transports) <= set(TRANSPORTS):
        raise DeclarationError(f"{source}: transports={transports!r}; use a list of some of {', '.join(TRANSPORTS)}")
    for name, choices in _CHOICES.items():
        if options.get(name, choices[0]) not in choices:
            allowed = " or ".join(map(repr, choices))
            raise DeclarationError(f"{source}: {name}={options[name]!r:.40}; use {allowed}")


def _check_types(options: Mapping[str, Any], source: str) -> None:
    """Reject a text in place of a list, and anything but a dict where JSON is expected."""
    for name, wanted in _TYPES.items():
        if not isinstance(options.get(name, wanted()), wanted):
            use = "text" if wanted is str else "True or False"
            raise DeclarationError(f"{source}: {name}={options[name]!r:.80}; use {use}")
    for name in ("annotations", "meta"):
        given = options.get(name)
        if not isinstance(given, Mapping | None):
            raise DeclarationError(f"{source}: {name}={given!r:.80}; use a dict")
    tags = options.get("tags", ())
    if isinstance(tags, str) or not isinstance(tags, Iterable) or not all(isinstance(tag, str) for tag in tags):
        example = f", for example tags=[{tags!r:.40}]" if isinstance(tags, str) else ""
        raise DeclarationError(f"{source}: tags={tags!r:.80}; use a list of texts{example}")
    middleware = options.get("middleware", ())
    if not isinstance(middleware, Iterable):
        kind = type(middleware).__name__
        raise DeclarationError(f"{source}: middleware must be a list, for example middleware=[{kind}(…)]")
    icons = options.get("icons", ())
    if not isinstance(icons, Iterable):
        raise DeclarationError(f"{source}: icons={icons!r:.80}; use a URL, an icon, or a list of them")


def _check_requires(requires: Any, source: str) -> None:
    if isinstance(requires, str):
        raise DeclarationError(f"{source}: requires must be a list of client capabilities, for example ['sampling']")
    for required in requires:
        name, dot, part = required.partition(".")
        if name not in _CLIENT_CAPABILITIES:
            listed = ", ".join(_CLIENT_CAPABILITIES)
            raise DeclarationError(f"{source}: requires={required!r} is not a client capability; use one of {listed}")
        parts = _CLIENT_CAPABILITIES[name]
        if dot and (not part or (parts is not None and part not in parts)):
            listed = f"{name}.NAME" if parts is None else ", ".join(f"{name}.{detail}" for detail in parts)
            raise DeclarationError(
                f"{source}: requires={required!r} is not a client capability; use {name} or one of {listed}"
            )
