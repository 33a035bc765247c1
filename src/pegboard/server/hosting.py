"""What a board and a gateway share: `run()`, `asgi()` and their options."""

from __future__ import annotations

import logging
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from pegboard.call import Handler, Json
from pegboard.errors import SetupError
from pegboard.limits import Limits
from pegboard.logs import TextLines
from pegboard.printable import printable_lines
from pegboard.server.asgi.asgi_app import AsgiApp
from pegboard.server.endpoint_names import read_endpoint_names
from pegboard.server.mounting import mount
from pegboard.server.serve import PORT, Settings, run
from pegboard.stores.cluster import SharedStore


class Hosted(ABC):
    """Whatever can be served."""

    limits: Limits
    places: Mapping[str, Handler] | None

    @property
    @abstractmethod
    def handler(self) -> Handler: ...

    @property
    @abstractmethod
    def info(self) -> Mapping[str, Json]: ...

    @abstractmethod
    async def start(self, shared: SharedStore | None = None) -> None: ...

    @abstractmethod
    async def stop(self) -> None: ...

    def run(
        self,
        transport: Literal["auto", "http", "stdio"] = "auto",
        *,
        host: str = "127.0.0.1",
        port: int = PORT,
        uds: str | None = None,
        public: bool = False,
        tls_cert: str | None = None,
        tls_key: str | None = None,
        path_prefix: str = "",
        trusted_proxy: str | Sequence[str] = (),
        cors: str | Sequence[str] = (),
        allow_host: str | Sequence[str] = (),
        legacy_doors: str | Sequence[str] = "all",
        store: str = "memory",
        workers: int = 1,
        sessions: Literal["on", "off"] = "on",
        websocket: bool = True,
        log_level: str = "info",
    ) -> None:
        """Serve until stopped: stdio where a client holds our stdin, HTTP on a terminal or without one."""
        if not logging.root.handlers and not logging.getLogger("pegboard").handlers:
            handler = logging.StreamHandler(sys.stderr)
            handler.setFormatter(TextLines(logging.BASIC_FORMAT))
            logging.basicConfig(level=log_level.upper(), handlers=[handler])
        try:
            run(
                self,
                Settings(
                    transport=transport,
                    host=host,
                    port=port,
                    uds=uds,
                    public=public,
                    tls_cert=tls_cert,
                    tls_key=tls_key,
                    path_prefix=path_prefix,
                    trusted_proxies=_several(trusted_proxy),
                    cors=_several(cors),
                    allow_hosts=_several(allow_host),
                    legacy_doors=read_endpoint_names(legacy_doors),
                    store=store,
                    workers=workers,
                    sessions=sessions,
                    websocket=websocket,
                ),
            )
        except SetupError as error:
            # This is the program's last word, and whoever started it has to act: a traceback would only hide the fix.
            print(printable_lines(f"{self.info['name']}: {error}"), file=sys.stderr)  # noqa: T201
            sys.exit(2)

    def asgi(
        self,
        *,
        path: str = "/mcp",
        ws: str | None = "/ws",
        store: str = "memory",
        legacy_doors: str | Sequence[str] = "all",
        sessions: Literal["on", "off"] = "on",
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
    ) -> AsgiApp:
        """An ASGI application: `app.routes.append(board.asgi())`, or mounted, or served by itself.

        `ws` is where WebSockets are let in, None for nowhere; the deprecated doors lie beside `path`. `store` is opened by
        the first request at the latest. `hosts` and `origins` name those it answers to beside this machine.
        """
        return mount(
            self,
            path=path,
            ws=ws,
            store=store,
            doors=read_endpoint_names(legacy_doors),
            sessions=sessions == "on",
            hosts=hosts,
            origins=origins,
        )


def _several(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)
