"""Translates the names and URIs in what a Pegboard server adds to its results for the model.

They are in `_meta` for programs and in a text for the model. The texts are written by a rule, so the old one is found and
replaced as a whole; a text of another form is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pegboard.call import Json
from pegboard.errors import ERROR, REFUSED, describe_tools
from pegboard.middleware.limits.kept_results import PAGE
from pegboard.middleware.limits.token_budget import TRUNCATED
from pegboard.next_action import NextAction
from pegboard.protocol.json_values import as_object, objects_in
from pegboard.tools.answer_suggestions import NEXT_ACTIONS, describe_actions

NOTES: Final = frozenset({ERROR, NEXT_ACTIONS, PAGE, REFUSED, TRUNCATED})
_MAX_ACTIONS: Final = 20

Rename = Callable[[str], str]


def translate_notes(result: Mapping[str, Json], to_name: Rename, to_uri: Rename) -> dict[str, Json]:
    """The result with names of tools and URIs as the gateway's callers know them."""
    meta = dict(as_object(result.get("_meta")))
    texts: dict[str, str] = {}
    for key, member in ((TRUNCATED, "uri"), (REFUSED, "uri"), (PAGE, "next")):
        note = as_object(meta.get(key))
        if isinstance(uri := note.get(member), str):
            texts[uri] = to_uri(uri)
            meta[key] = {**note, member: texts[uri]}
    error = as_object(meta.get(ERROR))
    for describe, listed in ((describe_tools, error.get("tools")), (describe_actions, meta.get(NEXT_ACTIONS))):
        old = [_read_action(item) for item in objects_in(listed)[:_MAX_ACTIONS]]
        new = [NextAction(to_name(action.tool), action.arguments, action.reason) for action in old]
        if old:
            texts[describe(old)] = describe(new)
            written = [action.as_json() for action in new]
            meta |= {ERROR: {**error, "tools": written}} if describe is describe_tools else {NEXT_ACTIONS: written}
    rewritten = {**result, "_meta": meta}
    for member in ("content", "contents"):
        if isinstance(items := rewritten.get(member), list):
            rewritten[member] = [_replace(item, texts) for item in items]
    return rewritten


def _read_action(item: Mapping[str, Json]) -> NextAction:
    reason = item.get("reason")
    return NextAction(
        str(item.get("tool", "")), as_object(item.get("arguments")), reason if isinstance(reason, str) else ""
    )


def _replace(item: Json, texts: Mapping[str, str]) -> Json:
    if not isinstance(item, dict):
        return item
    if isinstance(item.get("resource"), dict):
        return {**item, "resource": _replace(item["resource"], texts)}
    text = item.get("text")
    if not isinstance(text, str):
        return item
    for old, new in texts.items():
        text = text.replace(old, new)
    return {**item, "text": text}
