"""Middleware around the tools of other servers: what differs from tools of our own, which is only whose failure it is.

All else that middleware does is tried behind a gateway by its own tests: see tests/roads.py.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest

from pegboard import Board, Client, Gateway
from pegboard.config.config_keys import ToolOverride
from pegboard.config.gateway_config import ServerConfig, read_config
from pegboard.errors import DelegationFailed, SetupError
from pegboard.gateway.configured_middleware import ConfiguredMiddleware
from pegboard.middleware import Cache, Retry, Tracing
from pegboard.testing import Recorder
from tests.client_variants import serve
from tests.gateway.one_server import bad
from tests.gateway.test_gateway import calculator, configured, server
from tests.middleware.observability.test_tracing import SENDER, TRACE, Collected
from tests.waiting import until


async def no_wait(_seconds: float) -> None:
    return


async def test_a_tool_failure_at_its_server_is_a_result_and_reported_to_the_after_hooks() -> None:
    board, recorder = Board("calc"), Recorder("r", order=1)

    @board.tool
    async def fail() -> str:
        raise ValueError("a secret of the server")

    gateway = Gateway(configured(server("calc")), boards={"calc": board})
    gateway.use(recorder)
    async with Client(gateway) as client:
        result = await client.call("dev__calc__fail")
    assert result.is_error
    assert "secret" not in result.text
    assert recorder.hooks == ["r.before", "r.after"]


async def test_a_server_failure_during_a_call_is_reported_to_the_error_hooks() -> None:
    recorder = Recorder("r", order=1)
    gateway = Gateway(configured(bad("well")))
    gateway.use(recorder)
    async with Client(gateway) as client:
        result = await client.call("dev__bad__die")
    assert result.is_error
    assert result.text.startswith("[dev/bad/die] Error: ")
    assert recorder.hooks == ["r.before", "r.error"]
    assert isinstance(recorder.steps[-1].exception, DelegationFailed)


async def test_a_server_that_lets_a_call_down_is_tried_again_where_that_can_do_no_harm() -> None:
    retry = Retry(attempts=2, tools=["dev__bad__die"], sleep=no_wait)
    gateway = Gateway(configured(bad("well")))
    gateway.use(retry)
    async with Client(gateway) as client:
        assert (await client.call("dev__bad__die")).is_error
    assert retry.retried == 1


async def test_a_tool_that_its_server_redefines_has_no_cached_result() -> None:
    board = Board("calc")
    gateway = Gateway(configured(server("calc")), boards={"calc": board})
    gateway.use(Cache(60, tools=["dev__calc__read"]))

    def described() -> str:
        tool = gateway.endpoints[0].board.tools.get("dev__calc__read")
        return "" if tool is None else tool.description

    async with Client(gateway) as client:
        for answer in ("old", "new"):

            async def read(text: str = answer) -> str:
                return text

            board.add(read, name="read", description=f"Reads what is {answer}.")
            await until(partial(lambda told: told in described(), f"Reads what is {answer}."))
            assert (await client.call("dev__calc__read")).text == answer
            board.remove("read")


@pytest.mark.parametrize(
    ("vouched", "kept"), [(None, 0), ({"readOnlyHint": True}, 1), ({"readOnlyHint": False}, 0)], ids=str
)
async def test_annotations_are_trusted_from_the_operator_but_not_from_a_server(
    vouched: dict[str, bool] | None, kept: int
) -> None:
    cache, served = Cache(60), await serve(calculator())
    url = f"http://127.0.0.1:{served.port}/mcp"
    far = ServerConfig(name="calc", kind="http", url=url, tools={"add": ToolOverride(annotations=vouched)})
    gateway = Gateway(configured(far))
    gateway.use(cache)
    async with Client(gateway) as client:
        # The server itself says that this tool only reads.
        for _ in range(2):
            assert (await client.call("dev__calc__add", {"a": 1, "b": 2})).text == "3"
    await served.close()
    assert cache.hits == kept


async def test_the_span_of_a_server_is_a_child_of_the_gateways() -> None:
    here, there, board = Collected(), Collected(), calculator()
    board.use(Tracing(there.provider))
    gateway = Gateway(configured(server("calc")), boards={"calc": board})
    gateway.use(Tracing(here.provider))
    meta = {"traceparent": f"00-{TRACE}-{SENDER}-01", "tracestate": "vendor=1", "baggage": "user=ann", "own": 1}
    async with Client(gateway) as client:
        sent = {"name": "dev__calc__add", "arguments": {"a": 1}, "_meta": meta}
        await client.request("tools/call", sent)
        await client.call("dev__calc__add", {"a": 1})
    # Below the span of each call is that of the request to the server, which ends before it.
    (request, first, other, second), (below, alone) = here.spans, there.spans
    assert (f"{first.context.trace_id:032x}", f"{first.parent.span_id:016x}") == (TRACE, SENDER)
    assert request.parent.span_id == first.context.span_id
    assert below.parent.span_id == request.context.span_id
    assert below.context.trace_id == first.context.trace_id
    assert below.context.trace_state.get("vendor") == "1"
    assert (alone.parent.span_id, other.parent.span_id) == (other.context.span_id, second.context.span_id)


def test_middleware_beside_the_configuration_is_found_and_takes_no_librarys_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("wave", "house_rules_of_test"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "wave.py").write_text("raise RuntimeError('not the library')\n")
    (tmp_path / "house_rules_of_test.py").write_text(
        "import wave\nfrom pegboard.middleware import Middleware\nclass Quiet(Middleware): ...\n"
    )
    (tmp_path / "config.json").write_text('{"toolboxes": {}, "middleware": ["house_rules_of_test:Quiet"]}')
    before = list(sys.path)
    (quiet, _), *_ = ConfiguredMiddleware(read_config(tmp_path / "config.json")).shared
    assert type(quiet).__name__ == "Quiet"
    assert sys.path == before
    assert str(tmp_path) not in str(sys.modules["wave"].__file__)


def test_middleware_that_cannot_be_created_is_reported_with_its_file_key_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "options_of_test", raising=False)
    (tmp_path / "options_of_test.py").write_text(
        "from pegboard.middleware import Middleware\n"
        "class Greet(Middleware):\n"
        "    def __init__(self, word: str, times: int = 1) -> None:\n"
        "        if times < 1:\n"
        "            raise ValueError('times must be at least 1')\n"
        "async def around(call, proceed):\n"
        "    return await proceed(call)\n"
        "class Wrong:\n"
        "    def __repr__(self):\n"
        "        return 'Wrong()'\n"
    )
    file = tmp_path / "pegboard.json"
    file.write_text(
        """{"toolboxes": {"dev": {"description": "x", "mcpServers": {"fs": {"command": "a", "middleware": [
  {"use": "options_of_test:Greet", "options": {"word": 5, "time": 2}}]}}}},
  "middleware": [
    {"use": "Timeout", "options": {"seconds": -1}},
    {"use": "Logging", "options": {"level": "LOUD"}},
    {"use": "options_of_test:Greet", "options": {"word": "hi", "times": "${TIMES}"}},
    {"use": "options_of_test:around", "options": {"a": 1}},
    "options_of_test:Wrong",
    "options_of_test:Missing",
    "no_such_module_of_test:Missing"
]}"""
    )
    with pytest.raises(SetupError) as caught:
        Gateway(file, environ={"TIMES": "0"})
    assert str(caught.value).splitlines() == [
        f"{file} has 9 mistakes:",
        (
            "- toolboxes.dev.mcpServers.fs.middleware[0].options.word (line 2): got 5, expected a string; put it in quotes"
        ),
        (
            "- toolboxes.dev.mcpServers.fs.middleware[0].options.time (line 2): Greet has no option 'time'; did you mean "
            "'times'?"
        ),
        (
            "- middleware[0].options (line 4): Timeout does not accept these options: A timeout must be seconds greater than "
            "0, or None for no limit, got -1.0"
        ),
        (
            "- middleware[1].options (line 5): Logging does not accept these options: level='LOUD': use a level of the module "
            'logging, such as "INFO"'
        ),
        (
            "- middleware[2].options (line 6): options_of_test:Greet does not accept these options: times must be at least 1"
        ),
        "- middleware[3].options (line 7): options_of_test:around is a function and takes no options; remove them",
        "- middleware[4] (line 8): A middleware is a Middleware or an async function of (call, next), got Wrong()",
        "- middleware[5].use (line 9): options_of_test has no 'Missing'",
        "- middleware[6].use (line 10): cannot import 'no_such_module_of_test:Missing': No module named 'no_such_module_of_test'",
    ]
