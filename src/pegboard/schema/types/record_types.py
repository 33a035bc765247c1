"""The fields of a record class: dataclass, TypedDict, msgspec, attrs or pydantic.

Fields are read from the attributes that those libraries put on their classes, so that none of them has to be imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, NotRequired, Required, get_origin

import msgspec
from msgspec import NODEFAULT, UNSET, Struct

from pegboard.call import Json
from pegboard.schema.types.annotations import UNRESOLVED, hints_of
from pegboard.schema.types.constraints import NO_NOTES, ValueNotes, read_notes
from pegboard.schema.types.docstrings import read_docs
from pegboard.schema.types.shape import Extras

BOTH: Final = frozenset({"input", "output"})
_PYDANTIC_EXTRAS: Final[Mapping[Any, Extras]] = {"forbid": "forbid", "allow": "allow", "ignore": "read"}


class RecordField(Struct, frozen=True, kw_only=True):
    """A field as declared by its class; `directions` says whether it is read from JSON, written to it, or both."""

    name: str
    attribute: str
    annotation: Any
    required: bool
    default: Any = UNSET
    notes: ValueNotes = NO_NOTES
    directions: frozenset[str] = BOTH


def maker_of(cls: type) -> str | None:
    """The library of this record class; None if it is not a record."""
    if hasattr(cls, "model_fields") and hasattr(cls, "__pydantic_validator__"):
        return None if getattr(cls, "__pydantic_root_model__", False) else "pydantic"
    if hasattr(cls, "__struct_fields__"):
        return "msgspec"
    if hasattr(cls, "__pydantic_fields__") and hasattr(cls, "__dataclass_fields__"):
        return "pydantic-dataclass"
    if hasattr(cls, "__dataclass_fields__"):
        return "dataclass"
    if hasattr(cls, "__attrs_attrs__"):
        return "attrs"
    if hasattr(cls, "__total__") and hasattr(cls, "__required_keys__"):
        return "typeddict"
    if issubclass(cls, tuple) and hasattr(cls, "_fields") and hasattr(cls, "__annotations__"):
        return "namedtuple"
    return None


def parts_of(cls: type, maker: str) -> list[RecordField]:
    """The fields in order, with descriptions from the class's docstring where a field has none."""
    described = read_docs(_own_docstring(cls)).parameters
    parts = _READERS[maker](cls)
    return [
        msgspec.structs.replace(part, notes=read_notes([described[part.attribute]], part.notes))
        if part.attribute in described and not part.notes.description
        else part
        for part in parts
    ]


def summary_of(cls: type) -> str:
    """The first paragraph of the class's own docstring."""
    return read_docs(_own_docstring(cls)).summary.partition("\n\n")[0].replace("\n", " ")


def extras_of(cls: Any, maker: str) -> Extras:
    """What the class does with names that it does not declare."""
    if maker == "msgspec":
        return "forbid" if cls.__struct_config__.forbid_unknown_fields else "drop"
    if not maker.startswith("pydantic"):
        return "drop"
    config = getattr(cls, "model_config", None) or getattr(cls, "__pydantic_config__", None) or {}
    return _PYDANTIC_EXTRAS.get(config.get("extra")) or ("read" if _reads_other_names(cls) else "drop")


def _reads_other_names(cls: Any) -> bool:
    """Whether a pydantic class sees names before they are matched with its fields, or knows several for one."""
    validators = cls.__pydantic_decorators__.model_validators.values()
    return any(validator.info.mode != "after" for validator in validators) or any(
        not isinstance(field.validation_alias, str | None) for field in _pydantic_fields(cls).values()
    )


def is_array(cls: Any, maker: str) -> bool:
    """Whether a msgspec struct is encoded as a list."""
    return maker == "msgspec" and bool(cls.__struct_config__.array_like)


def tag_of(cls: Any, maker: str) -> tuple[str, Json] | None:
    """The tag field and value by which a msgspec union distinguishes its members."""
    if maker != "msgspec" or cls.__struct_config__.tag is None:
        return None
    return cls.__struct_config__.tag_field, cls.__struct_config__.tag


def _own_docstring(cls: type) -> str | None:
    text = cls.__dict__.get("__doc__")
    # Dataclasses and named tuples have their signature as a docstring.
    if not isinstance(text, str) or text.startswith(f"{cls.__name__}("):
        return None
    return text


def _read_pydantic(cls: Any) -> list[RecordField]:
    """The fields of a model, or those that the constructor of a dataclass takes."""
    takes_all = hasattr(cls, "model_fields")
    fields = _pydantic_fields(cls).items()
    return [_read_pydantic_field(name, field) for name, field in fields if takes_all or field.init is not False]


def _pydantic_fields(cls: Any) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = cls.model_fields if hasattr(cls, "model_fields") else cls.__pydantic_fields__
    return fields


def _read_pydantic_field(name: str, field: Any) -> RecordField:
    notes = read_notes([field])
    required = field.is_required()
    default = UNSET if required or field.default_factory is not None else field.default
    return RecordField(
        name=name,
        attribute=name,
        annotation=_with_pydantic_words(field),
        required=required,
        default=default,
        notes=msgspec.structs.replace(notes, default=UNSET),
    )


def _with_pydantic_words(field: Any) -> Any:
    """Validators in a field's metadata make its type one that only pydantic understands."""
    words = [word for word in field.metadata if hasattr(word, "__get_pydantic_core_schema__")]
    annotated: Any = Annotated
    return annotated[(field.annotation, *words)] if words else field.annotation


def _read_msgspec(cls: Any) -> list[RecordField]:
    return [
        RecordField(
            name=field.encode_name,
            attribute=field.name,
            annotation=field.type,
            required=field.required,
            default=UNSET if field.default is NODEFAULT else field.default,
        )
        for field in msgspec.structs.fields(cls)
    ]


def _read_dataclass(cls: Any) -> list[RecordField]:
    hints = hints_of(cls)
    parts = []
    for name, field in cls.__dataclass_fields__.items():
        if field._field_type.name == "_FIELD_CLASSVAR":
            continue
        argument_only = field._field_type.name == "_FIELD_INITVAR"
        default, factory = _is_given(field.default), _is_given(field.default_factory)
        words = [field.metadata["description"]] if isinstance(field.metadata.get("description"), str) else []
        parts.append(
            RecordField(
                name=name,
                attribute=name,
                annotation=_initvar_type(hints.get(name, UNRESOLVED)),
                required=not (default or factory),
                default=field.default if default else UNSET,
                notes=read_notes(words),
                directions=_directions(init=field.init, written=not argument_only),
            )
        )
    return parts


def _initvar_type(annotation: Any) -> Any:
    return annotation.type if type(annotation).__name__ == "InitVar" else annotation


def _directions(*, init: bool, written: bool) -> frozenset[str]:
    """Where a field of a dataclass or attrs class appears."""
    return frozenset({"input"} if init else ()) | frozenset({"output"} if written else ())


def _is_given(value: Any) -> bool:
    return type(value).__name__ != "_MISSING_TYPE"


def _read_attrs(cls: Any) -> list[RecordField]:
    hints = hints_of(cls)
    parts = []
    for attribute in cls.__attrs_attrs__:
        required = type(attribute.default).__name__ == "_Nothing" or repr(attribute.default) == "NOTHING"
        made = type(attribute.default).__name__ == "Factory"
        words = [attribute.metadata["description"]] if isinstance(attribute.metadata.get("description"), str) else []
        parts.append(
            RecordField(
                name=attribute.name,
                attribute=attribute.name,
                annotation=hints.get(attribute.name, Any if attribute.type is None else UNRESOLVED),
                required=required,
                default=UNSET if required or made else attribute.default,
                notes=read_notes(words),
                # msgspec does not write private attributes of attrs classes.
                directions=_directions(init=attribute.init, written=not attribute.name.startswith("_")),
            )
        )
    return parts


def _read_typeddict(cls: Any) -> list[RecordField]:
    return [
        RecordField(name=name, attribute=name, annotation=hint, required=_is_required(cls, name, hint))
        for name, hint in hints_of(cls).items()
    ]


def _is_required(cls: Any, name: str, hint: Any) -> bool:
    """The qualifier decides: `__required_keys__` does not see one in an annotation given as text."""
    while (origin := get_origin(hint)) is not None:
        if origin in {Required, NotRequired}:
            return origin is Required
        if origin is not Annotated and getattr(origin, "__name__", "") != "ReadOnly":
            break
        hint = hint.__args__[0] if origin is not Annotated else hint.__origin__
    return name in cls.__required_keys__


def _read_namedtuple(cls: Any) -> list[RecordField]:
    hints = hints_of(cls)
    return [
        RecordField(
            name=name,
            attribute=name,
            annotation=hints.get(name, Any),
            required=name not in cls._field_defaults,
            default=cls._field_defaults.get(name, UNSET),
        )
        for name in cls._fields
    ]


_READERS = {
    "pydantic": _read_pydantic,
    "pydantic-dataclass": _read_pydantic,
    "msgspec": _read_msgspec,
    "dataclass": _read_dataclass,
    "attrs": _read_attrs,
    "typeddict": _read_typeddict,
    "namedtuple": _read_namedtuple,
}
