"""The objects that lists and results of servers contain, as types.

They are the decoded JSON objects themselves: a field that these types do not name is kept, and `get` returns it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Required, TypedDict


class _Described(TypedDict, total=False):
    name: Required[str]
    title: str
    description: str


class _ListedItem(_Described, total=False):
    icons: Sequence[Mapping[str, Any]]
    _meta: Mapping[str, Any]


class ToolDefinition(_ListedItem, total=False):
    """A tool as a server lists it."""

    inputSchema: Required[Mapping[str, Any]]
    outputSchema: Mapping[str, Any]
    annotations: Mapping[str, Any]
    execution: Mapping[str, Any]


class ResourceDefinition(_ListedItem, total=False):
    """A resource as a server lists it."""

    uri: Required[str]
    mimeType: str
    size: int
    annotations: Mapping[str, Any]


class TemplateDefinition(_ListedItem, total=False):
    """A resource template as a server lists it."""

    uriTemplate: Required[str]
    mimeType: str
    annotations: Mapping[str, Any]


class PromptArgument(_Described, total=False):
    """An argument of a prompt."""

    required: bool


class PromptDefinition(_ListedItem, total=False):
    """A prompt as a server lists it."""

    arguments: Sequence[PromptArgument]


class ResourceContents(TypedDict, total=False):
    """A part of a resource: `text`, or `blob` in Base64."""

    uri: Required[str]
    mimeType: str
    text: str
    blob: str
    _meta: Mapping[str, Any]


class ContentBlock(TypedDict, total=False):
    """A content block of a result or a message; `type` says which of the other fields it has."""

    type: Required[str]
    text: str
    data: str
    mimeType: str
    uri: str
    name: str
    title: str
    description: str
    size: int
    resource: ResourceContents
    annotations: Mapping[str, Any]
    _meta: Mapping[str, Any]


class PromptMessage(TypedDict):
    """A message of a prompt."""

    role: str
    content: ContentBlock
