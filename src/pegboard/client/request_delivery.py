"""Sends a request: cache, rounds of questions, deadlines and retries."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from pegboard.call import Channel, Json
from pegboard.client.client_channel import ClientChannel, Progress
from pegboard.client.known_tools import KnownTools
from pegboard.client.links.link import Identity, OutgoingRequest, ServerLink, with_server_name
from pegboard.client.links.server_messages import input_requests_in
from pegboard.client.list_cache import CACHED
from pegboard.client.polled_tasks import LONGEST_PAUSE, SHORTEST_PAUSE, finish_task, task_id_in, wants_task
from pegboard.client.request_sender import CircuitBreaker, RequestSender
from pegboard.client.transports.mirrored_headers import usable_tools
from pegboard.deadline import Deadline
from pegboard.errors import InvalidParams, MalformedMessage, MissingCapability
from pegboard.protocol.json_values import as_object
from pegboard.protocol.revisions import TASKS

Send: TypeAlias = Callable[[OutgoingRequest], Awaitable[Mapping[str, Json]]]

MAX_ROUNDS: Final = 16
MAX_PAGES: Final = 1000


class RequestDelivery:
    """Sends the requests of a client to its server, and returns the results.

    `channel` is that of a request without progress. `running` holds the requests in flight with their deadlines; `timeout` and `max_timeout` limit a call without news and in
    total, including its retries, rounds and resumptions.
    """

    def __init__(
        self,
        link: ServerLink,
        channel: ClientChannel,
        running: dict[OutgoingRequest, Deadline],
        identity: Identity,
        *,
        timeout: float,
        max_timeout: float,
        retries: int,
        breaker: CircuitBreaker,
    ) -> None:
        self._link = link
        self._channel = channel
        extensions = as_object(identity.capabilities.get("extensions"))
        self._identity_with_tasks = replace(
            identity, capabilities={**identity.capabilities, "extensions": {**extensions, TASKS: {}}}
        )
        self._lists = channel.lists
        self._timeout = timeout
        self._max_timeout = max_timeout
        self._caches = link.transport != "direct"
        self._tools = KnownTools()
        self._sender = RequestSender(link, breaker, self._tools, self._list_again, running, retries=retries)

    async def open(self) -> None:
        """Open the link, with credentials if it uses some."""
        await self._sender.open()

    async def listen(self, params: Mapping[str, Json], channel: Channel) -> Mapping[str, Json]:
        """A subscription, which has no deadline."""
        return await self._sender.listen(params, channel)

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        progress: Progress | None = None,
        timeout: float | None = None,
        send: Send | None = None,
        identity: Identity | None = None,
    ) -> Mapping[str, Json]:
        """The result of a request; ResponseTimeout if it does not come in time."""
        channel = replace(self._channel, progress=progress)
        quiet = self._timeout if timeout is None else timeout
        longest = self._max_timeout if timeout is None else max(self._max_timeout, timeout)
        deadline = None if quiet == longest == math.inf else Deadline(quiet, longest)
        out = OutgoingRequest(
            method=method,
            params=params,
            channel=channel,
            wants_progress=progress is not None,
            deadline=deadline,
            identity=identity,
        )
        return await self._rounds(out, send or self._sender.send)

    async def start_task(
        self, params: Mapping[str, Any], *, progress: Progress | None = None, timeout: float | None = None
    ) -> Mapping[str, Json]:
        """Call a tool, as a task if its server allows that."""
        return await self.request(
            "tools/call", params, progress=progress, timeout=timeout, identity=self._identity_with_tasks
        )

    async def call(
        self, params: Mapping[str, Any], *, progress: Progress | None = None, timeout: float | None = None
    ) -> Mapping[str, Json]:
        """The result of a tool; if the server answers with a task, or runs the tool only as one, that of the task."""
        try:
            result = await self.request("tools/call", params, progress=progress, timeout=timeout)
        except MissingCapability as refusal:
            if not wants_task(refusal):
                raise
            result = await self.start_task(params, progress=progress, timeout=timeout)
        if result.get("resultType") != "task":
            return result
        try:
            task = task_id_in(result)
        except MalformedMessage as fault:
            raise with_server_name(fault, self._link.name) from None
        return await self.finish_task(task, progress=progress, timeout=timeout)

    async def finish_task(
        self, task: str, *, progress: Progress | None = None, timeout: float | None = None
    ) -> Mapping[str, Json]:
        """The result of a task; answers its questions. A wait that is cancelled cancels the task."""
        channel = replace(self._channel, progress=progress)

        async def send(method: str, params: Mapping[str, Any], _channel: Channel) -> Mapping[str, Json]:
            return await self.request(method, params, identity=self._identity_with_tasks)

        longest = self._max_timeout if timeout is None else max(self._max_timeout, timeout)
        # A board in this process is not spared by long pauses.
        pause = LONGEST_PAUSE if self._caches else SHORTEST_PAUSE
        try:
            return await finish_task(send, task, channel.ask, channel, longest, longest_pause=pause)
        except MalformedMessage as fault:
            raise with_server_name(fault, self._link.name) from None

    async def cancel_task(self, task: str) -> None:
        """Cancel a task."""
        await self.request("tasks/cancel", {"taskId": task}, identity=self._identity_with_tasks)

    async def list_tools(self, send: Send | None = None) -> list[dict[str, Json]]:
        """All tools that this link can call by the rules."""
        tools = await self.collect("tools/list", "tools", send)
        if self._link.mirrors:
            tools = usable_tools(tools, self._link.name)
        self._tools.update(tools)
        return tools

    async def _list_again(self) -> None:
        """List the tools as part of an attempt of a call, which is retried and counted as a whole."""
        self._lists.clear("tools/list")
        await self.list_tools(self._sender.send_once)

    async def collect(self, method: str, member: str, send: Send | None = None) -> list[dict[str, Json]]:
        """Every page of a list."""
        found: list[dict[str, Json]] = []
        params: dict[str, Json] = {}
        for _ in range(MAX_PAGES):
            try:
                page = await self.request(method, params, send=send)
            except InvalidParams:
                if not params:
                    raise
                # "discard all cached pages and re-fetch from the beginning": the cursor is no longer valid.
                self._lists.clear(method)
                found, params = [], {}
                continue
            found += self.members(page, member)
            cursor = page.get("nextCursor")
            if cursor is None or cursor == params.get("cursor"):
                return found
            params = {"cursor": cursor}
        raise MalformedMessage(f"{self._link.name}: {method} has more than {MAX_PAGES} pages")

    def members(self, result: Mapping[str, Json], member: str) -> list[dict[str, Json]]:
        """The objects that a result lists; MalformedMessage if it is not a list."""
        items = result.get(member)
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise MalformedMessage(f"{self._link.name}: its response has no list of {member}")
        return items

    async def _rounds(self, out: OutgoingRequest, send: Send) -> Mapping[str, Json]:
        """Send a request, and again with the answers for as long as the server asks."""
        method, params = out.method, out.params
        cached = self._caches and method in CACHED
        context = None if self._link.authorizer is None else self._link.authorizer.context
        if cached and (kept := self._lists.find(method, params, context)) is not None:
            return kept
        for _ in range(MAX_ROUNDS):
            result = await send(out)
            if result.get("resultType") != "input_required":
                if cached and out.params is params:
                    self._lists.keep(method, params, result, context)
                return result
            out = replace(out, params={**params, **await self._answer(result, out)})
        raise MalformedMessage(f"{self._link.name}: still asks for input after {MAX_ROUNDS} rounds of {method}")

    async def _answer(self, result: Mapping[str, Json], out: OutgoingRequest) -> dict[str, Json]:
        """The members to repeat a request with: the answers, and the state exactly as it came."""
        try:
            questions, state = input_requests_in(result)
        except MalformedMessage as fault:
            raise with_server_name(fault, self._link.name) from None
        again: dict[str, Json] = {"inputResponses": await out.ask(questions)} if questions else {}
        return again if state is None else {**again, "requestState": state}
