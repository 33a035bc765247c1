"""Prompts: messages that a client requests by name, built from text arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from pegboard.call import Handler, Json
from pegboard.call_target import CalledItem
from pegboard.errors import DeclarationError, InvalidParams
from pegboard.media import Content
from pegboard.protocol.content import text_block
from pegboard.protocol.json_values import as_object, texts_in
from pegboard.rules.verdicts import View
from pegboard.schema.plain_json import ResultProblem, as_plain
from pegboard.tools.naming import NameSuggestions
from pegboard.tools.tool import Tool

ROLES: Final = ("user", "assistant")


class Prompt:
    """A prompt; `tool` is the function behind it, which returns text, content, messages, or a list of these."""

    relay: Handler | None = None
    """The relay that answers requests for it, if another server has it."""

    def __init__(self, tool: Tool) -> None:
        self.tool = tool
        self.name = tool.name
        self.item = CalledItem(
            item="prompt",
            name=tool.name,
            title=tool.title,
            description=tool.description,
            input_schema=tool.input_schema,
            meta=tool.meta,
            category=tool.category,
            tags=tool.tags,
            scopes=tool.scopes,
            hooks=tool.hooks,
        )

    def definition(self) -> dict[str, Json]:
        """The prompt as a list item."""
        schema = self.tool.input_schema
        required = texts_in(schema.get("required"))
        arguments = [
            {
                key: value
                for key, value in (
                    ("name", name),
                    ("title", as_object(part).get("title")),
                    ("description", as_object(part).get("description")),
                    ("required", name in required),
                )
                if value is not None
            }
            for name, part in as_object(schema.get("properties")).items()
        ]
        shown: dict[str, Json] = {
            "name": self.name,
            "title": self.tool.title,
            "description": self.tool.description,
            "arguments": arguments,
            "icons": list(self.tool.icons),
            "_meta": self.tool.meta,
        }
        return {key: value for key, value in shown.items() if value or key == "name"}

    def result(self, value: Any) -> dict[str, Json]:
        """The return value of the function as the result of prompts/get."""
        shown: dict[str, Json] = {"description": self.tool.description} if self.tool.description else {}
        if isinstance(value, str | Content):
            return {**shown, "messages": [_message(value, 0)]}
        if not isinstance(value, list | tuple | Mapping):
            value = as_plain(value)
        if isinstance(value, Mapping) and isinstance(value.get("messages"), list | tuple):
            others = {name: part for name, part in value.items() if name != "messages" and part is not None}
            shown.update(as_object(as_plain(others)))
            value = value["messages"]
        items: Sequence[Any] = value if isinstance(value, list | tuple) else [value]
        return {**shown, "messages": [_message(item, place) for place, item in enumerate(items)]}


def _message(item: Any, place: int) -> dict[str, Json]:
    if not isinstance(item, str | Content | Mapping):
        item = as_plain(item)
    if not (isinstance(item, Mapping) and "role" in item and "content" in item):
        return {"role": "user", "content": _content(item)}
    if item["role"] not in ROLES:
        raise ResultProblem(f"messages[{place}].role", f"is {item['role']!r:.40}; use {' or '.join(map(repr, ROLES))}")
    others = {name: as_plain(part) for name, part in item.items() if name not in ("role", "content")}
    return {"role": item["role"], "content": _content(item["content"]), **others}


def _content(value: Any) -> Mapping[str, Json]:
    if isinstance(value, Content):
        return value.to_block()
    if isinstance(value, str):
        return text_block(value)
    plain = as_plain(value)
    if isinstance(plain, dict) and isinstance(plain.get("type"), str):
        return plain
    return text_block(msgspec.json.encode(plain).decode())


class RelayedPrompt(Prompt):
    """A prompt of another server, shown with its own definition."""

    def __init__(
        self,
        definition: Mapping[str, Json],
        relay: Handler,
        *,
        source: str,
        toolbox: str = "",
        server: str = "",
        own_name: str = "",
        scopes: frozenset[str] = frozenset(),
        category: str = "",
        tags: Iterable[str] = (),
        middleware: Iterable[Any] = (),
    ) -> None:
        name = definition.get("name")
        if not isinstance(name, str) or not name:
            raise DeclarationError(f"{source}: a prompt without a name")
        self.name = name
        self.item = CalledItem(
            item="prompt",
            name=name,
            own_name=own_name,
            toolbox=toolbox,
            server=server,
            scopes=scopes,
            category=category,
            tags=tags,
            hooks=tuple(middleware),
        )
        self.relay = relay
        self._shown = dict(definition)

    def definition(self) -> dict[str, Json]:
        return self._shown


class PromptCatalog:
    """Prompts by name, in the order they were added; `expected` says that some may be added later."""

    def __init__(self) -> None:
        self.expected = False
        self._prompts: dict[str, Prompt] = {}
        self._suggestions = NameSuggestions()
        self._watchers: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return len(self._prompts)

    @property
    def offered(self) -> bool:
        """Whether the prompts capability is declared."""
        return self.expected or len(self) > 0

    @property
    def all(self) -> Iterable[Prompt]:
        return tuple(self._prompts.values())

    def add(self, prompt: Prompt) -> None:
        if prompt.name in self._prompts:
            where = f"{prompt.tool.source}: " if prompt.relay is None else ""
            raise DeclarationError(f"{where}the prompt {prompt.name!r} already exists")
        self._prompts[prompt.name] = prompt
        self._changed()

    def replace_all(self, prompts: Iterable[Prompt]) -> None:
        """Replace all prompts by these, in this order; of two with one name the first is kept."""
        before = [known.definition() for known in self.all]
        self._prompts = {}
        for prompt in prompts:
            self._prompts.setdefault(prompt.name, prompt)
        if [known.definition() for known in self.all] != before:
            self._changed()

    def remove(self, name: str) -> Prompt:
        prompt = self.find(name)
        del self._prompts[name]
        self._changed()
        return prompt

    def get(self, name: str) -> Prompt | None:
        """The prompt with exactly that name."""
        return self._prompts.get(name)

    def find(self, name: str, view: View | None = None) -> Prompt:
        """The prompt with exactly that name; one that is hidden in this view does not exist."""
        prompt = self._prompts.get(name)
        if prompt is None or (view is not None and view.of(prompt.item).effect == "hide"):
            close = self._suggestions.suggest(name, [shown.name for shown in self.shown(view)])
            hint = f", did you mean {close[0]!r}?" if close else ""
            raise InvalidParams(f"Unknown prompt: {name[:128]!r}{hint}")
        return prompt

    def shown(self, view: View | None) -> list[Prompt]:
        """The prompts that callers with this view see."""
        return [prompt for prompt in self.all if view is None or view.of(prompt.item).listed]

    def _watch(self, watcher: Callable[[], None]) -> None:
        self._watchers.append(watcher)

    def _changed(self) -> None:
        for watcher in self._watchers:
            watcher()
