"""Until there is the real one: a Downstream over one link."""
from __future__ import annotations

import sys
import types
from typing import Any

try:
    import pegboard.gateway.downstream  # noqa: F401
except ImportError:
    from msgspec.structs import replace

    from pegboard.call import NOBODY
    from pegboard.client.link import Identity
    from pegboard.client.target import Options, open_link
    from pegboard.client.patience import Patience
    from pegboard.errors import NoAnswer

    CAPS = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}

    class Downstream:
        def __init__(self, toolbox: str, config: Any, **_: Any) -> None:
            self.toolbox, self.name, self.config = toolbox, config.name, config
            self.in_flight = 0
            target = list(config.command) if config.kind == "stdio" else config.url
            self.link = open_link(
                target, Identity({"name": "gw", "version": "1"}, CAPS, "debug"), NOBODY, Options(version=config.version)
            )

        def start(self) -> None: ...
        async def settled(self) -> None:
            await self.link.open()

        @property
        def asks_midway(self) -> bool:
            return self.link.version != "2026-07-28"

        async def send(self, out: Any, caller: Any = None) -> Any:
            if caller is not None:
                out.identity = Identity(caller.client or {"name": "x", "version": "1"}, caller.capabilities, caller.log_level)
                out.owner = caller.principal
            self.in_flight += 1
            try:
                return await self.link.request(out)
            finally:
                self.in_flight -= 1

        def explain(self, fault: Any) -> str:
            return type(fault).__name__

        async def stop(self) -> None:
            await self.link.close()

    module = types.ModuleType("pegboard.gateway.downstream")
    module.Downstream = Downstream  # type: ignore[attr-defined]
    sys.modules["pegboard.gateway.downstream"] = module
