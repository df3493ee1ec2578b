"""All commands in one table.

`keystone --help` takes its groups and their order from it, and the error for an unknown command takes its advice.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import typer
from typer.core import TyperGroup

from keystone.indexing.errors import UserError
from keystone.indexing.io.hub import to_local
from keystone.runs.cli.commands.ask_commands import ask, search, show
from keystone.runs.cli.commands.convert_command import convert, pull, push
from keystone.runs.cli.commands.evaluate_command import evaluate, score
from keystone.runs.cli.commands.file_commands import explain, fuse, trace, validate
from keystone.runs.cli.commands.index_command import index
from keystone.runs.cli.commands.judge_command import judging
from keystone.runs.cli.commands.machine_commands import demo, doctor
from keystone.runs.cli.commands.nuggets_commands import nuggets
from keystone.runs.cli.commands.pool_command import agree, pool
from keystone.runs.cli.commands.report_command import diagnose, plot, report
from keystone.runs.cli.commands.rubrics_commands import rubrics
from keystone.runs.cli.commands.run_commands import answer, bundle, record, reproduce, reproduce_track, run
from keystone.runs.cli.commands.serve_command import replay, serve
from keystone.runs.cli.commands.tune_commands import sweep, tune
from keystone.runs.cli.options import Command as CommandLine
from keystone.runs.report.say import say


@dataclass(frozen=True)
class Command:
    """A command, and the words by which somebody might look for it.

    `more` has the words for a part of the command: those for `keystone validate --fix` stand at `--fix`.
    """

    call: Callable[..., None] | typer.Typer
    words: str = ""
    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the command."""
        return str(self.call.info.name) if isinstance(self.call, typer.Typer) else self.call.__name__.replace("_", "-")


GROUPS: Mapping[str, Sequence[Command]] = {
    "Start": [
        Command(demo, "example init quickstart start try tutorial"),
        Command(doctor, "debug diagnostics environment", {"--model": "ping probe"}),
    ],
    "Make and submit runs": [
        Command(index, "add build corpus embed encode ingest load pyserini update"),
        Command(
            run,
            "batch create decompose generate make rank resume retrieve searcher",
            {"--dry-run": "cost estimate plan price", "--budget": "budget limit save", "--preset": "preset presets"},
        ),
        Command(answer, "answers augmented_generation bulk ragnarok stream"),
        Command(
            fuse,
            "combine fusion join merge rrf trectools",
            {
                f"--method {name.lower().removeprefix('comb')}": name.lower()
                for name in ("CombANZ", "CombMAX", "CombMED", "CombMIN", "CombMNZ", "CombSUM")
            },
        ),
        Command(
            validate,
            "check lint submission submit verify",
            {"--fix": "clean correct fix mend normalize repair shorten"},
        ),
    ],
    "Measure runs": [
        Command(
            evaluate,
            "benchmark compare diff eval ir_measures map measure measures metrics ndcg ranx significance test "
            "trec-eval trec_eval ttest",
        ),
        Command(
            judging,
            "annotate assess grade judgments label qrels relevance umbrela",
            {"battles": "arena battle elo leaderboard ragdoll tournament", "pair": "duel", "use": "useful usefulness"},
        ),
        Command(
            nuggets,
            "autonuggetizer nugget nuggetizer",
            {"assign": "assign", "create": "nuggetize", "support": "support", "score": "recall"},
        ),
        Command(pool, "assessor assessors pooling"),
        Command(agree, "agreement cohen confusion kappa kendall tau tau_ap"),
        Command(rubrics, "criteria criterion researchrubrics rubric"),
        Command(score, "scoreboard scores scoresheet sheet"),
        Command(report, "browse dashboard html summary view"),
        Command(plot, "chart draw figure graph picture"),
    ],
    "Improve runs": [
        Command(diagnose, "analyze analyse failures find-losses loss losses lost missing"),
        Command(explain, "reason why"),
        Command(trace, "log steps"),
        Command(tune, "choose cross-validate optimise optimize settings"),
        Command(sweep, "ablate ablation grid"),
    ],
    "Ask and serve an index": [
        Command(search, "find query"),
        Command(ask, "chat question rag"),
        Command(show, "cat document fetch get open print"),
        Command(serve, "api http rest server start-server web", {"--stdio": "agent mcp stdio"}),
        Command(replay, "repeat session"),
    ],
    "Exchange files": [
        Command(convert, "export import format transform translate"),
        Command(bundle, "archive pack package share zip"),
        Command(reproduce, "rebuild remake unpack"),
        Command(reproduce_track, "baseline baselines"),
        Command(push, "publish upload"),
        Command(pull, "clone download"),
        Command(record, "cache dump replies save-replies"),
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

    A known word leads to its command. Any other word leads to commands that are spelt alike, or else to words.
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


class Commands(TyperGroup):
    """The commands in the order of the table. For an unknown one, the error says what to type."""

    def list_commands(self, _ctx: Any) -> list[str]:
        """List the names in the order of the table."""
        return list_names()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments of all commands. But for `evaluate`, only the last of several `--qrels` would count.

        Three commands wrote JSON by `--json FILE`, and still do. If an argument is a name of the hub, Keystone fetches
        the data set.
        """
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


def add_commands(app: typer.Typer) -> None:
    """Add every command of the table to the command line."""
    for title, group in GROUPS.items():
        for command in group:
            if isinstance(command.call, typer.Typer):
                app.add_typer(command.call, name=command.name, no_args_is_help=True, rich_help_panel=title)
            else:
                app.command(cls=CommandLine, rich_help_panel=title)(command.call)
