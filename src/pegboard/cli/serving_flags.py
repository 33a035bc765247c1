"""The flags of the serving verbs, each with an environment variable PEGBOARD_…."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from typing import Any

from pegboard.errors import SetupError
from pegboard.logs import JsonLines, TextLines
from pegboard.server.endpoint_names import DEPRECATED_ENDPOINTS, read_endpoint_names
from pegboard.server.serve import PORT, Settings

_LEVELS = ("info", "debug", "warning", "error")
_FORMATS = ("text", "json")


def add_flags(parser: argparse.ArgumentParser, *, store: str = "memory") -> None:
    """Where and how to serve; `store` is the verb's own default, told as `sqlite` where it is left open."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--http", action="store_const", dest="transport", const="http", help="serve HTTP")
    which.add_argument("--stdio", action="store_const", dest="transport", const="stdio", help="serve stdin and stdout")
    parser.set_defaults(transport=_env_choice("transport", ("auto", "http", "stdio")))
    place = parser.add_argument_group("HTTP")
    place.add_argument("--host", default=_env("host", "127.0.0.1"), help="address to bind (127.0.0.1)")
    place.add_argument(
        "--port", type=int, default=_env_int("port", PORT), help=f"port to bind, 0 for any free one ({PORT})"
    )
    place.add_argument("--uds", default=_env("uds"), metavar="PATH", help="bind a unix socket instead")
    place.add_argument(
        "--public",
        action="store_true",
        default=_env_choice("public", ("no", "yes", "0", "1", "false", "true", "")) in ("yes", "1", "true"),
        help="allow --host to be reached from other machines",
    )
    place.add_argument("--tls-cert", default=_env("tls_cert"), metavar="FILE", help="certificate chain (PEM)")
    place.add_argument("--tls-key", default=_env("tls_key"), metavar="FILE", help="private key (PEM)")
    place.add_argument("--path-prefix", default=_env("path_prefix", ""), metavar="/PATH", help="serve below this path")
    place.add_argument(
        "--trusted-proxy",
        action="append",
        default=_env_list("trusted_proxy"),
        metavar="ADDRESS",
        help="believe the X-Forwarded-… headers of this proxy",
    )
    place.add_argument(
        "--cors", action="append", default=_env_list("cors"), metavar="ORIGIN", help="let pages of this origin call"
    )
    place.add_argument(
        "--allow-host",
        action="append",
        default=_env_list("allow_host"),
        metavar="NAME",
        help="accept this host name in URLs; without, only localhost and IP addresses",
    )
    place.add_argument(
        "--legacy-doors",
        default=_env("legacy_doors", "all"),
        metavar="NAMES",
        help=f"which deprecated doors to open: {','.join(DEPRECATED_ENDPOINTS)}, all or none (all)",
    )
    place.add_argument(
        "--no-legacy-doors", action="store_const", dest="legacy_doors", const="none", help="open none of them"
    )
    keep = parser.add_argument_group("several workers, restarts")
    keep.add_argument(
        "--store",
        default=_env("store", store),
        metavar="ADDRESS",
        help="where sessions, events and tasks are kept: memory, sqlite:PATH or redis://HOST:6379/0 "
        f"({store or 'a SQLite file of this user'})",
    )
    keep.add_argument(
        "--workers",
        type=int,
        default=_env_int("workers", 1),
        metavar="N",
        help="serve by so many processes; more than one needs a shared --store for clients before 2026-07-28 (1)",
    )
    keep.add_argument(
        "--sessions",
        default=_env_choice("sessions", ("on", "off")),
        choices=("on", "off"),
        help="off: serve clients before 2026-07-28 without a session, and so without questions or streams to come back to",
    )
    place.add_argument(
        "--no-websocket",
        action="store_false",
        dest="websocket",
        default=_env_choice("websocket", ("yes", "no", "1", "0", "true", "false", "")) not in ("no", "0", "false"),
        help="do not serve WebSockets at /ws",
    )
    log = parser.add_argument_group("logging")
    log.add_argument("--log-level", default=_env_choice("log_level", _LEVELS), choices=_LEVELS)
    log.add_argument("--log-format", default=_env_choice("log_format", _FORMATS), choices=_FORMATS)


def read_settings(chosen: argparse.Namespace, **more: Any) -> Settings:
    """The settings that the flags make."""
    return Settings(
        transport=chosen.transport,
        host=chosen.host,
        port=chosen.port,
        uds=chosen.uds,
        public=chosen.public,
        tls_cert=chosen.tls_cert,
        tls_key=chosen.tls_key,
        path_prefix=chosen.path_prefix,
        trusted_proxies=tuple(chosen.trusted_proxy),
        cors=tuple(chosen.cors),
        allow_hosts=tuple(chosen.allow_host),
        legacy_doors=read_endpoint_names(chosen.legacy_doors),
        store=chosen.store,
        workers=chosen.workers,
        sessions=chosen.sessions,
        websocket=chosen.websocket,
        **more,
    )


def set_up_logging(level: str, style: str) -> None:
    """Send the log to stderr, a line a record."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonLines() if style == "json" else TextLines("%(asctime)s %(levelname)-7s %(name)s  %(message)s")
    )
    root = logging.getLogger("pegboard")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False


def _env(name: str, default: str | None = None) -> str | None:
    return os.environ.get(f"PEGBOARD_{name.upper()}", default)


def _env_int(name: str, default: int) -> int:
    text = _env(name)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        raise SetupError(f"PEGBOARD_{name.upper()}={text!r} is not a whole number") from None


def _env_choice(name: str, choices: tuple[str, ...]) -> str:
    """One of the choices; the first if nothing is set."""
    text = _env(name, choices[0])
    if text not in choices:
        listed = ", ".join(choice for choice in choices if choice)
        raise SetupError(f"PEGBOARD_{name.upper()}={text!r} is not one of {listed}")
    return text


def _env_list(name: str) -> list[str]:
    return [part.strip() for part in (_env(name) or "").split(",") if part.strip()]
