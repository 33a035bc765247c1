"""Detects misspelled keys in the files of other programs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from pegboard.config.config_keys import ROOT, SERVER
from pegboard.tools.naming import find_misspelt

# Other programs' names for our keys, so that a typo in theirs leads to ours.
_OTHER_WORDS: Final = {"environment": "env", "envs": "env", "environ": "env", "arguments": "args", "parameters": "args"}
# Keys of other programs that look like typos of ours.
_FOREIGN_KEYS: Final = frozenset({"arguments", "auth", "scope", "timeout", "tools", "version"})
_ROOTS: Final = (*(key for key in ROOT.fields if key not in ("$schema", "toolboxes")), "names")


def find_typos(server: Collection[str], dialect: Collection[str]) -> Mapping[str, str]:
    """The misspelt keys of a server, with the key that was meant; `dialect` are further keys of its file format."""
    words = {**_OTHER_WORDS, **{key: key for key in (*SERVER.fields, *dialect)}}
    return _near(server, words, {*SERVER.fields, *dialect, *_FOREIGN_KEYS})


def find_root_typos(root: Collection[str], servers: str) -> Mapping[str, str]:
    """The same for the keys beside `servers`."""
    return _near(root, {key: key for key in _ROOTS}, {*ROOT.fields, "names", servers})


def _near(given: Collection[str], words: Mapping[str, str], known: Collection[str]) -> dict[str, str]:
    found = {key: find_misspelt(key, words) for key in given if key not in known}
    return {key: words[word] for key, word in found.items() if word is not None}
