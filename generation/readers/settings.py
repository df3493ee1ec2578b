"""The methods of answers, and the settings of each reader: the section `reader` of a configuration."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, PlainSerializer, PlainValidator
from pydantic_core import PydanticCustomError

from keystone.indexing.plugins import OpenTable
from keystone.indexing.settings import OneOf, StrictSettings, read_settings

AnswerMethod = Literal["rules", "retrieval", "whole", "answers", "claims"]
"""`rules` chooses sentences of the documents. `retrieval` has the model write one answer from all documents. `whole`
has it write freely from the first documents of the last ranking, whole while the window holds them. `answers` has it
write an answer to each query, and makes one of these. `claims` has it quote what answers each query, and write the
quoted claims as prose."""

BY_QUERY: tuple[AnswerMethod, ...] = ("answers", "claims")
"""The methods that ask the model about each query with its own documents, and not about the narrative."""
BY_RANKING: tuple[AnswerMethod, ...] = ("whole",)
"""The methods whose documents the last ranking chooses, and not the grades."""

MOST_CALLS = 10_000
"""The most calls of the model that a reader may be allowed for one question."""
MOST_TOKENS = 100_000_000
"""The most tokens that a reader may be allowed for one question."""

LEAST_TOKENS = 1000
"""The fewest tokens that a reader may be allowed for one question."""


class PlainSettings(StrictSettings):
    """The plain reader: the documents' best segments in document order, as in DOS RAG."""

    name: Literal["plain"] = "plain"
    """The reader of Keystone-Docs RAG."""
    evidence_tokens: int | None = Field(default=None, ge=64, le=MOST_TOKENS)
    """The most tokens of evidence that an answer is written from; null: half of the model's window."""


class StructureSettings(StrictSettings):
    """Limits that all structure-aware readers share. They hold for one question: a narrative, or one of its queries."""

    evidence_tokens: int | None = Field(default=None, ge=64, le=MOST_TOKENS)
    """The most tokens of evidence that an answer is written from; null: half of the model's window."""
    calls: int = Field(default=200, ge=1, le=MOST_CALLS)
    """The most calls of the model before the answer is written."""
    tokens: int = Field(default=400_000, ge=LEAST_TOKENS, le=MOST_TOKENS)
    """The most tokens of these calls: prompts and replies together."""


class Rdr2Settings(StructureSettings):
    """The reader RDR2, which routes through the section tree of each document."""

    name: Literal["rdr2"]
    """The reader of Retrieve-DocumentRoute-Read."""
    documents: int = Field(default=5, ge=1, le=1000)
    """How many documents are routed (paper: top-k = 5)."""
    hits: int = Field(default=3, ge=1, le=100)
    """How many segments of a document, those closest to the question, begin the routing."""
    max_expand: int = Field(default=5, ge=0, le=1000)
    """The most expansions in a document (paper: 0 to 5)."""
    tree_tokens: int = Field(default=3000, ge=200, le=100_000)
    """The most tokens of a rendered sub-tree in one prompt."""
    all_refused: Literal["hits", "nothing"] = "hits"
    """The evidence if the router selects nothing in any document: the segments that began the routing, or nothing
    (paper)."""
    router: bool = True
    """If false, nothing is routed: the segments closest to the question are the evidence (paper: without router)."""
    structure: bool = True
    """If false, the router sees the paragraphs of these segments alone, without headings (paper: without structure)."""
    similarity: bool = True
    """If false, the router begins with the paragraphs of a heading drawn at random (paper: without similarity)."""
    content: bool = True
    """If false, the router begins with the headings alone, without paragraphs (paper: without content)."""
    expand: bool = True
    """If false, the router may not expand headings (paper: without EXPAND)."""
    refuse: bool = True
    """If false, the router may not refuse (paper: without REFUSE)."""


class DiscoRagSettings(StructureSettings):
    """The reader DiscoRAG, whose agents walk through the discourse tree of each document."""

    name: Literal["discorag"]
    """The reader of DiscoRAG."""
    method: Literal["agents", "expansion", "vanilla"] = "agents"
    """Agents that walk from entry leaves; or the paper's baselines: these leaves with their neighbours, or the leaves
    closest to the question."""
    entries: int = Field(default=8, ge=1, le=100)
    """How many leaves agents begin at (paper: M = 8)."""
    entries_per_document: int = Field(default=3, ge=1, le=100)
    """The most entry leaves in one document, or an equal share if there are too few documents."""
    kept: int = Field(default=30, ge=1, le=10_000)
    """How many nodes of all agents are kept, interleaved (paper: K = 30)."""
    retrieved: int = Field(default=5, ge=1, le=100)
    """How many leaves the tool `Retrieve` finds (paper: 5)."""
    steps: int = Field(default=12, ge=1, le=1000)
    """The most steps of an agent."""
    window: int = Field(default=4000, ge=500, le=1_000_000)
    """The most tokens of an agent's scratchpad, replies and observations; the oldest are shortened."""
    neighbours: int = Field(default=1, ge=0, le=100)
    """How many leaves on each side `expansion` adds to an entry leaf."""
    gate: bool = False
    """If true, the evidence for a question that the gate finds simple is the segments closest to it."""


class RhetoricalSettings(StructureSettings):
    """The reader Disco-RAG, which plans from rhetorical trees within chunks and a graph between them."""

    name: Literal["disco_rag"]
    """The reader of Disco-RAG."""
    chunks: int = Field(default=8, ge=1, le=20)
    """How many chunks are read: the segments closest to the question, without overlap."""
    tree: bool = True
    """If false, no trees are made (paper: without trees)."""
    graph: bool = True
    """If false, no graph between chunks is made (paper: without graph)."""
    plan: bool = True
    """If false, no plan is made (paper: without plan)."""
    perturbed: bool = False
    """If true, labels of trees and graph are shuffled (paper: structural perturbation)."""
    seed: int = Field(default=0, ge=0, le=2**31)
    """The seed of what is drawn or shuffled."""


class GraphReaderSettings(StructureSettings):
    """The reader GraphReader, whose agents explore a graph of key elements and atomic facts."""

    name: Literal["graphreader"]
    """The reader of GraphReader."""
    chunk_tokens: int = Field(default=2000, ge=100, le=100_000)
    """The most tokens of a chunk (paper: 2,000)."""
    candidates: int = Field(default=300, ge=1, le=10_000)
    """How many key elements the choice of the first nodes sees."""
    nodes: int = Field(default=5, ge=1, le=100)
    """How many initial nodes are explored, each on a path of its own (paper: 5)."""
    functions: int = Field(default=10, ge=1, le=1000)
    """The most function calls on one path (paper: 10)."""
    neighbours: int = Field(default=30, ge=1, le=1000)
    """How many neighbours of a node are shown."""
    notebook_tokens: int = Field(default=600, ge=50, le=100_000)
    """The most tokens of a notebook."""
    temperature: float = Field(default=0.2, ge=0, le=2)
    """The temperature of exploration (paper: 0.2)."""
    random_nodes: bool = False
    """If true, the initial nodes and all neighbours are drawn at random (paper: without node selection)."""
    seed: int = Field(default=0, ge=0, le=2**31)
    """The seed of what is drawn or shuffled."""


class AgentSettings(StructureSettings):
    """The reader `agent`, which searches by itself until its notes answer the questions of a narrative.

    The calls and tokens hold for a narrative, all its questions together.
    """

    name: Literal["agent"]
    """The research agent."""
    rounds: int = Field(default=3, ge=1, le=100)
    """The most rounds: in each, an agent works on every question that is open, and a judge rates the notes."""
    steps: int = Field(default=8, ge=1, le=1000)
    """The most steps of one agent in a round."""
    hits: int = Field(default=5, ge=1, le=100)
    """How many documents a search shows, each by its best segment."""
    observation_tokens: int = Field(default=2000, ge=100, le=100_000)
    """The most tokens of what a step shows: hits, or a page of a document."""
    window: int = Field(default=12_000, ge=500, le=1_000_000)
    """The most tokens of the observations that an agent is shown again; older ones become a line."""
    least_cosine: float = Field(default=0.6, ge=-1, le=1)
    """Without a model, a question counts as answered if a noted sentence has at least this cosine with it."""


def _list_structure_aware() -> list[str]:
    """List the readers whose calls of the model have limits, and that read by themselves."""
    limited = (name for name, kind in READERS.items() if issubclass(kind.settings, StructureSettings))
    return [name for name in limited if name != "escalate"]


def _list_single() -> list[str]:
    return [name for name in READERS if name not in ("fused", "escalate")]


class FusedSettings(StrictSettings):
    """Several readers, whose evidence lists reciprocal rank fusion joins before one writer answers."""

    name: Literal["fused"]
    """The fusion of readers."""
    evidence_tokens: int | None = Field(default=None, ge=64, le=MOST_TOKENS)
    """The most tokens of evidence that an answer is written from; null: half of the model's window."""
    readers: list[Annotated[str, OneOf(_list_single)]] = Field(default=["plain", "rdr2"], min_length=1, max_length=5)
    """The readers whose evidence is fused."""
    k: int = Field(default=60, ge=1, le=1_000_000)
    """The k of reciprocal rank fusion."""


class EscalateSettings(StructureSettings):
    """A draft by the plain reader. Only the queries that it leaves open go to a structure-aware reader."""

    name: Literal["escalate"]
    """The escalation from `plain` to another reader."""
    to: list[Annotated[str, OneOf(_list_structure_aware)]] = Field(
        default=["rdr2", "graphreader"], min_length=1, max_length=2
    )
    """The readers for the queries that the draft does not cover: one a round."""
    least_cosine: float = Field(default=0.55, ge=-1, le=1)
    """Without a model, a query counts as covered if a cited segment has at least this cosine with it."""


@dataclass(frozen=True, slots=True)
class ReaderKind:
    """A reader: the model of its settings, and what opens it.

    The settings have the fields `name`, with one value, and `evidence_tokens`; `StructureSettings` has more limits.
    `open` is a function or a class, or the import path of one. It takes `keystone.generation.readers.reader.Tools`, and
    returns a `keystone.generation.readers.reader.Reader`.
    """

    settings: type[StrictSettings]
    open: str | Callable[[Any], Any]

    def __post_init__(self) -> None:
        fields = self.settings.model_fields
        if "evidence_tokens" not in fields or len(self._list_names()) != 1:
            expected = "evidence_tokens, and name with one value, as in name: Literal['mine']"
            raise TypeError(f"{self.settings.__qualname__}: found the fields {', '.join(fields)}, expected {expected}")

    @property
    def name(self) -> str:
        """The name of the reader, as its settings have it."""
        return str(self._list_names()[0])

    def _list_names(self) -> tuple[Any, ...]:
        field = self.settings.model_fields.get("name")
        return get_args(field.annotation) if field else ()


READERS = OpenTable(
    "keystone.readers",
    ReaderKind,
    {
        "plain": ReaderKind(PlainSettings, "keystone.generation.readers.plain:Plain"),
        "rdr2": ReaderKind(Rdr2Settings, "keystone.generation.readers.rdr2.read:Rdr2"),
        "discorag": ReaderKind(DiscoRagSettings, "keystone.generation.readers.discorag.read:DiscoRag"),
        "disco_rag": ReaderKind(RhetoricalSettings, "keystone.generation.readers.disco_rag.read:DiscoRag"),
        "graphreader": ReaderKind(GraphReaderSettings, "keystone.generation.readers.graphreader.reader:GraphReader"),
        "agent": ReaderKind(AgentSettings, "keystone.generation.readers.agent.reader:Agent"),
        "fused": ReaderKind(FusedSettings, "keystone.generation.readers.combined:Fused"),
        "escalate": ReaderKind(EscalateSettings, "keystone.generation.readers.combined:Escalate"),
    },
)
"""The readers by name, those of other packages included."""


def list_combined(reader: Any) -> list[str]:
    """List the readers that a reader combines: those of `fused`, or those to which `escalate` turns."""
    if isinstance(reader, EscalateSettings):
        return reader.to
    return reader.readers if isinstance(reader, FusedSettings) else []


def set_combined(reader: Any, name: str, **limits: int) -> Any:
    """Set a reader that another one combines: its defaults, with the same evidence tokens and some limits."""
    return READERS[name].settings.model_validate({"name": name, "evidence_tokens": reader.evidence_tokens, **limits})


def _read_settings(value: Any) -> Any:
    """The settings of the reader that a value names; without a name it is the plain reader."""
    if isinstance(value, StrictSettings):
        return value
    name = value.get("name", "plain") if isinstance(value, dict) else None
    if not isinstance(name, str) or name not in READERS:
        raise PydanticCustomError("unknown_reader", "unknown reader")
    return read_settings(READERS[name].settings, value, name)


ReaderSettings = Annotated[
    PlainSettings
    | Rdr2Settings
    | DiscoRagSettings
    | RhetoricalSettings
    | GraphReaderSettings
    | AgentSettings
    | FusedSettings
    | EscalateSettings,
    PlainValidator(_read_settings),
    PlainSerializer(lambda settings, info: settings.model_dump(mode=info.mode)),
]
"""The settings of one reader, told apart by `name`. Readers of other packages have models of their own."""
