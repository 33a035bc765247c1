"""Imports and builds an endpoint beside `/mcp` with its first request."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from pegboard.server.http_types import Endpoint, EndpointResult, Head, Sink, Upgrade


class DeferredEndpoint:
    """The endpoint of that class, given as `module:name`."""

    def __init__(self, target: str, *arguments: Any, **options: Any) -> None:
        self._target = target
        self._arguments = arguments
        self._options = options
        self._endpoint: Endpoint | None = None

    def accept(self, head: Head, body: bytes, sink: Sink) -> EndpointResult | Upgrade:
        if self._endpoint is None:
            module, _, name = self._target.partition(":")
            self._endpoint = getattr(import_module(module), name)(*self._arguments, **self._options)
        return self._endpoint.accept(head, body, sink)
