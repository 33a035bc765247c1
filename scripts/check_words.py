"""Finds phrases that readers stumble over in the source and the documents, and counts them.

`.venv/bin/python scripts/check_words.py [FOLDER]` with another copy of the repository counts all of its files.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

from interpreters import ROOT
from texts import read_texts

# Each phrase with plain words to use instead. A phrase belongs here if it is a habit and has few good uses.
PHRASES = {
    r"(is|are|was|were|be|been) told\b": "gets, sees, is notified; or name who reports what",
    r"nobody\b": "name the subject: no caller, no client, no process",
    r"whoever\b": "name the subject: the caller, the operator, the author",
    r"somebody\b": "name the subject: another caller, another process, the user",
    r"(to|for|by|of|from) who\b": "name the subject: the client that, the caller that",
    r"(go|goes|gone|went) by\b(?! itself)": "has the name, uses",
    r"(says?|said|say) of\b": "describes, states, the definition of",
    r"(?<!there )(is|are|was|were) no (?!longer|more|less|fewer|other|better|earlier|later|nearer)": "is not a",
    r"(by|in|after|for|of|than) so (many|long|much)\b": "the number or time itself",
    r"(come|comes|came) back (for|to|with|by)\b": "resumes, reconnects, returns",
    r"under way\b": "running, in flight, in progress",
    r"anew\b": "again",
    r"(hear|hears|heard) of\b": "receives, is notified of",
    r"mend(s|ed|ing)?\b": "fix, repair",
    r"(hand|hands|handed) (on|over|out)\b": "pass, return",
    r"(ask|asks|asked) after\b": "poll",
    r"(?<!legacy-)(?<!legacy_)doors?\b": "endpoint, transport",
}
_PATTERNS = {phrase: re.compile(rf"(?<!\w){phrase}", re.IGNORECASE) for phrase in PHRASES}
FILES = (
    "src/**/*.py",
    "src/**/*.json",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "THREATS.md",
    "docs/**/*.md",
)
# A list of words, and folders that are not rewritten yet: remove a folder from this list when it is.
SKIPPED = ("src/pegboard/gateway/modes/search_words.py",)


def main() -> None:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    skipped = () if len(sys.argv) > 1 else SKIPPED
    files = [path for pattern in FILES for path in sorted(root.glob(pattern))]
    counts: Counter[str] = Counter()
    for path in files:
        name = path.relative_to(root).as_posix()
        if name.startswith(skipped):
            continue
        for text in read_texts(path):
            for phrase, pattern in _PATTERNS.items():
                for match in pattern.finditer(text.text):
                    counts[phrase] += 1
                    line = text.line + text.text.count("\n", 0, match.start())
                    print(f"{name}:{line}: {match[0]!r}; write: {PHRASES[phrase]}")
    for phrase, count in counts.most_common():
        print(f"{count:5} {phrase}")
    if counts:
        sys.exit(f"{counts.total()} phrases in {len(files)} files")


if __name__ == "__main__":
    main()
