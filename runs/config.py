"""What a run is: one YAML file, read by strict models. An unknown key or an impossible value is an error."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError, model_validator

from fusion.methods import METHODS, impossible
from indexing.errors import UserError
from runs.tracks import TRACKS

AnyPath = Annotated[Path, Strict(False)]


class Model(BaseModel):
    """A part of the configuration: no unknown key, no converted value, no change after reading."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Queries(Model):
    """Which queries a narrative makes."""

    method: Literal["rules", "narrative"] = "rules"
    """`rules`: decomposition, topic and variants without a model; `narrative`: the narrative as one query."""
    facets: Literal["sentences", "clauses"] = "sentences"
    """What `rules` takes for a question: each sentence as it is, or clauses made into questions, as in the paper."""
    topic: Literal["lead", "phrase", "none"] = "lead"
    """What follows each question as its topic: the narrative's first sentence, a phrase of it (paper), or nothing."""
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
    feedback: Literal["none", "rm3", "rocchio"] = "none"
    """Pseudo-relevance feedback that expands each BM25 query from its first ten documents."""
    faiss: str = ""
    """Search parameters of a FAISS index that is not exact, such as `nprobe=16` or `efSearch=200`."""

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


class Answer(Model):
    """How the answer is made from the first documents of the ranking."""

    method: Literal["rules"] = "rules"
    """`rules`: sentences of the documents, chosen for coverage."""
    documents: int = Field(default=20, ge=1, le=100_000)
    words: int | None = Field(default=None, ge=1, le=100_000)
    """At most so many words; None: as many as the track has for our answers."""


class RunConfig(Model):
    """A run. Paths are relative to the working directory."""

    run_id: str = Field(max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    team_id: str = Field(default="keystone", max_length=100, pattern=r"^\S+$")
    index: AnyPath
    topics: AnyPath
    out: AnyPath = Path("out")
    """The run directory is `<out>/<run_id>`."""
    track: str = "rag25"
    """Whose files are written: a name of `TRACKS`; `none`: only rankings."""
    run_desc: str | None = Field(default=None, max_length=10_000, pattern=r"\S")
    """What the run is, for tracks that ask; None: its settings."""
    queries: Queries = Queries()
    retrieval: Retrieval = Retrieval()
    fusion: Fusion = Fusion()
    answer: Answer = Answer()

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for key, path in {"index": self.index, "topics": self.topics, "out": self.out}.items():
            if "\0" in str(path):
                raise ValueError(f"{key}: found {str(path)!r}, expected a path, which has no NUL")
        if self.track not in (*TRACKS, "none"):
            raise ValueError(f"track: found {self.track!r}, expected one of {', '.join(TRACKS)}, none")
        fusion = METHODS[self.fusion.method]
        if fusion.several and self.queries.method == "narrative":
            raise ValueError(
                f"fusion.method: found {self.fusion.method!r}, which compares queries, with queries.method "
                "'narrative', which makes one; expected another"
            )
        if not fusion.weighted and self.queries.method == "rules" and self.queries.narrative_weight not in (0, 1):
            raise ValueError(
                f"queries.narrative_weight: found {self.queries.narrative_weight:g} with fusion.method "
                f"{self.fusion.method!r}, which counts all queries alike; expected 0 or 1"
            )
        if self.fusion.depth > self.retrieval.depth:
            raise ValueError(
                f"fusion.depth: found {self.fusion.depth}, above retrieval.depth "
                f"{self.retrieval.depth}; expected at most that"
            )
        if self.track != "none" and self.answer.documents > self.fusion.depth:
            raise ValueError(
                f"answer.documents: found {self.answer.documents}, above fusion.depth "
                f"{self.fusion.depth}; expected at most that"
            )
        return self


def read_config(path: Path, overrides: list[str] | None = None) -> RunConfig:
    """The run that a YAML file describes, with `key.key=value` overrides (values in YAML) laid over it."""
    try:
        text = path.read_text(encoding="utf-8")
        values = _loaded(text)
        _check_repeated(path, yaml.compose(text))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected keys and values, found {type(values).__name__}")
    for override in overrides or []:
        _lay_over(values, override)
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        set_keys = {override.partition("=")[0] for override in overrides or []}
        raise UserError("\n".join(_explain(item, path, set_keys) for item in error.errors())) from error


def _loaded(text: str) -> Any:
    """The value of plain YAML, which can be shown in a message.

    `YAMLError` for aliases, which can make a value without end, and for tags, with which the library's errors are of
    any kind; `ValueError` for a number that Python does not print.
    """
    for event in yaml.parse(text, yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "tag", None):
            line = event.start_mark.line + 1 if event.start_mark else 0
            raise yaml.YAMLError(f"found an alias or a tag in line {line}, expected plain values")
    value = yaml.safe_load(text)
    repr(value)
    return value


def _check_repeated(path: Path, node: yaml.Node | None) -> None:
    """YAML keeps the last of two equal keys and says nothing; a configuration must not."""
    if not isinstance(node, yaml.MappingNode):
        return
    seen: set[str] = set()
    for key, value in node.value:
        if key.value in seen:
            raise UserError(f"{path}:{key.start_mark.line + 1}: the key {key.value} occurs more than once")
        seen.add(key.value)
        _check_repeated(path, value)


def _lay_over(values: dict[str, Any], override: str) -> None:
    dotted, equals, text = override.partition("=")
    *parents, last = dotted.split(".")
    if not equals or not all((*parents, last)):
        raise UserError(f"--set {override}: expected KEY=VALUE, such as retrieval.depth=500")
    try:
        value = _loaded(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"--set {override}: the value is not YAML") from error
    for parent in parents:
        inner = values.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise UserError(f"--set {override}: {parent} is a value, not a part with keys")
        values = inner
    values[last] = value


def _explain(item: Any, path: Path, set_keys: set[str]) -> str:
    location = ".".join(str(part) for part in item["loc"])
    where = "--set " if location in set_keys else f"{path}: "
    match item["type"]:
        case "extra_forbidden":
            known = sorted(_model_at(item["loc"][:-1]).model_fields)
            return f"{where}{location}: unknown key (value {item['input']!r}); expected one of {', '.join(known)}"
        case "missing":
            return f"{where}{location}: missing; expected a value"
        case "value_error":
            return where + ".".join(filter(None, [location, str(item["ctx"]["error"])]))
        case _:
            return f"{where}{location}: found {item['input']!r}; {item['msg'][0].lower()}{item['msg'][1:]}"


def _model_at(location: tuple[str | int, ...]) -> type[BaseModel]:
    model: type[BaseModel] = RunConfig
    for part in location:
        annotation = model.model_fields[str(part)].annotation
        assert isinstance(annotation, type)
        assert issubclass(annotation, BaseModel)
        model = annotation
    return model
