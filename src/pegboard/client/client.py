"""The client: one way to use a server, whatever it is, wherever it runs and whichever revision it speaks."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar, overload

import msgspec
from msgspec import Raw

from pegboard import __version__
from pegboard.call import EMPTY_OBJECT, Change, Json, Question
from pegboard.client.admission import Auth, admitted
from pegboard.client.answers import Answers, OnElicit, OnSample
from pegboard.client.ear import Ear, Listener, OnLog, Patience, Progress, held
from pegboard.client.link import Identity, Link, Outbound
from pegboard.client.lists import CACHED, Lists
from pegboard.client.mirrors import mirrors_of, usable
from pegboard.client.result import CallResult, read_result
from pegboard.client.target import Options, Target, open_link
from pegboard.client.typed import bind
from pegboard.errors import (
    Garbled,
    HeaderMismatch,
    InvalidParams,
    LinkLost,
    LoginFailed,
    NoAnswer,
    Refusal,
    ToolError,
    Unreachable,
)
from pegboard.protocol.versions import NAMED

__all__ = ["CallResult", "Client", "OnLog", "Progress", "read_result"]

ROUNDS: Final = 16
PAGES: Final = 1000
TIMEOUT: Final = 60.0
MAX_TIMEOUT: Final = 600.0
_PATIENT: Final = 5.0
_RECONNECTS: Final = 10

T = TypeVar("T")

# Asking twice changes nothing: these may be sent again when nobody knows whether they arrived.
_SAFE: Final = frozenset({*CACHED, "prompts/get", "completion/complete", "ping"})

_encode = msgspec.json.Encoder().encode


class Client:
    """`async with Client(target) as client:` uses a server as an agent would.

    The target is a board in this process, a URL, a command as a list of words, or an entry of a configuration
    (`{"command": …, "args": …}` or `{"url": …, "headers": …}`). `elicit`, `sample` and `roots` answer what the server
    asks (see `Answers`); `log` hears what it logs. A call fails after `timeout` seconds without news, progress being
    news, and after `max_timeout` in all; a board in this process is waited for unless these are given. `version` pins
    the revision of the protocol; otherwise the newest one that both sides speak is found out. `auth` gets credentials where
    a server at a URL wants some: see `OAuth` and `ClientCredentials`.
    """

    def __init__(
        self,
        target: Target,
        *,
        name: str = "pegboard",
        capabilities: Mapping[str, Json] | None = None,
        elicit: OnElicit | None = None,
        sample: OnSample | None = None,
        roots: Sequence[str] | None = None,
        log: OnLog | None = None,
        log_level: str = "info",
        timeout: float | None = None,
        max_timeout: float | None = None,
        connect_timeout: float = 10.0,
        retries: int = 2,
        version: str | None = None,
        headers: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        ca: str | Path | None = None,
        auth: Auth | None = None,
    ) -> None:
        self._answers = Answers(elicit=elicit, sample=sample, roots=roots)
        self._log = log
        self._lists = Lists()
        identity = Identity(
            {"name": name, "version": __version__},
            {**self._answers.capabilities(), **(capabilities or {})},
            None if log is None else log_level,
        )
        options = Options(
            headers=headers, env=env, cwd=cwd, version=version, ca=ca, connect_timeout=connect_timeout, auth=auth
        )
        self._waits: set[Patience] = set()
        lobby = Ear(self._answers, self._lists, log, waits=self._waits)
        self._link: Link = open_link(target, identity, lobby, options)
        patient = self._link.transport == "direct"
        self._timeout = (math.inf if patient else TIMEOUT) if timeout is None else timeout
        self._max_timeout = (math.inf if patient else MAX_TIMEOUT) if max_timeout is None else max_timeout
        self._retries = retries
        self._tools: Mapping[str, Mapping[str, Json]] | None = None
        self._learning = asyncio.Lock()
        self._failed: LoginFailed | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._admitted(self._link.open)
        except BaseException:
            await self._link.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exception: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._link.close()

    @property
    def version(self) -> str:
        """The revision of the protocol that is spoken."""
        return self._link.version

    async def discover(self) -> Mapping[str, Json]:
        """What the server says of itself."""
        return await self.request("server/discover")

    async def list_tools(self) -> list[dict[str, Json]]:
        """The definitions of all tools; those that this link cannot call by the rules are left out."""
        tools = await self._all("tools/list", "tools")
        if self._link.mirrors:
            tools = usable(tools, self._link.name)
        self._tools = {str(tool.get("name")): tool for tool in tools}
        return tools

    async def list_resources(self) -> list[dict[str, Json]]:
        """The resources that can be read as they are."""
        return await self._all("resources/list", "resources")

    async def list_templates(self) -> list[dict[str, Json]]:
        """The resources whose URI has places to fill in."""
        return await self._all("resources/templates/list", "resourceTemplates")

    async def list_prompts(self) -> list[dict[str, Json]]:
        """The prompts and their arguments."""
        return await self._all("prompts/list", "prompts")

    @overload
    async def call(
        self,
        name: str,
        arguments: Mapping[str, Json] | None = None,
        *,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> CallResult: ...

    @overload
    async def call(
        self,
        name: str,
        arguments: Mapping[str, Json] | None = None,
        *,
        result_type: type[T],
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> T: ...

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Json] | None = None,
        *,
        result_type: Any = None,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Call a tool; its failure is a result with `is_error`, a protocol error is raised as a Refusal.

        With a `result_type` the answer is a value of that type, and the failure of the tool is raised as a ToolError.
        """
        sent = EMPTY_OBJECT if arguments is None else Raw(_encode(arguments))
        result = read_result(
            await self._drive("tools/call", {"name": name, "arguments": sent}, progress=progress, timeout=timeout)
        )
        if result_type is None:
            return result
        if result.is_error:
            raise ToolError(result.text or f"{name} failed", meta=result.meta)
        return bind(result.structured, result.text, result_type, f"{self._link.name}: {name}")

    async def read(self, uri: str, *, timeout: float | None = None) -> list[dict[str, Json]]:
        """The contents of a resource."""
        told = await self._drive("resources/read", {"uri": uri}, timeout=timeout)
        return self._listed(told, "contents")

    async def prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, timeout: float | None = None
    ) -> list[dict[str, Json]]:
        """The messages of a prompt."""
        sent = {"name": name} if arguments is None else {"name": name, "arguments": arguments}
        return self._listed(await self._drive("prompts/get", sent, timeout=timeout), "messages")

    async def complete(self, ref: Mapping[str, Json], argument: str, value: str) -> list[str]:
        """Values that begin like this, for an argument of a prompt or a template."""
        params = {"ref": ref, "argument": {"name": argument, "value": value}}
        completion = (await self.request("completion/complete", params)).get("completion")
        values = completion.get("values") if isinstance(completion, dict) else None
        return values if isinstance(values, list) else []

    async def listen(
        self, *, tools: bool = False, prompts: bool = False, resources: bool = False, uris: Iterable[str] = ()
    ) -> AsyncIterator[Change]:
        """The changes of the server from now on, of the kinds that are asked for.

        A connection that breaks is made anew, and as nobody knows what was missed, each kind is told once then.
        """
        listed = list(uris)
        wanted = {
            "toolsListChanged": tools,
            "promptsListChanged": prompts,
            "resourcesListChanged": resources,
            "resourceSubscriptions": listed,
        }
        kinds = [Change("tools")] * tools + [Change("prompts")] * prompts + [Change("resources")] * resources
        kinds += [Change("updated", uri) for uri in listed]
        ear = Listener(self._lists)
        hearing = asyncio.create_task(self._hear({"notifications": wanted}, ear, kinds))
        hearing.add_done_callback(lambda _: ear.end())
        try:
            while (change := await ear.next()) is not None:
                yield change
            hearing.result()
        finally:
            hearing.cancel()
            await asyncio.wait([hearing])

    async def request(
        self,
        method: str,
        params: Mapping[str, Json] | None = None,
        *,
        name: str = "",
        arguments: Raw | None = None,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> Mapping[str, Json]:
        """Any method of the protocol; the result as values.

        `name` is what it is about (a tool, a prompt, a URI), `arguments` are sent as the bytes they are.
        """
        sent = dict(params or {})
        if name:
            sent[NAMED[method]] = name
        if arguments is not None:
            sent["arguments"] = arguments
        return await self._drive(method, sent, progress=progress, timeout=timeout)

    # The way of a request: from the cache, over rounds of questions, within its deadlines, and again where that is safe.

    async def _drive(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> Mapping[str, Json]:
        ear = Ear(self._answers, self._lists, self._log, progress)
        quiet = self._timeout if timeout is None else timeout
        longest = self._max_timeout if timeout is None else max(self._max_timeout, timeout)
        if quiet == longest == math.inf:
            return await self._rounds(method, params, ear, wants_progress=progress is not None)
        scope = asyncio.timeout(None)
        patience = None
        try:
            async with scope:
                patience = Patience(quiet, longest, scope)
                self._waits.add(patience)
                ear.waits = (patience,)
                return await self._rounds(method, params, ear, wants_progress=progress is not None)
        except TimeoutError as late:
            if not scope.expired() or isinstance(late, NoAnswer):
                raise
            raise NoAnswer(f"{self._link.name}: no answer to {method} within {min(quiet, longest):g} s") from None
        finally:
            if patience is not None:
                patience.end()
                self._waits.discard(patience)

    async def _rounds(
        self, method: str, params: Mapping[str, Any], ear: Ear, *, wants_progress: bool
    ) -> Mapping[str, Json]:
        cached = self._link.transport != "direct" and method in CACHED
        if cached and (kept := self._lists.find(method, params)) is not None:
            return kept
        sent = params
        for _ in range(ROUNDS):
            out = Outbound(method=method, params=sent, channel=ear, wants_progress=wants_progress)
            result = await self._persist(out)
            if result.get("resultType") != "input_required":
                if cached and sent is params:
                    self._lists.keep(method, params, result)
                return result
            sent = {**params, **await self._answer(result, ear)}
        raise Garbled(f"{self._link.name}: still asks after {ROUNDS} rounds of {method}")

    async def _answer(self, result: Mapping[str, Json], ear: Ear) -> dict[str, Json]:
        """What a request is sent again with: the answers, and the state exactly as it came."""
        asked = result.get("inputRequests")
        again: dict[str, Json] = {}
        if isinstance(asked, dict) and asked:
            try:
                questions = {key: Question(one["method"], one.get("params") or {}) for key, one in asked.items()}
            except (TypeError, KeyError, AttributeError):
                raise Garbled(f"{self._link.name}: asks for input in no form that can be answered") from None
            again["inputResponses"] = await ear.ask(questions)
        if "requestState" in result:
            again["requestState"] = result["requestState"]
        if not again:
            raise Garbled(f"{self._link.name}: asks for input and does not say what")
        return again

    async def _persist(self, out: Outbound) -> Mapping[str, Json]:
        """Send a request, and again where it cannot have been worked on or does no harm twice."""
        attempt = 0
        while True:
            try:
                return await self._admitted(lambda: self._send(out))
            except Unreachable as fault:
                wait = fault.retry_after
                if attempt >= self._retries or (wait is not None and wait > _PATIENT):
                    raise
            except LinkLost:
                wait = None
                if attempt >= self._retries or not self._is_safe(out):
                    raise
            # With jitter, so that many clients do not come back together.
            await asyncio.sleep(wait if wait is not None else 0.1 * 4**attempt * (0.5 + random.random()))
            attempt += 1

    async def _admitted(self, work: Callable[[], Awaitable[T]]) -> T:
        """A person who logs in for one request is waited for by all."""
        return await admitted(work, self._link.authorizer, lambda: held(self._waits))

    async def _send(self, out: Outbound) -> Mapping[str, Json]:
        if out.method != "tools/call" or not self._link.mirrors:
            return await self._link.request(out)
        if self._tools is None:
            await self._learn(self._tools)
        known = self._tools or {}
        name = out.params.get("name")
        out.mirrors = mirrors_of(known.get(str(name), {}))
        try:
            return await self._link.request(out)
        except HeaderMismatch:
            # "the client SHOULD call `tools/list` to check for changes …, then retry the original request"
            self._lists.drop("notifications/tools/list_changed")
            await self._learn(known)
            out.mirrors = mirrors_of((self._tools or {}).get(str(name), {}))
            return await self._link.request(out)

    async def _learn(self, known: Mapping[str, Mapping[str, Json]] | None) -> None:
        """List the tools, once for all who need them now; a login that failed for one of them has failed for all."""
        failed = self._failed
        async with self._learning:
            if self._tools is not known:
                return
            if self._failed is not failed and self._failed is not None:
                raise self._failed
            try:
                await self.list_tools()
            except Refusal:
                self._tools = {}
            except LoginFailed as failure:
                self._failed = failure
                raise

    def _is_safe(self, out: Outbound) -> bool:
        if out.method in _SAFE:
            return True
        tool = (self._tools or {}).get(str(out.params.get("name")), {}) if out.method == "tools/call" else {}
        hints = tool.get("annotations")
        return isinstance(hints, dict) and (hints.get("readOnlyHint") is True or hints.get("idempotentHint") is True)

    async def _hear(self, params: Mapping[str, Json], ear: Listener, kinds: Sequence[Change]) -> None:
        failures = 0
        listen = Outbound(method="subscriptions/listen", params=params, channel=ear)
        while True:
            try:
                await self._admitted(lambda: self._link.request(listen))
            except (LinkLost, Unreachable):
                failures = 1 if ear.acknowledged else failures + 1
                if not ear.acknowledged and (failures == 1 or failures > _RECONNECTS):
                    raise
            else:
                return
            ear.acknowledged = False
            await asyncio.sleep(min(0.1 * 2**failures, 30.0) * (0.5 + random.random()))
            for kind in kinds:
                ear.put(kind)

    async def _all(self, method: str, member: str) -> list[dict[str, Json]]:
        found: list[dict[str, Json]] = []
        params: dict[str, Json] = {}
        for _ in range(PAGES):
            try:
                page = await self.request(method, params)
            except InvalidParams:
                if not params:
                    raise
                # "discard all cached pages and re-fetch from the beginning": the cursor does not hold any more.
                self._lists.clear(method)
                found, params = [], {}
                continue
            found += self._listed(page, member)
            cursor = page.get("nextCursor")
            if cursor is None or cursor == params.get("cursor"):
                return found
            params = {"cursor": cursor}
        raise Garbled(f"{self._link.name}: {method} has more than {PAGES} pages")

    def _listed(self, result: Mapping[str, Json], member: str) -> list[dict[str, Json]]:
        items = result.get(member)
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise Garbled(f"{self._link.name}: answered with no list of {member}")
        return items
