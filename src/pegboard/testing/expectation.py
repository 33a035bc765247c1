"""Assertions about the result of a call, which say what the result was when they fail."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, Self

from pegboard.call import Json
from pegboard.client.call_result import CallResult, read_result
from pegboard.errors import ERROR, REFUSED
from pegboard.middleware.observability.token_count import count_tokens
from pegboard.protocol.content import is_note
from pegboard.protocol.json_values import as_object, objects_in
from pegboard.testing.single_call import Run
from pegboard.tools.answer_suggestions import NEXT_ACTIONS
from pegboard.tools.tool_result import PARSE_ERRORS, PARSE_WARNINGS

_MAX_SHOWN = 2000


def expect(result: CallResult | Run | Mapping[str, Json]) -> Expectation:
    """Return assertions about the `result` of `client.call`, of `run_alone`, or as the protocol has it.

    They can be chained: `expect(result).ok().contains("5").repaired("a")`.
    """
    if isinstance(result, Run):
        if result.result is None:
            raise AssertionError(f"expected a result, but the call raised {result.exception!r}")
        result = result.result
    return Expectation(result if isinstance(result, CallResult) else read_result(result))


class Expectation:
    """Assertions about one `result`; each returns itself, and an AssertionError shows the result."""

    def __init__(self, result: CallResult) -> None:
        self.result = result

    def ok(self) -> Self:
        """The result is not an error."""
        __tracebackhide__ = True
        return self._check(not self.result.is_error, "no error")

    def error(self, pattern: str = "", *, code: str | None = None) -> Self:
        """The result is an error whose text matches a regular expression `pattern`, with this `code`."""
        __tracebackhide__ = True
        self._check(self.result.is_error, "an error")
        if code is not None:
            found = as_object(self.result.meta.get(ERROR)).get("code")
            self._check(found == code, f"an error with the code {code!r}, not {found!r}")
        return self.matches(pattern)

    def refused(self, reason: str) -> Self:
        """A limit rejected the call for this `reason`, such as "rate_limit"."""
        __tracebackhide__ = True
        found = as_object(self.result.meta.get(REFUSED)).get("reason")
        return self._check(found == reason, f"a rejection with the reason {reason!r}, not {found!r}")

    def invalid(self, *paths: str) -> Self:
        """The arguments at these `paths` were rejected, and no others."""
        __tracebackhide__ = True
        found = _paths(self.result.meta.get(PARSE_ERRORS))
        return self._check(found == sorted(paths) and bool(found), f"problems at {sorted(paths)}, not {found}")

    def repaired(self, *paths: str) -> Self:
        """The arguments at these `paths` were repaired, and no others; without paths: none was."""
        __tracebackhide__ = True
        found = _paths(self.result.meta.get(PARSE_WARNINGS))
        return self._check(found == sorted(paths), f"repairs at {sorted(paths)}, not {found}")

    def text(self, expected: str) -> Self:
        """The text is exactly the `expected` one."""
        __tracebackhide__ = True
        return self._check(self.result.text == expected, f"the text {expected!r}")

    def contains(self, *parts: str) -> Self:
        """The text contains all these `parts`."""
        __tracebackhide__ = True
        missing = [part for part in parts if part not in self.result.text]
        return self._check(not missing, f"a text that contains {', '.join(map(repr, missing))}")

    def notes(self, *parts: str) -> Self:
        """The notes that the server added for the model contain all these `parts`."""
        __tracebackhide__ = True
        text = "\n".join(_note_texts(self.result.content))
        missing = [part for part in parts if part not in text]
        return self._check(not missing, f"notes that contain {', '.join(map(repr, missing))}, not {text!r}")

    def matches(self, pattern: str) -> Self:
        """The regular expression `pattern` occurs in the text."""
        __tracebackhide__ = True
        return self._check(re.search(pattern, self.result.text) is not None, f"a text that matches {pattern!r}")

    def structured(self, expected: Any) -> Self:
        """The structured content equals the `expected` value, or `{"result": expected}`, as legacy clients get it."""
        __tracebackhide__ = True
        found = self.result.structured
        return self._check(found in (expected, {"result": expected}), f"the structured content {expected!r}")

    def blocks(self, *types: str) -> Self:
        """The content has blocks of these `types`, in this order."""
        __tracebackhide__ = True
        found = tuple(block.get("type") for block in self.result.content)
        return self._check(found == types, f"content blocks {types}, not {found}")

    def suggests(self, *tools: str) -> Self:
        """The result suggests to call these `tools` next, or the error to try them."""
        __tracebackhide__ = True
        meta = self.result.meta
        actions = meta.get(NEXT_ACTIONS) or as_object(meta.get(ERROR)).get("tools")
        named = [action.get("tool") for action in objects_in(actions)]
        return self._check(named == list(tools), f"suggestions {list(tools)}, not {named}")

    def tokens_at_most(self, limit: int) -> Self:
        """The text has at most `limit` tokens, as `count_tokens` counts them."""
        __tracebackhide__ = True
        tokens = count_tokens(self.result.text)
        return self._check(tokens <= limit, f"at most {limit} tokens, not {tokens}")

    def _check(self, holds: bool, expected: str) -> Self:
        __tracebackhide__ = True
        if not holds:
            self._fail(expected)
        return self

    def _fail(self, expected: str) -> NoReturn:
        __tracebackhide__ = True
        result = self.result
        lines = [f"expected {expected}", f"the result is {'an error' if result.is_error else 'not an error'}"]
        lines.append(f"text: {result.text}")
        if result.structured is not None:
            lines.append(f"structured: {result.structured!r}")
        if result.meta:
            lines.append(f"meta: {dict(result.meta)!r}")
        raise AssertionError("\n".join(line[:_MAX_SHOWN] for line in lines))


def _note_texts(content: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for block in filter(is_note, content):
        yield str(as_object(block.get("resource", block)).get("text", ""))


def _paths(problems: object) -> list[str]:
    return sorted(str(problem.get("path", "")) for problem in objects_in(problems))
