"""Alternative tool names for clients that do not accept the original ones."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import sha256

from msgspec import Struct

TAIL = 8


class NameRule(Struct, frozen=True):
    """The names that an endpoint or a model provider accepts for tools; a-z and _ are always allowed."""

    letters: str = "A-Za-z0-9_-"
    longest: int = 64
    first: str = ""
    """The characters that a name may start with, if these differ."""

    def admits(self, name: str) -> bool:
        head = self.first or self.letters
        return re.fullmatch(f"[{head}][{self.letters}]{{0,{self.longest - 1}}}", name) is not None

    def replace_invalid(self, name: str) -> str:
        """The name with every character replaced that is not allowed; its length stays the same."""
        mended = re.sub(f"[^{self.letters}]", "_", name)
        if self.first and not re.match(f"[{self.first}]", mended):
            mended = f"_{mended}"
        return mended


ANY = NameRule(letters="A-Za-z0-9_.-", longest=128)
DOTLESS = NameRule()
GEMINI = NameRule(letters="A-Za-z0-9_.:-", first="A-Za-z_")


class NameMap:
    """Aliases for a set of names, in both directions.

    An allowed name is its own alias. In other names, `_` replaces each character that is not allowed. A suffix made
    from the hash of the whole name is added only if the name had to be cut, or if two names would share an alias. The
    order of the names does not matter, and an alias changes only when a name that would share it is added or removed.
    """

    __slots__ = ("_aliases", "_names")

    def __init__(self, names: Iterable[str], rule: NameRule = DOTLESS) -> None:
        wanted = list(dict.fromkeys(names))
        mended = {name: name if rule.admits(name) else rule.replace_invalid(name) for name in wanted}
        shared = Counter(mended.values())
        aliases = {
            name: alias
            for name, alias in mended.items()
            if rule.admits(name) or (shared[alias] == 1 and len(alias) <= rule.longest)
        }
        taken = set(aliases.values())
        # Sorted, so that the aliases do not depend on the order of the names.
        for name in sorted(mended.keys() - aliases.keys()):
            aliases[name] = _tailed(name, mended[name], rule.longest, taken)
            taken.add(aliases[name])
        self._aliases = {name: aliases[name] for name in wanted}
        self._names = {alias: name for name, alias in self._aliases.items()}

    def alias(self, name: str) -> str:
        """The alias of this tool; KeyError for a name that is not in the set."""
        return self._aliases[name]

    def name(self, alias: str) -> str:
        """The tool behind an alias; an unknown alias is returned unchanged."""
        return self._names.get(alias, alias)

    def changed(self) -> dict[str, str]:
        """The names that differ from their aliases, with these."""
        return {name: alias for name, alias in self._aliases.items() if name != alias}

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._aliases.items())

    def __len__(self) -> int:
        return len(self._aliases)


def _tailed(name: str, alias: str, longest: int, taken: set[str]) -> str:
    # Lower-case letters only, which every rule allows.
    digest = "".join(chr(ord("a") + byte % 26) for byte in sha256(name.encode("utf-8")).digest())
    for length in range(TAIL, min(longest, len(digest))):
        tail = f"_{digest[:length]}"
        tailed = alias[: longest - len(tail)] + tail
        if tailed not in taken:
            return tailed
    raise ValueError(f"no alias of {longest} characters is free for {name!r}")
