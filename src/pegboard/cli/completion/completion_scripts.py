"""Completion scripts for bash, zsh and fish, made from what can be typed after each verb."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from pegboard.cli.completion.verb_usage import VerbUsage, usage_of
from pegboard.cli.verbs import VERBS


def _quoted(text: str) -> str:
    """Text in single quotes, for every one of these shells."""
    return "'" + " ".join(text.split()).replace("\\", "").replace("'", "’") + "'"


def _words(words: Iterator[str]) -> str:
    return " ".join(words)


def _names(usage: VerbUsage) -> str:
    return _words(name for flag in usage.flags for name in flag.names)


def _values(verbs: Mapping[str, VerbUsage]) -> Iterator[tuple[str, str]]:
    """The verb and the flag, as patterns of `case`, and the values to choose from."""
    for verb, usage in verbs.items():
        for flag in usage.flags:
            if flag.choices:
                yield " | ".join(f"'{verb} {name}'" for name in flag.names), _words(iter(flag.choices))


def _positions(verbs: Mapping[str, VerbUsage]) -> Iterator[tuple[str, str]]:
    for verb, usage in verbs.items():
        words = [*usage.actions, *usage.choices]
        if words:
            yield verb, " ".join(words)


def _bash(verbs: Mapping[str, VerbUsage]) -> str:
    values = "\n".join(
        f"        {pattern}) COMPREPLY=($(compgen -W '{words}' -- \"$word\")); return ;;"
        for pattern, words in _values(verbs)
    )
    flags = "\n".join(f"            {verb}) words='{_names(usage)}' ;;" for verb, usage in verbs.items())
    positions = "\n".join(
        f'        {verb}) [ "$COMP_CWORD" -eq 2 ] && COMPREPLY=($(compgen -W \'{words}\' -- "$word")) ;;'
        for verb, words in _positions(verbs)
    )
    return f"""\
# bash completion for pegboard: eval "$(pegboard completion bash)"
_pegboard() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} verb=${{COMP_WORDS[1]}} words=''
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W '{" ".join(verbs)} --help --version' -- "$word"))
        return
    fi
    case "$verb $before" in
{values}
    esac
    if [[ $word == -* ]]; then
        case "$verb" in
{flags}
        esac
        COMPREPLY=($(compgen -W "$words" -- "$word"))
        return
    fi
    case "$verb" in
{positions}
    esac
    [ ${{#COMPREPLY[@]}} -eq 0 ] && COMPREPLY=($(compgen -f -- "$word"))
}}
complete -o filenames -F _pegboard pegboard
"""


def _zsh(verbs: Mapping[str, VerbUsage]) -> str:
    named = "\n".join(f"            {_quoted(f'{verb}:{VERBS[verb]}')}" for verb in verbs)
    values = "\n".join(f"        {pattern}) compadd -- {words}; return ;;" for pattern, words in _values(verbs))
    flags = "\n".join(f"            {verb}) compadd -- {_names(usage)} ;;" for verb, usage in verbs.items())
    positions = "\n".join(
        f"        {verb}) (( CURRENT == 3 )) && {{ compadd -- {words}; return; }} ;;"
        for verb, words in _positions(verbs)
    )
    return f"""\
#compdef pegboard
# zsh completion for pegboard: source <(pegboard completion zsh)
_pegboard() {{
    local -a verbs
    if (( CURRENT == 2 )); then
        verbs=(
{named}
        )
        _describe verb verbs
        return
    fi
    case "$words[2] $words[CURRENT-1]" in
{values}
    esac
    if [[ $words[CURRENT] == -* ]]; then
        case "$words[2]" in
{flags}
        esac
        return
    fi
    case "$words[2]" in
{positions}
    esac
    _files
}}
compdef _pegboard pegboard
"""


def _fish(verbs: Mapping[str, VerbUsage]) -> str:
    lines = ["# fish completion for pegboard: pegboard completion fish | source"]
    for verb, usage in verbs.items():
        lines.append(f"complete -c pegboard -n __fish_use_subcommand -f -a {verb} -d {_quoted(VERBS[verb])}")
        seen = f"complete -c pegboard -n '__fish_seen_subcommand_from {verb}'"
        for flag in usage.flags:
            long = [name.removeprefix("--") for name in flag.names if name.startswith("--")]
            short = [name.removeprefix("-") for name in flag.names if not name.startswith("--")]
            spelt = "".join([*(f" -l {name}" for name in long), *(f" -s {name}" for name in short)])
            value = f" -x -a {_quoted(' '.join(flag.choices))}" if flag.choices else " -r" if flag.takes_value else ""
            lines.append(f"{seen}{spelt}{value} -d {_quoted(flag.help)}")
        lines += [f"{seen} -a {action} -d {_quoted(text)}" for action, text in usage.actions.items()]
        lines += [f"{seen} -a {choice}" for choice in usage.choices]
    return "\n".join(lines) + "\n"


SHELLS: Final[Mapping[str, Callable[[Mapping[str, VerbUsage]], str]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}


def completion_script(shell: str) -> str:
    """The script for a shell."""
    return SHELLS[shell]({verb: usage_of(verb) for verb in VERBS})
