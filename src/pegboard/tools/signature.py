"""Reads a function: its parameters, injected values, return type and kind."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, Union, get_args, get_origin

import msgspec
from msgspec import UNSET, Struct

from pegboard.call import CallScoped, Json
from pegboard.errors import DeclarationError
from pegboard.schema.schema_writer import write_parameters, write_schema
from pegboard.schema.types.annotations import UNRESOLVED, hints_of
from pegboard.schema.types.constraints import NO_NOTES, is_field, read_notes
from pegboard.schema.types.docstrings import Docs, read_docs
from pegboard.schema.types.pydantic_types import Dump, find_dump
from pegboard.schema.types.shape import (
    AliasShape,
    FieldShape,
    NullableShape,
    RecordShape,
    ScalarShape,
    Shape,
    Shaped,
    UnsupportedType,
)
from pegboard.schema.types.shape_reader import ShapeReader, read_shape
from pegboard.tools.message import JsonRpcMessage, Request
from pegboard.tools.parameters import ToolExecutionContext

Kind: TypeAlias = Literal["sync", "async", "generator", "async_generator"]
IsInjected: TypeAlias = Callable[[Any], bool]

_TYPING = ("typing", "typing_extensions", "types")
_STREAMS = {"Generator", "Iterator", "Iterable", "AsyncGenerator", "AsyncIterator", "AsyncIterable"}
_WITHOUT_SHAPE = (UNRESOLVED, Any, object, None, type(None), str, bytes, JsonRpcMessage)
_AWAITABLE = {"Awaitable", "Coroutine"}
_REFUSED = {
    inspect.Parameter.VAR_POSITIONAL: "*{name} has no names that a caller could send; declare a list parameter instead",
    inspect.Parameter.VAR_KEYWORD: "**{name} hides the names from the schema; declare each parameter, or one dict",
    inspect.Parameter.POSITIONAL_ONLY: "{name} is positional-only, but arguments are passed by name; remove the `/`",
}

# What a default may be, for the types where a mistake is certain.
_FITTING: Final[Mapping[object, type | tuple[type, ...]]] = {str: str, int: int, float: (int, float), bool: bool}


def schema_of(thing: Any, *, is_injected: IsInjected = lambda _: False) -> dict[str, Json]:
    """The JSON Schema of a type, or of the arguments of a function."""
    if _is_type(thing):
        return write_schema(read_shape(thing, str(thing)))
    inferred = infer(thing, is_injected)
    return write_parameters(inferred.fields, inferred.named)


def _is_type(thing: Any) -> bool:
    if inspect.isroutine(thing) or isinstance(thing, functools.partial):
        return False
    # Many `typing` objects are callable, and fail only when called.
    return isinstance(thing, type) or not callable(thing) or type(thing).__module__ in _TYPING


class InferredFunction(Struct, frozen=True, kw_only=True):
    """A function as a tool: `order` lists all its parameters in order, by their Python names.

    `argument_types` are the types of the parameters whose values a caller sends. `dump` converts a returned value that
    only pydantic can write.
    `record` is the T of a parameter `Request[T]`, whose fields are the arguments.
    """

    source: str
    docs: Docs
    kind: Kind
    order: tuple[str, ...]
    keyword_only: frozenset[str]
    unannotated: tuple[str, ...]
    fields: tuple[FieldShape, ...]
    named: Mapping[Hashable, RecordShape | AliasShape]
    injected: Mapping[str, Any]
    argument_types: Mapping[str, Any]
    returns: Shaped | None
    dump: Dump | None
    record: Shaped | None = None


def infer(function: Callable[..., Any], is_injected: IsInjected, *, leading: Sequence[type] = ()) -> InferredFunction:
    """Inspect a function, method, callable object or partial; `leading` are the injected types of its first
    parameters, whatever their annotations."""
    _refuse_uncallable(function, unbound=bool(leading))
    inner = unwrap(function)
    source = source_of(function)
    hints = _hints_of_callable(function, inner)
    docs = read_docs(_docstring_of(function, inner))
    fixed = _fixed_by_partial(function)
    reader = ShapeReader()
    order: list[str] = []
    keyword_only: list[str] = []
    unannotated: list[str] = []
    fields: list[FieldShape] = []
    injected: dict[str, Any] = {}
    argument_types: dict[str, Any] = {}
    record: Shaped | None = None
    for parameter in _signature_of(function, source).parameters.values():
        if parameter.name in fixed:
            continue
        where = f"{source}: parameter {parameter.name!r}"
        if parameter.kind in _REFUSED:
            raise DeclarationError(f"{where}: {_REFUSED[parameter.kind].format(name=parameter.name)}")
        order.append(parameter.name)
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            keyword_only.append(parameter.name)
        annotation = hints.get(parameter.name, Any)
        if parameter.name not in hints and len(order) > len(leading):
            unannotated.append(parameter.name)
        if annotation is UNRESOLVED:
            text = parameter.annotation
            raise DeclarationError(
                f"{where}: its annotation {text!r} is not defined at run time; import it outside `if TYPE_CHECKING`"
            )
        wanted = wanted_type(annotation, is_injected) if len(order) > len(leading) else leading[len(order) - 1]
        if wanted is not None:
            injected[parameter.name] = wanted
            if wanted is Request:
                record = _read_record(annotation, where)
                argument_types[parameter.name] = get_args(_bare_type(annotation))[0]
            continue
        argument_types[parameter.name] = _bare_type(annotation)
        reader.where = where
        fields.append(_read_parameter(parameter, annotation, docs, reader))
    _refuse_same_names(fields, source)
    if record is not None and fields:
        raise DeclarationError(
            f"{source}: parameter {fields[0].attribute!r} is beside a Request[T], whose T has all arguments; add it to T, or "
            "register its type as a service"
        )
    returned = _returned_type(hints.get("return", Any))
    returns = _read_returned(returned)
    return InferredFunction(
        source=source,
        docs=docs,
        kind=kind_of(function),
        order=tuple(order),
        keyword_only=frozenset(keyword_only),
        unannotated=tuple(unannotated),
        fields=tuple(fields),
        named=reader.named,
        injected=injected,
        argument_types=argument_types,
        returns=returns,
        dump=None if returns is None else find_dump(returned, returns.shape),
        record=record,
    )


def _read_record(annotation: Any, where: str) -> Shaped:
    """The shape of T in `Request[T]`."""
    arguments = get_args(_bare_type(annotation))
    if not arguments:
        raise DeclarationError(f"{where}: Request needs the type of its arguments, as in Request[Numbers]")
    return read_shape(arguments[0], where)


def unwrap(function: Callable[..., Any]) -> Any:
    """The function that an author wrote, inside partials, callable objects and decorators that set `__wrapped__`."""
    found: Any = function
    while True:
        if isinstance(found, functools.partial):
            found = found.func
        elif inspect.isroutine(found):
            following = inspect.unwrap(found)
            if following is found:
                return found
            found = following
        elif hasattr(type(found), "__call__") and not isinstance(found, type):  # noqa: B004 (the method itself is wanted)
            found = type(found).__call__
        else:
            return found


def source_of(function: Callable[..., Any]) -> str:
    """Where the function is defined, as file:line."""
    code = getattr(unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else repr(function)


def kind_of(function: Callable[..., Any]) -> Kind:
    """How the function runs. A plain wrapper around a coroutine function returns its coroutine."""
    found: Any = function
    while isinstance(found, functools.partial):
        found = found.func
    if not inspect.isroutine(found) and not isinstance(found, type):
        found = found.__call__
    while True:
        if inspect.iscoroutinefunction(found):
            return "async"
        if inspect.isasyncgenfunction(found):
            return "async_generator"
        if inspect.isgeneratorfunction(found):
            return "generator"
        if not hasattr(found, "__wrapped__"):
            return "sync"
        found = found.__wrapped__


def wanted_type(annotation: Any, is_injected: IsInjected) -> Any:
    """The type to inject for an annotation, or None if the caller sends the value."""
    bare = _bare_type(annotation)
    if bare is Request or get_origin(bare) is Request:
        return Request
    return bare if _is_of_the_call(bare) or (bare is not Any and is_injected(bare)) else None


def _bare_type(annotation: Any) -> Any:
    """The type without metadata, and without None as an alternative."""
    bare = annotation.__origin__ if hasattr(annotation, "__metadata__") else annotation
    options = [option for option in get_args(bare) if option is not type(None)]
    return options[0] if _is_union(bare) and len(options) == 1 else bare


def _is_of_the_call(annotation: Any) -> bool:
    """Whether it comes with the call itself, and not from a service."""
    if not isinstance(annotation, type):
        return False
    # A subclass of one of these by the author does not count: we cannot create its instances.
    return annotation in {JsonRpcMessage, ToolExecutionContext} or CallScoped in annotation.__bases__


def _returned_type(annotation: Any) -> Any:
    """The type of the result: what an awaitable yields, a list for a generator."""
    name, arguments = getattr(get_origin(annotation), "__name__", ""), get_args(annotation)
    if name in _AWAITABLE and arguments:
        return _returned_type(arguments[-1])
    if name in _STREAMS and arguments:
        return Any if arguments[0] is JsonRpcMessage else list.__class_getitem__(arguments[0])
    return annotation


def _read_returned(annotation: Any) -> Shaped | None:
    """The shape of the structured result; None if there is only text, or if the type does not say."""
    if annotation in _WITHOUT_SHAPE:
        return None
    reader = ShapeReader(direction="output")
    try:
        shape = reader.read(annotation)
    except UnsupportedType:
        return None
    return None if _is_untyped(shape) else Shaped(shape, reader.named)


def _is_untyped(shape: Shape) -> bool:
    inner = shape.inner if isinstance(shape, NullableShape) else shape
    return isinstance(inner, ScalarShape) and inner.type in {str, bytes, type(None)} and inner.notes is NO_NOTES


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) is Union or type(annotation).__name__ == "UnionType"


def _refuse_uncallable(function: Any, *, unbound: bool) -> None:
    if isinstance(function, type):
        raise DeclarationError(
            f"{function.__module__}.{function.__qualname__} is a class; pass an instance or a method"
        )
    if not callable(function):
        raise DeclarationError(f"{function!r:.80} is not callable; a tool is a function or an object with __call__")
    holder = getattr(function, "__qualname__", "").rpartition(".")[0]
    if inspect.isfunction(function) and holder and not holder.endswith("<locals>"):
        name, first = function.__name__, function.__code__.co_varnames[:1]
        if first == ("self",) and not unbound:
            where = source_of(function)
            raise DeclarationError(f"{where}: {name} is a method without its object; pass instance.{name}")


def _read_parameter(parameter: inspect.Parameter, annotation: Any, docs: Docs, reader: ShapeReader) -> FieldShape:
    described = docs.parameters.get(parameter.name)
    under = read_notes([described]) if described else NO_NOTES
    default = UNSET if parameter.default is inspect.Parameter.empty else parameter.default
    if is_field(default):
        # The pydantic style: `x: int = Field(1, gt=0)`.
        field: Any = default
        own = read_notes([field], under)
        default = own.default if field.default_factory is None else field.default_factory()
        under = msgspec.structs.replace(own, default=UNSET)
    shape = reader.read(annotation, NO_NOTES)
    notes = read_notes([shape.notes], under)
    if default is UNSET and notes.default is not UNSET:
        default = notes.default
    if notes != shape.notes:
        shape = _with_notes(shape, notes)
    if default is None and not isinstance(shape, NullableShape):
        shape = NullableShape(notes=shape.notes, inner=shape)
    optional = isinstance(shape, NullableShape)
    return FieldShape(
        name=notes.alias or parameter.name,
        attribute=parameter.name,
        shape=shape,
        required=default is UNSET and not optional,
        default=default,
    )


def _with_notes(shape: Shape, notes: Any) -> Shape:
    if isinstance(shape, NullableShape):
        shape = msgspec.structs.replace(shape, inner=_with_notes(shape.inner, notes))
    return msgspec.structs.replace(shape, notes=notes)


def _refuse_same_names(fields: list[FieldShape], source: str) -> None:
    seen: dict[str, str] = {}
    for field in fields:
        if field.name in seen:
            raise DeclarationError(
                f"{source}: parameters {seen[field.name]!r} and {field.attribute!r} are both called {field.name!r} in JSON"
            )
        seen[field.name] = field.attribute


def _signature_of(function: Callable[..., Any], source: str) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (ValueError, TypeError) as problem:
        raise DeclarationError(
            f"{source}: {function!r} has no signature; wrap it in a function of your own"
        ) from problem


def _hints_of_callable(function: Callable[..., Any], inner: Any) -> Mapping[str, Any]:
    given = getattr(function, "__signature__", None)
    if given is not None:
        # Made by a decorator: its annotations are those of the wrapper.
        return {
            **{
                name: parameter.annotation
                for name, parameter in given.parameters.items()
                if parameter.annotation is not parameter.empty
            },
            "return": given.return_annotation if given.return_annotation is not given.empty else Any,
        }
    return hints_of(inner)


def _docstring_of(function: Any, inner: Any) -> str | None:
    own = getattr(function, "__doc__", None)
    # A partial, or an object with __call__, shows the docstring of its class.
    if own and own != type(function).__doc__:
        return str(own)
    text: str | None = getattr(inner, "__doc__", None)
    if not text and not inspect.isroutine(function):
        text = type(function).__doc__ if not isinstance(function, functools.partial) else None
    return text


def _fixed_by_partial(function: Any) -> set[str]:
    """Arguments that a partial sets are the author's: a caller neither sees nor sends them."""
    fixed: set[str] = set()
    while isinstance(function, functools.partial):
        fixed |= set(function.keywords)
        function = function.func
    return fixed


def find_oversights(inferred: InferredFunction) -> Iterator[str]:
    """What is probably a mistake, though the tool can be used."""
    for name in inferred.unannotated:
        if name in ("ctx", "context"):
            yield f"parameter {name!r} has no type, so callers have to send it; write `{name}: Context`"
        else:
            yield f"parameter {name!r} has no type hint, so callers can send anything; annotate it"
    for field in inferred.fields:
        shape = field.shape.inner if isinstance(field.shape, NullableShape) else field.shape
        fitting = _FITTING.get(shape.type) if isinstance(shape, ScalarShape) else None
        # Other objects may stand for an absent value.
        if fitting and isinstance(field.default, str | int | float) and not isinstance(field.default, fitting):
            yield f"the default of {field.attribute!r} is {field.default!r:.60}, which is not {shape_name(shape)}"


def shape_name(shape: object) -> str:
    """The type as the author wrote it."""
    return getattr(getattr(shape, "type", None), "__name__", "of its type")
