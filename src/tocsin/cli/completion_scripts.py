"""Completion scripts from the tree of commands: pure.

All three shells get the same facts: the words after each command, which options take a value, and what that may be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from tocsin.cli.command_tree import Command, Option

_FILES: Final = "@files"

_BASH: Final = """\
# Completion of tocsin for bash: source <(tocsin completion bash)
_tocsin_words() {{
    case "$1" in
{words}
    esac
}}
_tocsin_values() {{
    case "$1" in
{values}
    *) return 1 ;;
    esac
}}
_tocsin() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" before="" path="tocsin" word words number
    COMPREPLY=()
    for ((number = 1; number < COMP_CWORD; number++)); do
        word="${{COMP_WORDS[number]}}"
        case " $(_tocsin_commands "$path") " in
        *" $word "*) path="$path $word" ;;
        esac
        before="$word"
    done
    if words="$(_tocsin_values "$path $before")"; then
        if [ "$words" = "{files}" ]; then
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$current")
            return
        fi
    else
        words="$(_tocsin_words "$path")"
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}}
_tocsin_commands() {{
    case "$1" in
{commands}
    esac
}}
complete -F _tocsin tocsin
"""


def bash_script(commands: Sequence[Command]) -> str:
    words, values, children = [], [], []
    for command in commands:
        path = " ".join(("tocsin", *command.path))
        words.append(f'    "{path}") echo "{" ".join(_words(command))}" ;;')
        if command.children:
            children.append(f'    "{path}") echo "{" ".join(command.children)}" ;;')
        for option in command.options:
            if option.takes_value:
                names = " | ".join(f'"{path} {name}"' for name in option.names)
                values.append(f'    {names}) echo "{_values(option)}" ;;')
    return _BASH.format(
        words="\n".join(words), values="\n".join(values), commands="\n".join(children), files=_FILES
    )


def _words(command: Command) -> Iterable[str]:
    yield from command.children
    for argument in command.arguments:
        yield from argument.choices
    for option in command.options:
        yield from option.names


def _values(option: Option) -> str:
    return _FILES if option.is_path else " ".join(option.choices)


_ZSH: Final = """\
#compdef tocsin
# Completion of tocsin for zsh: a file _tocsin in a folder of $fpath, or source <(tocsin completion zsh)
{functions}
if [ "$funcstack[1]" = "_tocsin" ]; then
    _tocsin "$@"
else
    compdef _tocsin tocsin
fi
"""


def zsh_script(commands: Sequence[Command]) -> str:
    return _ZSH.format(functions="\n".join(map(_zsh_function, _with_summaries(commands))))


def _with_summaries(commands: Sequence[Command]) -> list[tuple[Command, dict[str, str]]]:
    """Each command with the summaries of its children."""
    summaries = {command.path: command.summary for command in commands}
    return [
        (command, {name: summaries[*command.path, name] for name in command.children}) for command in commands
    ]


def _zsh_function(entry: tuple[Command, dict[str, str]]) -> str:
    command, children = entry
    name = "_".join(("_tocsin", *command.path)).replace("-", "_")
    specs = [_zsh_option(option) for option in command.options]
    if not children:
        specs += [_zsh_argument(argument) for argument in command.arguments]
        return _zsh_lines(name, [f"    _arguments {_joined(specs)}"])
    specs += ["'1: :->command'", "'*:: :->rest'"]
    described = " ".join(_zsh_quoted(f"{child}:{summary}") for child, summary in children.items())
    cases = [f"        {child}) {name}_{child.replace('-', '_')} ;;" for child in children]
    body = [
        "    local state line",
        f"    _arguments -C {_joined(specs)}",
        "    case $state in",
        f"    command) local -a found=({described}); _describe command found ;;",
        "    rest)",
        "        case $line[1] in",
        *cases,
        "        esac ;;",
        "    esac",
    ]
    return _zsh_lines(name, body)


def _zsh_lines(name: str, body: Iterable[str]) -> str:
    return "\n".join((f"{name}() {{", *body, "}"))


def _joined(specs: Iterable[str]) -> str:
    return " \\\n        ".join(specs)


def _zsh_option(option: Option) -> str:
    about = _zsh_escaped(option.help)
    value = f":value:{_zsh_values(option)}" if option.takes_value else ""
    if len(option.names) == 1:
        return _zsh_quoted(f"{option.names[0]}[{about}]{value}")
    names = ",".join(option.names)
    return f"'({' '.join(option.names)})'{{{names}}}{_zsh_quoted(f'[{about}]{value}')}"


def _zsh_argument(argument: Option) -> str:
    return _zsh_quoted(f"*:{_zsh_escaped(argument.help)}:{_zsh_values(argument)}")


def _zsh_values(option: Option) -> str:
    if option.choices:
        return f"({' '.join(option.choices)})"
    return "_files" if option.is_path else ""


def _zsh_escaped(text: str) -> str:
    for sign in ("\\", "[", "]", ":"):
        text = text.replace(sign, f"\\{sign}")
    return text


def _zsh_quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def fish_script(commands: Sequence[Command]) -> str:
    lines = [
        "# Completion of tocsin for fish: ~/.config/fish/completions/tocsin.fish",
        "complete -c tocsin -f",
        "function __tocsin_at",
        "    set -l given (commandline -opc)[2..-1]",
        "    set -l named",
        "    for word in $given",
        "        string match -q -- '-*' $word; or set -a named $word",
        "    end",
        "    set -l depth (count $argv)",
        '    test (count $named) -ge $depth; and test "$named[1..$depth]" = "$argv"',
        "end",
    ]
    for command, children in _with_summaries(commands):
        where = _fish_condition(command.path, children)
        for child, summary in children.items():
            lines.append(f"complete -c tocsin {where} -a {child} -d {_fish_quoted(summary)}")
        lines += [f"complete -c tocsin {where} {_fish_option(option)}" for option in command.options]
        for argument in command.arguments:
            if argument.choices:
                words = _fish_quoted(" ".join(argument.choices))
                lines.append(f"complete -c tocsin {where} -a {words} -d {_fish_quoted(argument.help)}")
    return "\n".join(lines) + "\n"


def _fish_condition(path: tuple[str, ...], children: Iterable[str]) -> str:
    """At this command, and at none below it."""
    seen = " ".join(children)
    at = f"__tocsin_at {' '.join(path)}" if path else "true"
    below = f"; and not __fish_seen_subcommand_from {seen}" if seen else ""
    return f"-n '{at}{below}'"


def _fish_option(option: Option) -> str:
    names = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names]
    value = ""
    if option.takes_value:
        value = " -r"
        value += f" -a {_fish_quoted(' '.join(option.choices))}" if option.choices else ""
        value += " -F" if option.is_path else ""
    return f"{' '.join(names)}{value} -d {_fish_quoted(option.help)}"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SCRIPTS: Final[dict[str, Callable[[Sequence[Command]], str]]] = {
    "bash": bash_script,
    "zsh": zsh_script,
    "fish": fish_script,
}
