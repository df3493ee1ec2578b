"""The sections of a run's configuration, each with its settings."""

import math
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    model_serializer,
    model_validator,
)

from keystone.fusion.methods import find_impossible_setting, find_method
from keystone.generation.llm.chat import MOST_TOKENS
from keystone.generation.llm.settings import AnyPath
from keystone.generation.readers.settings import AnswerMethod
from keystone.indexing.errors import UserError
from keystone.indexing.io.reading import read_text_lines
from keystone.indexing.settings import NoneNamed, StrictSettings, leave_out
from keystone.retrieval.bm25 import Bm25System
from keystone.retrieval.search import KINDS, AnySystem
from keystone.retrieval.system import System
from keystone.retrieval.types import K1, B
from keystone.runs.tracks.violations import shorten_value

MOST_CHOSEN_ROWS = 1000
"""The most rows of a narrative if its depth is chosen and the configuration gives no number."""
MOST_DEPTH = 100_000
"""The highest depth of a ranking."""


def bound_chosen_rows(depth: Any = None) -> int:
    """Bound the rows of a narrative by `MOST_CHOSEN_ROWS`, and by `retrieval.depth` if that is known and less.

    Another check refuses a `depth` that is no whole number.
    """
    return min(depth, MOST_CHOSEN_ROWS) if type(depth) is int else MOST_CHOSEN_ROWS


def _load_depths(value: Any) -> Any:
    """Load depths from a file with a topic id and a number on each line. Any other value is kept, with ids as text.

    `UserError` with file and line for another line.
    """
    if not isinstance(value, str | Path):
        return {str(topic): depth for topic, depth in value.items()} if isinstance(value, dict) else value
    path, found = Path(value), dict[str, int]()
    for number, line in read_text_lines(path):
        columns = line.split()
        if not columns:
            continue
        if len(columns) != 2 or not columns[1].isdecimal() or len(columns[1]) > 9:
            raise UserError(f"{path}:{number}: expected a topic id and a whole number, found {shorten_value(line)}")
        if columns[0] in found:
            raise UserError(f"{path}:{number}: topic {shorten_value(columns[0])} has a depth already")
        found[columns[0]] = int(columns[1])
    return found


class ChosenDepth(StrictSettings):
    """How the rows of each narrative are chosen from the first `fusion.depth` documents of its ranking."""

    choose: Literal["threshold", "expected"] = "expected"
    """The rows that are kept: those of the best expected F1, or those with a probability of `threshold` or more."""
    threshold: float = Field(default=0.5, gt=0, lt=1)
    """The lowest probability of a row, for `threshold`."""
    precision: float | None = Field(default=None, gt=0, lt=1)
    """For `expected`: keep the most rows whose expected precision is at least this."""
    budget: int | None = Field(default=None, ge=1, le=100_000_000)
    """For `expected`: keep this many rows of all narratives together, those with the highest probabilities."""
    calibration: AnyPath | None = None
    """The [file](participant.md#a-depth-for-each-narrative) that turns scores into probabilities. If it is null, a
    mixture of two densities is fitted to the scores of each narrative."""

    @model_validator(mode="after")
    def _check_possible(self) -> Self:
        given = [key for key in ("precision", "budget") if getattr(self, key) is not None]
        if len(given) == 2:
            raise ValueError("precision: found with budget, expected one of them")
        if given and self.choose == "threshold":
            raise ValueError(f"{given[0]}: found with choose 'threshold', expected it with choose 'expected'")
        return self


class Queries(StrictSettings):
    """How a narrative becomes queries."""

    method: Literal["rules", "model", "contract", "narrative"] = "rules"
    """What makes the [queries](methods.md#queries). `model` asks the language model to decompose the narrative, and to
    extract and expand its topic. `contract` asks it once for the questions, each with the kind of answer that it wants,
    a weight and terms. `narrative` searches for the whole narrative alone."""
    facets: Literal["sentences", "clauses"] = "sentences"
    """The questions that `rules` makes: the sentences as they are, of which two stay together, or clauses turned into
    questions (paper)."""
    topic: Annotated[Literal["lead", "phrase"] | None, NoneNamed("lead", "phrase", "none")] = "lead"
    """The topic that `rules` adds to each question: the narrative's first sentence (`lead`), an extracted phrase
    (paper), or nothing."""
    dense_topic: bool = False
    """If true, embeddings get the topic, too, and not BM25 alone (paper)."""
    questions: int = Field(default=30, ge=1, le=100)
    """The most questions of a narrative: `rules` join neighbours, and a reply with more is refused."""
    variants: int = Field(default=0, ge=0, le=50)
    """How many variants expand the topic for BM25 (paper: `NUM_QUERIES` = 10)."""
    expand: Literal["phrase", "narrative"] = "phrase"
    """The text from which `model` expands the topic: the topic's phrase alone (paper), or with the narrative."""
    translate: bool = False
    """If true, the model [translates](participant.md#requests-in-several-parts) each question for each language of the
    index. The field `translations` of a topic, from codes to texts, does so, too."""
    question_weight: int = Field(default=3, ge=1, le=20)
    """The weight of a question's words for BM25, where its topic and variants have 1 (paper: 1)."""
    narrative_weight: float = Field(default=2, ge=0, le=20)
    """The weight of the whole narrative as one more query in the second stage of fusion; 0 leaves it out (paper)."""
    passages: Annotated[Literal["hyde", "query2doc", "both"] | None, NoneNamed("none", "hyde", "query2doc", "both")] = (
        None
    )
    """The [passage](methods.md#queries) that the model writes for each query. `hyde` also searches by the passage's
    embedding, `query2doc` by BM25 for the question and the passage, and `both` by both. `hyde` needs `dense` among the
    systems, `query2doc` needs `bm25`."""
    passage_weight: float = Field(default=1, gt=0, le=20)
    """The weight of the passage's rankings in the first stage of fusion, where the query's have 1."""

    @model_serializer(mode="wrap")
    def _write(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return leave_out(self, handler, ("translate",))


ShortName = Literal["bm25", "dense", "hyde", "query2doc"]
"""The name of a system of the short form. `hyde` and `query2doc` come from `queries.passages`.

`hyde` searches by the embedding of a passage alone (Gao et al., ACL 2023), and `query2doc` by BM25 for the question
five times and the passage once (Wang et al., EMNLP 2023).
"""
SHORT_FORM: dict[ShortName, tuple[str, Literal["query", "passage"]]] = {
    "bm25": ("bm25", "query"),
    "dense": ("dense", "query"),
    "hyde": ("dense", "passage"),
    "query2doc": ("bm25", "passage"),
}
"""The kind of each system of the short form, and what it reads."""
TAKEN_NAMES = re.compile(r"hybrid|decomposed|narrative|reranked|graded|keystone|researched|rounds|given\d*")
"""The names of other rankings, which no system may have."""
DEFAULT_SYSTEMS: list[Literal["bm25", "dense"]] = ["bm25", "dense"]
SystemName = Annotated[str, Field(max_length=50, pattern=r"^[a-z][a-z0-9_-]*$")]
"""The name of a system, and of its run file without `.trec`: lower-case letters, digits, `_` and `-`."""


def _find_form(value: Any) -> str:
    return "long" if isinstance(value, dict) else "short"


class Retrieval(StrictSettings):
    """How each query is searched. Each system's rankings are kept as a run file."""

    systems: Annotated[
        Annotated[list[Literal["bm25", "dense"]], Field(max_length=2), Tag("short")]
        | Annotated[dict[SystemName, AnySystem], Field(min_length=1, max_length=20), Tag("long")],
        Discriminator(_find_form),
    ] = Field(default=DEFAULT_SYSTEMS)
    """The [systems](index.md#systems) that search each query; without embeddings, BM25 alone."""
    runs: list[AnyPath] = Field(default=[], max_length=100)
    """[Run files of other systems](methods.md#runs-of-other-systems), which are fused with `systems`."""
    depth: int = Field(default=1000, ge=1, le=MOST_DEPTH)
    """How many documents each system returns for a query (paper: `N_query`, 1000)."""
    k1: float = Field(default=K1, ge=0, le=100)
    """How slowly a repeated word's score stops growing in BM25; OpenSearch keeps its own."""
    b: float = Field(default=B, ge=0, le=1)
    """How much the length of a document counts in BM25; OpenSearch keeps its own."""
    feedback: Annotated[Literal["rm3", "rocchio"] | None, NoneNamed("none", "rm3", "rocchio")] = None
    """The feedback that expands each BM25 query from its first ten documents."""
    summarise: bool = False
    """If true, the model summarises documents of more than 8,000 tokens before a run embeds them, with `--dense pool`
    (paper)."""
    best_passages: int = Field(default=5, ge=1, le=1000)
    """The number of a document's best [passages](index.md#passages-of-long-documents) whose mean is its dense score.
    With 1 it is the best passage (MaxP)."""
    first_passage_weight: float = Field(default=0.5, ge=0, le=1)
    """The weight of a document's first passage in its dense score. The mean of the best passages has the rest."""
    faiss: str = ""
    """The search parameters of a FAISS index that is not exact, such as `nprobe=16` or `efSearch=200`."""
    statistics: Literal["global", "local"] = "global"
    """Where BM25 counts words of [OpenSearch's shards](index.md#opensearch): in all together, or in each."""
    max_rate: float = Field(default=0, ge=0, le=1000)
    """The most requests a second to a [REST server](index.md#rest-servers); 0: the limit of the index."""

    @model_serializer(mode="wrap")
    def _write(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return leave_out(self, handler, ("max_rate",))

    def list_own_settings(self) -> dict[str, dict[str, Any]]:
        """List the settings of each system of the long form, without those that this section gives it."""
        given = self.model_dump(mode="json", exclude={"systems", "runs"})
        systems = self.systems if isinstance(self.systems, dict) else {}
        return {
            name: {
                key: value
                for key, value in system.model_dump(mode="json").items()
                if key not in given
                or value != given[key]
                or (key in system.model_fields_set and key not in self.model_fields_set)
            }
            for name, system in systems.items()
        }

    def deepen(self, depth: int) -> Self:
        """Let each system return this many documents; one that sets a depth of its own keeps it."""
        own: dict[str, Any] = {"depth": depth}
        if isinstance(self.systems, dict):
            own["systems"] = {
                name: system.model_copy(update={"depth": depth}) if system.depth == self.depth else system
                for name, system in self.systems.items()
            }
        return self.model_copy(update=own)

    def make_systems(self) -> dict[str, System]:
        """Make the systems that search each query, by their names."""
        if isinstance(self.systems, dict):
            return dict(self.systems)
        return {name: self.make_system(name) for name in self.systems}

    def make_system(self, name: ShortName) -> System:
        """Make a system of the short form, with the settings of this section."""
        kind, reads = SHORT_FORM[name]
        return KINDS[kind].model_validate({"reads": reads, **self._share_with(KINDS[kind])})

    def make_bm25(self) -> Bm25System:
        """Make BM25 with the settings of this section."""
        return Bm25System(**self._share_with(Bm25System))

    def _share_with(self, kind: type[System]) -> dict[str, Any]:
        """Return the settings of this section that a kind of system has too."""
        return {key: getattr(self, key) for key in kind.model_fields if key in type(self).model_fields}

    @model_validator(mode="before")
    @classmethod
    def _share_settings(cls, values: Any) -> Any:
        """Give each system of the long form the settings of this section that it does not set itself."""
        if not isinstance(values, dict) or not isinstance(values.get("systems"), dict):
            return values
        shared = {key: value for key, value in values.items() if key not in ("systems", "runs")}
        given = {
            name: {key: shared[key] for key in KINDS[own["kind"]].model_fields if key in shared} | own
            if isinstance(own, dict) and own.get("kind") in list(KINDS)
            else own
            for name, own in values["systems"].items()
        }
        return {**values, "systems": given}

    @model_validator(mode="after")
    def _check_systems(self) -> Self:
        if isinstance(self.systems, dict):
            for name, system in self.systems.items():
                if TAKEN_NAMES.fullmatch(name):
                    raise ValueError(f"systems: found the name {name!r}, which another ranking has; expected another")
                others = [one for one, own in self.systems.items() if own.base is None and one != name]
                if system.base is not None and system.base not in others:
                    raise ValueError(
                        f"systems.{name}.within: found {system.base!r}, expected another system without within: "
                        f"{', '.join(others) or 'there is no such system'}"
                    )
            return self
        if len(set(self.systems)) < len(self.systems):
            raise ValueError(f"systems: found {self.systems}, expected each system once")
        if not self.systems and not self.runs:
            raise ValueError("systems: found [], expected at least 1 system, or a file under runs")
        return self


class Fusion(StrictSettings):
    """How the rankings of a narrative become one [ranking](methods.md#fusion)."""

    method: Annotated[str, BeforeValidator(lambda name: find_method(name) if isinstance(name, str) else name)] = "rrf"
    """The [method](methods.md#all-methods) of the second stage, which fuses the queries of a narrative."""
    systems: Literal["rrf", "scores"] | None = None
    """How the [first stage](methods.md#scores-in-the-first-stage) fuses the systems of a query; null: `rrf` (paper)
    with `retrieval.runs` or a system whose lowest score is unknown, otherwise `scores`."""
    k: int = Field(default=60, ge=1, le=1_000_000)
    """The k of the first stage, for `rrf`, and of `grading.rounds` (paper: 60)."""
    dense_weight: float = Field(default=0.85, gt=0, lt=1)
    """The weight of embeddings in the first stage, for `scores`."""
    k_narrative: int = Field(default=10, ge=1, le=1_000_000)
    """The k of the second stage, for `rrf` and `frequency` (paper: k' = 60, and 10 in its run `uema2lab_rrf_k10`)."""
    norm: str | None = None
    """The [normalisation](methods.md#all-methods) of scores; null: `min-max`."""
    parameters: dict[str, float] = Field(default={})
    """The method's parameters besides k, by name, such as `{phi: 0.9}`."""
    depth: int = Field(default=100, ge=1, le=MOST_DEPTH)
    """How many documents a narrative's ranking keeps (paper: `N_narr`, 100). The [long
    form](participant.md#a-depth-for-each-narrative) `{choose: expected}` chooses the submitted rows of each narrative,
    of its first `most` documents (1,000, or `retrieval.depth` if that is less), by the settings of `choice`. It is the
    default of the track rag26."""
    choice: ChosenDepth | None = None
    """The settings of the [long form](participant.md#a-depth-for-each-narrative) of `depth`, written there."""
    depths: Annotated[dict[str, Annotated[int, Field(ge=1, le=100_000)]], BeforeValidator(_load_depths)] = Field(
        default={}
    )
    """The depth of single narratives, by topic id, or a [file](participant.md#a-depth-for-each-narrative) of them."""

    @model_validator(mode="before")
    @classmethod
    def _read_long_depth(cls, value: Any) -> Any:
        """Read `depth: {choose: ..., most: ...}` as the settings `depth` and `choice`."""
        if not isinstance(value, dict) or not isinstance(value.get("depth"), dict):
            return value
        if value.get("choice") is not None:
            raise ValueError("choice: found beside the long form of depth, expected its settings in depth")
        long = dict(value["depth"])
        if long.get("choose") == "fixed":
            if long.keys() - {"choose", "rows"}:
                raise ValueError("depth: found more than rows with choose 'fixed', expected {choose: fixed, rows: 100}")
            return value | {"depth": long.get("rows", cls.model_fields["depth"].default)}
        return value | {"depth": long.pop("most", bound_chosen_rows()), "choice": long}

    @model_serializer(mode="wrap")
    def _write_long_depth(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        found: dict[str, Any] = handler(self)
        choice = found.pop("choice", None)
        return found if choice is None else found | {"depth": {**choice, "most": self.depth}}

    def get_depth(self, topic_id: str) -> int:
        """Get how many documents the ranking of a narrative keeps."""
        return self.depths.get(topic_id, self.depth)

    @model_validator(mode="after")
    def _check_possible(self) -> Self:
        if "k" in self.parameters:
            raise ValueError(f"parameters.k: found {self.parameters['k']:g}, expected it as k_narrative")
        if found := find_impossible_setting(self.method, self.norm, self.parameters):
            key, why = found
            raise ValueError(f"{'parameters.' * (key in self.parameters)}{key}: {why}")
        return self


class Grading(StrictSettings):
    """How the language model grades documents for the queries (UMBRELA), and which documents the grades select."""

    method: Annotated[Literal["pointwise", "grid"] | None, NoneNamed("none", "pointwise", "grid")] = None
    """How the model [grades](methods.md#grades); `none` grades nothing."""
    pool: int = Field(default=20, ge=1, le=100_000)
    """How many documents each query's hybrid ranking gives to the pool (paper: 20 of R_i). Each document of the pool
    is graded for all queries of its topic."""
    narrative: bool = False
    """If true, the whole narrative is one of the queries that documents are graded for."""
    deeper: int = Field(default=0, ge=0, le=100_000)
    """The most documents that are graded beyond the pool, down the narrative's ranking. Grading goes on by tens until
    no document of a ten comes among the first `documents` by Parasol."""
    neighbours: int = Field(default=0, ge=0, le=100)
    """How many nearest documents, by embeddings, each selected document of grade 2 or 3 adds to those of `deeper`."""
    select: Literal["parasol", "coverage"] = "parasol"
    """How grades [select](methods.md#grades) documents."""
    documents: int = Field(default=20, ge=1, le=100_000)
    """How many documents are selected. `coverage` may select fewer."""
    budget: int | None = Field(default=None, ge=1, le=MOST_TOKENS)
    """The tokens of graded passages that a `coverage` set may hold."""
    cap: float = Field(default=math.inf, gt=0, allow_inf_nan=True)
    """The sum of grades at which `coverage` counts a query as covered; 3 is one exact document. The set ends when no
    document left adds to a query that is not covered."""
    bounds: bool = True
    """If true, pairs that cannot change the selection by `parasol` are not graded."""
    expected: bool = False
    """If true, a grade is the mean of 0 to 3 under the model's probabilities. If the model gives no probabilities,
    the grade is the one it names."""
    segments: int = Field(default=3, ge=1, le=1000)
    """How many segments each query of the topic adds to the passage that is graded: those closest to it."""
    tokens: int = Field(default=2000, ge=50, le=1_000_000)
    """The most tokens of that passage."""
    rounds: int = Field(default=0, ge=0, le=2)
    """How many further rounds search for queries without a document of grade 2, by up to three new texts of the model
    for each."""
    round_documents: int = Field(default=10, ge=1, le=100_000)
    """The most documents that a further round adds to the pool of a narrative."""


class Answer(StrictSettings):
    """How the answer is made from the selected documents.

    If nothing is graded, the first documents of the ranking are the selected ones.
    """

    method: Annotated[AnswerMethod | None, NoneNamed(*get_args(AnswerMethod), "none")] = "rules"
    """How an answer is [made](methods.md#answers); `none` submits rankings only. All others but `rules` ask the model.
    `retrieval` makes one answer from all selected documents, and `whole` one from the first documents of the last
    ranking, shown whole. `answers` joins an answer to each query. `claims` writes prose from claims whose quotes are
    found."""
    documents: int = Field(default=20, ge=1, le=100_000)
    """How many documents an answer is made from, with `answers` and `claims` for each query."""
    words: int | None = Field(default=None, ge=1, le=100_000)
    """The most words of an answer; null: as the [track](participant.md#rules-of-the-tracks) wants."""
    prompt_with: Literal["query", "narrative"] = "query"
    """The question that each sub-answer answers: its query (the paper's ideal) or the narrative (the paper's runs)."""
    synthesis: Literal["select_edit", "edit", "resynthesise"] = "select_edit"
    """How sub-answers become one: by an edit of chosen sentences, of all (the paper's runs), or anew (its ideal)."""
    segments: Literal["closest", "words"] = "words"
    """Which [segments](methods.md#citations-and-support) a sentence by the model cites (paper: `closest`). `words`
    compares rare words too, and cites up to three where one does not say it all."""
    support: Literal["none", "rules", "model"] = "rules"
    """How a sentence by the model is [checked](methods.md#citations-and-support) against its segments (paper: `none`).
    Without full support, other segments are sought. `rules` compare numbers, names and rare words, and drop a sentence
    without support. `model` asks the model, which also puts right the facts that no segment bears out. It
    checks only the facts behind a sentence that weighs or advises. `none` checks nothing (paper)."""
    rounds: int = Field(default=1, ge=0, le=2)
    """With `whole`, how many times the model checks which questions the documents leave open, and Keystone searches
    for these again."""
    mend: bool = False
    """Whether the model mends sentences that open with a pronoun for a thing in another one, repeat one, or begin like
    those before them, by at most one request an answer."""
    gaps: bool | None = None
    """Whether a last sentence without a citation says what the documents leave open, by `whole` and `rules`; by
    `whole` also a few words where that comes up; null: only without a track."""
