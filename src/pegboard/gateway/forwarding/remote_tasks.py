"""Tasks of modern servers, under ids of the gateway."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from pegboard.call import NULL_CHANNEL, Call, Done, Json, Reply, TaskStarted
from pegboard.client.links.server_messages import WireError, refusal_of
from pegboard.client.polled_tasks import task_id_in
from pegboard.errors import InternalFailure, InvalidParams, MalformedMessage, Refusal, ServerFault
from pegboard.gateway.forwarding.outcome import CALL, Destination, cleaned, failure_of, to_reply, with_caller_code
from pegboard.gateway.forwarding.outgoing_params import answers_of, params_for
from pegboard.logs.log_lines import log_failure
from pegboard.protocol.revisions import TASKS, has_extension, missing_extension
from pegboard.schema.plain_json import ResultProblem
from pegboard.security.seal import Seal
from pegboard.tools.tool_result import error_result

_log = logging.getLogger("pegboard.gateway")

Find: TypeAlias = Callable[[str, str, str], Destination | None]
"""Finds a tool by toolbox, server and the server's own name for it; None if it no longer exists."""

# Not a character of a sealed value, nor of the ids of our own tasks.
_MARK: Final = "~"
_UNKNOWN: Final = "Unknown task: the taskId is invalid, or its server is not available any more"


class _TaskLocation(Struct, array_like=True, frozen=True):
    toolbox: str
    server: str
    tool: str
    id: str


class RemoteTasks:
    """Replaces the ids of servers' tasks with our own, and forwards requests about them."""

    def __init__(self, keys: Sequence[bytes], gateway: str, find: Find) -> None:
        self.seal = Seal("taskId", keys, audience=gateway, secret=True)
        self._find = find

    def owns(self, task_id: str) -> bool:
        """Whether this is the id of a server's task."""
        return task_id.startswith(_MARK)

    def started(self, destination: Destination, call: Call, result: Mapping[str, Json]) -> TaskStarted:
        """A task that a server has started, with an id for the caller."""
        downstream = destination.downstream
        place = _TaskLocation(downstream.toolbox, downstream.name, destination.tool, task_id_in(result))
        sealed = _MARK + self.seal.close(place, bearer=call.caller.principal.id)
        return TaskStarted({**cleaned(result), "taskId": sealed})

    async def handle(self, call: Call) -> Reply:
        """Answer `tasks/get`, `tasks/update` or `tasks/cancel`."""
        if not has_extension(TASKS, call.caller.capabilities, call.caller.version):
            raise missing_extension(call.method, TASKS)
        place, destination = self._open(call)
        params: dict[str, Any] = params_for(call, {"taskId": place.id})
        answers = answers_of(call)
        if answers is not None:
            params["inputResponses"] = answers
        try:
            task = cleaned(await destination.downstream.send(call.method, params, NULL_CHANNEL, call.caller))
        except (Refusal, ServerFault) as problem:
            raise failure_of(destination, call, problem) from None
        if "taskId" in task:
            task["taskId"] = call.name
        result, error = task.get("result"), task.get("error")
        if isinstance(result, dict):
            task["result"] = {"resultType": "complete", **_result(destination, result)}
        if isinstance(error, dict):
            task["error"] = _error(error, call)
        return Done(task)

    def _open(self, call: Call) -> tuple[_TaskLocation, Destination]:
        """The location of a task; another principal gets the same error as for an unknown task."""
        try:
            opened = self.seal.open(call.name.removeprefix(_MARK), now=time.time(), bearer=call.caller.principal.id)
        except InvalidParams:
            raise InvalidParams(_UNKNOWN) from None
        place = msgspec.convert(opened, _TaskLocation)
        destination = self._find(place.toolbox, place.server, place.tool)
        if destination is None:
            raise InvalidParams(_UNKNOWN)
        return place, destination


def _result(destination: Destination, result: dict[str, Json]) -> Mapping[str, Json]:
    try:
        checked = to_reply(destination, CALL, result).result
    except (ResultProblem, MalformedMessage) as problem:
        name = f"{destination.downstream.toolbox}/{destination.downstream.name}"
        error_id = log_failure(_log, "%s: the result of a task violates its declaration (%s)", name, problem)
        checked = error_result(f"{destination.tool} failed, error id {error_id}").result
    assert isinstance(checked, Mapping)  # noqa: S101 — results of servers are never cached
    return checked


def _error(error: dict[str, Json], call: Call) -> dict[str, Json]:
    code = error.get("code")
    if type(code) is not int:
        return {**error, "code": InternalFailure.code}
    return {**error, "code": with_caller_code(refusal_of(WireError(code)), call).code}
