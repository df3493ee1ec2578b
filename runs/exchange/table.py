"""The table of forms: for each name its kind, its users, and the import paths of its reader and its writer."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TypeVar

from keystone.indexing.errors import UserError
from keystone.indexing.plugins import OpenTable
from keystone.runs.exchange.types import Handover, Kind

Reader = Callable[[Path], Handover]
Writer = Callable[[Path, Handover], None]
Loaded = TypeVar("Loaded", Reader, Writer)


@dataclass(frozen=True, slots=True)
class Form:
    """A form of file. `reader` and `writer` are functions, or import paths below `keystone.runs.exchange.forms`."""

    name: str
    kind: Kind
    used_by: str
    reader: str | Reader
    writer: str | Writer
    fits: Callable[[dict[str, Any]], bool] | None = None
    """Whether the first record of a file of JSON shows a form that another package adds."""

    def read(self, path: Path) -> Handover:
        """Read a file of this form. `UserError` with file and line for a file of another one."""
        return _load(self.reader)(path)

    def write(self, path: Path, content: Handover) -> None:
        """Write a file of this form. `UserError` for content that it cannot hold at all."""
        _load(self.writer)(path, content)


def _load(function: str | Loaded) -> Loaded:
    if not isinstance(function, str):
        return function
    loaded: Loaded = resolve_name(f"keystone.runs.exchange.forms.{function}")
    return loaded


_FORMS = (
    Form(
        "requests",
        "requests",
        "rank_llm, umbrela, nuggetizer, ragnarok, RAGDoll",
        "requests:read_requests",
        "requests:write_requests",
    ),
    Form(
        "umbrela", "requests", "judgments of umbrela and RAGDoll", "requests:read_judgments", "requests:write_judgments"
    ),
    Form("run", "requests", "TREC runs, and rankings of our runs", "trec:read_run", "trec:write_run"),
    Form("qrels", "requests", "TREC judgments", "trec:read_qrels", "trec:write_qrels"),
    Form(
        "nugget-qrels",
        "requests",
        "TREC judgments by nugget or subtopic",
        "trec:read_nugget_qrels",
        "trec:write_nugget_qrels",
    ),
    Form("topics", "requests", "topics as JSONL; also reads TSV and <top>", "trec:read_topics", "trec:write_topics"),
    Form("topics-tsv", "requests", "TREC topics as TSV", "trec:read_topics", "trec:write_topics_tsv"),
    Form("evidence", "requests", "evidence.jsonl of our runs", "own:read_evidence", "own:write_evidence"),
    Form("answers", "answers", "answers.jsonl of our runs", "own:read_answers", "own:write_answers"),
    Form("rag24", "answers", "TREC RAG 2024, ragnarok", "answers:read", "answers:write_rag24"),
    Form("rag25", "answers", "TREC RAG 2025", "answers:read", "answers:write_rag25"),
    Form("rag26", "answers", "TREC RAG 2026", "answers:read", "answers:write_rag26"),
    Form("responses", "answers", "RAGTIME, DRAGUN, BioGen 2025 task B", "answers:read", "answers:write_responses"),
    Form("auto-judge", "answers", "auto-judge's reports with documents", "answers:read", "answers:write_report"),
    Form("biogen24", "answers", "BioGen 2024", "biogen:read_2024", "biogen:write_2024"),
    Form("biogen-grounded", "answers", "BioGen 2025 task A", "biogen:read_grounded", "biogen:write_grounded"),
    Form("ragdoll-answers", "answers", "RAGDoll's normalised answers", "answers:read", "answers:write_normalised"),
    Form("ragdoll-resolved", "answers", "RAGDoll's answers with texts", "answers:read", "answers:write_resolved"),
    Form(
        "ragdoll-support",
        "answers",
        "RAGDoll's ratings of citations by answer",
        "ragdoll:read_ratings",
        "ragdoll:write_ratings",
    ),
    Form(
        "ragdoll-pairs",
        "answers",
        "RAGDoll's ratings of citations by pair",
        "ragdoll:read_pairs",
        "ragdoll:write_pairs",
    ),
    Form("nuggets", "nuggets", "one nugget a line", "nuggets:read", "nuggets:write_lines"),
    Form(
        "nuggetizer",
        "nuggets",
        "nuggetizer and RAGDoll, with and without assignments",
        "nuggets:read",
        "nuggets:write_for_nuggetizer",
    ),
    Form("nuggetbank", "nuggets", "auto-judge's NuggetBank", "nuggets:read", "nuggets:write_nugget_bank"),
    Form("ragtime-nuggets", "nuggets", "RAGTIME 2026 task 3", "nuggets:read", "nuggets:write_for_ragtime"),
    Form(
        "sub-narratives",
        "nuggets",
        "NIST's narratives of TREC RAG 2025 with sub-narratives",
        "nuggets:read",
        "nuggets:write_sub_narratives",
    ),
    Form(
        "leaderboard",
        "scores",
        "auto-judge's leaderboards: run, measure, topic, value",
        "scores:read_leaderboard",
        "scores:write_leaderboard",
    ),
    Form(
        "ir-measures",
        "scores",
        "ir_measures, auto-judge: run, topic, measure, value",
        "scores:read_ir_measures",
        "scores:write_ir_measures",
    ),
    Form(
        "score-lines",
        "scores",
        "auto-judge's leaderboards as JSONL",
        "scores:read_score_lines",
        "scores:write_score_lines",
    ),
    Form("metrics", "scores", "metrics of nuggetizer and RAGDoll", "scores:read_metrics", "scores:write_metrics"),
)

FORMS = OpenTable("keystone.forms", Form, {form.name: form for form in _FORMS})
"""The forms by name, those of other packages included."""


def get_form(name: str, option: str) -> Form:
    """Get the form with a name. `UserError` that names the option for an unknown one."""
    if name not in FORMS:
        raise UserError(f"{option} {name}: unknown; expected one of {', '.join(FORMS)}")
    return FORMS[name]
