"""The Client: one API for every server, transport and revision."""

from __future__ import annotations

import asyncio
import math
import warnings
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast, overload

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from pegboard import __version__
from pegboard.background_tasks import end_tasks
from pegboard.call import EMPTY_OBJECT, Change, Json
from pegboard.client.call_result import CallResult, read_result, read_typed
from pegboard.client.client_channel import (
    ClientChannel,
    OnElicit,
    OnLog,
    OnNotification,
    OnSample,
    Progress,
    QuestionHandlers,
)
from pegboard.client.http.address import CONNECTIONS
from pegboard.client.links.link import ClientAuth, Identity, LinkOptions, OutgoingRequest, ServerLink
from pegboard.client.list_cache import ListCache
from pegboard.client.request_delivery import RequestDelivery
from pegboard.client.request_sender import FAILURE_LIMIT, CircuitBreaker
from pegboard.client.subscription import follow_notifications, subscribe
from pegboard.client.target import Target, open_link
from pegboard.deadline import Deadline
from pegboard.errors import ToolError
from pegboard.limits import Limits
from pegboard.protocol.definitions import (
    PromptDefinition,
    PromptMessage,
    ResourceContents,
    ResourceDefinition,
    TemplateDefinition,
    ToolDefinition,
)
from pegboard.protocol.jsonrpc import compact
from pegboard.protocol.revisions import NAMED, REVISIONS

__all__ = ["CallResult", "Client", "OnLog", "Progress", "read_result"]

TIMEOUT: Final = 60.0
MAX_TIMEOUT: Final = 600.0

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode


class Client:
    """A client of one server: `async with Client(target) as client:`.

    target: a board in this process, a URL, a command as a list of words, or a server entry of a configuration file.
    name: the name that the client declares to the server.
    capabilities: further capabilities to declare, besides those for `elicit`, `sample` and `roots`.
    elicit: answers forms; gets an `Elicitation`, returns the content, or None to decline.
    sample: answers requests for the model; gets the params of the request, returns text or a message.
    roots: the URIs of the folders that you work in.
    log: receives the log messages of the server, as level and data.
    log_level: the lowest level that the server sends.
    on_notification: receives every other notification of the server, as method and params; the client then listens for
        changes of lists and for notifications of the server's own (`board.notify`).
    timeout: seconds without any message about a call after which it fails; a board in this process has no timeout.
    max_timeout: seconds after which a call fails, even if it makes progress.
    connect_timeout: seconds for a connection or a process to be ready.
    retries: how often a request is retried that the server did not process.
    break_after: failures in a row after which the server is not called for a while; 0 for never.
    connections: connections to a URL that are open at the same time.
    version: the protocol revision; without it, the newest that both sides support.
    headers: HTTP headers for the server.
    env: environment variables of the child process.
    cwd: the folder that the child process runs in.
    ca: the CA bundle that verifies the server.
    auth: gets credentials: `OAuth`, `ClientCredentials` or `Assertion`.
    rounds: for a board in this process: end a tool that asks, and run it again with the answers, as for a remote client.
    limits: limits on what the client accepts from the server, such as `server_message_bytes`.
    """

    _is_open = False

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
        on_notification: OnNotification | None = None,
        timeout: float | None = None,
        max_timeout: float | None = None,
        connect_timeout: float = 10.0,
        retries: int = 2,
        break_after: int = FAILURE_LIMIT,
        connections: int = CONNECTIONS,
        version: str | None = None,
        headers: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        ca: str | Path | None = None,
        auth: ClientAuth | None = None,
        rounds: bool = False,
        limits: Limits | None = None,
    ) -> None:
        answers = QuestionHandlers(elicit=elicit, sample=sample, roots=roots)
        identity = Identity(
            {"name": name, "version": __version__},
            {**answers.capabilities(), **(capabilities or {})},
            None if log is None else log_level,
            limits or Limits(),
        )
        options = LinkOptions(
            headers=headers,
            env=env,
            cwd=cwd,
            version=version,
            ca=ca,
            connect_timeout=connect_timeout,
            connections=connections,
            auth=auth,
            rounds=rounds,
        )
        self._lists = ListCache()
        running: dict[OutgoingRequest, Deadline] = {}
        channel = ClientChannel(answers, self._lists, log, notified=on_notification)
        self._link: ServerLink = open_link(target, identity, replace(channel, waits=running.values()), options)
        self._on_notification = on_notification
        self._following: asyncio.Task[None] | None = None
        patient = self._link.transport == "direct"
        self._requests = RequestDelivery(
            self._link,
            channel,
            running,
            identity,
            timeout=(math.inf if patient else TIMEOUT) if timeout is None else timeout,
            max_timeout=(math.inf if patient else MAX_TIMEOUT) if max_timeout is None else max_timeout,
            retries=retries,
            breaker=CircuitBreaker(self._link.name, break_after),
        )

    async def __aenter__(self) -> Self:
        try:
            await self._requests.open()
        except BaseException:
            await self._link.close()
            raise
        self._is_open = True
        if self._on_notification is not None:
            # A legacy link passes all notifications to the channel of the link.
            notified = None if REVISIONS[self.version].has_sessions else self._on_notification
            channel = ClientChannel(QuestionHandlers(), self._lists, None, notified=notified)
            self._following = asyncio.create_task(follow_notifications(self._requests.listen, channel))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exception: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_open = False
        await end_tasks(self._following)
        await self._link.close()

    def __del__(self) -> None:
        if self._is_open:
            warnings.warn(f"unclosed client of {self._link.name}", ResourceWarning, source=self, stacklevel=2)

    @property
    def version(self) -> str:
        """The protocol revision of this connection."""
        return self._link.version

    async def ping(self, *, timeout: float | None = None) -> None:
        """Check that the server responds; raises the error of the connection if it does not."""
        method = "ping" if "ping" in REVISIONS[self.version].methods else "server/discover"
        # A cached description would say nothing about the server now.
        self._lists.clear(method)
        await self._requests.request(method, {}, timeout=timeout)

    async def discover(self) -> Mapping[str, Any]:
        """Return the description of the server: its name, version, capabilities and instructions."""
        return await self.request("server/discover")

    async def list_tools(self) -> list[ToolDefinition]:
        """List the tools, without those whose definition does not allow a valid call on this connection."""
        return cast(list[ToolDefinition], await self._requests.list_tools())

    async def list_resources(self) -> list[ResourceDefinition]:
        """List the resources."""
        return cast(list[ResourceDefinition], await self._requests.collect("resources/list", "resources"))

    async def list_templates(self) -> list[TemplateDefinition]:
        """List the resource templates."""
        listed = await self._requests.collect("resources/templates/list", "resourceTemplates")
        return cast(list[TemplateDefinition], listed)

    async def list_prompts(self) -> list[PromptDefinition]:
        """List the prompts and their arguments."""
        return cast(list[PromptDefinition], await self._requests.collect("prompts/list", "prompts"))

    @overload
    async def call(
        self,
        name: str,
        arguments: Mapping[str, Json] | None = None,
        *,
        progress: Progress | None = None,
        timeout: float | None = None,
        wait: bool = True,
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
        wait: bool = True,
    ) -> Any:
        """Call a tool. An error of the tool is a result with `is_error`; a protocol error is raised as a Refusal.

        name: the name of the tool.
        arguments: its arguments.
        result_type: return the structured content as a value of this type, and raise ToolError if the tool fails.
        progress: receives progress, as done, total and message.
        timeout: as for the client, for this call.
        wait: whether to wait for a call that continues as a task. With False, the tool runs as a task if it can, and the
            result has its id as `task`.
        """
        sent = EMPTY_OBJECT if arguments is None else Raw(_encode(arguments))
        deliver = self._requests.call if wait else self._requests.start_task
        result = read_result(await deliver({"name": name, "arguments": sent}, progress=progress, timeout=timeout))
        if result_type is None:
            return result
        if result.is_error:
            raise ToolError(result.text or f"{name} failed", meta=result.meta)
        return read_typed(result.structured, result.text, result_type, f"{self._link.name}: {name}")

    async def finish_task(
        self, task: str, *, progress: Progress | None = None, timeout: float | None = None
    ) -> CallResult:
        """Wait for a task that `call(…, wait=False)` started; its questions are answered as those of a call.

        Cancelling the wait cancels the task. `timeout` extends `max_timeout`.
        """
        return read_result(await self._requests.finish_task(task, progress=progress, timeout=timeout))

    async def cancel_task(self, task: str) -> None:
        """Cancel a task."""
        await self._requests.cancel_task(task)

    async def read(self, uri: str, *, timeout: float | None = None) -> list[ResourceContents]:
        """Read a resource and return its contents."""
        result = await self._requests.request("resources/read", {"uri": uri}, timeout=timeout)
        return cast(list[ResourceContents], self._requests.members(result, "contents"))

    async def prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, timeout: float | None = None
    ) -> list[PromptMessage]:
        """Return the messages of a prompt."""
        sent = {"name": name} if arguments is None else {"name": name, "arguments": arguments}
        result = await self._requests.request("prompts/get", sent, timeout=timeout)
        return cast(list[PromptMessage], self._requests.members(result, "messages"))

    async def complete(self, ref: Mapping[str, Json], argument: str, value: str) -> list[str]:
        """Return suggestions for an argument of a prompt or a template.

        ref: the prompt or template: `{"type": "ref/prompt", "name": …}` or `{"type": "ref/resource", "uri": …}`.
        argument: the name of the argument.
        value: what the user has typed so far.
        """
        params = {"ref": ref, "argument": {"name": argument, "value": value}}
        completion = (await self.request("completion/complete", params)).get("completion")
        values = completion.get("values") if isinstance(completion, dict) else None
        return values if isinstance(values, list) else []

    def listen(
        self, *, tools: bool = False, prompts: bool = False, resources: bool = False, uris: Iterable[str] = ()
    ) -> AsyncIterator[Change]:
        """Iterate over the changes of the server from now on. After a reconnect, each kind is reported once.

        tools: report changes of the list of tools.
        prompts: report changes of the list of prompts.
        resources: report changes of the list of resources.
        uris: report changes of these resources.
        """
        return subscribe(
            self._requests.listen, self._lists, tools=tools, prompts=prompts, resources=resources, uris=uris
        )

    async def request(
        self,
        method: str,
        params: Mapping[str, Json] | None = None,
        *,
        name: str = "",
        arguments: Raw | None = None,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> Mapping[str, Any]:
        """Send any request of the protocol, and return its result.

        method: the method, such as `tools/call`.
        params: the params.
        name: the tool, prompt or URI; put into the params under the key of the method.
        arguments: the arguments as JSON text, sent as they are.
        progress: receives progress, as done, total and message.
        timeout: as for the client, for this request.
        """
        sent = dict(params or {})
        if name:
            sent[NAMED[method]] = name
        if arguments is not None:
            sent["arguments"] = compact(arguments)
        return await self._requests.request(method, sent, progress=progress, timeout=timeout)
