"""Prints ten random paragraphs of the documents and twenty random messages of the source, to be read aloud.

`.venv/bin/python scripts/sample_texts.py [SEED]`
"""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path

from interpreters import ROOT
from texts import Text, read_texts

PARAGRAPHS = 10
MESSAGES = 20
# Patterns, markup, SQL and code are not sentences.
_CODE = re.compile(r"\(\?|\\b|^\s*[<|]|^(SELECT|INSERT|CREATE|DELETE|UPDATE|PRAGMA)\b|redis\.call|\r\n")


def main() -> None:
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else random.randrange(1000)
    draw = random.Random(seed)
    print(f"seed {seed}")
    for pattern, count in (("docs/**/*.md", PARAGRAPHS), ("src/**/*.py", MESSAGES)):
        found = [(path, text) for path in sorted(ROOT.glob(pattern)) for text in read_texts(path) if is_sentence(text)]
        for path, text in draw.sample(found, count):
            show(path, text)


def is_sentence(text: Text) -> bool:
    """Whether people read this as a sentence: a paragraph of prose, or a message of several words."""
    if text.kind == "paragraph":
        return text.text[0].isalpha() or text.text.startswith(("- ", "**", "`"))
    return text.kind == "message" and len(text.text.split()) >= 4 and not _CODE.search(text.text)


def show(path: Path, text: Text) -> None:
    print(f"\n{path.relative_to(ROOT)}:{text.line}")
    print(*(f"  {line}" for line in text.text.strip().splitlines()), sep="\n")


if __name__ == "__main__":
    main()
