"""The principal of a request to a mounted board, as the application around it has authenticated it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Literal, TypeAlias

from pegboard.auth.claims import is_id
from pegboard.auth.principal import Principal
from pegboard.auth.request_credentials import AuthRefusal
from pegboard.errors import SetupError
from pegboard.protocol import jsonrpc
from pegboard.server.asgi.asgi_scope import AsgiScope
from pegboard.server.http_types import Answer

Found: TypeAlias = Principal | str | None
Identify: TypeAlias = Callable[[AsgiScope], Found | Awaitable[Found]]
PrincipalSource: TypeAlias = Identify | Literal["user"]
"""Where the principal comes from: `scope["user"]`, a function of the ASGI scope, or a FastAPI dependency."""


def read_source(source: Any) -> Identify:
    """The function of the scope that a source stands for."""
    if source == "user":
        return _user
    dependency = getattr(source, "dependency", None)
    if dependency is not None:
        return _FastApiDependency(source)
    if callable(source):
        return source  # type: ignore[no-any-return]
    raise SetupError('asgi(principal=…) takes "user", a function of the ASGI scope, or Depends(…) of FastAPI')


async def find_principal(identify: Identify, scope: AsgiScope) -> Principal | Answer | None:
    """The principal of a request, None if it has none, or the response of an application that rejects it."""
    try:
        found: Any = identify(scope)
        if inspect.isawaitable(found):
            found = await found
    except Exception as problem:
        # Starlette and FastAPI raise HTTPException(status_code, detail, headers).
        status = getattr(problem, "status_code", None)
        if not isinstance(status, int) or not 400 <= status < 500:
            raise
        headers = getattr(problem, "headers", None) or {}
        return rejection(status, tuple((name.lower().encode(), value.encode()) for name, value in headers.items()))
    if found is None or found == "":
        return None
    principal = Principal(found, kind="app") if isinstance(found, str) else found
    if not isinstance(principal, Principal) or not is_id(principal.id):
        raise TypeError(f"the principal of a request must be a Principal, a text or None, not {type(found).__name__}")
    return principal


def rejection(status: int = 401, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Answer:
    """The response to a request without a principal."""
    if status == 401 and all(name != b"www-authenticate" for name, _ in headers):
        # RFC 9110, 15.5.2: a 401 "MUST send a WWW-Authenticate header field"
        headers = (*headers, (b"www-authenticate", b"Bearer"))
    return Answer(status, jsonrpc.refusal(None, AuthRefusal("Authentication is required")), headers=headers)


def _user(scope: AsgiScope) -> Principal | None:
    """The user that the AuthenticationMiddleware of Starlette, or a similar one, has put into the scope."""
    user = scope.get("user")
    if user is None or isinstance(user, Principal):
        return user
    if not getattr(user, "is_authenticated", False):
        return None
    try:
        name = user.identity
    except (AttributeError, NotImplementedError):
        name = user.display_name
    scopes = frozenset(getattr(scope.get("auth"), "scopes", ()))
    return Principal(str(name), scopes=scopes, kind="app")


class _FastApiDependency:
    """Runs a dependency of FastAPI, with everything that it depends on itself."""

    def __init__(self, dependency: Any) -> None:
        from fastapi.dependencies.utils import get_dependant  # noqa: PLC0415 - who passes a dependency has FastAPI

        def take(found: Any = dependency) -> Any:
            return found

        self._dependant = get_dependant(path="/", call=take)

    async def __call__(self, scope: AsgiScope) -> Any:
        from fastapi.dependencies.utils import solve_dependencies  # noqa: PLC0415 - the same
        from starlette.requests import Request  # noqa: PLC0415 - the same
        from starlette.websockets import WebSocket  # noqa: PLC0415 - the same

        async with AsyncExitStack() as stack:
            within = {**scope, "fastapi_inner_astack": stack, "fastapi_function_astack": stack}
            # A dependency sees the head only: the body is for the board.
            request = WebSocket(within, _nothing, _nothing) if scope["type"] == "websocket" else Request(within)
            solved = await solve_dependencies(
                request=request, dependant=self._dependant, async_exit_stack=stack, embed_body_fields=False
            )
        return None if solved.errors else solved.values["found"]


async def _nothing(*_: Any) -> Any:
    raise RuntimeError("a dependency cannot use the connection")
