"""The routes that an author adds beside the MCP endpoint, such as a webhook.

A route is looked up last, after every endpoint and page of the server, and cannot be registered at one of their paths. Its
requests have passed the checks of Host and Origin, the authentication (unless it is public) and the limits of the server.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl, quote, unquote

import msgspec
from msgspec import Struct

from pegboard.auth.principal import Principal
from pegboard.errors import DeclarationError, InvalidRequest, Refusal
from pegboard.logs.log_lines import log_failure
from pegboard.schema.plain_json import encode
from pegboard.server.http.responses import error_response, log, method_not_allowed
from pegboard.server.http_types import Answer, Head, Headers

RESERVED: Final = frozenset(
    {
        "mcp", "ws", "rpc", "sse", "messages", "health", "ready", "metrics", "toolboxes", "operator",
        "console", "approvals", "sign-in", "connect", ".well-known",
    }
)  # fmt: skip
"""The first parts of the paths that the server itself may serve."""

_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
_SEGMENT: Final = re.compile(r"[A-Za-z0-9._~-]+|\{[A-Za-z_][A-Za-z0-9_]*\}")
_LEADS_OUT: Final = re.compile(r"[/\\\0]|^\.{1,2}$")
_CONTENT_TYPE: Final = re.compile(r"[\x20-\x7e]+")
_FIELD_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FIELD_VALUE: Final = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")
_MAX_FIELDS: Final = 1000
_SAFE: Headers = ((b"x-content-type-options", b"nosniff"),)
_TEXT: Final = "text/plain; charset=utf-8"
_BYTES: Final = "application/octet-stream"
_JSON: Final = "application/json"


class HttpRequest(Struct, frozen=True, kw_only=True):
    """A request for a custom route.

    method: its method, such as "POST".
    path: its path, without the prefix of the server.
    path_params: the parts of the path that the braces of the route stand for, without slashes.
    query: the fields of the query; of a repeated one, the last.
    headers: the headers; their names are lower-case. Credentials that the server has verified are removed.
    body: the body, at most `Limits(body_bytes=…)` long.
    principal: who sent it; falsy without authentication, and for a public route.
    address: the network address that it came from, as the server or a trusted proxy saw it.
    lifespan: what the lifespans of the board yielded.
    """

    method: str
    path: str
    path_params: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    principal: Principal
    address: str
    lifespan: Mapping[str, Any]

    def text(self) -> str:
        """The body as text; one that is not UTF-8 is rejected with 400."""
        try:
            return self.body.decode()
        except UnicodeDecodeError:
            raise InvalidRequest("The body is not UTF-8") from None

    def json(self, type: Any = Any) -> Any:  # noqa: A002 — as msgspec names it
        """The body as JSON; one that is not JSON, or does not fit the type, is rejected with 400.

        type: the type to convert it to, such as a dataclass or a Struct.
        """
        try:
            return msgspec.json.decode(self.body, type=type)
        except msgspec.MsgspecError as problem:
            raise InvalidRequest(f"The body is not the expected JSON: {problem}") from None
        except RecursionError:
            raise InvalidRequest("The body is nested too deep") from None


class HttpResponse:
    """The response of a custom route, with a status, a content type and headers of its own."""

    def __init__(
        self,
        content: Any = b"",
        status: int = 200,
        *,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Create a response.

        content: text, bytes, or any value that can be written as JSON.
        status: the status code, from 200 to 599.
        content_type: in place of the one that follows from the content.
        headers: further headers; line breaks in them are rejected.
        """
        if not 200 <= status <= 599:
            raise ValueError(f"status={status}; use a number from 200 to 599")
        body, kind = _write(content)
        if content_type is not None and not _CONTENT_TYPE.fullmatch(content_type):
            raise ValueError(f"content_type={content_type!r:.80} contains a character that is not allowed")
        for name, value in (headers or {}).items():
            if not _FIELD_NAME.fullmatch(name) or not _FIELD_VALUE.fullmatch(value):
                raise ValueError(f"headers={{{name!r:.80}: …}} contains a character that is not allowed")
        fields = tuple((name.lower().encode(), value.encode("latin-1")) for name, value in (headers or {}).items())
        self.answer = Answer(status, body, (content_type or kind).encode(), (*_SAFE, *fields))
        """As the server sends it."""


def _write(content: Any) -> tuple[bytes, str]:
    match content:
        case str():
            return content.encode(), _TEXT
        case bytes() | bytearray() | memoryview():
            return bytes(content), _BYTES
        case _:
            return encode(content), _JSON


RouteHandler: TypeAlias = Callable[[HttpRequest], Any]
"""Answers a request: `async def`, or a plain function, which runs in a thread."""


class CustomRoute(Struct, frozen=True):
    """One path and its handlers by method; `public` ones need no authentication."""

    path: str
    handlers: Mapping[str, RouteHandler]
    public: bool

    @property
    def allow(self) -> bytes:
        """The value of the Allow header."""
        return ", ".join(self.handlers).encode()


class CustomRoutes:
    """The custom routes of one server; a path without braces wins over one with braces, then the first."""

    def __init__(
        self,
        lifespan: Mapping[str, Any] = MappingProxyType({}),
        # A board has threads of its own: those of the event loop also look up addresses and read files.
        run_in_thread: Callable[..., Awaitable[Any]] = asyncio.to_thread,
    ) -> None:
        self.lifespan = lifespan
        self.run_in_thread = run_in_thread
        self._routes: dict[str, CustomRoute] = {}
        self._patterns: dict[str, re.Pattern[str]] = {}

    def __len__(self) -> int:
        return len(self._routes)

    def add(self, path: str, handler: RouteHandler, methods: Iterable[str], *, public: bool) -> None:
        """Add a handler; DeclarationError if the path is invalid, reserved or taken."""
        code = getattr(inspect.unwrap(handler), "__code__", None)
        where = f"{code.co_filename}:{code.co_firstlineno}: " if code is not None else ""
        listed = [methods] if isinstance(methods, str) else list(methods)
        for method in listed:
            if method not in _METHODS:
                raise DeclarationError(f"{where}methods={listed!r:.80}; use a list of some of {', '.join(_METHODS)}")
        pattern = _compile(path, where)
        known = self._routes.get(path)
        handlers = {} if known is None else dict(known.handlers)
        if known is not None and known.public != public:
            raise DeclarationError(f"{where}{path} is already a route with public={known.public}; use the same here")
        for method in listed:
            if method in handlers:
                raise DeclarationError(f"{where}{method} {path} is already a route; choose another path or method")
            handlers[method] = handler
        if "GET" in handlers:
            handlers.setdefault("HEAD", handlers["GET"])
        self._routes[path] = CustomRoute(path, handlers, public)
        if "{" in path:
            self._patterns[path] = pattern

    def find(self, path: str) -> tuple[CustomRoute, Mapping[str, str]] | None:
        """The route of a path, as it is in the request, and the parts that its braces stand for."""
        bare = "/" + path.strip("/")
        found = self._routes.get(bare)
        if found is not None and bare not in self._patterns:
            return found, {}
        for route, pattern in self._patterns.items():
            if (match := pattern.fullmatch(bare)) is not None:
                parts = {name: unquote(part) for name, part in match.groupdict().items()}
                # An encoded slash would lead out of a folder that an author joins the part to.
                return None if any(map(_LEADS_OUT.search, parts.values())) else (self._routes[route], parts)
        return None

    def locate(self, path: str) -> bytes | None:
        """The path of a route for the endpoint, from one that an ASGI server has decoded; None if there is no route."""
        sent = quote(path)
        return None if self.find(sent) is None else sent.encode()

    async def answer(self, route: CustomRoute, found: Mapping[str, str], path: str, head: Head, body: bytes) -> Answer:
        """The response to a request for a route."""
        method = head.method.decode("latin-1")
        handler = route.handlers.get(method)
        if handler is None:
            return method_not_allowed(route.allow)
        try:
            request = HttpRequest(
                method=method,
                path=unquote(path),
                path_params=found,
                query=_read_query(head.query),
                headers={name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers.items()},
                body=body,
                principal=head.access.principal,
                address=head.peer,
                lifespan=self.lifespan,
            )
            returned = await self._run(handler, request)
            if returned is None:
                return Answer(204)
            response = returned if isinstance(returned, HttpResponse) else HttpResponse(returned)
            return response.answer
        except Refusal as refusal:
            return error_response(refusal, ())
        except Exception as error:  # noqa: BLE001 — an author's handler may raise anything; the caller sees only the id
            error_id = log_failure(log, "%s %s failed", method, route.path, error=error)
            return Answer(500, b'{"error":"Internal error, error id %b"}' % error_id.encode(), headers=_SAFE)

    async def _run(self, handler: RouteHandler, request: HttpRequest) -> Any:
        if inspect.iscoroutinefunction(inspect.unwrap(handler)):
            return await handler(request)
        returned = await self.run_in_thread(handler, request)
        return await returned if isinstance(returned, Awaitable) else returned


def _read_query(query: bytes) -> Mapping[str, str]:
    try:
        return dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=_MAX_FIELDS))
    except ValueError:
        raise InvalidRequest(f"The query has more than {_MAX_FIELDS} fields") from None


def _compile(path: str, where: str) -> re.Pattern[str]:
    if not path.startswith("/"):
        raise DeclarationError(
            f'{where}the path of a route starts with a slash, for example "/webhook", got {path!r:.80}'
        )
    parts = path[1:].split("/") if path != "/" else []
    for part in parts:
        if not _SEGMENT.fullmatch(part):
            raise DeclarationError(
                f"{where}{path!r}: {part!r} cannot be part of a path; use letters, digits, ., _, ~ and -, or a name in braces"
            )
    if parts and (parts[0] in RESERVED or parts[0].startswith("{")):
        raise DeclarationError(
            f"{where}{path!r} could be a path of the server itself; start it with another part than "
            f"{', '.join(sorted(RESERVED))} or braces, for example {'/hooks' + path!r}"
        )
    names = [part[1:-1] for part in parts if part.startswith("{")]
    if len(names) != len(set(names)):
        raise DeclarationError(f"{where}{path!r} has a name in braces twice; use different names")
    return re.compile(
        "".join("/" + (f"(?P<{part[1:-1]}>[^/]+)" if part.startswith("{") else re.escape(part)) for part in parts)
        or "/"
    )


class RouteExchange:
    """A request for a custom route among the running calls: it counts for the limits, and shutdown waits for it."""

    streaming = False

    def __init__(self) -> None:
        self.since = 0.0
        self.closing = False
        self._headers: Headers = ()

    def keep_alive(self) -> None:
        """A response that is sent as a whole cannot be kept alive."""

    def refuse(self, refusal: Refusal) -> Answer:
        return error_response(refusal, ())

    def end_cancelled(self) -> None:
        return None

    def add_headers(self, headers: Headers) -> None:
        self._headers += headers

    async def run(self, answering: Coroutine[Any, Any, Answer], allowed: Headers) -> Answer:
        """The response, with the headers that this caller needs."""
        answer = await answering
        added = (*allowed, *self._headers)
        return msgspec.structs.replace(answer, headers=answer.headers + added) if added else answer
