"""A tool made from another server's definition: arguments are parsed here, calls are forwarded."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from copy import copy
from typing import Any, TypeAlias

from msgspec import Struct

from pegboard.call import Call, Json, Reply
from pegboard.errors import DeclarationError
from pegboard.protocol.json_values import as_object
from pegboard.schema.schema_check import check_schema
from pegboard.schema.validator import Validator
from pegboard.tools.argument_parser import Mode, ParsedArguments, SchemaParser
from pegboard.tools.naming import check_name
from pegboard.tools.tool import Tool
from pegboard.tools.tool_result import RepairNotes

Relay: TypeAlias = Callable[[Call, ParsedArguments], Coroutine[Any, Any, Reply]]
"""Forwards a call, whose arguments fit the schema, to its server."""


class CheckedSchemas(Struct, frozen=True):
    """The schemas of a definition that were checked; `problem` says why its output schema is invalid."""

    output: Mapping[str, Json] | None
    problem: str = ""


def check_schemas(definition: Mapping[str, Json], where: str) -> CheckedSchemas:
    """Check the schemas of a tool, which takes most of the time to make one; DeclarationError where it cannot be one."""
    schema = definition.get("inputSchema")
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise DeclarationError(f"{where}: has no inputSchema of type object")
    check_schema(schema, where)
    problem = output_problem(definition)
    output = None if problem else _object(definition, "outputSchema")
    if output is None and definition.get("outputSchema") is not None:
        problem = problem or "it is not an object"
    return CheckedSchemas(output, problem)


class RelayedTool(Tool):
    """A tool that another server runs; shown with its own definition, including unknown fields.

    `flaw` says what had to be removed from the definition, for the operator.
    """

    flaw: str = ""

    def __init__(
        self,
        definition: Mapping[str, Json],
        relay: Relay,
        *,
        source: str,
        toolbox: str = "",
        server: str = "",
        own_name: str = "",
        scopes: frozenset[str] = frozenset(),
        category: str = "",
        tags: Iterable[str] = (),
        middleware: Sequence[Any] = (),
        timeout: float | None = None,
        arguments: Mode | None = None,
        repair_notes: RepairNotes | None = None,
        promises: Mapping[str, Json] | None = None,
        checked: CheckedSchemas | None = None,
    ) -> None:
        """`promises` are the annotations that the operator vouches for; the server's own are hints for models.

        `checked` are its schemas if they were checked before.
        """
        name = definition.get("name")
        if not isinstance(name, str):
            raise DeclarationError(f"{source}: a tool without a name")
        check_name(name, source)
        if checked is None:
            checked = check_schemas(definition, f"{source}: {name}")
        schema = as_object(definition["inputSchema"])
        self._shown = dict(definition)
        self.name = name
        self.title = _text(definition, "title")
        self.description = _text(definition, "description")
        self.input_schema = schema
        self.output_schema = checked.output
        if checked.output is None:
            # An invalid one is neither shown nor checked, since clients fail on it.
            self._shown.pop("outputSchema", None)
        if checked.problem:
            self.flaw = f"{source}: the outputSchema of {name!r} is invalid and was removed: {checked.problem}"
        self.annotations = _object(definition, "annotations")
        self.meta = _object(definition, "_meta")
        self.icons = ()
        self.source = source
        self.kind = "async"
        self.injected = {}
        self.toolbox = toolbox
        self.server = server
        self.own_name = own_name
        self.scopes = scopes
        self.category = category
        self.tags = frozenset(tags)
        self.hooks = tuple(middleware)
        self.timeout = timeout
        self.arguments = arguments
        self.repair_notes = repair_notes
        self.relay = relay
        self._promises = promises or {}
        self._parser = SchemaParser(schema)

    @property
    def promises(self) -> Mapping[str, Json]:
        return self._promises

    def renamed(self, name: str) -> Tool:
        renamed = copy(self)
        renamed.name, renamed._shown = name, {**self._shown, "name": name}
        return renamed

    def _show_changes(self) -> None:
        changed: dict[str, Json] = {
            "title": self.title,
            "description": self.description,
            "inputSchema": self.input_schema,
            "annotations": self.annotations,
        }
        self._shown |= {member: value for member, value in changed.items() if value}

    def definition(self) -> dict[str, Json]:
        return self._shown


def _text(definition: Mapping[str, Json], member: str) -> str:
    value = definition.get(member)
    return value if isinstance(value, str) else ""


def _object(definition: Mapping[str, Json], member: str) -> Mapping[str, Json] | None:
    value = definition.get(member)
    return value if isinstance(value, Mapping) else None


def output_problem(definition: Mapping[str, Json]) -> str:
    """Why the output schema is invalid; None if it is valid or absent."""
    schema = _object(definition, "outputSchema")
    try:
        if schema is not None:
            Validator(schema).compile()
    except (ValueError, TypeError) as problem:
        return str(problem)[:200]
    return ""
