"""The executor: one record for each request, the same walk as everywhere, and nothing raised."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from pegboard import (
    Board,
    CancellationToken,
    Client,
    Context,
    Image,
    Middleware,
    Parameter,
    Tool,
    ToolCallRequest,
    ToolCatalog,
    ToolError,
    ToolExecutionContext,
    ToolExecutor,
    ToolResult,
    ValueKind,
)
from pegboard.call import Call, Handler, Reply
from pegboard.errors import InvalidParams
from pegboard.providers import Provider
from tests.waiting import SOON


class MemorySearch(Tool):
    name, description = "memory.search", "Finds notes."
    parameters = (Parameter("query"), Parameter("limit", ValueKind.INTEGER, required=False))

    async def execute(self, context: ToolExecutionContext, token: CancellationToken) -> ToolResult:
        found = f"{context.request.arguments['query']} for {context.environment.get('user', 'nobody')}"
        return ToolResult(found, metadata={"limit": context.request.arguments.get("limit"), "left": token.cancelled})


async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


async def fail() -> None:
    raise ValueError("secret")


async def decline() -> None:
    raise ToolError("the shop is closed")


def catalog() -> ToolCatalog:
    return ToolCatalog([MemorySearch(), add, fail, decline])


def ask(name: str, call_id: str = "c1", **arguments: Any) -> ToolCallRequest:
    return ToolCallRequest(tool_name=name, tool_call_id=call_id, arguments=arguments)


async def test_a_plain_catalog_of_declared_tools_and_functions_is_enough() -> None:
    record = await ToolExecutor(catalog()).execute(ask("add", a=1, b=2))
    assert (record.status, record.result, record.structured) == ("success", "3", 3)
    assert (record.tool_name, record.tool_call_id) == ("add", "c1")
    assert record.content == ({"type": "text", "text": "3"},)
    assert record.elapsed_ms is not None
    assert record.metadata == {"elapsed_ms": record.elapsed_ms}


async def test_a_declared_tool_is_handed_the_environment_and_its_metadata_comes_back() -> None:
    record = await ToolExecutor(catalog(), {"user": "Ada"}).execute(ask("memory.search", query="q", limit="3"))
    assert record.result == "q for Ada"
    assert record.metadata["limit"] == 3
    assert record.metadata["left"] is False
    assert [warning.code for warning in record.warnings] == ["string_literal_converted_to_integer"]


async def test_the_environment_may_be_made_for_each_request() -> None:
    def environment(request: ToolCallRequest) -> Mapping[str, Any]:
        return {"user": request.tool_call_id}

    record = await ToolExecutor(catalog(), environment).execute(ask("memory.search", "c7", query="q"))
    assert record.result == "q for c7"


async def test_an_elapsed_time_reported_by_the_tool_is_kept() -> None:
    async def timed() -> ToolResult:
        return ToolResult("ok", metadata={"elapsed_ms": 1})

    record = await ToolExecutor(ToolCatalog([timed])).execute(ask("timed"))
    assert record.metadata == {"elapsed_ms": 1}


async def test_metadata_is_for_the_host_and_never_reaches_a_client() -> None:
    board = Board()

    @board.tool
    async def kept() -> ToolResult:
        return ToolResult("ok", metadata={"cost": 3})

    async with Client(board) as client:
        assert "cost" not in str(await client.call("kept"))


async def test_an_unknown_tool_is_a_failed_record_with_what_was_probably_meant() -> None:
    record = await ToolExecutor(catalog()).execute(ask("memory.serch"))
    assert record.status == "failed"
    assert "'memory.search'" in record.result
    assert record.metadata == {"error": "handler_not_found", "suggestions": ["memory.search"]}
    assert record.elapsed_ms is None


async def test_arguments_that_cannot_be_read_are_a_failed_record_with_every_problem() -> None:
    record = await ToolExecutor(catalog()).execute(ask("add", a="one", c=3))
    assert record.status == "failed"
    assert record.metadata["error"] == "invalid_arguments"
    assert {error.path for error in record.errors} == {"a", "b", "c"}
    assert record.result.startswith("add: 3 problems with the arguments")


async def test_an_exception_is_a_failed_record_whose_text_stays_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    record = await ToolExecutor(catalog()).execute(ask("fail"))
    assert record.status == "failed"
    assert record.metadata["error"] == "ValueError"
    assert "secret" not in record.result
    assert str(record.metadata["error_id"]) in record.result
    assert record.metadata["error_id"] in caplog.text


async def test_a_tool_error_is_a_failed_record_in_the_authors_words() -> None:
    record = await ToolExecutor(catalog()).execute(ask("decline"))
    assert (record.status, record.result, record.metadata["error"]) == ("failed", "the shop is closed", "tool_error")


async def test_a_refusal_by_middleware_is_a_failed_record() -> None:
    async def refuse(call: Call, proceed: Handler) -> Reply:
        raise InvalidParams("not today")

    board = Board()
    board.add(add)
    board.use(refuse)
    record = await ToolExecutor(board).execute(ask("add", a=1, b=2))
    assert (record.status, record.result, record.metadata["error"]) == ("failed", "not today", "InvalidParams")


async def test_arguments_that_no_json_can_hold_are_a_failed_record(caplog: pytest.LogCaptureFixture) -> None:
    record = await ToolExecutor(catalog()).execute(ask("add", a=object(), b=2))
    assert record.status == "failed"
    assert record.metadata["error_id"] in caplog.text


async def test_an_environment_that_fails_is_a_failed_record(caplog: pytest.LogCaptureFixture) -> None:
    def environment(request: ToolCallRequest) -> Mapping[str, Any]:
        raise KeyError("user")

    record = await ToolExecutor(catalog(), environment).execute(ask("add", a=1, b=2))
    assert (record.status, record.metadata["error"]) == ("failed", "KeyError")
    assert "could not be executed" in caplog.text


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ('{"a": 1, "b": 2}', []),
        ('{"a": "1", "b": 2}', ["string_literal_converted_to_integer"]),
        ('{"a": 1, "b": 2,}', ["string_literal_converted_to_object"]),
        ('```json\n{"a": 1, "b": 2}\n```', ["string_literal_converted_to_object"]),
        ('{"a": 1, /* one */ "b": 2}', ["string_literal_converted_to_object"]),
    ],
)
async def test_the_text_a_model_sent_is_read_as_leniently_as_arguments_are(text: str, codes: list[str]) -> None:
    request = ToolCallRequest(tool_name="add", tool_call_id="c1", raw_arguments=text)
    record = await ToolExecutor(catalog()).execute(request)
    assert record.result == "3"
    assert [warning.code for warning in record.warnings] == codes


@pytest.mark.parametrize("text", ["not json", '{"a": 1', "[1, 2]", "\ud800", "[" * 5000])
async def test_text_that_holds_no_arguments_is_a_failed_record(text: str) -> None:
    request = ToolCallRequest(tool_name="add", tool_call_id="c1", raw_arguments=text)
    record = await ToolExecutor(catalog()).execute(request)
    assert (record.status, record.metadata["error"]) == ("failed", "invalid_arguments")


async def test_hooks_see_invalid_json_text_unchanged() -> None:
    seen: list[Any] = []

    class Look(Middleware):
        async def before(self, call: Call) -> None:
            seen.append(call.sent)

    board = Board()
    board.add(add)
    board.use(Look())
    request = ToolCallRequest(tool_name="add", tool_call_id="c1", raw_arguments='{"a": 1, "b": 2,}')
    assert (await ToolExecutor(board).execute(request)).result == "3"
    assert seen == ['{"a": 1, "b": 2,}']


async def test_a_board_brings_its_middleware_services_and_strictness() -> None:
    board, seen = Board(arguments="strict"), list[str]()

    class Count(Middleware):
        async def before(self, call: Call) -> None:
            seen.append(call.name)

    board.use(Count())
    board.services.value(dict, {"offset": 10})

    @board.tool
    async def shift(number: int, settings: dict, ctx: Context) -> int:  # type: ignore[type-arg]
        await ctx.progress(1, 1, "nobody listens")
        return number + int(settings["offset"])

    executor = ToolExecutor(board)
    assert (await executor.execute(ask("shift", number=1))).result == "11"
    assert (await executor.execute(ask("shift", number="1"))).status == "failed"
    assert seen == ["shift", "shift"]


async def test_a_cancelled_call_is_skipped_and_so_is_the_rest_of_its_batch() -> None:
    begun, token = asyncio.Event(), CancellationToken()

    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    executor = ToolExecutor(ToolCatalog([wait, add]))
    requests = [ask("add", "c0", a=1, b=2), ask("wait", "c1"), ask("add", "c2", a=1, b=2)]
    running = asyncio.ensure_future(executor.execute_batch(requests, cancellation=token))
    await begun.wait()
    token.cancel()
    batch = await running
    assert [record.status for record in batch.records] == ["success", "skipped", "skipped"]
    assert batch.records[1].result == "wait was cancelled"
    assert batch.records[1].metadata["error"] == "cancelled"
    assert batch.metadata["tool_failed_count"] == 0
    assert batch.error is None


async def test_another_thread_may_cancel() -> None:
    begun, token = threading.Event(), CancellationToken()

    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    def cancel() -> None:
        begun.wait(SOON)
        token.cancel()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    record = await ToolExecutor(ToolCatalog([wait])).execute(ask("wait"), cancellation=token)
    canceller.join()
    assert record.status == "skipped"


async def test_a_token_that_outlives_its_calls_keeps_none_of_them() -> None:
    token = CancellationToken()
    executor = ToolExecutor(catalog())
    for _ in range(3):
        assert (await executor.execute(ask("add", a=1, b=2), cancellation=token)).status == "success"
    assert token._watchers == ()


async def test_a_hook_that_cancels_the_call_skips_it_and_leaves_the_host_alone() -> None:
    class Stop(Middleware):
        async def before(self, call: Call) -> None:
            call.cancel()
            await asyncio.sleep(0)

    board = Board()
    board.add(add)
    board.use(Stop())
    assert (await ToolExecutor(board).execute(ask("add", a=1, b=2))).status == "skipped"


async def test_the_cancellation_of_the_host_itself_passes() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    running = asyncio.ensure_future(ToolExecutor(ToolCatalog([wait])).execute(ask("wait")))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended.is_set()


async def test_a_batch_sums_up_and_never_overwrites_what_is_there() -> None:
    requests = [ask("add", "c1", a=1, b=2), ask("decline", "c2"), ask("nothing", "c3")]
    batch = await ToolExecutor(catalog()).execute_batch(requests, metadata={"tool_call_count": "mine", "run": 7})
    assert [record.tool_call_id for record in batch.records] == ["c1", "c2", "c3"]
    assert batch.metadata["run"] == 7
    assert batch.metadata["tool_call_count"] == "mine"
    assert batch.metadata["tool_failed_count"] == 2
    assert batch.metadata["tool_elapsed_total_ms"] == pytest.approx(
        sum(record.elapsed_ms or 0 for record in batch.records)
    )
    assert batch.metadata["per_call_metadata"]["c3"]["error"] == "handler_not_found"
    assert batch.error == "the shop is closed"


async def test_an_empty_batch_has_an_empty_summary() -> None:
    batch = await ToolExecutor(catalog()).execute_batch([])
    assert batch.records == ()
    assert batch.metadata == {
        "tool_call_count": 0,
        "tool_failed_count": 0,
        "tool_elapsed_total_ms": 0,
        "per_call_metadata": {},
    }


async def test_repairs_are_shown_to_the_model_on_request() -> None:
    record = await ToolExecutor(catalog()).execute(ask("add", a="1", b=2))
    assert record.text_with_warnings().startswith("3\n[ParseWarning] a: ")


async def test_calls_parsed_by_a_provider_are_executed_and_their_warnings_are_reported_once() -> None:
    tools = catalog()
    message = {
        "role": "assistant",
        "content": [
            {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": "1", "b": 2}},
            {"type": "tool_use", "id": "t2", "name": "nothing", "input": {}},
        ],
    }
    batch = await ToolExecutor(tools).execute_batch(Provider("anthropic", tools).parse(message))
    added, missing = batch.records
    assert added.result == "3"
    assert [warning.code for warning in added.warnings] == ["string_literal_converted_to_integer"]
    assert missing.status == "failed"
    assert [warning.code for warning in missing.warnings] == ["tool_definition_missing"]


def parse_call(arguments: Mapping[str, Any]) -> ToolCallRequest:
    call = {"type": "tool_use", "id": "t1", "name": "add", "input": arguments}
    [request] = Provider("anthropic", catalog()).parse({"role": "assistant", "content": [call]})
    return request


async def test_a_call_whose_arguments_were_replaced_before_it_runs_is_run_as_edited() -> None:
    edited = msgspec.structs.replace(parse_call({"a": "1", "b": 2}), arguments={"a": 40, "b": 2})
    record = await ToolExecutor(catalog()).execute(edited)
    assert record.result == "42"
    assert record.warnings == (), "the repairs were those of the arguments that were replaced"


async def test_a_call_whose_arguments_were_edited_in_place_is_run_as_edited() -> None:
    request = parse_call({"a": 1, "b": 2})
    request.arguments["a"] = 40  # type: ignore[index]
    assert (await ToolExecutor(catalog()).execute(request)).result == "42"


async def test_a_wrong_call_is_run_when_a_person_has_corrected_it() -> None:
    request = parse_call({"a": "one", "b": 2})
    assert request.errors
    assert (await ToolExecutor(catalog()).execute(request)).status == "failed"
    corrected = msgspec.structs.replace(request, arguments={"a": 1, "b": 2})
    assert (await ToolExecutor(catalog()).execute(corrected)).result == "3"


async def test_a_call_whose_arguments_were_all_removed_is_run_without_them() -> None:
    emptied = msgspec.structs.replace(parse_call({"a": 1, "b": 2}), arguments={})
    record = await ToolExecutor(catalog()).execute(emptied)
    assert {error.code for error in record.errors} == {"missing_required"}


async def test_a_call_that_was_stored_as_json_for_review_can_be_edited_too() -> None:
    stored = msgspec.json.decode(msgspec.json.encode(parse_call({"a": "1", "b": 2})))
    assert (await ToolExecutor(catalog()).execute(msgspec.convert(stored, ToolCallRequest))).result == "3"
    stored["arguments"]["a"] = 40
    assert (await ToolExecutor(catalog()).execute(msgspec.convert(stored, ToolCallRequest))).result == "42"


async def test_tools_added_and_removed_later_are_seen() -> None:
    tools = ToolCatalog()
    executor = ToolExecutor(tools)
    assert (await executor.execute(ask("add", a=1, b=2))).status == "failed"
    tools.add(add)
    assert (await executor.execute(ask("add", a=1, b=2))).status == "success"
    tools.remove("add")
    assert (await executor.execute(ask("add", a=1, b=2))).status == "failed"


async def test_non_text_content_is_in_the_record() -> None:
    def draw() -> Image:
        return Image(b"\x89PNG\r\n\x1a\n", mime_type="image/png")

    record = await ToolExecutor(ToolCatalog([draw])).execute(ask("draw"))
    assert record.result == ""
    assert record.content[0]["type"] == "image"


async def test_an_exit_of_a_tool_ends_its_call_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)

    def leave() -> None:
        raise SystemExit(3)

    record = await ToolExecutor(ToolCatalog([leave])).execute(ask("leave"))
    assert (record.status, record.metadata["error"]) == ("failed", "SystemExit")
