"""Masks the arguments and results of calls: what their schema or their name marks as secret; and cuts what is long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

import msgspec

from pegboard.bounded_dict import BoundedDict
from pegboard.call import Json
from pegboard.call_target import CalledTool
from pegboard.middleware.observability.masking import MASK, has_hint, is_secret, mask_text, words_of
from pegboard.middleware.observability.secret_names import EVERYTHING, declared_names, secret_names
from pegboard.protocol.json_values import as_object
from pegboard.schema.name_similarity import find_near

_TOOLS_KEPT: Final = 10_000
_MAX_COMPARED: Final = 256
"""The number of secret names up to which an unknown name is compared with them; with more, it counts as one of them."""
_FAMILIAR: Final = frozenset(
    {"content", "contents", "data", "isError", "messages", "mimeType", "result", "resultType", "role"}
    | {"structuredContent", "text", "type", "uri", "_meta"}
)
"""The members of results."""
_NAMES_OF: Final = ("rule", "approval", "credential", "trace")
"""The facts whose values name something."""
MAX_TEXT: Final = 2000
"""The length from which a text is cut."""
_SCANNED: Final = 16_384
"""How much of a text is searched for secrets; the rest is not shown."""
_MAX_NAME: Final = 200
_MAX_ITEMS: Final = 100
_MAX_DEPTH: Final = 16
_MAX_NODES: Final = 2000
_CONTAINERS: Final = (dict, list, tuple)
_PARTS: Final = (str, *_CONTAINERS)
_SHORTEST: Final = 4
"""The length from which a masked value is also masked where it occurs in another text of the same call."""


class CallMasking:
    """Masks values of calls.

    names: further names whose values are secret, such as `iban` or `pin code`.
    max_text: the length from which a text is cut.
    """

    def __init__(self, names: Iterable[str] = (), max_text: int = MAX_TEXT) -> None:
        self._names = frozenset(words_of(name) for name in names)
        self._max_text = min(max_text, _SCANNED)
        self._tools: BoundedDict[int, tuple[CalledTool, ToolMasking]] = BoundedDict(_TOOLS_KEPT)
        self.plain = ToolMasking(self._names, self._max_text, {})

    def facts(self, facts: Mapping[str, Json]) -> dict[str, Json]:
        """The facts that were noted about a call; `credential` and the like are names, not secrets."""
        plain, names = self.plain, {name: value for name, value in facts.items() if name in _NAMES_OF}
        others = plain.arguments({name: value for name, value in facts.items() if name not in names})[0]
        return {**{name: plain.arguments(value)[0] for name, value in names.items()}, **as_object(others)}

    def of(self, tool: CalledTool) -> ToolMasking:
        """How values of this tool are masked."""
        known = self._tools.get(id(tool))
        if known is None or known[0] is not tool:
            masking = ToolMasking(self._names, self._max_text, tool.input_schema, tool.output_schema)
            known = self._tools[id(tool)] = tool, masking
        return known[1]


class ToolMasking:
    """Masks the arguments and results of one tool."""

    __slots__ = ("_declared", "_known", "_max_text", "_names", "_secret")

    def __init__(
        self,
        names: frozenset[tuple[str, ...]],
        max_text: int,
        arguments: Mapping[str, Json],
        result: Mapping[str, Json] | None = None,
    ) -> None:
        schemas = (arguments, result or {})
        self._names, self._max_text = names, max_text
        self._declared = frozenset(name for schema in schemas for name in declared_names(schema))
        marked = {name for schema in schemas for name in secret_names(schema)}
        marked |= {name for name in self._declared if self._looks_secret(name)}
        self._secret = {name: _fold(name) for name in marked}
        self._known: dict[str, tuple[str, bool]] = {}

    def is_plain(self, sent: Json) -> bool:
        """Whether the arguments may be shown as they are, without a closer look: few, short and not secret."""
        if type(sent) is not dict or len(sent) > _MAX_ITEMS or EVERYTHING in self._secret:
            return False
        known = self._known
        for name, item in sent.items():
            if (known.get(name) or self._judge(name)) != (name, False):
                return False
            if type(item) is str:
                if len(item) > self._max_text or has_hint(item) or item[:1] in "{[":
                    return False
            elif type(item) in _CONTAINERS:
                return False
        return True

    def arguments(self, sent: Json) -> tuple[Json, Secrets]:
        """The arguments as a record may show them, and the secrets in them."""
        secrets = Secrets()
        if EVERYTHING in self._secret or (self._secret and not isinstance(sent, dict)):
            # Which part is the secret one is unknown.
            secrets.add(sent)
            return MASK, secrets
        return self._mask(sent, secrets, _Budget()), secrets

    def value(self, value: Json, secrets: Secrets) -> Json:
        """Another value of the same call, such as its result; what is secret in it is added to the secrets."""
        return self._mask(value, secrets, _Budget())

    def _mask(self, value: Json, secrets: Secrets, budget: _Budget, depth: int = 0) -> Json:
        if isinstance(value, str):
            return self._mask_text(value, secrets, budget, depth)
        if not isinstance(value, dict | list | tuple):
            return MASK if secrets.contain(value) else value
        if depth == _MAX_DEPTH or budget.nodes < 0:
            return "…"
        budget.nodes -= len(value) + 1
        if not isinstance(value, dict):
            return [self._mask(item, secrets, budget, depth + 1) for item in value[:_MAX_ITEMS]]
        shown: dict[str, Json] = {}
        known = self._known
        for name, item in value.items() if len(value) <= _MAX_ITEMS else islice(value.items(), _MAX_ITEMS):
            title, is_secret = known.get(name) or self._judge(name)
            if is_secret and item is not None:
                shown[title] = secrets.add(item)
            elif isinstance(item, _PARTS):
                shown[title] = self._mask(item, secrets, budget, depth + 1)
            else:
                shown[title] = MASK if secrets.contain(item) else item
        return shown

    def _mask_text(self, text: str, secrets: Secrets, budget: _Budget, depth: int) -> Json:
        if self._secret and text[:1] in ("{", "[") and len(text) <= _SCANNED:
            try:
                value = msgspec.json.decode(text)
            except (msgspec.DecodeError, RecursionError):
                value = None
            if value is not None:
                return msgspec.json.encode(self._mask(value, secrets, budget, depth + 1)).decode()
        shown = secrets.hide(mask_text(text[:_SCANNED]))
        return shown if len(text) <= self._max_text else f"{shown[: self._max_text]}… ({len(text)} characters)"

    def _judge(self, name: str) -> tuple[str, bool]:
        """The name as it is shown, and whether its value is secret; remembered."""
        judged = (
            mask_text(name[:_MAX_NAME]),
            self._looks_secret(name) or name in self._secret or self._is_misspelt(name),
        )
        if name in self._declared or name in _FAMILIAR:
            # Other names come from callers, who could fill the memory with them.
            self._known[name] = judged
        return judged

    def _looks_secret(self, name: str) -> bool:
        if is_secret(name):
            return True
        words = words_of(name) if self._names else ()
        return any(words[at : at + len(wanted)] == wanted for wanted in self._names for at in range(len(words)))

    def _is_misspelt(self, name: str) -> bool:
        """Whether a name that the schema does not have may be meant for a secret one: repair would read it as that."""
        if name in self._declared or not self._secret:
            return False
        if len(self._secret) > _MAX_COMPARED:
            return True
        folded = _fold(name[:100])
        return bool(find_near(folded, self._secret, max(1, len(folded) // 4)))


class Secrets:
    """The values that were masked in one call, to be masked in its other texts, too."""

    __slots__ = ("_texts",)

    def __init__(self) -> None:
        self._texts: list[str] = []

    def add(self, value: Json) -> str:
        """Remember the texts in a secret value; returns what is shown in its place."""
        if isinstance(value, str):
            if len(value) >= _SHORTEST:
                self._texts.append(value)
        elif isinstance(value, dict):
            for item in islice(value.values(), _MAX_ITEMS):
                self.add(item)
        elif isinstance(value, list | tuple):
            for item in value[:_MAX_ITEMS]:
                self.add(item)
        elif isinstance(value, int | float) and len(str(value)) >= _SHORTEST:
            self._texts.append(str(value))
        return MASK

    def contain(self, value: Json) -> bool:
        """Whether a number is one of them."""
        return bool(self._texts) and not isinstance(value, bool) and str(value) in self._texts

    def hide(self, text: str) -> str:
        """The text without them."""
        for secret in self._texts:
            text = text.replace(secret, MASK)
        return text


class _Budget:
    """How many more values a masked value may have."""

    __slots__ = ("nodes",)

    def __init__(self) -> None:
        self.nodes = _MAX_NODES


def _fold(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())
