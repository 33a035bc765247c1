"""URI templates: refused as a declaration, or they match only what they name; a value that was expanded is matched again."""

from __future__ import annotations

from pegboard.catalog.uri_template import Template
from pegboard.errors import DeclarationError


def check(data: bytes) -> None:
    """The first line is the template, the second the URI."""
    text, _, uri = data.decode("utf-8", "replace").partition("\n")
    try:
        template = Template(text, "fuzz")
    except DeclarationError:
        return
    found = template.match(uri)
    if found is not None:
        assert set(found) <= set(template.names)
        assert all(type(value) is str for value in found.values())
    values = dict.fromkeys(template.names, "v")
    made = template.expand(values)
    if len(template.names) == 1 and "v" not in text:
        name = template.names[0]
        assert template.match(made) == {name: "v"}, made
