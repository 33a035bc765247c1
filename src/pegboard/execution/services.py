"""Dependency injection: factories belong to the board, instances to the application or call.

A recipe is a value, or a function that makes one: plain, async, or a generator whose code after `yield` cleans up. The
parameters of a factory are injected in the same way.

A plain factory runs where its tool runs: in the thread of a plain tool, so that what it makes may belong to that thread,
as a `sqlite3.Connection` does; on the event loop for an `async def` tool, for an async factory, and for the application.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from functools import partial
from types import FrameType
from typing import Any, Literal, TypeVar, get_type_hints

from msgspec import Struct

from pegboard.background_tasks import OwnedTasks
from pegboard.call import CallScoped
from pegboard.errors import DeclarationError

_log = logging.getLogger("pegboard.tools")

Lifetime = Literal["call", "app"]

T = TypeVar("T")

_DEFERRED = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)


class Recipe(Struct, frozen=True):
    """How to make an instance, and how long it lives."""

    make: Callable[..., Any]
    needs: Mapping[str, Any]
    lifetime: Lifetime
    at_start: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether a plain tool's thread can make it: a function or generator, called for each call."""
        make = self.make
        return self.lifetime == "call" and not (inspect.iscoroutinefunction(make) or inspect.isasyncgenfunction(make))


class Services:
    """The recipes of a board, by type, and the instances that live as long as the application."""

    def __init__(self, find_argument: Callable[[object], str | None] = lambda _kind: None) -> None:
        """`find_argument` says which parameter takes a type from callers, if there is one."""
        self._find_argument = find_argument
        self._recipes: dict[Any, Recipe] = {}
        self._instances: dict[Any, Any] = {}
        self._making: dict[Any, asyncio.Lock] = {}
        self._clean_up = AsyncExitStack()
        self._pending_cleanup = OwnedTasks()
        self.value(logging.Logger, logging.getLogger("pegboard.tools"))

    def __contains__(self, kind: object) -> bool:
        try:
            return kind in self._recipes
        except TypeError:
            return False

    def value(self, kind: object, instance: object) -> None:
        """Supply this instance wherever `kind` is requested."""
        self._check_free(kind)
        self._recipes[kind] = Recipe(lambda: instance, {}, "app")
        self._instances.pop(kind, None)

    def factory(
        self, kind: object, make: Callable[..., Any], *, lifetime: Lifetime = "call", at_start: bool = False
    ) -> None:
        """Supply what `make` returns, once per call or once for the application.

        kind: the type that tools ask for.
        make: a function, async function or generator; its parameters are services, too.
        lifetime: "call" or "app".
        at_start: with lifetime="app", make it before the first call; if that fails, the server does not start.
        """
        if not callable(make):
            raise DeclarationError(f"The factory for {_name(kind)} must be callable, got {type(make).__name__}")
        if lifetime not in ("call", "app"):
            raise DeclarationError(f"lifetime must be 'call' or 'app', got {lifetime!r}")
        if at_start and lifetime != "app":
            raise DeclarationError(f'at_start=True needs lifetime="app": {_name(kind)} is made for each call')
        self._check_free(kind)
        needs = _needs(kind, make)
        self._check_cycle(kind, needs)
        self._recipes[kind] = Recipe(make, needs, lifetime, at_start)
        self._instances.pop(kind, None)

    def supply_later(self, kind: object, supplier: str) -> None:
        """Supply what `set_instance` sets when the application starts."""

        def missing() -> None:
            raise RuntimeError(f"{_name(kind)} is supplied by {supplier}, which has not started")

        self.factory(kind, missing, lifetime="app")

    def set_instance(self, kind: object, instance: object) -> None:
        """The application's instance, until it is closed."""
        self._instances[kind] = instance

    @property
    def at_start(self) -> Mapping[str, Callable[[], Awaitable[Any]]]:
        """The services that are made before the first call: the name of each, and a function that makes it."""
        return {
            _name(kind): partial(self.shared, kind, recipe) for kind, recipe in self._recipes.items() if recipe.at_start
        }

    def _check_free(self, kind: object) -> None:
        """Reject a type that a tool takes from its callers: they could go on sending it."""
        argument = None if kind in self else self._find_argument(kind)
        if argument is not None:
            raise DeclarationError(
                f"{_registration_place()}: {_name(kind)} cannot become a service, because callers send it as an argument "
                f"already: {argument}; register the service before the tool"
            )

    def _check_cycle(self, kind: object, needs: Mapping[str, Any]) -> None:
        """Reject a factory that closes a cycle: none of the types in it could ever be made."""
        ways: list[tuple[Any, ...]] = [(kind, need) for need in needs.values()]
        while ways:
            way = ways.pop()
            if way[-1] == kind:
                raise DeclarationError(
                    f"The factory for {_name(kind)} depends on itself: {' → '.join(map(_name, way))}; break the cycle"
                )
            recipe = self._recipes.get(way[-1])
            if recipe is not None:
                ways.extend((*way, need) for need in recipe.needs.values())

    @contextmanager
    def override(self, kind: object, instance: object) -> Iterator[None]:
        """For tests: supply this instance inside the block."""
        before, kept = self._recipes.get(kind), self._instances.get(kind)
        self.value(kind, instance)
        try:
            yield
        finally:
            self._instances.pop(kind, None)
            if before is None:
                del self._recipes[kind]
            else:
                self._recipes[kind] = before
                if kept is not None:
                    self._instances[kind] = kept

    @asynccontextmanager
    async def scope(self) -> AsyncIterator[ServiceScope]:
        """The instances of one call; they are cleaned up when the call ends."""
        async with AsyncExitStack() as stack:
            scope = ServiceScope(self, stack)
            try:
                yield scope
            except asyncio.CancelledError:
                if scope.user is not None:
                    # The thread still uses its instances: they must not go to another call before it is done.
                    self._pending_cleanup.start(_clean_up_after(scope.user, stack.pop_all()))
                raise

    async def close(self) -> None:
        """Clean up the application's instances, newest first."""
        self._instances.clear()
        stack, self._clean_up = self._clean_up, AsyncExitStack()
        await stack.aclose()

    def add_class(self, kind: type, lifetime: Lifetime) -> None:
        """Supply instances of a class, unless they are registered; its constructor must be satisfiable."""
        if kind not in self:
            self.factory(kind, kind, lifetime=lifetime)
            for need in self._recipes[kind].needs.values():
                self.recipe(need)

    def construct(self, kind: type[T]) -> T:
        """An instance of a class, made outside any call: values and plain factories with lifetime "app" supply it."""
        return kind(**{name: self._supply_now(need, kind) for name, need in _needs(kind, kind).items()})

    def _supply_now(self, need: object, kind: type) -> Any:
        recipe = self.recipe(need)
        if need not in self._instances:
            if recipe.lifetime != "app" or any(check(recipe.make) for check in _DEFERRED):
                raise DeclarationError(
                    f"{_name(kind)} is made before the first call, and {_name(need)} only during one; take it as a "
                    "parameter of execute, or add an instance yourself"
                )
            supplied = {name: self._supply_now(inner, kind) for name, inner in recipe.needs.items()}
            self._instances[need] = recipe.make(**supplied)
        return self._instances[need]

    def recipe(self, kind: object) -> Recipe:
        """The recipe for `kind`."""
        recipe = self._recipes.get(kind)
        if recipe is None:
            raise DeclarationError(
                f"Nothing supplies {_name(kind)}, which a factory needs; register it with board.services.value or factory"
            )
        return recipe

    async def shared(self, kind: object, recipe: Recipe) -> Any:
        """The application's instance: the first caller makes it while the others wait."""
        if kind in self._instances:
            return self._instances[kind]
        lock = self._making.setdefault(kind, asyncio.Lock())
        async with lock:
            if kind not in self._instances:
                whole = ServiceScope(self, self._clean_up)
                self._instances[kind] = await whole.make(recipe)
                # A lock belongs to the loop that waited for it; the next application may run on another one.
                self._making.pop(kind, None)
            return self._instances[kind]


class ServiceScope:
    """Instances for one call."""

    __slots__ = ("_loop", "_made", "_services", "_stack", "user")

    def __init__(self, services: Services, stack: AsyncExitStack) -> None:
        self._loop = asyncio.get_running_loop()
        self._services = services
        self._stack = stack
        self._made: dict[Any, Any] = {}
        self.user: asyncio.Future[None] | None = None

    def keep_until_done(self, user: asyncio.Future[None]) -> None:
        """Keep the instances for a thread that goes on after the call is cancelled, until this future is done."""
        self.user = user

    async def get(self, kind: object) -> Any:
        """The instance for `kind`; always the same one within a call."""
        recipe = self._services.recipe(kind)
        if recipe.lifetime == "app":
            return await self._services.shared(kind, recipe)
        if kind not in self._made:
            self._made[kind] = await self.make(recipe)
        return self._made[kind]

    async def prepare(self, kinds: Iterable[object]) -> None:
        """Make what the thread of a plain tool cannot make itself."""
        for kind in kinds:
            recipe = self._services.recipe(kind)
            if recipe.is_plain and kind not in self._made:
                await self.prepare(recipe.needs.values())
            else:
                self._made[kind] = await self.get(kind)

    def supply(
        self, kinds: Mapping[str, object], supplied: Mapping[str, Any], work: Callable[[Mapping[str, Any]], Any]
    ) -> Any:
        """In a thread, after `prepare`: make the other instances, call `work` with all of them, and clean up."""
        with ExitStack() as stack:
            return work({**supplied, **{name: self._make_here(kind, stack) for name, kind in kinds.items()}})

    def _make_here(self, kind: object, stack: ExitStack) -> Any:
        if kind not in self._made:
            recipe = self._services.recipe(kind)
            made = recipe.make(**{name: self._make_here(need, stack) for name, need in recipe.needs.items()})
            if inspect.isgenerator(made):
                made = stack.enter_context(contextmanager(lambda: made)())
            elif inspect.isawaitable(made) or inspect.isasyncgen(made):
                made = asyncio.run_coroutine_threadsafe(self._finish(made), self._loop).result()
            self._made[kind] = made
        return self._made[kind]

    async def make(self, recipe: Recipe) -> Any:
        supplied = {name: await self.get(kind) for name, kind in recipe.needs.items()}
        return await self._finish(recipe.make(**supplied))

    async def _finish(self, made: Any) -> Any:
        """The instance, if the factory returned an awaitable or a generator."""
        if inspect.isawaitable(made):
            return await made
        if inspect.isasyncgen(made):
            return await self._stack.enter_async_context(asynccontextmanager(lambda: made)())
        if inspect.isgenerator(made):
            return self._stack.enter_context(contextmanager(lambda: made)())
        return made


async def _clean_up_after(user: asyncio.Future[None], stack: AsyncExitStack) -> None:
    try:
        async with stack:
            await user
            raise asyncio.CancelledError
    except asyncio.CancelledError:
        pass
    except Exception:  # noqa: BLE001 — the call it belongs to is over, the log is all that is left to tell
        _log.exception("a service failed to clean up after a cancelled call")


def _needs(kind: object, make: Callable[..., Any]) -> Mapping[str, Any]:
    try:
        hints = get_type_hints(getattr(make, "__init__") if isinstance(make, type) else make)  # noqa: B009 — mypy rejects the attribute
    except (NameError, TypeError, AttributeError):
        hints = {}
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return {}
    needs: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.default is not parameter.empty or parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            continue
        if parameter.name not in hints or parameter.kind is parameter.POSITIONAL_ONLY:
            raise DeclarationError(
                f"The factory for {_name(kind)} has a parameter {parameter.name!r} that cannot be supplied; annotate "
                "it with a registered type or give it a default"
            )
        need = needs[parameter.name] = hints[parameter.name]
        if isinstance(need, type) and issubclass(need, CallScoped):
            raise DeclarationError(
                f"The factory for {_name(kind)} takes a {_name(need)}, which only tools receive; take it in the tool "
                "and pass it on"
            )
    return needs


def _registration_place() -> str:
    """The author's line that registers a service, as file:line."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and str(frame.f_globals.get("__name__")).startswith(("pegboard.", "contextlib")):
        frame = frame.f_back
    return "services" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _name(kind: object) -> str:
    return getattr(kind, "__name__", str(kind))
