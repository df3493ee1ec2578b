"""What a run is: strict models, in which an unknown key or an impossible value is an error."""

import math
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field, Strict, field_validator, model_validator

from fusion.methods import METHODS, impossible
from runs.config.none_named import NoneNamed
from runs.tracks.rules import DEFAULT_TEAM, TRACKS

AnyPath = Annotated[Path, Strict(False)]
LONGEST_WAIT_S = 10_000_000
"""Four months; what waits for longer is a mistake, and clocks of systems end somewhere."""
MOST_TOKENS = 1_000_000_000
MOST_DOLLARS = 1_000_000


class Model(BaseModel):
    """A part of the configuration: no unknown key, no converted value, no endless number, no change after reading."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Queries(Model):
    """Which queries a narrative makes."""

    method: Literal["rules", "model", "narrative"] = "rules"
    """Who decomposes, extracts the topic and expands it: `rules` or the language `model`; `narrative`: one query."""
    facets: Literal["sentences", "clauses"] = "sentences"
    """What `rules` takes for a question: each sentence as it is, or clauses made into questions, as in the paper."""
    topic: Annotated[Literal["lead", "phrase"] | None, NoneNamed("lead", "phrase", "none")] = "lead"
    """What follows each question as its topic, by `rules`: the narrative's first sentence, a phrase, or nothing."""
    dense_topic: bool = False
    """Whether the embedding model gets the topic too, as in the paper, or BM25 alone."""
    variants: int = Field(default=0, ge=0, le=50)
    """Words that expand the topic, for BM25 (`NUM_QUERIES` of the paper, which has 10)."""
    question_weight: int = Field(default=3, ge=1, le=20)
    """How often a question's words count against one of its topic and variants, for BM25; 1 in the paper."""
    narrative_weight: float = Field(default=2, ge=0, le=20)
    """The weight of the narrative, as one more query, in the second stage, the others having 1; 0 in the paper."""


class Retrieval(Model):
    """The searches, each kept as a run."""

    systems: list[Literal["bm25", "dense"]] = Field(default=["bm25", "dense"], min_length=1, max_length=2)
    depth: int = Field(default=1000, ge=1, le=100_000)
    """Documents a query and system (`N_query`)."""
    feedback: Annotated[Literal["rm3", "rocchio"] | None, NoneNamed("none", "rm3", "rocchio")] = None
    """Pseudo-relevance feedback that expands each BM25 query from its first ten documents."""
    summarise: bool = False
    """Whether the model summarises documents of more than 8,000 tokens before they are embedded (paper), where the
    index leaves embedding to the run."""
    faiss: str = ""
    """Search parameters of a FAISS index that is not exact, such as `nprobe=16` or `efSearch=200`."""
    statistics: Literal["global", "local"] = "global"
    """Where BM25 counts words in an OpenSearch index of several shards: in all of them, or in each for itself."""

    @model_validator(mode="after")
    def _systems_differ(self) -> Self:
        if len(set(self.systems)) < len(self.systems):
            raise ValueError(f"systems: found {self.systems}, expected each system once")
        return self


class Fusion(Model):
    """How rankings become one ranking a narrative."""

    method: str = "rrf"
    """Second stage: one of `fusion.methods.METHODS`."""
    k: int = Field(default=60, ge=1, le=1_000_000)
    """First stage: systems of a query."""
    k_narrative: int = Field(default=10, ge=1, le=1_000_000)
    """Second stage: queries of a narrative (k'; the paper uses 60, and 10 in `uema2lab_rrf_k10`)."""
    norm: str | None = None
    """Of scores, one of `fusion.norms.NORMS`, where the method adds scores; min-max where none is named."""
    parameters: dict[str, float] = {}
    """Other parameters of the method than k, by name."""
    depth: int = Field(default=100, ge=1, le=100_000)
    """Documents a narrative (`N_narr`)."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if "k" in self.parameters:
            raise ValueError(f"parameters.k: found {self.parameters['k']:g}, expected it as k_narrative")
        if found := impossible(self.method, self.norm, self.parameters):
            key, why = found
            raise ValueError(f"{'parameters.' * (key in self.parameters)}{key}: {why}")
        return self


class Grading(Model):
    """UMBRELA grades of documents for the queries, and what they select."""

    method: Annotated[Literal["pointwise", "grid"] | None, NoneNamed("none", "pointwise", "grid")] = None
    """`pointwise`: a query and a document a call; `grid`: a document and all its topic's queries a call."""
    pool: int = Field(default=20, ge=1, le=100_000)
    """Graded are the first so many of each query's hybrid ranking (R_i), for all queries of their topic."""
    select: Literal["parasol", "coverage"] = "parasol"
    """`parasol`: the first by Parasol score; `coverage`: a set, chosen greedily for what it adds to all queries."""
    documents: int = Field(default=20, ge=1, le=100_000)
    """How many are selected; by coverage at most so many."""
    budget: int | None = Field(default=None, ge=1, le=MOST_TOKENS)
    """Tokens of graded passages that a covering set may have; None: as many as its documents have."""
    cap: float = Field(default=math.inf, gt=0, allow_inf_nan=True)
    """The sum of grades at which a query counts as covered, so that nothing more is chosen for it; 3 is one exact
    document. A set ends when no document is left that gives anything to a query that is not covered."""
    bounds: bool = True
    """Whether pairs that cannot change the selection are left ungraded (Parasol alone)."""
    expected: bool = False
    """Whether a grade is its expectation under the model's probabilities of 0 to 3, where the model gives them."""
    segments: int = Field(default=3, ge=1, le=1000)
    """A document's best segments for the query, which are what is graded."""
    tokens: int = Field(default=2000, ge=50, le=1_000_000)
    """At most so many tokens of them."""


class Answer(Model):
    """How the answer is made from the selected documents, or from the first of the ranking."""

    method: Annotated[
        Literal["rules", "retrieval", "answers"] | None, NoneNamed("rules", "retrieval", "answers", "none")
    ] = "rules"
    """`rules`: sentences of the documents, chosen for coverage; by the model: `retrieval`-level fusion, one answer from
    all documents, or `answers`, answer-level fusion of one answer a query; `none`: rankings alone are submitted."""
    documents: int = Field(default=20, ge=1, le=100_000)
    """Documents a topic; with `answers`, a query."""
    words: int | None = Field(default=None, ge=1, le=100_000)
    """At most so many words; None: as many as the track has for our answers."""
    prompt_with: Literal["query", "narrative"] = "query"
    """What a sub-answer is asked: its query (the paper's ideal) or the narrative (what it did)."""
    synthesis: Literal["select_edit", "edit", "resynthesise"] = "select_edit"
    """How sub-answers become one: chosen for coverage and edited, all edited (paper), or written anew (its ideal)."""


class Prices(Model):
    """US dollars for a million tokens."""

    prompt: float = Field(ge=0, le=MOST_DOLLARS)
    cached: float | None = Field(default=None, ge=0, le=MOST_DOLLARS)
    completion: float = Field(ge=0, le=MOST_DOLLARS)


class LanguageModel(Model):
    """The language model, and how it is reached. Secrets are never here: see `key_env` and `key_file`."""

    backend: Literal["endpoints", "vllm", "batch", "replay"] = "endpoints"
    """`endpoints`: OpenAI-compatible servers; `vllm`: its engine in this process; `batch`: files of requests and
    replies; `replay`: recorded replies alone."""
    name: str = Field(min_length=1)
    urls: list[str] = ["https://api.openai.com/v1"]
    """Base URLs that serve the model, the least loaded asked first."""
    key_env: str = "OPENAI_API_KEY"
    """The environment variable that holds the key."""
    key_file: AnyPath | None = None
    """A file of mode 600 that holds the key; it goes before the environment."""
    window: int = Field(default=32_768, ge=512, le=MOST_TOKENS)
    """Tokens that the model takes, its reply included."""
    thinking: int = Field(default=0, ge=0, le=1_000_000)
    """Tokens that a reply may have besides what a step needs, for models that think first."""
    extra: dict[str, Any] = {}
    """Further fields of each request, such as `reasoning_effort: low`; replies are kept by them too."""
    engine: dict[str, Any] = {}
    """Arguments of vLLM's engine in this process, such as `max_model_len: 8192`."""
    concurrency: int = Field(default=256, ge=1, le=100_000)
    """Calls in flight at an endpoint, at most."""
    call_seconds: float = Field(default=300, gt=0, le=LONGEST_WAIT_S)
    """How long a call may take."""
    run_seconds: float | None = Field(default=None, gt=0, le=LONGEST_WAIT_S)
    """How long a run may take; what was answered by then is kept."""
    patience_seconds: float = Field(default=600, ge=0, le=LONGEST_WAIT_S)
    """How long to wait for an endpoint when none can be reached."""
    cache: AnyPath | None = None
    """The file of replies; None: `replies.sqlite` in `out`."""
    replies: AnyPath | None = None
    """Recorded replies, for `replay`."""
    prices: Prices | None = None

    @field_validator("extra", "engine")
    @classmethod
    def _are_json(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Values that JSON cannot hold would change on their way, or stop a run that is under way."""
        try:
            same = orjson.loads(orjson.dumps(values)) == values
        except (TypeError, ValueError):
            same = False
        if not same:
            raise ValueError("expected values of JSON, whose numbers are finite and have 64 bits")
        return values


class RunConfig(Model):
    """A run. Paths are relative to the working directory."""

    run_id: str = Field(max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    team_id: str = Field(default=DEFAULT_TEAM, max_length=100, pattern=r"^\S+$")
    index: AnyPath
    topics: AnyPath
    out: AnyPath = Path("out")
    """The run directory is `<out>/<run_id>`."""
    track: Annotated[str | None, NoneNamed()] = "rag25"
    """Whose files are written: a name of `TRACKS`; `none`: only rankings."""
    run_desc: str | None = Field(default=None, max_length=10_000, pattern=r"\S")
    """What the run is, for tracks that ask; None: its settings."""
    queries: Queries = Queries()
    retrieval: Retrieval = Retrieval()
    fusion: Fusion = Fusion()
    grading: Grading = Grading()
    answer: Answer = Answer()
    model: LanguageModel | None = None
    """The language model; None: nothing asks one."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for key, path in {"index": self.index, "topics": self.topics, "out": self.out}.items():
            if "\0" in str(path):
                raise ValueError(f"{key}: found {str(path)!r}, expected a path, which has no NUL")
        if self.track is not None and self.track not in TRACKS:
            raise ValueError(f"track: found {self.track!r}, expected one of {', '.join(TRACKS)}, none")
        fusion = METHODS[self.fusion.method]
        if fusion.several and self.queries.method == "narrative":
            raise ValueError(
                f"fusion.method: found {self.fusion.method!r}, which compares queries, with queries.method "
                "'narrative', which makes one; expected another"
            )
        if not fusion.weighted and self.queries.method != "narrative" and self.queries.narrative_weight not in (0, 1):
            raise ValueError(
                f"queries.narrative_weight: found {self.queries.narrative_weight:g} with fusion.method "
                f"{self.fusion.method!r}, which counts all queries alike; expected 0 or 1"
            )
        if self.fusion.depth > self.retrieval.depth:
            raise ValueError(
                f"fusion.depth: found {self.fusion.depth}, above retrieval.depth "
                f"{self.retrieval.depth}; expected at most that"
            )
        if self.track is not None and self.answer.method in ("rules", "retrieval"):
            key, depth = ("fusion.depth", self.fusion.depth)
            if self.grading.method is not None:
                key, depth = ("grading.documents", self.grading.documents)
            if self.answer.documents > depth:
                raise ValueError(
                    f"answer.documents: found {self.answer.documents}, above {key} {depth}; expected at most that"
                )
        if self.model is None and (key := self.asks()):
            raise ValueError(f"{key} needs a language model; expected one under the key model, with its name and urls")
        return self

    @property
    def unnamed(self) -> bool:
        """Whether the answers to submit name a team, and none but the default."""
        return self.answer.method is not None and self.track is not None and TRACKS[self.track].unnamed(self.team_id)

    def asks(self) -> str:
        """The first setting that needs a language model, with its value; empty if none does."""
        return next((f"{key}: {value}" for key, value in self.asking().items()), "")

    def asking(self) -> dict[str, Any]:
        """The settings that need a language model, by key, with their values."""
        needed = {
            "queries.method": (self.queries.method, ("model",)),
            "retrieval.summarise": (self.retrieval.summarise, (True,)),
            "grading.method": (self.grading.method, ("pointwise", "grid")),
            "answer.method": (self.answer.method, ("retrieval", "answers")),
        }
        return {key: value for key, (value, models) in needed.items() if value in models}
