"""Reads descriptions from docstrings in Google, NumPy and Sphinx style."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping

from msgspec import Struct

# Without one of these, a docstring is plain text, and the parser is not imported.
_SPHINX = re.compile(r"^[ \t]*:[a-z][^:\n]*+:", re.MULTILINE)
_NUMPY = re.compile(r"^[ \t]*[A-Z][A-Za-z ]+\n[ \t]*-{3,}[ \t]*$", re.MULTILINE)
_GOOGLE = re.compile(
    r"^[ \t]*(Args|Arguments|Parameters|Params|Attributes|Returns?|Yields?|Raises|Examples?|Notes?|Keyword Args):[ \t]*$",
    re.MULTILINE,
)


class Docs(Struct, frozen=True):
    """The text of a docstring, and its description of each parameter."""

    summary: str = ""
    parameters: Mapping[str, str] = {}


NOTHING = Docs()


def read_docs(text: str | None) -> Docs:
    """Parse a docstring; what matches no style stays part of the text."""
    if not text or not text.strip():
        return NOTHING
    clean = inspect.cleandoc(text)
    if not (_SPHINX.search(clean) or _GOOGLE.search(clean) or _NUMPY.search(clean)):
        return Docs(clean)
    return _parse(clean)


def _parse(clean: str) -> Docs:
    import docstring_parser  # noqa: PLC0415 (only docstrings with sections need it, and it is slow to import)

    styles = docstring_parser.DocstringStyle
    if _SPHINX.search(clean):
        style = styles.REST
    elif _NUMPY.search(clean):
        style = styles.NUMPYDOC
    else:
        style = styles.GOOGLE
    try:
        parsed = docstring_parser.parse(clean, style)
    except docstring_parser.ParseError:
        return Docs(clean)
    prose = [part.strip() for part in (parsed.short_description, parsed.long_description) if part and part.strip()]
    parameters = {
        parameter.arg_name.lstrip("*"): " ".join(parameter.description.split())
        for parameter in parsed.params
        if parameter.description
    }
    return Docs("\n\n".join(prose), parameters)
