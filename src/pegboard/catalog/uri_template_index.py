"""Finds the template that matches a URI among thousands.

A server may list thousands of templates, and a client may request any URI. Templates are indexed by their literal
prefix, so only those with a prefix of the URI are considered; of these, only those whose literal suffix fits are
matched, up to a limit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, Generic, Protocol, TypeVar

from pegboard.catalog.uri_template import Template

URI_LENGTH: Final = 8 * 1024
"""The longest URI that is matched with templates."""
TRIES: Final = 256
"""How many templates are matched for one URI, of those with its prefix and suffix."""

_KEY: Final = 64


class Templated(Protocol):
    """An object with a template; without one it is never found."""

    template: Template | None


T = TypeVar("T", bound=Templated)


class TemplateIndex(Generic[T]):
    """Templates in order: if several match a URI, the first is found."""

    def __init__(self, owners: Iterable[T]) -> None:
        self._by_prefix: defaultdict[str, list[tuple[int, Template, T]]] = defaultdict(list)
        for order, owner in enumerate(owners):
            if owner.template is not None:
                self._by_prefix[owner.template.prefix[:_KEY]].append((order, owner.template, owner))
        self._lengths = sorted({len(prefix) for prefix in self._by_prefix})

    def find(self, uri: str) -> tuple[T, Mapping[str, str]] | None:
        """The owner of the template that the URI matches, and the variables in it."""
        if len(uri) > URI_LENGTH:
            return None
        near = [candidate for length in self._lengths for candidate in self._by_prefix.get(uri[:length], ())]
        if len(self._lengths) > 1:
            near.sort(key=lambda candidate: candidate[0])
        tries = 0
        for _, template, owner in near:
            if not uri.startswith(template.prefix) or not uri.endswith(template.suffix):
                continue
            variables = template.match(uri)
            if variables is not None:
                return owner, variables
            tries += 1
            if tries == TRIES:
                return None
        return None
