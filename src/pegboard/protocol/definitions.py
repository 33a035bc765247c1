"""The objects that lists and results of servers contain, as types.

They are the decoded JSON objects themselves: a field that these types do not name is kept, and `get` returns it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Required, TypedDict


class ToolDefinition(TypedDict, total=False):
    """A tool as a server lists it."""

    name: Required[str]
    title: str
    description: str
    inputSchema: Required[Mapping[str, Any]]
    outputSchema: Mapping[str, Any]
    annotations: Mapping[str, Any]
    icons: Sequence[Mapping[str, Any]]
    execution: Mapping[str, Any]
    _meta: Mapping[str, Any]


class ResourceDefinition(TypedDict, total=False):
    """A resource as a server lists it."""

    uri: Required[str]
    name: Required[str]
    title: str
    description: str
    mimeType: str
    size: int
    annotations: Mapping[str, Any]
    icons: Sequence[Mapping[str, Any]]
    _meta: Mapping[str, Any]


class TemplateDefinition(TypedDict, total=False):
    """A resource template as a server lists it."""

    uriTemplate: Required[str]
    name: Required[str]
    title: str
    description: str
    mimeType: str
    annotations: Mapping[str, Any]
    icons: Sequence[Mapping[str, Any]]
    _meta: Mapping[str, Any]


class PromptArgument(TypedDict, total=False):
    """An argument of a prompt."""

    name: Required[str]
    title: str
    description: str
    required: bool


class PromptDefinition(TypedDict, total=False):
    """A prompt as a server lists it."""

    name: Required[str]
    title: str
    description: str
    arguments: Sequence[PromptArgument]
    icons: Sequence[Mapping[str, Any]]
    _meta: Mapping[str, Any]


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
