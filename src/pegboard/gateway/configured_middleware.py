"""Creates the middleware that a configuration names."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pegboard.middleware
from pegboard.config.gateway_config import GatewayConfig, MiddlewareConfig
from pegboard.errors import SetupError
from pegboard.hooks.middleware import check_middleware


class ConfiguredMiddleware:
    """All middleware of a configuration, created once: `shared` with its toolbox, if any; `own` by server."""

    def __init__(self, config: GatewayConfig) -> None:
        self.shared: list[tuple[Any, str | None]] = []
        self.own: dict[tuple[str, str], tuple[Any, ...]] = {}
        with _beside(config.path):
            self._make(config)

    def _make(self, config: GatewayConfig) -> None:
        self.shared += [(made, None) for made in make_middleware(config.middleware, "middleware")]
        for toolbox in config.toolboxes.values():
            where = f"toolboxes.{toolbox.name}"
            made = make_middleware(toolbox.middleware, f"{where}.middleware")
            self.shared += [(one, toolbox.name) for one in made]
            for server in toolbox.servers.values():
                own = make_middleware(server.middleware, f"{where}.mcpServers.{server.name}.middleware")
                self.own[toolbox.name, server.name] = own


@contextmanager
def _beside(path: str) -> Iterator[None]:
    """Modules beside the configuration can be named, as boards can; libraries with the same name take precedence."""
    folder = str(Path(path).resolve().parent) if path else ""
    if not folder or folder in sys.path:
        yield
        return
    sys.path.append(folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def make_middleware(configs: Iterable[MiddlewareConfig], where: str) -> tuple[Any, ...]:
    """Create one of each; SetupError, naming the location, if one cannot be created."""
    return tuple(_make(config, where) for config in configs)


def _make(config: MiddlewareConfig, where: str) -> Any:
    made = _find(config.use, where)
    if isinstance(made, type):
        try:
            made = made(**config.options)
        except (TypeError, ValueError) as problem:
            raise SetupError(f"{where}: middleware {config.use!r} does not accept these options: {problem}") from None
    elif config.options:
        raise SetupError(f"{where}: middleware {config.use!r} is a function and takes no options")
    check_middleware(made)
    if config.order is not None:
        made.order = config.order
    return made


def _find(use: str, where: str) -> Any:
    module, colon, name = use.partition(":")
    if not colon:
        # Whether it exists was checked when the configuration was read.
        return getattr(pegboard.middleware, use)
    try:
        return getattr(import_module(module), name)
    except ImportError as problem:
        raise SetupError(f"{where}: middleware {use!r}: {problem}") from None
    except AttributeError:
        raise SetupError(f"{where}: middleware {use!r}: {module} has no {name}") from None
