"""The options for serving: one declaration each, from which `run()`, flags and environment variables are derived."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeAlias,
    TypedDict,
    Unpack,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from msgspec import Struct

from pegboard.errors import SetupError
from pegboard.schema.name_similarity import find_near
from pegboard.server.endpoint_names import DEPRECATED_ENDPOINTS

DEFAULT_PORT: Final = 7332

COMMON: Final = ""
ACCESS: Final = "address and access"
PROTOCOL: Final = "protocol"
SCALING: Final = "workers and restarts"
LOGGING: Final = "logging"
GROUPS: Final = (ACCESS, PROTOCOL, SCALING, LOGGING)
"""The groups of options in `--help`, after those that most people need."""

Transport: TypeAlias = Literal["auto", "http", "stdio"]
Names: TypeAlias = str | Sequence[str]


class Help(Struct, frozen=True):
    """What an option does, in words for `--help`; its default, and how its flag is shown."""

    text: str
    default: object
    placeholder: str | None = None
    group: str = ACCESS


_ENDPOINTS = f"deprecated endpoints to serve: {','.join(DEPRECATED_ENDPOINTS)}, all or none"
_STORE = "where to store sessions, events and tasks: memory, sqlite:PATH or redis://HOST:6379/0"
_SESSIONS = "off: serve clients before 2026-07-28 statelessly (no elicitation or sampling, no resumable streams)"
_DRAIN = "time that running calls get to finish at shutdown (10, on stdio 2)"
_DEBUG = "show callers on this machine the exceptions of tools that fail"
_WORKERS = "number of worker processes; clients before 2026-07-28 then need a shared --store"


class MountOptions(TypedDict, total=False):
    """The options that `board.asgi()` shares with `board.run()`."""

    cors: Annotated[Names, Help("allow browser pages of this origin to call the server", (), "ORIGIN")]
    allow_host: Annotated[Names, Help("accept this host name in URLs, besides localhost and IP addresses", (), "NAME")]
    legacy_endpoints: Annotated[Names, Help(_ENDPOINTS, "all", "NAMES", group=PROTOCOL)]
    direct_methods: Annotated[
        bool, Help("call a tool by its name as the method of a request, at /rpc and /ws", False, group=PROTOCOL)
    ]
    store: Annotated[str, Help(_STORE, "memory", "ADDRESS", group=COMMON)]
    sessions: Annotated[Literal["on", "off"], Help(_SESSIONS, "on", group=PROTOCOL)]


class ServingOptions(MountOptions, total=False):
    """The options of `board.run()`, `gateway.run()`, `pegboard run` and `pegboard up`."""

    transport: Annotated[Transport, Help("auto: stdio if stdin is a pipe, as a client starts us, else HTTP", "auto")]
    host: Annotated[str, Help("address to bind", "127.0.0.1", "ADDRESS", group=COMMON)]
    port: Annotated[int, Help("port to bind, 0 for any free one", DEFAULT_PORT, "PORT", group=COMMON)]
    uds: Annotated[str | None, Help("bind a Unix socket instead", None, "PATH")]
    public: Annotated[bool, Help("allow --host to be an address that other machines can reach", False)]
    no_auth: Annotated[bool, Help("with --public: serve callers without authentication", False)]
    tls_cert: Annotated[str | None, Help("certificate chain (PEM); serves HTTPS", None, "FILE")]
    tls_key: Annotated[str | None, Help("private key of the certificate (PEM)", None, "FILE")]
    path_prefix: Annotated[str, Help("serve all endpoints below this path", "", "/PATH")]
    trusted_proxy: Annotated[Names, Help("trust the X-Forwarded-… headers of this proxy", (), "ADDRESS")]
    websocket: Annotated[bool, Help("serve WebSockets at /ws", True, group=PROTOCOL)]
    workers: Annotated[int, Help(_WORKERS, 1, "N", group=SCALING)]
    drain: Annotated[float | None, Help(_DRAIN, None, "SECONDS", group=SCALING)]
    debug: Annotated[bool, Help(_DEBUG, False, group=LOGGING)]
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Help("least severe level to log", "info", group=LOGGING)
    ]
    log_format: Annotated[Literal["text", "json"], Help("format of log lines on stderr", "text", group=LOGGING)]


Kind: TypeAlias = Literal["text", "list", "number", "seconds", "switch", "choice"]


class ServingOption(Struct, frozen=True):
    """One option as the table declares it."""

    name: str
    kind: Kind
    help: Help
    choices: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        """`--port`; of a switch that is on by default, the flag that turns it off."""
        return ("--no-" if self.help.default is True else "--") + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return f"PEGBOARD_{self.name.upper()}"

    def read(self, text: str) -> object:
        """The value that an environment variable holds."""
        match self.kind:
            case "number":
                return self.check(int(text) if text.isdecimal() else text, self.variable)
            case "seconds":
                return self.check(float(text) if _SECONDS.fullmatch(text) else text, self.variable)
            case "switch":
                if text.lower() not in _SWITCH:
                    raise SetupError(f"{self.variable}={text!r} is not one of {', '.join(_SWITCH)}")
                return _SWITCH[text.lower()]
        return self.check(text, self.variable)

    def check(self, value: object, source: str) -> object:
        """The value that an argument or a flag gives."""
        if self.choices and value not in self.choices:
            raise SetupError(f"{source}={value!r} is not one of {', '.join(self.choices)}")
        if self.kind == "number" and not isinstance(value, int):
            raise SetupError(f"{source}={value!r} is not a whole number")
        if self.kind == "seconds" and value is not None and not (isinstance(value, int | float) and value >= 0):
            raise SetupError(f"{source}={value!r} is not a number of seconds, 0 or more")
        if self.kind == "list":
            texts = (value,) if isinstance(value, str) else cast(Sequence[str], value)
            return tuple(part.strip() for text in texts for part in text.split(",") if part.strip())
        return value


_KINDS: Final[Mapping[object, Kind]] = {int: "number", bool: "switch", float | None: "seconds"}
_SECONDS: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_SWITCH: Final = {"yes": True, "no": False, "1": True, "0": False, "true": True, "false": False}


def _declared(name: str, annotation: Any) -> ServingOption:
    of, text = get_args(annotation)
    if get_origin(of) is Literal:
        return ServingOption(name, "choice", text, get_args(of))
    if isinstance(of, UnionType) and type(None) not in get_args(of):
        return ServingOption(name, "list", text)
    return ServingOption(name, _KINDS.get(of, "text"), text)


def _declared_by(table: type) -> dict[str, ServingOption]:
    hints = get_type_hints(table, include_extras=True)
    return {name: _declared(name, annotation) for name, annotation in hints.items()}


MOUNT_OPTIONS: Final = _declared_by(MountOptions)
OPTIONS: Final = {
    **{name: option for name, option in _declared_by(ServingOptions).items() if name not in MOUNT_OPTIONS},
    **MOUNT_OPTIONS,
}


def resolve_options(
    given: ServingOptions, environ: Mapping[str, str], **defaults: Unpack[ServingOptions]
) -> ServingOptions:
    """All options: each as given, else from its environment variable, else its default."""
    variables = {name: environ.get(option.variable, "") for name, option in OPTIONS.items()}
    from_environ = {name: OPTIONS[name].read(text) for name, text in variables.items() if text}
    return cast(ServingOptions, _complete("run", OPTIONS, {**defaults, **from_environ, **given}))


def resolve_mount_options(given: MountOptions) -> MountOptions:
    """All options of `asgi()`; a mounted board serves no deprecated endpoint unless asked to."""
    return cast(MountOptions, _complete("asgi", MOUNT_OPTIONS, {"legacy_endpoints": "none", **given}))


def _complete(function: str, options: Mapping[str, ServingOption], given: Mapping[str, object]) -> dict[str, object]:
    for name in given:
        if name not in options:
            near = sorted(find_near(name, {known: known for known in options}, 2))[:1]
            hint = "".join(f"; did you mean {known!r}?" for _, _, known in near)
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{hint}")
    return {name: option.check(given.get(name, option.help.default), name) for name, option in options.items()}


def check_workers(options: ServingOptions, places: Mapping[str, object] | None) -> None:
    """Reject a number of workers that cannot serve; only a gateway has `places`."""
    workers = options["workers"]
    if workers < 1:
        raise SetupError(f"--workers {workers}: use at least 1")
    if workers > 1 and places is not None:
        # Several processes would each start all servers, and could not see each other's parked calls.
        raise SetupError(
            f"--workers {workers}: a gateway runs in one process; to scale, start several gateways with the same "
            "--store behind a load balancer"
        )
    if workers > 1 and options["transport"] == "stdio":
        raise SetupError("--workers is for HTTP: one process serves the one client of --stdio")
