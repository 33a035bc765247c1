"""Seven roads to one board: in process, and HTTP, stdio and WebSockets in both eras; on each, questions are answered on the way."""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import queue
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pegboard import Board, Client
from pegboard.client.client_channel import Elicitation
from pegboard.errors import Refusal
from tests.server_processes import META, MODERN, ROOT, HttpChild, Speaker
from tests.waiting import SOON

EVERYTHING = ROOT / "examples" / "everything.py"
PREFIX = "io.modelcontextprotocol/"
LEGACY = "2025-11-25"
CAPABILITIES = {"elicitation": {}, "sampling": {}, "roots": {}}
ROOTS = ["file:///test/root"]

Answer = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]


@dataclass
class Outcome:
    """How a request ended: a result or an error, what came before, and what was asked on the way."""

    result: dict[str, Any] = field(default_factory=dict)
    error: dict[str, Any] | None = None
    notices: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    @property
    def text(self) -> str:
        assert self.error is None, self.error
        text: str = self.result["content"][0]["text"]
        return text

    def told(self, method: str) -> list[dict[str, Any]]:
        """The params of the notices of one kind."""
        return [notice["params"] for notice in self.notices if notice["method"] == method]


def accept(content: Mapping[str, Any]) -> dict[str, Any]:
    return {"action": "accept", "content": dict(content)}


def agreeable(method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Answers whatever is asked: forms by their defaults, or by the name of the field."""
    if method == "sampling/createMessage":
        text = f"You said: {params['messages'][0]['content']['text']}"
        return {"role": "assistant", "content": {"type": "text", "text": text}, "model": "m", "stopReason": "endTurn"}
    if method == "roots/list":
        return {"roots": [{"uri": root} for root in ROOTS]}
    return accept({name: _fill(name, part) for name, part in params["requestedSchema"]["properties"].items()})


def _fill(name: str, part: Mapping[str, Any]) -> Any:
    if "default" in part:
        return part["default"]
    match part:
        case {"type": "boolean"}:
            return True
        case {"enum": [first, *_]} | {"oneOf": [{"const": first}, *_]}:
            return first
        case {"items": {"enum": [first, *_]}} | {"items": {"anyOf": [{"const": first}, *_]}}:
            return [first]
        case _:
            return f"my {name}"


class Road(ABC):
    """One way to the board."""

    name: str
    era: str

    @abstractmethod
    def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        answer: Answer = agreeable,
        token: str | None = None,
        level: str | None = None,
    ) -> Outcome:
        """The outcome of a request; with a token progress is asked for, with a level logs."""

    @abstractmethod
    def listen(self, *uris: str) -> Any:
        """A context in which `next()` of what it gives is the next notice of a change."""

    def call(self, tool: str, arguments: Mapping[str, Any] | None = None, **how: Any) -> Outcome:
        params: dict[str, Any] = {"name": tool}
        if arguments is not None:
            params["arguments"] = arguments
        return self.request("tools/call", params, **how)

    def close(self) -> None:  # noqa: B027 — most hold nothing
        """Give up what it holds."""


class InProcess(Road):
    name, era = "in process", "modern"

    def __init__(self, board: Board) -> None:
        self._board = board
        self._runner = asyncio.Runner()
        # Opened here, as it belongs to the fixture that makes this road and not to the first test that uses it.
        self._runner.get_loop()

    def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        answer: Answer = agreeable,
        token: str | None = None,
        level: str | None = None,
    ) -> Outcome:
        outcome = Outcome()

        def elicit(asked: Elicitation) -> Mapping[str, Any]:
            params = {"message": asked.message, "requestedSchema": asked.schema}
            outcome.asked.append(("elicitation/create", params))
            content: Mapping[str, Any] = answer("elicitation/create", params)["content"]
            return content

        def sample(asked: Mapping[str, Any]) -> Mapping[str, Any]:
            outcome.asked.append(("sampling/createMessage", asked))
            return answer("sampling/createMessage", asked)

        def progress(done: float, total: float | None, message: str | None) -> None:
            told = {"progressToken": token, "progress": done, "total": total, "message": message}
            params = {key: value for key, value in told.items() if value is not None}
            outcome.notices.append({"method": "notifications/progress", "params": params})

        def log(level: str, data: Any) -> None:
            outcome.notices.append({"method": "notifications/message", "params": {"level": level, "data": data}})

        client = Client(
            self._board,
            elicit=elicit,
            sample=sample,
            roots=ROOTS,
            log=None if level is None else log,
            log_level=level or "info",
        )
        try:
            sent = client.request(method, dict(params or {}), progress=None if token is None else progress)
            outcome.result = json.loads(json.dumps(self._runner.run(sent)))
        except Refusal as refusal:
            outcome.error = {"code": refusal.code, "message": refusal.message, "data": refusal.data}
        return outcome

    @contextmanager
    def listen(self, *uris: str) -> Iterator[Iterator[dict[str, Any]]]:
        client = Client(self._board)
        changes = client.listen(tools=True, prompts=True, resources=True, uris=uris)
        first = self._runner.get_loop().create_task(anext(changes))
        # It listens from its first step on.
        self._runner.run(asyncio.sleep(0.01))

        def notices() -> Iterator[dict[str, Any]]:
            waiting: Any = first
            while True:
                change = self._runner.run(asyncio.wait_for(waiting, SOON))
                kind = "resources/updated" if change.kind == "updated" else f"{change.kind}/list_changed"
                params = {"uri": change.uri} if change.uri else {}
                yield {"method": f"notifications/{kind}", "params": params}
                waiting = anext(changes)

        try:
            yield notices()
        finally:
            self._runner.run(changes.aclose())

    def close(self) -> None:
        self._runner.close()


class Wire(Road):
    """A road with messages on it."""

    def __init__(self) -> None:
        self._ids = itertools.count(1000)

    def _walk(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        answer: Answer,
        token: str | None,
        level: str | None,
    ) -> Outcome:
        outcome = Outcome()
        if self.era == "legacy":
            if level is not None:
                self._exchange("logging/setLevel", {"level": level}, outcome, answer)
            meta = {} if token is None else {"_meta": {"progressToken": token}}
            self._exchange(method, {**(params or {}), **meta}, outcome, answer)
            return outcome
        meta = {**META, PREFIX + "clientCapabilities": CAPABILITIES}
        if token is not None:
            meta["progressToken"] = token
        if level is not None:
            meta[PREFIX + "logLevel"] = level
        sent = {**(params or {}), "_meta": meta}
        self._exchange(method, sent, outcome, answer)
        while outcome.error is None and outcome.result.get("resultType") == "input_required":
            asks = outcome.result["inputRequests"]
            outcome.asked += [(ask["method"], ask["params"]) for ask in asks.values()]
            answers = {key: answer(ask["method"], ask["params"]) for key, ask in asks.items()}
            again = {**sent, "inputResponses": answers, "requestState": outcome.result["requestState"]}
            self._exchange(method, again, outcome, answer)
        return outcome

    def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        answer: Answer = agreeable,
        token: str | None = None,
        level: str | None = None,
    ) -> Outcome:
        return self._walk(method, params, answer, token, level)

    @abstractmethod
    def _exchange(self, method: str, params: Mapping[str, Any], outcome: Outcome, answer: Answer) -> None:
        """Send one request and take in all that comes until its answer."""

    def _take(self, message: dict[str, Any], outcome: Outcome, answer: Answer) -> dict[str, Any] | None:
        """Take a message that is no answer; what to send back, if anything."""
        if "id" not in message:
            outcome.notices.append(message)
            return None
        outcome.asked.append((message["method"], message["params"]))
        result = answer(message["method"], message["params"])
        return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def _end(message: dict[str, Any], outcome: Outcome) -> None:
    outcome.error = message.get("error")
    outcome.result = message.get("result", {})


class OverHttp(Wire):
    """HTTP, each request on a connection of its own."""

    def __init__(self, child: HttpChild, era: str) -> None:
        super().__init__()
        self.era = era
        self.name = f"HTTP, {era}"
        self._child = child
        self._session: dict[str, str] = {}
        if era == "legacy":
            hello = {
                "protocolVersion": LEGACY,
                "capabilities": CAPABILITIES,
                "clientInfo": {"name": "t", "version": "1"},
            }
            connection, response = self._post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
            self._session = {"Mcp-Session-Id": response.headers["mcp-session-id"], "MCP-Protocol-Version": LEGACY}
            response.read()
            connection.close()
            self._tell({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _exchange(self, method: str, params: Mapping[str, Any], outcome: Outcome, answer: Answer) -> None:
        request_id = next(self._ids)
        connection, response = self._post(
            {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}, self._mirror(method, params)
        )
        stream = Stream(response)
        for _ in range(3):
            try:
                for message in stream:
                    if "method" not in message:
                        assert message["id"] == request_id
                        _end(message, outcome)
                        return
                    back = self._take(message, outcome, answer)
                    if back is not None:
                        self._tell(back)
            finally:
                response.close()
                connection.close()
            assert stream.last_id, f"{method} was not answered"
            # The server has hung up before its answer: come back for the rest.
            time.sleep(stream.retry_ms / 1000)
            connection, response = self._get({"Last-Event-ID": stream.last_id})
            stream = Stream(response)
        raise AssertionError(f"{method} was not answered")

    def _get(
        self, headers: Mapping[str, str] | None = None
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection = self._child.connect()
        sent = {"Accept": "text/event-stream", **self._session, **(headers or {})}
        connection.request("GET", self._child.path, headers=sent)
        return connection, connection.getresponse()

    def _mirror(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        if self.era == "legacy":
            return {}
        headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
        about = params.get("name", params.get("uri", params.get("taskId")))
        if method in ("tools/call", "prompts/get", "resources/read"):
            headers["Mcp-Name"] = str(about)
        region = (params.get("arguments") or {}).get("region")
        return headers if region is None else {**headers, "Mcp-Param-Region": region}

    def _post(
        self, message: dict[str, Any], headers: Mapping[str, str] | None = None
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection = self._child.connect()
        sent = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **self._session,
            **(headers or {}),
        }
        connection.request("POST", self._child.path, json.dumps(message), sent)
        return connection, connection.getresponse()

    def _tell(self, message: dict[str, Any]) -> None:
        connection, response = self._post(message)
        response.read()
        connection.close()
        assert response.status == 202

    @contextmanager
    def listen(self, *uris: str) -> Iterator[Iterator[dict[str, Any]]]:
        if self.era == "legacy":
            for uri in uris:
                assert self.request("resources/subscribe", {"uri": uri}).error is None
            connection, response = self._get()
        else:
            params = {"notifications": _wish(uris), "_meta": META}
            method = "subscriptions/listen"
            connection, response = self._post(
                {"jsonrpc": "2.0", "id": "l", "method": method, "params": params}, self._mirror(method, params)
            )
        messages = iter(Stream(response))
        try:
            assert response.status == 200
            if self.era == "modern":
                _check_acknowledgement(next(messages), uris, "l")
            yield messages
        finally:
            response.close()
            connection.close()


class Stream:
    """The messages of a response, be it JSON or events; `last_id` is the newest event's, if it had one."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response
        self.last_id = ""
        self.retry_ms = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        response = self._response
        if response.headers.get_content_type() != "text/event-stream":
            yield json.loads(response.read())
            return
        while line := response.readline():
            name, _, value = line.decode().strip().partition(": ")
            if name == "id":
                self.last_id = value
            elif name == "retry":
                self.retry_ms = int(value)
            elif name == "data" and value:
                yield json.loads(value)


def _wish(uris: tuple[str, ...]) -> dict[str, Any]:
    lists = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
    return {**lists, "resourceSubscriptions": list(uris)} if uris else lists


def _check_acknowledgement(message: dict[str, Any], uris: tuple[str, ...], subscription: Any) -> None:
    assert message["method"] == "notifications/subscriptions/acknowledged"
    assert message["params"]["notifications"] == _wish(uris)
    assert message["params"]["_meta"][PREFIX + "subscriptionId"] == subscription


class OverLine(Wire):
    """stdio or a WebSocket, one child for each era."""

    def __init__(self, child: Speaker, kind: str, era: str) -> None:
        super().__init__()
        self.era = era
        self.name = f"{kind}, {era}"
        self._child = child
        if era == "legacy":
            hello = {
                "protocolVersion": LEGACY,
                "capabilities": CAPABILITIES,
                "clientInfo": {"name": "t", "version": "1"},
            }
            assert "result" in self._child.request("initialize", hello)
            self._child.notify("notifications/initialized", {})

    def _exchange(self, method: str, params: Mapping[str, Any], outcome: Outcome, answer: Answer) -> None:
        request_id = self._child.send(method, dict(params), as_id=next(self._ids))
        while True:
            message = self._child.next()
            if message.get("id") == request_id and "method" not in message:
                _end(message, outcome)
                return
            back = self._take(message, outcome, answer)
            if back is not None:
                self._child.write(json.dumps(back).encode() + b"\n")

    @contextmanager
    def listen(self, *uris: str) -> Iterator[Iterator[dict[str, Any]]]:
        heard: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        if self.era == "legacy":
            for uri in uris:
                assert self.request("resources/subscribe", {"uri": uri}).error is None
        else:
            self._child.send("subscriptions/listen", {"notifications": _wish(uris), "_meta": META}, as_id="l")
            _check_acknowledgement(self._child.next(), uris, "l")

        def notices() -> Iterator[dict[str, Any]]:
            # On a shared line a change may come before the answer to the call that made it.
            while True:
                yield heard.get() if not heard.empty() else self._child.next()

        self._heard = heard
        try:
            yield notices()
        finally:
            if self.era == "modern":
                self._child.notify("notifications/cancelled", {"requestId": "l"})
            else:
                for uri in uris:
                    assert self.request("resources/unsubscribe", {"uri": uri}).error is None
            del self._heard

    def _take(self, message: dict[str, Any], outcome: Outcome, answer: Answer) -> dict[str, Any] | None:
        method = message.get("method", "")
        if method.endswith(("list_changed", "resources/updated")):
            if hasattr(self, "_heard"):
                self._heard.put(message)
            return None
        return super()._take(message, outcome, answer)

    def close(self) -> None:
        self._child.__exit__()


__all__ = ["LEGACY", "PREFIX", "ROOTS", "InProcess", "Outcome", "OverHttp", "OverLine", "Road", "accept", "agreeable"]
