"""``wva completion SHELL``: tab completion for bash, zsh and fish, and for ``kubectl wva``.

The script of a shell asks ``wva __complete WORD ... BEGINNING`` at each tab, as the scripts of kubectl and helm do, and
the answer has their form: a candidate in each line, with its meaning behind a tab, and at the end ``:0`` where file
names may follow, else ``:4``. kubectl asks the program ``kubectl_complete-wva`` in the same way. So flags and commands
are never written down a second time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from wva.cli.parser import build_parser, with_command

EXAMPLES: Final = (
    "wva completion bash > /etc/bash_completion.d/wva",
    'wva completion zsh > "${fpath[1]}/_wva"',
    "wva completion fish > ~/.config/fish/completions/wva.fish",
)
_FILES: Final = ":0"
_NO_FILES: Final = ":4"
_NAMES_OF_FILES: Final = {"FILE", "DIR", "PATH", "FILE|DIR", "DIR|FILE", "NAME|FILE"}
"""The metavars of arguments that are files or folders."""
_TRUE_OR_FALSE: Final = "BOOL"

_BASH: Final = r"""# bash completion of wva
_wva() {
    local line directive=""
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
            :*) directive=$line ;;
            *) COMPREPLY+=("${line%%$'\t'*}") ;;
        esac
    done < <("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [[ $directive == :0 ]]; then compopt -o default; fi
}
complete -F _wva wva
"""
_ZSH: Final = r"""#compdef wva
_wva() {
    local line directive=""
    local -a found shown
    while IFS= read -r line; do
        if [[ $line == :* ]]; then
            directive=$line
        else
            found+=("${line%%$'\t'*}")
            shown+=("${line//$'\t'/  -- }")
        fi
    done < <("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
    (( $#found )) && compadd -l -d shown -a found
    if [[ $directive == :0 ]]; then _files; fi
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _wva "$@"; else compdef _wva wva; fi
"""
_FISH: Final = r"""# fish completion of wva
function __wva_complete
    set -l current (commandline -ct)
    set -l words (commandline -opc) "$current"
    set -l found ($words[1] __complete $words[2..-1] 2>/dev/null)
    string match -v -r '^:' -- $found
    if test "$found[-1]" = ":0"
        __fish_complete_path $current
    end
end
complete -c wva -f -a '(__wva_complete)'
"""
_SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the shell."""
    parser.description = (
        "Print the script with which a shell completes commands, flags and their values. For this session alone: "
        "source <(wva completion bash). `kubectl wva` is completed by kubectl's own script and kubectl_complete-wva."
    )
    parser.add_argument("shell", choices=list(_SCRIPTS), metavar="SHELL", help=" or ".join(_SCRIPTS))


def run(arguments: argparse.Namespace) -> int:
    """Print the script; status 0."""
    sys.stdout.write(_SCRIPTS[arguments.shell])
    return 0


def answer(words: Sequence[str]) -> int:
    """Print the candidates for the last word, which may be empty; the exit status."""
    place = _place(words)
    for word, meaning in place.candidates():
        print(f"{word}\t{meaning}" if meaning else word)
    print(_FILES if place.takes_file else _NO_FILES)
    return 0


@dataclass(frozen=True, slots=True)
class CompletionPlace:
    """Where the cursor is: behind the arguments of a parser, in a word that begins with ``prefix``.

    ``value_of`` is the argument whose value the word is; None where it may also be a flag. ``lead`` is the part of
    the word that is no part of the value, such as ``--output=``.
    """

    parser: argparse.ArgumentParser
    prefix: str
    value_of: argparse.Action | None
    lead: str = ""

    @property
    def takes_file(self) -> bool:
        """Tell whether the value may be a file or a folder."""
        return self.value_of is not None and self.value_of.metavar in _NAMES_OF_FILES

    def candidates(self) -> Iterator[tuple[str, str]]:
        """Yield the words that may stand there, each with its meaning."""
        for word, meaning in self._all():
            if word.startswith(self.prefix):
                yield self.lead + word, meaning

    def _all(self) -> Iterator[tuple[str, str]]:
        action = self.value_of
        if action is None or (not action.option_strings and self.prefix.startswith("-")):
            for flag in self.parser._actions:  # noqa: SLF001 - argparse shows its arguments nowhere else
                meaning = (flag.help or "").partition(". ")[0].replace("%%", "%").partition("\n")[0]
                yield from ((spelling, meaning) for spelling in flag.option_strings)
        elif isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - same
            lines = {subcommand.dest: subcommand.help or "" for subcommand in action._get_subactions()}  # noqa: SLF001 - same
            yield from ((name, lines.get(name, "")) for name in action.choices)
        elif action.metavar == _TRUE_OR_FALSE:
            yield from (("true", ""), ("false", ""))
        else:
            yield from ((str(choice), "") for choice in action.choices or ())


def _place(words: Sequence[str]) -> CompletionPlace:
    """Return where the last word is. A shell may have split ``--flag=value`` into three words, as bash does."""
    *before, last = with_command(words) or [""]
    if last == "=":
        before, last = [*before, "="], ""
    parser: argparse.ArgumentParser = build_parser(before[0] if before else "")
    pending: argparse.Action | None = None
    positionals = _positionals(parser)
    for word in before:
        flag = parser._option_string_actions.get(word)  # noqa: SLF001 - argparse shows its arguments nowhere else
        if word == "=" and pending is not None:
            continue
        if flag is not None:
            pending = flag if flag.nargs != 0 else None
        elif word.startswith("-") and word != "-":
            pending = None
        elif pending is not None:
            pending = pending if pending.nargs in {"+", "*"} else None
        elif positionals:
            action = positionals[0]
            if isinstance(action, argparse._SubParsersAction) and word in action.choices:  # noqa: SLF001 - same
                parser = action.choices[word]
                positionals = _positionals(parser)
            elif action.nargs not in {"+", "*"}:
                positionals = positionals[1:]
    name, equals, beginning = last.partition("=")
    flag = parser._option_string_actions.get(name)  # noqa: SLF001 - same
    if equals and flag is not None:
        return CompletionPlace(parser, beginning, flag, lead=f"{name}=")
    if pending is not None and not last.startswith("-"):
        return CompletionPlace(parser, last, pending)
    return CompletionPlace(parser, last, positionals[0] if positionals else None)


def _positionals(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if not action.option_strings]  # noqa: SLF001 - same
