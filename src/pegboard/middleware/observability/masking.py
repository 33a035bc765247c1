"""Masks values that look like secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

MASK = "***"

# A key is secret if one of its words is: `apiKey`, `api_key` and `X-API-Key` contain "api key"; `max_tokens` does not
# contain a token.
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRET_WORDS = frozenset(
    {"password", "passwd", "passphrase", "passcode", "pwd", "secret", "secrets", "token", "authorization", "auth"}
    | {"credential", "credentials", "cookie", "apikey", "jwt", "bearer", "otp", "cvv", "ssn"}
)
_SECRET_PAIRS = frozenset({("api", "key"), ("private", "key"), ("access", "key"), ("signing", "key")})

# Secrets in text: the value of a header, a URL with a password, a token of a known form, `key=value`, except for the name
# of a variable, `${NAME}`. Every repetition that can fail late is bounded, so that the time is linear in the length of the
# text.
_INSIDE = re.compile(
    r"""(?ix)
    \b(?P<scheme>bearer)\s{1,4}(?!\*)[\w.~+/=-]{6,}
    | (?P<address>://[^\s:/@]{0,256}:)[^\s/@]{1,256}(?=@)
    | \b(?P<form>eyJ|sk-|gh[pousr]_|github_pat_|xox[abprs]-|AKIA|glpat-)[\w.-]{12,}
    | (?P<key>(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|authorization)
        ["'\\]{0,4}\s{0,4}[:=]\s{0,4}["'\\]{0,4}(?:(?:basic|bearer)\s{1,4})?)
        (?!\*|(?:basic|bearer)\s|\$\{(?:env:)?[A-Za-z_]\w{0,99}\}(?:[\s"',;&}\\]|$))[^\s"',;&}\\]+
    """
)
# Checked first: most texts contain none of these, and skip the long expression. In lower case, they are found six times as
# fast as in any case. Beyond ASCII, there are letters that match `s` or `i` in any case, and have another lower case.
_HINTS = "bearer|://|eyj|sk-|gh[pousr]_|hub_pat|xox|akia|glpat-|pass|secret|token|api[_-]?key|authori"
_HINT = re.compile(_HINTS)
_HINT_IN_ANY_CASE = re.compile(_HINTS, re.IGNORECASE)


def words_of(key: str) -> tuple[str, ...]:
    """The words of a key in lower case: `apiKey`, `api_key` and `X-API-Key` have the words api and key."""
    return tuple(word.lower() for word in _WORDS.findall(key[:200]))


@lru_cache(maxsize=1024)
def is_secret(key: str) -> bool:
    """Whether the value of this key has to be masked."""
    words = words_of(key)
    return not _SECRET_WORDS.isdisjoint(words) or not _SECRET_PAIRS.isdisjoint(pairwise(words))


def secret_arguments(command: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The secrets in a command line, each with the position of its word: `--api-key X`, `--token=X`, `API_KEY=X`."""
    for position, word in enumerate(command):
        name, assigned, value = word.partition("=")
        if assigned:
            if value and is_secret(name):
                yield position, value
        elif position and not word.startswith("-") and command[position - 1].startswith("-"):
            flag = command[position - 1]
            if "=" not in flag and is_secret(flag):
                yield position, word


def mask_command(command: Sequence[str]) -> list[str]:
    """The words of a command line with their secrets masked."""
    words = list(command)
    for position, secret in secret_arguments(command):
        words[position] = words[position].removesuffix(secret) + MASK
    return [mask_text(word) for word in words]


def mask(value: Any) -> Any:
    """The same JSON value with secrets masked, at any depth; a value without secrets may be returned as it is."""
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, Mapping):
        return {
            mask_text(key) if isinstance(key, str) else key: MASK
            if isinstance(key, str) and is_secret(key) and item is not None
            else mask(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [mask(item) for item in value]
    return value


def has_hint(text: str) -> bool:
    """Whether a text may contain a secret."""
    return (_HINT.search(text.lower()) if text.isascii() else _HINT_IN_ANY_CASE.search(text)) is not None


def mask_text(text: str) -> str:
    """The text with its secrets masked."""
    return _INSIDE.sub(_hide, text) if has_hint(text) else text


def _hide(found: re.Match[str]) -> str:
    if found["scheme"]:
        return f"{found['scheme']} {MASK}"
    return f"{found['address'] or found['key'] or found['form']}{MASK}"
