"""The configuration of a run: strict models, in which an unknown key or an impossible value is an error."""

import math
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, model_validator

from keystone.fusion.methods import METHODS
from keystone.generation.llm.settings import AnyPath, ModelSettings
from keystone.generation.readers.settings import BY_QUERY, BY_RANKING, AnswerMethod, PlainSettings, ReaderSettings
from keystone.generation.rerank.settings import RerankSettings
from keystone.indexing.errors import UserError
from keystone.indexing.settings import NoneNamed, StrictSettings
from keystone.retrieval.bm25 import Bm25System
from keystone.retrieval.system import System
from keystone.runs.config.sections import (
    MOST_DEPTH,
    SHORT_FORM,
    Answer,
    ChosenDepth,
    Fusion,
    Grading,
    Queries,
    Retrieval,
    ShortName,
    bound_chosen_rows,
)
from keystone.runs.track_rules import DEFAULT_TEAM, TRACKS

MISSING_MODEL = "model: missing; expected a language model, with its name and urls"


def chooses_depth(track: Any) -> bool:
    """Tell whether a run for a track chooses the depth of each narrative, unless its configuration gives one."""
    return isinstance(track, str) and track in TRACKS and TRACKS[track].chooses_depth


class RunConfig(StrictSettings):
    """A run, whose paths are relative to the working directory, not to the YAML file."""

    run_id: str = Field(max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """The run's name and run tag: letters, digits, `.`, `_` and `-`."""
    team_id: str = Field(default=DEFAULT_TEAM, max_length=100, pattern=r"^\S+$")
    """The team's name in the files to submit. Set yours before you submit."""
    index: AnyPath
    """The index folder that `keystone index` made."""
    topics: AnyPath
    """The narratives, in any of the [forms of topics](corpora.md#topics)."""
    out: AnyPath = Path("out")
    """The folder of runs. The run directory is `<out>/<run_id>`."""
    track: Annotated[str | None, NoneNamed()] = "rag25"
    """The [track](participant.md) whose files are written; `none` writes rankings only."""
    ranking: Literal["documents", "segments"] = "documents"
    """The [unit](participant.md#rankings-of-segments) that is ranked for tracks of segments (paper: documents).
    `documents` submits one segment of each document: the closest to the narrative (paper). `segments` [submits
    several](participant.md#rankings-of-segments)."""
    segments_per_document: int = Field(default=5, ge=1, le=1000)
    """With `ranking: segments`, the most segments of a document."""
    run_desc: str | None = Field(default=None, max_length=10_000, pattern=r"\S")
    """The run's description, for tracks that ask for one; null lists the settings."""
    queries: Queries = Queries()
    retrieval: Retrieval = Retrieval()
    fusion: Fusion = Fusion()
    rerank: RerankSettings = RerankSettings()
    grading: Grading = Grading()
    reader: ReaderSettings = PlainSettings()
    answer: Answer = Answer()
    model: ModelSettings | None = None
    """The language model; with null, no step may ask one."""

    @model_validator(mode="before")
    @classmethod
    def _choose_depth(cls, value: Any) -> Any:
        """Make the run choose depths if the track asks for that and the configuration gives none.

        A chosen depth without a number of its own has at most `retrieval.depth` rows.
        """
        fusion, retrieval = (value.get(key, {}) if isinstance(value, dict) else None for key in ("fusion", "retrieval"))
        if not isinstance(fusion, dict) or not isinstance(retrieval, dict):
            return value
        most, depth = bound_chosen_rows(retrieval.get("depth")), fusion.get("depth")
        if isinstance(depth, dict) and depth.get("choose") != "fixed":
            return value | {"fusion": {**fusion, "depth": {"most": most, **depth}}}
        if "depth" in fusion or not chooses_depth(value.get("track")):
            return value
        choice = fusion.get("choice") or {"choose": "expected"}
        return value | {"fusion": {**fusion, "depth": most, "choice": choice}}

    @model_validator(mode="after")
    def _check_possible(self) -> Self:
        for key, path in {"index": self.index, "topics": self.topics, "out": self.out}.items():
            if "\0" in str(path):
                raise ValueError(f"{key}: found {str(path)!r}, expected a path, which has no NUL")
        if self.track is not None and self.track not in TRACKS:
            raise ValueError(f"track: found {self.track!r}, expected one of {', '.join(TRACKS)}, none")
        if self.track is not None and not TRACKS[self.track].takes_run_id(self.run_id):
            expected = TRACKS[self.track].describe_run_ids()
            raise ValueError(f"run_id: found {self.run_id!r} with track {self.track}, expected {expected}")
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
        if self.retrieval.runs and not self.searches_narratives:
            raise ValueError(
                "retrieval.runs: found a file with queries.narrative_weight 0, which leaves rankings of narratives "
                "out; expected a weight above 0"
            )
        if self.queries.passages is not None and isinstance(self.retrieval.systems, dict):
            raise ValueError(
                f"queries.passages: found {self.queries.passages!r} with the long form of retrieval.systems, expected "
                "none, and there a system with reads: passage"
            )
        if self.retrieval.runs and self.fusion.systems == "scores":
            raise ValueError(
                "fusion.systems: found 'scores' with retrieval.runs, of which only the order counts; expected rrf"
            )
        has_k = self.first_stage == "rrf" or self.grading.rounds or self.fusion.systems
        if self.fusion.k != type(self.fusion).model_fields["k"].default and not has_k:
            raise ValueError(
                f"fusion.k: found {self.fusion.k}, which the first stage ignores by default; expected it with "
                "fusion.systems: rrf"
            )
        if self.fusion.depth > self.retrieval.depth:
            raise ValueError(
                f"fusion.depth: found {self.fusion.depth}, above retrieval.depth "
                f"{self.retrieval.depth}; expected at most that"
            )
        if deep := [name for name, depth in self.fusion.depths.items() if depth > self.retrieval.depth]:
            raise ValueError(
                f"fusion.depths: found {self.fusion.depths[deep[0]]} for topic {deep[0]!r}, above retrieval.depth "
                f"{self.retrieval.depth}; expected at most that"
            )
        if self.track is not None and self.answer.method is not None and self.answer.method not in BY_QUERY:
            key, depth = ("fusion.depth", self.fusion.depth)
            if self.grading.method is not None and self.answer.method not in BY_RANKING:
                key, depth = ("grading.documents", self.grading.documents)
            if self.answer.documents > depth:
                raise ValueError(
                    f"answer.documents: found {self.answer.documents}, above {key} {depth}; expected at most that"
                )
        if self.grading.narrative and not self.searches_narratives:
            raise ValueError(
                "grading.narrative: found true with queries.narrative_weight 0, which leaves the narrative out; "
                "expected a weight above 0"
            )
        if self.grading.neighbours and not self.grading.deeper:
            raise ValueError(
                f"grading.neighbours: found {self.grading.neighbours} with grading.deeper 0, which grades no "
                "neighbour; expected deeper above 0"
            )
        if self.model is None and self.grounds:
            raise ValueError(
                f"track: {self.track} has documents judged as supporting or contradicting, which rules cannot do; "
                "expected a language model under the key model, with its name and urls"
            )
        if self.model is None and (key := self.find_model_step()):
            raise ValueError(f"{key} needs a language model; expected one under the key model, with its name and urls")
        return self

    @property
    def ranks_segments(self) -> bool:
        """Whether segments are ranked and answered from, and not documents."""
        return self.ranking == "segments"

    @property
    def has_default_choice(self) -> bool:
        """Whether the depth of each narrative is chosen by the default settings of the track."""
        most = bound_chosen_rows(self.retrieval.depth)
        return chooses_depth(self.track) and (self.fusion.choice, self.fusion.depth) == (ChosenDepth(), most)

    def deepen(self, depth: int) -> Self:
        """Let searches return at least this many documents, but at most `MOST_DEPTH`, for each query and narrative."""
        depth, changed = min(depth, MOST_DEPTH), dict[str, Any]()
        if depth > self.retrieval.depth:
            changed["retrieval"] = self.retrieval.deepen(depth)
        if depth > self.fusion.depth:
            changed["fusion"] = self.fusion.model_copy(update={"depth": depth})
        return self.model_copy(update=changed) if changed else self

    @property
    def first_stage(self) -> Literal["rrf", "scores"]:
        """How the systems of a query are fused: as `fusion.systems` says, or by default.

        By default, given runs are fused by their ranks, and so is a system whose lowest score is unknown.
        """
        by_rank = self.retrieval.runs or any(math.isnan(one.lowest) for one in self.make_systems().values())
        return self.fusion.systems or ("rrf" if by_rank else "scores")

    def reranks_after(self, step: Literal["fusion", "grades"]) -> bool:
        """Whether a reranker follows this step. Without grades, it follows fusion."""
        last = "fusion" if self.grading.method is None else self.rerank.after
        return self.rerank.method is not None and step == last

    def describe_first_stage(self) -> dict[str, Any]:
        """Describe how the systems of a query are fused: the method, its parameter, and weights of the systems."""
        own = {name: one.weight for name, one in self.retrieval.make_systems().items() if one.weight is not None}
        weights = {"weights": own} if own else {}
        if self.first_stage == "rrf":
            return {"method": "rrf", "k": self.fusion.k, **weights}
        return {"method": "convex combination (TM2C2)", "dense_weight": self.fusion.dense_weight, **weights}

    @property
    def searches_narratives(self) -> bool:
        """Whether the whole narrative is one of a topic's queries."""
        return self.queries.method == "narrative" or self.queries.narrative_weight > 0

    def list_systems(self) -> list[str]:
        """List the systems that rank documents for each query: those that search, then the given runs by number."""
        return [*self.make_systems(), *self.list_given_systems()]

    def make_systems(self) -> dict[str, System]:
        """Make the systems that search each query, by name. In the short form, systems for its passage come last."""
        return self.retrieval.make_systems() | {
            name: self.retrieval.make_system(name) for name in self._list_short_passage_systems()
        }

    def make_candidate_system(self) -> Bm25System:
        """Make the system that finds candidates if an index has no vectors of all documents: the first BM25."""
        own = (one for one in self.make_systems().values() if isinstance(one, Bm25System) and one.reads == "query")
        return next(own, self.retrieval.make_bm25())

    def find_system(self, name: str) -> System | None:
        """Find a system by its name: one of this configuration, or else one of the short form."""
        if (own := self.make_systems().get(name)) is not None:
            return own
        return next((self.retrieval.make_system(short) for short in SHORT_FORM if short == name), None)

    def list_given_systems(self) -> list[str]:
        """List the names of the given runs: `given1`, `given2` and so on."""
        return [f"given{number}" for number in range(1, len(self.retrieval.runs) + 1)]

    def list_passage_systems(self) -> list[str]:
        """List the systems that search by the passage of each query."""
        return [name for name, system in self.make_systems().items() if system.reads == "passage"]

    def _list_short_passage_systems(self) -> list[ShortName]:
        """List the systems that `queries.passages` adds, if `retrieval` has the system that searches the same way."""
        engines: dict[ShortName, ShortName] = {"hyde": "dense", "query2doc": "bm25"}
        return [
            system
            for system, engine in engines.items()
            if self.queries.passages in (system, "both") and engine in self.retrieval.systems
        ]

    @property
    def has_answers(self) -> bool:
        """Whether a run answers its topics."""
        return self.track is not None and self.answer.method is not None and not self.grounds

    @property
    def grounds(self) -> bool:
        """Whether a run finds documents that support or contradict the sentences of given answers."""
        return self.track is not None and TRACKS[self.track].grounds

    @property
    def has_default_team(self) -> bool:
        """Whether the submitted answers name a team, and that team is the default."""
        if self.track is None or not (self.has_answers or self.grounds):
            return False
        return TRACKS[self.track].is_default_team(self.team_id)

    def require_model(self, missing: str = MISSING_MODEL) -> ModelSettings:
        """Return the settings of the language model. `UserError` with the text `missing` without one."""
        if self.model is None:
            raise UserError(missing)
        return self.model

    def refuse_fixed_samples(self, repeats: int) -> None:
        """Raise `UserError` if the model is to be asked several times with settings that fix its replies."""
        if repeats > 1 and self.model and (fixed := {"temperature", "seed"} & self.model.extra.keys()):
            raise UserError(f"model.extra.{min(fixed)}: expected none with {repeats} repeats, which are samples")

    def find_model_step(self) -> str:
        """Find the first setting that needs a language model, as `key: value`; empty if none does."""
        return next((f"{key}: {value}" for key, value in self.list_model_steps().items()), "")

    def list_model_steps(self) -> dict[str, Any]:
        """List the settings that need a language model: their values by key."""
        systems = self.retrieval.make_systems().items()
        own = [f"{name} with reads: passage" for name, system in systems if system.reads == "passage"]
        needed = {
            "queries.method": (self.queries.method, ("model", "contract")),
            "queries.translate": (self.queries.translate, (True,)),
            "queries.passages": (self.queries.passages, ("hyde", "query2doc", "both")),
            "retrieval.systems": (next(iter(own), None), own),
            "retrieval.summarise": (self.retrieval.summarise, (True,)),
            "rerank.method": (self.rerank.asks_model() or self.rerank.method, ("listwise", "sliding")),
            "grading.method": (self.grading.method, ("pointwise", "grid")),
            "answer.method": (not self.grounds and self.answer.method, set(get_args(AnswerMethod)) - {"rules"}),
            "track": (self.track if self.grounds else None, (self.track,) if self.grounds else ()),
        }
        return {key: value for key, (value, models) in needed.items() if value in models}
