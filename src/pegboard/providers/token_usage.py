"""The tokens that a model used for one response, as each provider reports them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from pegboard.call import Json
from pegboard.protocol.json_values import as_object


class TokenUsage(Struct, frozen=True):
    """The tokens of one response: `prompt` in all, of which `cached` came from a cache, and `completion`."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0


def read_usage(provider: str, response: Json) -> TokenUsage | None:
    """The usage in a whole response; None if it has none."""
    whole = as_object(response)
    member = "usageMetadata" if provider == "gemini" else "usage"
    found = whole if provider == "ollama" else as_object(whole.get(member) or whole.get("usage_metadata"))
    prompt, completion, cached, added = _MEMBERS[provider]
    if not any(_count(found, name) for name in (*prompt, *completion)):
        return None
    at_hand = _count(found, *cached)
    return TokenUsage(
        prompt=sum(_count(found, name) for name in prompt) + (at_hand if added else 0),
        completion=sum(_count(found, name) for name in completion),
        cached=at_hand,
    )


def _count(usage: Mapping[str, Json], *path: str) -> int:
    """The number at this path, or under its name in snake_case, as the provider's own package writes it; else 0."""
    found: Json = usage
    for name in path:
        inside = as_object(found)
        snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
        found = inside.get(name, inside.get(snake))
    return found if type(found) is int and found > 0 else 0


# By provider: the counts of the prompt, of the completion, the path of the cached ones, and whether those are extra.
_MEMBERS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], bool]] = {
    "openai": (("prompt_tokens",), ("completion_tokens",), ("prompt_tokens_details", "cached_tokens"), False),
    "openai-responses": (("input_tokens",), ("output_tokens",), ("input_tokens_details", "cached_tokens"), False),
    "anthropic": (
        ("input_tokens", "cache_creation_input_tokens"),
        ("output_tokens",),
        ("cache_read_input_tokens",),
        True,
    ),
    "gemini": (
        ("promptTokenCount",),
        ("candidatesTokenCount", "thoughtsTokenCount"),
        ("cachedContentTokenCount",),
        False,
    ),
    "ollama": (("prompt_eval_count",), ("eval_count",), ("cached",), False),
}
