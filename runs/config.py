"""What a run is: one YAML file, read by strict models. An unknown key or an impossible value is an error."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError, model_validator

from indexing.errors import UserError

AnyPath = Annotated[Path, Strict(False)]


class Model(BaseModel):
    """A part of the configuration: no unknown key, no converted value, no change after reading."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Queries(Model):
    """Which queries a narrative makes."""

    method: Literal["rules", "narrative"] = "rules"
    """`rules`: decomposition, topic and variants without a model; `narrative`: the narrative as one query."""
    question_weight: int = Field(default=3, ge=1, le=20)
    """How often a question's words count against one of its topic and variants, for BM25; 1 in the paper."""
    variants: int = Field(default=0, ge=0, le=50)
    """Words that expand the topic, for BM25 (`NUM_QUERIES` of the paper, which has 10)."""
    dense_topic: bool = False
    """Whether the embedding model gets the topic after the question, as in the paper."""
    narrative_weight: int = Field(default=2, ge=0, le=20)
    """How often the narrative, as one more query, counts in the second stage; 0 in the paper."""


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

    method: Literal["rrf", "frequency"] = "rrf"
    k: int = Field(default=60, ge=1, le=1_000_000)
    """First stage: systems of a query."""
    k_narrative: int = Field(default=10, ge=1, le=1_000_000)
    """Second stage: queries of a narrative (k'; the paper uses 60, and 10 in `uema2lab_rrf_k10`)."""
    depth: int = Field(default=100, ge=1, le=100_000)
    """Documents a narrative (`N_narr`)."""


class Answer(Model):
    """How the answer is made from the first documents of the ranking."""

    method: Literal["rules"] = "rules"
    """`rules`: sentences of the documents, chosen for coverage."""
    documents: int = Field(default=20, ge=1, le=100_000)
    words: int = Field(default=399, ge=1, le=100_000)
    """At most so many words; the 2025 guidelines ask for fewer than 400."""


class RunConfig(Model):
    """A run. Paths are relative to the working directory."""

    run_id: str = Field(max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    team_id: str = Field(default="keystone", max_length=100, pattern=r"^\S+$")
    index: AnyPath
    topics: AnyPath
    out: AnyPath = Path("out")
    """The run directory is `<out>/<run_id>`."""
    track: Literal["rag25", "none"] = "rag25"
    """Whose files are written; `none`: only rankings."""
    queries: Queries = Queries()
    retrieval: Retrieval = Retrieval()
    fusion: Fusion = Fusion()
    answer: Answer = Answer()

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.fusion.method == "frequency" and self.queries.method == "narrative":
            raise ValueError(
                "fusion.method: found 'frequency' with queries.method 'narrative': there is one query, "
                "nothing to count; expected 'rrf'"
            )
        if self.fusion.method == "frequency" and self.queries.narrative_weight:
            raise ValueError(
                f"queries.narrative_weight: found {self.queries.narrative_weight} with fusion.method "
                "'frequency', which counts decomposed queries alike; expected 0"
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
        values = yaml.safe_load(text)
        _check_repeated(path, yaml.compose(text))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from error
    except (yaml.YAMLError, ValueError) as error:
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
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
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
