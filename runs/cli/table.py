"""All commands in one table.

`keystone --help` takes its groups and their order from it, and the error for an unknown command takes its advice.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pkgutil import resolve_name
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from keystone.indexing.errors import UserError
from keystone.indexing.io.hub import to_local
from keystone.runs.cli.options import Command as CommandLine
from keystone.runs.report.say import say


@dataclass(frozen=True)
class Command:
    """A command or a group of commands, its module in `commands/`, and the words by which somebody might look for it.

    The module has a function, or a `typer.Typer`, of the command's name. `more` has the words for a part of the
    command: those for `keystone validate --fix` are under `--fix`.
    """

    name: str
    module: str
    words: str = ""
    more: Mapping[str, str] = field(default_factory=dict)


GROUPS: Mapping[str, Sequence[Command]] = {
    "Start": [
        Command("demo", "machine_commands", "example init quickstart start try tutorial"),
        Command("doctor", "machine_commands", "debug diagnostics environment", {"--model": "ping probe"}),
    ],
    "Make and submit runs": [
        Command("index", "index_command", "add build corpus embed encode ingest load pyserini update"),
        Command(
            "run",
            "run_commands",
            "batch create decompose generate make rank resume retrieve searcher",
            {"--dry-run": "cost estimate plan price", "--budget": "budget limit save", "--preset": "preset presets"},
        ),
        Command("answer", "run_commands", "answers augmented_generation bulk ragnarok stream"),
        Command(
            "fuse",
            "file_commands",
            "combine fusion join merge rrf trectools",
            {
                f"--method {name.lower().removeprefix('comb')}": name.lower()
                for name in ("CombANZ", "CombMAX", "CombMED", "CombMIN", "CombMNZ", "CombSUM")
            },
        ),
        Command(
            "validate",
            "file_commands",
            "check lint submission submit verify",
            {"--fix": "clean correct fix mend normalize repair shorten"},
        ),
    ],
    "Measure runs": [
        Command(
            "evaluate",
            "evaluate_command",
            "benchmark compare diff eval ir_measures map measure measures metrics ndcg ranx significance test "
            "trec-eval trec_eval ttest",
        ),
        Command(
            "judge",
            "judge_command",
            "annotate assess grade judgments label qrels relevance umbrela",
            {"battles": "arena battle elo leaderboard ragdoll tournament", "pair": "duel", "use": "useful usefulness"},
        ),
        Command(
            "nuggets",
            "nuggets_commands",
            "autonuggetizer nugget nuggetizer",
            {"assign": "assign", "create": "nuggetize", "support": "support", "score": "recall"},
        ),
        Command("pool", "pool_command", "assessor assessors pooling"),
        Command("agree", "pool_command", "agreement cohen confusion kappa kendall tau tau_ap"),
        Command("rubrics", "rubrics_commands", "criteria criterion researchrubrics rubric"),
        Command("score", "evaluate_command", "scoreboard scores scoresheet sheet"),
        Command("report", "report_command", "browse dashboard html summary view"),
        Command("plot", "report_command", "chart draw figure graph picture"),
    ],
    "Improve runs": [
        Command("diagnose", "report_command", "analyze analyse failures find-losses loss losses lost missing"),
        Command("explain", "file_commands", "reason why"),
        Command("trace", "file_commands", "log steps"),
        Command("tune", "tune_commands", "choose cross-validate optimise optimize settings"),
        Command("sweep", "tune_commands", "ablate ablation grid"),
    ],
    "Ask and serve an index": [
        Command("search", "ask_commands", "find query"),
        Command("ask", "ask_commands", "chat question rag"),
        Command("show", "ask_commands", "cat document fetch get open print"),
        Command("serve", "serve_command", "api http rest server start-server web", {"--stdio": "agent mcp stdio"}),
        Command("replay", "serve_command", "repeat session"),
    ],
    "Exchange files": [
        Command("convert", "convert_command", "export import format transform translate"),
        Command("bundle", "run_commands", "archive pack package share zip"),
        Command("reproduce", "run_commands", "rebuild remake unpack"),
        Command("reproduce-track", "run_commands", "baseline baselines"),
        Command("push", "convert_command", "publish upload"),
        Command("pull", "convert_command", "clone download"),
        Command("record", "run_commands", "cache dump replies save-replies"),
    ],
}
"""The commands of each group, in the order of `keystone --help`."""

OPTIONS = {"--help": "commands help list man usage", "--version": "version"}
"""Options of `keystone` itself, with the words by which somebody might look for them."""


def list_names() -> list[str]:
    """List the names of all commands in the order of the table."""
    return [command.name for group in GROUPS.values() for command in group]


def list_words() -> Iterator[tuple[str, str]]:
    """List each word that somebody may type, with what to type after `keystone` instead."""
    for command in (command for group in GROUPS.values() for command in group):
        yield command.name, command.name
        yield from ((word, command.name) for word in command.words.split())
        yield from ((word, f"{command.name} {part}") for part, words in command.more.items() for word in words.split())
    yield from ((word, option) for option, words in OPTIONS.items() for word in words.split())


def suggest(word: str) -> list[str]:
    """Suggest calls for a word that is no command, the best one first.

    A known word leads to its command. Any other word leads to commands, or else to words, that are spelt alike.
    """
    calls = dict(list_words())
    typed = word.lower()
    if typed in calls:
        return [f"keystone {calls[typed]}"]
    near = get_close_matches(typed, list_names(), n=2, cutoff=0.75) or get_close_matches(typed, calls, n=2, cutoff=0.75)
    return list(dict.fromkeys(f"keystone {calls[one]}" for one in near))


WROTE_JSON = (["evaluate"], ["diagnose"], ["nuggets", "score"])
"""The commands whose `--json` was once followed by the name of a file."""


def _name_output(args: Sequence[str]) -> list[str]:
    """Replace `--json FILE.json` by `--out FILE.json`, and say so."""
    joined = re.sub(r"(^|\0)--json(?:\0|=)(?=[^-\0][^\0]*\.json(?:\0|$))", r"\1--out\0", "\0".join(args))
    if (found := joined.split("\0")) != [*args]:
        say("--json FILE: the file is written as before, but its name now follows --out; --json alone prints", err=True)
    return found


class CommandsByName(Mapping[str, Any]):
    """All commands by name. A command is imported when it is first asked for, since importing all takes long."""

    def __getitem__(self, name: str) -> Any:
        return build_command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(list_names())

    def __len__(self) -> int:
        return len(list_names())


@cache
def build_command(name: str) -> Any:
    """Import a command of the table, and build it for the command line. `KeyError` for another name."""
    commands = {command.name: (title, command) for title, group in GROUPS.items() for command in group}
    title, command = commands[name]
    call = resolve_name(f"keystone.runs.cli.commands.{command.module}:{name.replace('-', '_')}")
    alone = typer.Typer(add_completion=False)
    if isinstance(call, typer.Typer):
        alone.add_typer(call, name=name, no_args_is_help=True, rich_help_panel=title)
    else:
        alone.command(name, cls=CommandLine, rich_help_panel=title)(call)
    return get_group(alone).commands[name]


class Commands(TyperGroup):
    """The commands in the order of the table. For an unknown one, the error says what to type."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "commands": CommandsByName()})

    def list_commands(self, _ctx: Any) -> list[str]:
        """List the names in the order of the table."""
        return list_names()

    def get_command(self, _ctx: Any, cmd_name: str) -> Any:
        """Import the command of this name, if the table has it. An error of that import is never hidden."""
        return build_command(cmd_name) if cmd_name in list_names() else None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments of all commands. Several `--qrels` are an error, but for `evaluate`.

        Three commands wrote JSON by `--json FILE`, and still do. If an argument is a name of the hub, Keystone fetches
        the data set, unless the command asks the hub itself.
        """
        if args[:1] not in (["push"], ["pull"]):
            args = [to_local(arg) for arg in args]
        if args[:1] != ["evaluate"] and sum(arg.partition("=")[0] == "--qrels" for arg in args) > 1:
            raise UserError("--qrels: found more than once; expected one file of judgments")
        return super().parse_args(ctx, _name_output(args) if args[:1] in WROTE_JSON or args[:2] in WROTE_JSON else args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the first argument names."""
        word = args[0]
        if self.get_command(ctx, word) is None and not word.startswith("-") and not ctx.resilient_parsing:
            calls = " or ".join(f"'{call}'" for call in suggest(word))
            advice = f"Did you mean {calls}?" if calls else "All commands: 'keystone --help'."
            ctx.fail(f"No such command '{word}'. {advice}")
        return super().resolve_command(ctx, args)
