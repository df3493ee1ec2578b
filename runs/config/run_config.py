"""The configuration of a run: strict models, in which an unknown key or an impossible value is an error."""

import math
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from fusion.methods import METHODS, find_impossible_setting
from generation.llm.chat import MOST_TOKENS
from generation.llm.settings import AnyPath, ModelSettings
from generation.readers.settings import PlainSettings, ReaderSettings
from generation.rerank.settings import RerankSettings
from indexing.settings.none_named import NoneNamed
from indexing.settings.strict_settings import StrictSettings
from retrieval.types import K1, B, System
from runs.tracks.rules import DEFAULT_TEAM, TRACKS


class Queries(StrictSettings):
    """How a narrative becomes queries."""

    method: Literal["rules", "model", "narrative"] = "rules"
    """`rules` decomposes the narrative without a language model. `model` asks the language model to decompose it, to
    extract its topic and to expand that topic. `narrative` takes the whole narrative as the only query."""
    facets: Literal["sentences", "clauses"] = "sentences"
    """The questions that `rules` makes: the sentences as they are, or clauses turned into questions (paper)."""
    topic: Annotated[Literal["lead", "phrase"] | None, NoneNamed("lead", "phrase", "none")] = "lead"
    """The topic that `rules` adds to each question: the narrative's first sentence (`lead`), an extracted phrase
    (paper), or nothing."""
    dense_topic: bool = False
    """If true, the embedding model gets the topic too (paper). If false, BM25 alone gets it."""
    variants: int = Field(default=0, ge=0, le=50)
    """How many variants expand the topic for BM25 (paper: `NUM_QUERIES` = 10)."""
    expand: Literal["phrase", "narrative"] = "phrase"
    """The text from which `model` expands the topic: the topic's phrase alone (paper), or with the narrative."""
    question_weight: int = Field(default=3, ge=1, le=20)
    """The weight of a question's words for BM25. The words of its topic and variants have weight 1 (paper: 1)."""
    narrative_weight: float = Field(default=2, ge=0, le=20)
    """The weight of the whole narrative as one more query in the second stage of fusion. Each other query has weight
    1. With 0 the narrative is not searched (paper: 0)."""
    passages: Annotated[Literal["hyde", "query2doc", "both"] | None, NoneNamed("none", "hyde", "query2doc", "both")] = (
        None
    )
    """The rankings that passages add to the first stage of fusion. The language model writes a passage for each query,
    as if from a document that answers it. `hyde` searches by the passage's embedding, `query2doc` by BM25 for the
    question and the passage, and `both` does both. `hyde` needs `dense` among the systems, `query2doc` needs `bm25`."""
    passage_weight: float = Field(default=1, gt=0, le=20)
    """The weight of these rankings in the first stage of fusion. The rankings of the query itself have weight 1."""


class Retrieval(StrictSettings):
    """How each query is searched. Each system's rankings are kept as a run file."""

    systems: list[Literal["bm25", "dense"]] = Field(default=["bm25", "dense"], min_length=1, max_length=2)
    """The systems that search each query: BM25, embeddings, or both."""
    depth: int = Field(default=1000, ge=1, le=100_000)
    """How many documents each system returns for a query (paper: `N_query`, 1000)."""
    k1: float = Field(default=K1, ge=0, le=100)
    """The k1 of BM25: how slowly a word's score stops growing with the number of times that it occurs.
    A run sets it for Lucene indexes; OpenSearch and REST servers keep their own."""
    b: float = Field(default=B, ge=0, le=1)
    """The b of BM25: how much the length of a document counts. It holds for the same indexes as `k1`."""
    feedback: Annotated[Literal["rm3", "rocchio"] | None, NoneNamed("none", "rm3", "rocchio")] = None
    """The pseudo-relevance feedback that expands each BM25 query from its first ten documents."""
    summarise: bool = False
    """If true, the language model summarises documents of more than 8,000 tokens before the run embeds them (paper).
    Only an index made with `--dense pool` leaves embedding to the run."""
    best_passages: int = Field(default=5, ge=1, le=1000)
    """How many of a document's best passages give its dense score, which is their mean. With 1 it is the best passage
    (MaxP). Only indexes of passages have any: those made with `--dense passages` or `--dense pool-passages`."""
    faiss: str = ""
    """The search parameters of a FAISS index that is not exact, such as `nprobe=16` or `efSearch=200`."""
    statistics: Literal["global", "local"] = "global"
    """Where BM25 counts words if an OpenSearch index has several shards. `global` counts in all shards together,
    `local` in each shard separately (see [opensearch.md](opensearch.md))."""

    @model_validator(mode="after")
    def _check_systems(self) -> Self:
        if len(set(self.systems)) < len(self.systems):
            raise ValueError(f"systems: found {self.systems}, expected each system once")
        return self


class Fusion(StrictSettings):
    """How the rankings of a narrative become one ranking. The [methods](fusion.md) have a page of their own."""

    method: str = "rrf"
    """The method of the second stage, which fuses the queries of a narrative: a [method's](fusion.md) name."""
    k: int = Field(default=60, ge=1, le=1_000_000)
    """The k of the first stage, which fuses the systems of a query by reciprocal rank fusion (paper: 60)."""
    k_narrative: int = Field(default=10, ge=1, le=1_000_000)
    """The k of the second stage, for `rrf` and `frequency` (paper: k' = 60, and 10 in its run `uema2lab_rrf_k10`)."""
    norm: str | None = None
    """The [normalisation](fusion.md#normalisations) of scores, for methods that look at scores. If it is null, they
    use `min-max`."""
    parameters: dict[str, float] = Field(default={})
    """The method's parameters besides k, by name, such as `{phi: 0.9}`."""
    depth: int = Field(default=100, ge=1, le=100_000)
    """How many documents a narrative's ranking keeps (paper: `N_narr`, 100)."""

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
    """`none` grades nothing. `pointwise` asks the model about one query and one document in each call. `grid` asks
    about one document and all queries of its topic in each call."""
    pool: int = Field(default=20, ge=1, le=100_000)
    """How many documents each query's hybrid ranking gives to the pool (paper: 20 of R_i). Each document of the pool
    is graded for all queries of its topic."""
    narrative: bool = False
    """If true, the whole narrative is one of the queries that documents are graded for."""
    deeper: int = Field(default=0, ge=0, le=100_000)
    """The most documents that are graded beyond the pool, down the narrative's ranking. Grading goes on by groups of
    ten until no document of a group comes among the first `documents` by Parasol
    ([guide](rerank.md#deeper-grades))."""
    neighbours: int = Field(default=0, ge=0, le=100)
    """How many nearest documents, by embeddings, each selected document of grade 2 or 3 adds to those of `deeper`."""
    select: Literal["parasol", "coverage"] = "parasol"
    """`parasol` selects the documents of the highest Parasol score. `coverage` selects a set that covers the queries,
    one document after the other ([both](parasol.md))."""
    documents: int = Field(default=20, ge=1, le=100_000)
    """How many documents are selected. `coverage` may select fewer."""
    budget: int | None = Field(default=None, ge=1, le=MOST_TOKENS)
    """The tokens of graded passages that a `coverage` set may hold. If it is null, there is no limit."""
    cap: float = Field(default=math.inf, gt=0, allow_inf_nan=True)
    """The sum of grades at which `coverage` counts a query as covered; 3 is one exact document. Keystone then chooses
    nothing more for that query. The set ends when no document left adds to a query that is not covered."""
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
    """How many further rounds search again for queries without a document of grade 2. The model writes up to three new
    search texts for each such query, in one call."""
    round_documents: int = Field(default=10, ge=1, le=100_000)
    """The most documents that a further round adds to the pool of a narrative."""


class Answer(StrictSettings):
    """How the answer is made from the selected documents.

    If nothing is graded, the first documents of the ranking are the selected ones.
    """

    method: Annotated[
        Literal["rules", "retrieval", "answers", "claims"] | None,
        NoneNamed("rules", "retrieval", "answers", "claims", "none"),
    ] = "rules"
    """`rules` chooses sentences of the documents for coverage. `retrieval` asks the model for one answer from all
    documents. `answers` asks the model for one answer to each query, and makes one answer of these. `claims` asks it
    for claims with quotes for each query, and writes prose from those whose quotes are found. `none` submits rankings
    only."""
    documents: int = Field(default=20, ge=1, le=100_000)
    """How many documents an answer is made from. With `answers` and `claims` this number holds for each query."""
    words: int | None = Field(default=None, ge=1, le=100_000)
    """The most words of an answer. If it is null, the track decides (rag25: 399)."""
    prompt_with: Literal["query", "narrative"] = "query"
    """The question that each sub-answer answers: its query (the paper's ideal) or the narrative (the paper's runs)."""
    synthesis: Literal["select_edit", "edit", "resynthesise"] = "select_edit"
    """How sub-answers become one answer. `select_edit` chooses sentences for coverage and edits them. `edit` edits all
    sentences (the paper's runs). `resynthesise` writes the answer anew (the paper's ideal)."""
    segments: Literal["closest", "words"] = "words"
    """Which segments of a document a sentence by the model cites. `closest` cites the one whose embedding is closest
    (paper). `words` compares rare words too, and cites up to three segments where one does not say it all."""
    support: Literal["none", "rules", "model"] = "rules"
    """How each sentence by the model is checked against the segments that it cites. If they do not support it in full,
    other segments are sought. `rules` compare numbers, names and rare words, and drop a sentence without support.
    `model` asks the model, which also rewrites the sentence to what the segments say. `none` checks nothing (paper).
    With `answer.method: rules`, sentences are copied from their segments and need no check."""


class RunConfig(StrictSettings):
    """A run. Paths are relative to the working directory, not to the YAML file."""

    run_id: str = Field(max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """The run's name: letters, digits, `.`, `_` and `-`. It is also the run tag of the files to submit."""
    team_id: str = Field(default=DEFAULT_TEAM, max_length=100, pattern=r"^\S+$")
    """The team's name in the files to submit. Set yours before you submit."""
    index: AnyPath
    """The index folder that `keystone index` made."""
    topics: AnyPath
    """The file of narratives, in any of the [forms of topics](corpora.md#topics)."""
    out: AnyPath = Path("out")
    """The folder of runs. The run directory is `<out>/<run_id>`."""
    track: Annotated[str | None, NoneNamed()] = "rag25"
    """The name of the [track](tracks.md) whose files are written. `none` writes rankings only."""
    ranking: Literal["documents", "segments"] = "documents"
    """The unit that is ranked for tracks of segments. `documents` submits one segment of each document: the closest to
    the narrative (paper). `segments` submits several, and answers read and cite no others
    ([guide](tracks.md#rankings-of-segments))."""
    segments_per_document: int = Field(default=5, ge=1, le=1000)
    """With `ranking: segments`, the most segments of a document: those closest to the narrative or one of its
    queries."""
    run_desc: str | None = Field(default=None, max_length=10_000, pattern=r"\S")
    """The run's description, for tracks that ask for one. If it is null, Keystone lists the settings."""
    queries: Queries = Queries()
    retrieval: Retrieval = Retrieval()
    fusion: Fusion = Fusion()
    rerank: RerankSettings = RerankSettings()
    grading: Grading = Grading()
    reader: ReaderSettings = PlainSettings()
    answer: Answer = Answer()
    model: ModelSettings | None = None
    """The language model. If it is null, no step may ask one."""

    @model_validator(mode="after")
    def _check_possible(self) -> Self:
        for key, path in {"index": self.index, "topics": self.topics, "out": self.out}.items():
            if "\0" in str(path):
                raise ValueError(f"{key}: found {str(path)!r}, expected a path, which has no NUL")
        if self.track is not None and self.track not in TRACKS:
            raise ValueError(f"track: found {self.track!r}, expected one of {', '.join(TRACKS)}, none")
        if self.ranks_segments and (self.track is None or not TRACKS[self.track].segments):
            able = ", ".join(name for name, track in TRACKS.items() if track.segments)
            raise ValueError(
                f"ranking: found 'segments' with track {self.track or 'none'}, expected a track of segments: {able}"
            )
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
        if self.grading.narrative and self.queries.method != "narrative" and not self.queries.narrative_weight:
            raise ValueError(
                "grading.narrative: found true with queries.narrative_weight 0, which leaves the narrative out; "
                "expected a weight above 0"
            )
        if self.grading.neighbours and not self.grading.deeper:
            raise ValueError(
                f"grading.neighbours: found {self.grading.neighbours} with grading.deeper 0, which grades no "
                "neighbour; expected deeper above 0"
            )
        if self.model is None and (key := self.find_model_step()):
            raise ValueError(f"{key} needs a language model; expected one under the key model, with its name and urls")
        return self

    @property
    def ranks_segments(self) -> bool:
        """Whether segments are ranked and answered from, and not documents."""
        return self.ranking == "segments"

    def list_systems(self) -> list[System]:
        """List the systems that search each query, those that search by its passage last."""
        return [*self.retrieval.systems, *self.list_passage_systems()]

    def list_passage_systems(self) -> list[System]:
        """List the systems that search by the passage of each query, each beside the system of `retrieval` it uses."""
        engines: dict[System, System] = {"hyde": "dense", "query2doc": "bm25"}
        return [
            system
            for system, engine in engines.items()
            if self.queries.passages in (system, "both") and engine in self.retrieval.systems
        ]

    @property
    def has_default_team(self) -> bool:
        """Whether the submitted answers name a team, and that team is the default."""
        if self.answer.method is None or self.track is None:
            return False
        return TRACKS[self.track].is_default_team(self.team_id)

    def find_model_step(self) -> str:
        """Find the first setting that needs a language model, as `key: value`; empty if none does."""
        return next((f"{key}: {value}" for key, value in self.list_model_steps().items()), "")

    def list_model_steps(self) -> dict[str, Any]:
        """List the settings that need a language model: their values by key."""
        needed = {
            "queries.method": (self.queries.method, ("model",)),
            "queries.passages": (self.queries.passages, ("hyde", "query2doc", "both")),
            "retrieval.summarise": (self.retrieval.summarise, (True,)),
            "rerank.method": (self.rerank.method, ("listwise", "sliding")),
            "grading.method": (self.grading.method, ("pointwise", "grid")),
            "answer.method": (self.answer.method, ("retrieval", "answers", "claims")),
        }
        return {key: value for key, (value, models) in needed.items() if value in models}
