"""Tries the completion scripts in the shells of this machine: bash, and zsh and fish where they are installed.

`.venv/bin/python scripts/try_completion.py [SHELL …]`
"""

from __future__ import annotations

import shutil
import subprocess
import sys

from pegboard.cli.completion.completion_scripts import SHELLS, completion_script

SECONDS = 30

# What is typed, and what must be among the completions.
CASES = (
    ("pegboard l", {"lint", "list", "lock", "login"}),
    ("pegboard up --m", {"--mode"}),
    ("pegboard up --mode p", {"proxy"}),
    ("pegboard keys r", {"revoke"}),
    ("pegboard completion z", {"zsh"}),
    ("pegboard discover c", {"claude-code", "codex", "cursor"}),
)

ZSH = r"""
autoload -Uz compinit; compinit -u -D
compadd() { local -a given; given=("$@"); local at=${given[(i)--]}; local word
  for word in "${(@)given[at+1,-1]}"; do [[ $word == ${PREFIX}* ]] && print -r -- $word; done }
_describe() { local pair; for pair in "${(@P)2}"; do [[ $pair == ${PREFIX}* ]] && print -r -- ${pair%%:*}; done }
_files() { : }
source /dev/stdin <<'SCRIPT'
%s
SCRIPT
words=(%s); CURRENT=${#words}; PREFIX=$words[-1]; _pegboard
"""


def complete(shell: str, line: str) -> set[str]:
    """The completions of a line, as a real shell makes them."""
    words, script = line.split(" "), completion_script(shell)
    if shell == "bash":
        typed = " ".join(f"'{word}'" for word in words)
        program = f"{script}\nCOMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _pegboard; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        command = ["bash", "--norc", "--noprofile", "-c", program]
    elif shell == "zsh":
        command = ["zsh", "-f", "-c", ZSH % (script, " ".join(f"'{word}'" for word in words))]
    else:
        command = ["fish", "--no-config", "-c", f"{script}\ncomplete -C '{line}'"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, check=False, stdin=subprocess.DEVNULL
    )
    if done.stderr.strip():
        raise ValueError(f"{shell} rejects the script: {done.stderr.strip()}")
    return {found.partition("\t")[0] for found in done.stdout.splitlines()}


def main(shells: list[str]) -> int:
    failed = 0
    for shell in shells or list(SHELLS):
        if shutil.which(shell) is None:
            print(f"{shell}: not installed, not tried")
            continue
        for line, wanted in CASES:
            found = complete(shell, line)
            works = wanted <= found
            failed += not works
            print(
                f"{shell}: {line!r} → {' '.join(sorted(found)) or 'nothing'}{'' if works else f'; {wanted} is missing'}"
            )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
