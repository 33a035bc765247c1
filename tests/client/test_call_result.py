"""How malformed and complete results of a tool call are read."""

from __future__ import annotations

from typing import Any

import pytest

from pegboard.client.call_result import read_result


@pytest.mark.parametrize(
    "result",
    [
        {"content": "no list"},
        {"content": None, "_meta": None},
        {"content": ["no block", None]},
        {"content": [{"type": "text"}]},
        {"content": [], "_meta": ["no object"]},
    ],
)
def test_a_malformed_result_of_a_server_has_an_empty_text_and_no_metadata(result: dict[str, Any]) -> None:
    read = read_result(result)
    assert read.text == ""
    assert read.meta == {}


def test_the_text_of_a_result_joins_its_text_blocks() -> None:
    blocks = [{"type": "text", "text": "one"}, {"type": "image", "data": ""}, {"type": "text", "text": "two"}]
    assert read_result({"content": blocks}).text == "one\ntwo"
