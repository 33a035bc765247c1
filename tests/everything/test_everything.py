"""What `examples/everything.py` answers, word for word, on every road: the conformance suite looks at shapes alone."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import pytest

from tests.everything.connections import PREFIX, Road, accept

pytestmark = pytest.mark.process

NAMES = {
    "test_simple_text": "This is a simple text response for testing.",
    "test_tool_with_logging": "Tool with logging executed successfully",
    "test_tool_with_progress": "Tool with progress executed successfully",
    "test_logging_tool": "Logging evaluated",
    "test_reconnection": "Reconnection test completed",
    "test_missing_capability": "The client can sample.",
    "test_trigger_tool_change": "The list of tools has changed.",
    "test_trigger_prompt_change": "The list of prompts has changed.",
}


@pytest.mark.parametrize(("tool", "text"), NAMES.items())
@pytest.mark.parametrize("arguments", [None, {}], ids=["no arguments", "empty arguments"])
def test_a_tool_answers_with_its_very_text(road: Road, tool: str, text: str, arguments: Any) -> None:
    outcome = road.call(tool, arguments)
    assert outcome.text == text
    assert not outcome.result.get("isError")
    assert len(outcome.result["content"]) == 1


def test_the_first_tool_listed_is_the_simplest_and_the_order_stays(road: Road) -> None:
    lists = [[tool["name"] for tool in road.request("tools/list").result["tools"]] for _ in range(3)]
    assert lists[0][0] == "test_simple_text"
    assert lists[0] == lists[1] == lists[2]


def test_everything_that_is_listed_says_what_it_is(road: Road) -> None:
    for tool in road.request("tools/list").result["tools"]:
        assert tool["name"]
        assert tool["description"]
        assert tool["inputSchema"]["type"] == "object"
    for prompt in road.request("prompts/list").result["prompts"]:
        assert prompt["name"]
        assert prompt["description"]
    for resource in road.request("resources/list").result["resources"]:
        assert resource["uri"]
        assert resource["name"]


# -- content -------------------------------------------------------------------------------------------------------


def test_the_picture_is_a_picture(road: Road) -> None:
    (block,) = road.call("test_image_content").result["content"]
    assert (block["type"], block["mimeType"]) == ("image", "image/png")
    check_png(base64.b64decode(block["data"], validate=True))


def test_the_sound_is_a_sound(road: Road) -> None:
    (block,) = road.call("test_audio_content").result["content"]
    assert (block["type"], block["mimeType"]) == ("audio", "audio/wav")
    data = base64.b64decode(block["data"], validate=True)
    riff, size, wave = struct.unpack("<4sI4s", data[:12])
    assert (riff, size, wave) == (b"RIFF", len(data) - 8, b"WAVE")


def test_an_embedded_file_is_embedded(road: Road) -> None:
    assert road.call("test_embedded_resource").result["content"] == [
        {
            "type": "resource",
            "resource": {
                "uri": "test://embedded-resource",
                "mimeType": "text/plain",
                "text": "This is an embedded resource content.",
            },
        }
    ]


def test_several_kinds_come_in_their_order(road: Road) -> None:
    text, picture, file = road.call("test_multiple_content_types").result["content"]
    assert text == {"type": "text", "text": "Multiple content types test:"}
    assert (picture["type"], picture["mimeType"]) == ("image", "image/png")
    assert file["resource"] == {
        "uri": "test://mixed-content-resource",
        "mimeType": "application/json",
        "text": '{"test":"data","value":123}',
    }


def test_a_tools_own_error_is_a_result_for_the_model(road: Road) -> None:
    outcome = road.call("test_error_handling")
    assert outcome.result["isError"] is True
    assert outcome.text == "This tool intentionally returns an error for testing"


def check_png(data: bytes) -> None:
    """Every chunk of it has its length and its checksum."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    place, kinds = 8, []
    while place < len(data):
        (length,) = struct.unpack(">I", data[place : place + 4])
        kind, body = data[place + 4 : place + 8], data[place + 8 : place + 8 + length]
        (checksum,) = struct.unpack(">I", data[place + 8 + length : place + 12 + length])
        assert checksum == zlib.crc32(kind + body)
        kinds.append(kind)
        place += 12 + length
    assert kinds == [b"IHDR", b"IDAT", b"IEND"]


# -- progress and logs ---------------------------------------------------------------------------------------------


def test_progress_moves_under_the_callers_token(road: Road) -> None:
    told = road.call("test_tool_with_progress", token="progress-test-1").told("notifications/progress")
    assert [(one["progress"], one["total"]) for one in told] == [(0, 100), (50, 100), (100, 100)]
    assert {one["progressToken"] for one in told} == {"progress-test-1"}


def test_progress_is_not_sent_unless_requested(road: Road) -> None:
    assert road.call("test_tool_with_progress").told("notifications/progress") == []


def test_logs_come_at_their_level_with_their_texts(road: Road) -> None:
    told = road.call("test_tool_with_logging", level="debug").told("notifications/message")
    assert told == [
        {"level": "info", "data": "Tool execution started"},
        {"level": "info", "data": "Tool processing data"},
        {"level": "info", "data": "Tool execution completed"},
    ]


def test_logs_below_the_wanted_level_stay_away(road: Road) -> None:
    assert road.call("test_tool_with_logging", level="warning").told("notifications/message") == []


def test_a_level_that_does_not_exist_is_refused(road: Road) -> None:
    if road.name == "in process":
        return
    error = road.call("test_logging_tool", level="loud").error
    if road.era == "legacy":
        error = road.request("logging/setLevel", {"level": "loud"}).error
    assert error is not None
    assert error["code"] == -32602


def test_a_modern_request_without_a_level_hears_no_logs(road: Road) -> None:
    if road.era == "modern":
        assert road.call("test_tool_with_logging").told("notifications/message") == []


# -- questions -----------------------------------------------------------------------------------------------------


def test_the_model_is_asked_what_the_caller_said_and_its_reply_is_used(road: Road) -> None:
    outcome = road.call("test_sampling", {"prompt": "Test prompt for sampling"})
    assert outcome.asked[0][0] == "sampling/createMessage"
    assert outcome.asked[0][1]["messages"] == [
        {"role": "user", "content": {"type": "text", "text": "Test prompt for sampling"}}
    ]
    assert outcome.asked[0][1]["maxTokens"] == 100
    assert outcome.text == "LLM response: You said: Test prompt for sampling"


def test_the_user_is_asked_in_the_callers_words_and_the_reply_is_used(road: Road) -> None:
    outcome = road.call("test_elicitation", {"message": "Please provide your information"})
    method, params = outcome.asked[0]
    assert (method, params["message"]) == ("elicitation/create", "Please provide your information")
    assert params["requestedSchema"] == {
        "type": "object",
        "properties": {
            "username": {"type": "string", "description": "User's response"},
            "email": {"type": "string", "description": "User's email address"},
        },
        "required": ["username", "email"],
    }
    head, _, content = outcome.text.partition("content=")
    assert head == "User response: action=accept, "
    assert json.loads(content) == {"username": "my username", "email": "my email"}


def test_a_user_may_decline_or_cancel(road: Road) -> None:
    if road.name == "in process":
        return
    for action in ("decline", "cancel"):
        outcome = road.call("test_elicitation", {"message": "?"}, answer=lambda *_: {"action": action})  # noqa: B023
        assert outcome.text == f"User response: action={action}, content=null"


def test_forms_carry_their_defaults(road: Road) -> None:
    outcome = road.call("test_elicitation_sep1034_defaults")
    properties = outcome.asked[0][1]["requestedSchema"]["properties"]
    assert {name: (part["type"], part["default"]) for name, part in properties.items()} == {
        "name": ("string", "John Doe"),
        "age": ("integer", 30),
        "score": ("number", 95.5),
        "status": ("string", "active"),
        "verified": ("boolean", True),
    }
    assert json.loads(outcome.text.partition("content=")[2]) == {
        "name": "John Doe", "age": 30, "score": 95.5, "status": "active", "verified": True,
    }  # fmt: skip


def test_forms_offer_choices_in_every_way(road: Road) -> None:
    properties = road.call("test_elicitation_sep1330_enums").asked[0][1]["requestedSchema"]["properties"]
    titled = [
        {"const": f"value{n}", "title": f"{word} Option"} for n, word in enumerate(("First", "Second", "Third"), 1)
    ]
    choices = [
        {"const": f"value{n}", "title": f"{word} Choice"} for n, word in enumerate(("First", "Second", "Third"), 1)
    ]
    options = ["option1", "option2", "option3"]
    assert properties == {
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": choices}},
    }


ASKING = {
    "test_input_required_result_elicitation": "Hello, my name!",
    "test_input_required_result_sampling": "The model says: You said: What is the capital of France?",
    "test_input_required_result_list_roots": "Roots: file:///test/root",
    "test_input_required_result_request_state": "state-ok: accept",
    "test_input_required_result_multiple_inputs": (
        "You said: Greet the user in a few words. my name works in file:///test/root"
    ),
    "test_input_required_result_multi_round": "my name likes my color",
    "test_input_required_result_tampered_state": "The user said accept.",
    "test_input_required_result_capabilities": "Asked: user_name, greeting, client_roots",
    "test_streaming_elicitation": "The user said accept.",
}


@pytest.mark.parametrize(("tool", "text"), ASKING.items())
def test_the_same_tool_asks_on_every_road_and_comes_to_the_same_end(road: Road, tool: str, text: str) -> None:
    assert road.call(tool).text == text


def test_several_questions_come_together(road: Road) -> None:
    asked = road.call("test_input_required_result_multiple_inputs").asked
    assert sorted(method for method, _ in asked if method != "roots/list") == [
        "elicitation/create",
        "sampling/createMessage",
    ]


def test_a_prompt_asks_too(road: Road) -> None:
    result = road.request("prompts/get", {"name": "test_input_required_result_prompt"}).result
    assert result["messages"][0]["content"]["text"] == "Consider this context: my context"


def test_an_answer_that_does_not_fit_is_asked_for_again(road: Road) -> None:
    tries: list[Mapping[str, Any]] = []

    def second_time(method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        tries.append(params)
        return accept({"name": "Ada"} if len(tries) > 1 else {})

    outcome = road.call("test_input_required_result_elicitation", answer=second_time)
    assert outcome.text == "Hello, Ada!"
    assert len(tries) == 2


# -- resources, prompts, completion --------------------------------------------------------------------------------


def test_resources_read_as_they_are(road: Road) -> None:
    def read(uri: str) -> dict[str, Any]:
        (content,) = road.request("resources/read", {"uri": uri}).result["contents"]
        assert content["uri"] == uri
        return dict(content)

    text = read("test://static-text")
    assert (text["mimeType"], text["text"]) == ("text/plain", "This is the content of the static text resource.")
    binary = read("test://static-binary")
    assert binary["mimeType"] == "image/png"
    check_png(base64.b64decode(binary["blob"], validate=True))
    data = read("test://template/123/data")
    assert data["mimeType"] == "application/json"
    assert json.loads(data["text"]) == {"id": "123", "templateTest": True, "data": "Data for ID: 123"}
    assert read("test://watched-resource")["text"] == "Watched resource content"


def test_a_resource_that_is_not_there_is_an_error_that_names_it(road: Road) -> None:
    error = road.request("resources/read", {"uri": "test://nonexistent"}).error
    assert error is not None
    assert error["code"] == (-32002 if road.era == "legacy" else -32602)
    assert error["data"]["uri"] == "test://nonexistent"


def test_prompts_say_their_very_words(road: Road) -> None:
    def messages(name: str, **arguments: str) -> list[Any]:
        params = {"name": name, "arguments": arguments} if arguments else {"name": name}
        found: list[Any] = road.request("prompts/get", params).result["messages"]
        assert {message["role"] for message in found} == {"user"}
        return [message["content"] for message in found]

    assert messages("test_simple_prompt") == [{"type": "text", "text": "This is a simple prompt for testing."}]
    assert messages("test_prompt_with_arguments", arg1="hello", arg2="world") == [
        {"type": "text", "text": "Prompt with arguments: arg1='hello', arg2='world'"}
    ]
    assert messages("test_prompt_with_embedded_resource", resourceUri="test://example") == [
        {
            "type": "resource",
            "resource": {
                "uri": "test://example",
                "mimeType": "text/plain",
                "text": "Embedded resource content for testing.",
            },
        },
        {"type": "text", "text": "Please process the embedded resource above."},
    ]
    picture, text = messages("test_prompt_with_image")
    assert (picture["type"], picture["mimeType"]) == ("image", "image/png")
    assert text == {"type": "text", "text": "Please analyze the image above."}


@pytest.mark.parametrize(("typed", "values"), [("par", ["paris", "park", "party"]), ("park", ["park"]), ("x", [])])
def test_completion_suggests_what_begins_like_what_was_typed(road: Road, typed: str, values: list[str]) -> None:
    params = {
        "ref": {"type": "ref/prompt", "name": "test_prompt_with_arguments"},
        "argument": {"name": "arg1", "value": typed},
    }
    completion = road.request("completion/complete", params).result["completion"]
    assert completion["values"] == values
    assert completion["total"] == len(values)
    assert completion["hasMore"] is False


# -- changes -------------------------------------------------------------------------------------------------------

WATCHED = "test://watched-resource"


def test_who_follows_a_resource_hears_that_it_has_changed(road: Road) -> None:
    with road.listen(WATCHED) as notices:
        road.call("test_trigger_resource_update")
        notice = next(notices)
        assert notice["method"] == "notifications/resources/updated"
        assert notice["params"]["uri"] == WATCHED


@pytest.mark.parametrize("kind", ["tool", "prompt"])
def test_who_follows_the_lists_hears_that_one_has_changed(road: Road, kind: str) -> None:
    with road.listen() as notices:
        before = road.request(f"{kind}s/list").result[f"{kind}s"]
        road.call(f"test_trigger_{kind}_change")
        assert next(notices)["method"] == f"notifications/{kind}s/list_changed"
        after = road.request(f"{kind}s/list").result[f"{kind}s"]
        assert [one["name"] for one in after] == [one["name"] for one in before]
        changed = [one["name"] for one, other in zip(after, before, strict=True) if one != other]
        assert changed == [f"test_dynamic_{kind}"]


# -- schemas and headers -------------------------------------------------------------------------------------------


def test_a_schema_is_listed_as_it_was_written_and_enforced(road: Road) -> None:
    (tool,) = [
        tool for tool in road.request("tools/list").result["tools"] if tool["name"] == "json_schema_2020_12_tool"
    ]
    schema = tool["inputSchema"]
    assert schema["$defs"]["address"]["$anchor"] == "addressDef"
    assert schema["properties"]["address"] == {"$ref": "#/$defs/address"}
    assert schema["if"]["properties"] == {"contactMethod": {"const": "phone"}}
    assert schema["allOf"] == [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}]
    good = {"name": "Ada", "contactMethod": "phone", "phone": "1"}
    assert json.loads(road.call("json_schema_2020_12_tool", good).text.removeprefix("Received ")) == good
    assert road.call("json_schema_2020_12_tool", {"name": "Ada", "contactMethod": "phone"}).result["isError"]


def test_an_argument_that_is_mirrored_into_a_header_arrives(road: Road) -> None:
    assert road.call("test_x_mcp_header", {"region": "eu-west-1"}).text == "region=eu-west-1"
    assert road.call("test_x_mcp_header", {}).text == "region="


# -- methods of the other era --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["ping", "logging/setLevel", "resources/subscribe", "initialize"])
def test_a_modern_client_finds_no_method_of_the_older_revisions(road: Road, method: str) -> None:
    if road.era == "modern" and road.name != "in process":
        error = road.request(method, {"uri": WATCHED, "level": "info"}).error
        assert error is not None
        assert error["code"] == -32601


@pytest.mark.parametrize("method", ["subscriptions/listen", "server/discover", "tasks/get"])
def test_a_legacy_client_finds_no_method_of_the_newest_revision(road: Road, method: str) -> None:
    if road.era == "legacy":
        error = road.request(method, {"taskId": "t", "notifications": {}}).error
        assert error is not None
        assert error["code"] == -32601


def test_a_legacy_client_receives_no_fields_unknown_to_its_revision(road: Road) -> None:
    if road.era == "legacy":
        for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
            assert not {"resultType", "ttlMs", "cacheScope"} & set(road.request(method).result)
        assert road.request("ping").result == {}
        assert "_meta" not in road.call("test_simple_text").result
    elif road.name != "in process":
        for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
            result = road.request(method).result
            assert result["resultType"] == "complete"
            assert result["ttlMs"] >= 0
            assert result["cacheScope"] in ("public", "private")
            assert result["_meta"][PREFIX + "serverInfo"]["name"] == "everything"
