"""The rules of the tracks as data: forms of topics, names of files and keys, limits, forms of ids and of citations.

Keystone uses them to read topics, and to write, judge, repair and convert submissions. A package can add a track of its
own through an entry point.

Sources: the guidelines of TREC RAG 2024 (v1.0), 2025 (v2.0) and 2026 (v0.6), and hltcoe/rag-run-validator for the
format that RAGTIME, DRAGUN and BioGen share.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from typing import Any, Literal

from keystone.indexing.corpora.segments import MS_MARCO_DOCUMENT_PATTERN, MS_MARCO_SEGMENT_PATTERN
from keystone.indexing.errors import UserError
from keystone.indexing.io.fields import is_missing
from keystone.indexing.io.json_values import read_whole_number
from keystone.indexing.plugins import OpenTable
from keystone.retrieval.types import Topic

KeyContent = Literal["team", "run", "topic", "narrative", "type", "description", "kit"]
"""The content of a key in an answer's metadata. `kit`: whether the starter kit of the track was used, 0 or 1."""

CitationForm = Literal["positions", "ids", "scores"]
"""A list of 0-based positions in the references, a list of ids, or an object from id to score."""

IntegerMeaning = Literal["positions", "ids"]
"""What an integer means as a citation: a position in the references, or the id with these digits."""

Aggregator = Literal["AND", "OR"]
"""Whether an answer should give all gold answers of a nugget's question, or any one."""

TYPES = ("automatic", "manual")
"""The values of a key that holds the type of a run."""

SUPPORTED, CONTRADICTED, EXISTING = "supported_citations", "contradicted_citations", "existing_supported_citations"
"""The keys of the documents that support or contradict a sentence, and of those that were known to support it."""

DEFAULT_TEAM = "keystone"
"""The team of a run whose configuration names none. No team should submit under it."""
RUN_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
"""The run ids of tracks that limit them."""
OPTIONS: Mapping[KeyContent, str] = {
    "team": "--team",
    "run": "--run-id",
    "description": "--run-desc",
    "type": "--type",
}
"""The options of `keystone convert` that give the content of a key."""


UNKEYED_RULES = ("chooses_depth", "request", "nugget_run_id_length", "runs")
"""The rules of `Track` that change no stored result, so that the keys of results leave them out."""
LATER_RULES = ("telling_ids", "language", "grounds", "task_key")
"""The rules of `Track` that were added after results were stored. At their defaults the keys leave them out."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key of an answer's metadata. If it is not required, an answer without it is valid."""

    name: str
    holds: KeyContent
    required: bool = True


@dataclass(frozen=True, slots=True)
class RequestForm:
    """The form of topics in several parts. Blank lines join the parts into one narrative, in this order."""

    parts: tuple[str, ...]
    required: tuple[str, ...]
    """The parts that a topic of this form must have. It has at least two parts in all."""
    ids: tuple[str, ...] = ()
    """The keys under which the programs of the track read the id of a topic, beyond its own."""

    def find_parts(self, record: Mapping[str, Any]) -> tuple[str, ...]:
        """Find the parts of a record that hold a text; empty if it is no topic of this form."""
        filled = {key for key, value in record.items() if isinstance(value, str) and value.strip()}
        found = tuple(key for key in self.parts if key in filled)
        return found if len(found) > 1 and filled.issuperset(self.required) else ()


@dataclass(frozen=True, slots=True)
class Length:
    """The most words or characters of an answer (`limit`; None: any number), and the way to count them."""

    limit: int | None = None
    unit: Literal["words", "characters"] = "words"
    """White space separates words. Characters are counted after single spaces join the sentences."""
    nfkc: bool = True
    """Whether the text is normalised to Unicode's NFKC before counting."""

    def measure(self, texts: Iterable[str]) -> list[int]:
        """Measure the length that each text adds to the whole, in `unit`."""
        plain = [unicodedata.normalize("NFKC", text) if self.nfkc else text for text in texts]
        if self.unit == "words":
            return [len(text.split()) for text in plain]
        return [len(text) + (place > 0) for place, text in enumerate(plain)]


@dataclass(frozen=True, slots=True)
class Track:
    """The rules of a track's submissions. A limit of None allows any number."""

    name: str
    retrieval_file: str
    answer_file: str
    id_form: str | None
    """A regular expression for ids of the corpus. None: any id."""
    segments: bool
    """Whether rankings and references name segments. Otherwise they name documents."""
    metadata: str | None
    """The key of the metadata object. None: the answer's own object holds the metadata."""
    keys: tuple[Key, ...]
    sentences: str
    """The key of the list of sentences."""
    citations: tuple[CitationForm, ...]
    """The forms that citations may have. Keystone writes the first one."""
    length: Length
    words: int
    """The most words of Keystone's own answers, if the configuration gives no number."""
    rows: int | None = None
    """The most rows of a topic in a retrieval run."""
    chooses_depth: bool = False
    """Whether a run chooses the rows of each topic, unless its configuration gives a depth."""
    references: int | None = None
    """The most references of an answer."""
    cited: int | None = None
    """The most citations of a sentence."""
    one_form: Literal["file", "answer"] | None = None
    """Where all citations must have one form: in a whole file, or in each answer. None: forms may be mixed."""
    uncited: bool = True
    """Whether references may include ids that no sentence cites."""
    listed: Literal["required", "advised", "optional"] = "required"
    """Whether an answer must list its references. Without a list, each citation by id stands for itself."""
    strict_ids: bool = False
    """Whether each reference must be an id of the corpus. Otherwise all ids of a file may be of another corpus."""
    telling_ids: bool = True
    """Whether an id of the corpus tells the track. PMIDs are plain numbers, as other corpora have them."""
    run_id_length: int | None = None
    """The most characters of a run id, which then has only letters, digits, `-`, `_`, `.`, and no `.` first."""
    has_gate: bool = False
    """Whether `auto-judge-report verify` has rules for the track. `keystone.runs.tracks.check_answers` then also checks
    the keys that this program reads."""
    accepted: tuple[str, ...] = ()
    """The kinds of violations that this track's organisers accept: they are warnings."""
    length_key: str | None = None
    """The key under which an answer reports its own length."""
    task_key: str = ""
    """The key of the metadata that names the task: `english` or `multilingual`, by the languages of the documents."""
    language: str = ""
    """The language in which a model is asked to write answers. Empty: the request does not name one."""
    request: RequestForm | None = None
    """The form of the topics, if they have several parts."""
    nugget_run_id_length: int | None = None
    """The most characters of a run id in a file of nuggets. None: the track has no task of nuggets."""
    runs: int | None = None
    """The most runs of a team, each with a run id of its own."""
    grounds: bool = False
    """Whether the topics are the sentences of given answers, and a run finds documents that support or contradict each.
    `keystone.runs.tracks.grounded` has the form of such answers."""
    topic_limit: str | None = None
    """The key under which the topics file gives the length limit of a topic."""
    document_form: str | None = None
    """A regular expression for ids of the corpus's documents, if `id_form` describes their segments."""
    topic_form: str | None = None
    """A regular expression for topic ids, if they distinguish the track from others."""
    guessed: bool = False
    """Whether these rules were chosen only by the form of a file, which several tracks share."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """The length limits of single topics, by id. `set_topic_limits` sets them."""

    @property
    def form(self) -> str:
        """The name of the form of its answers, which several tracks may share."""
        if self.grounds:
            return "biogen-grounded"
        has_kit = any(key.holds == "kit" for key in self.keys)
        return "responses" if self.sentences == "responses" and not has_kit else self.name

    @property
    def integers(self) -> tuple[IntegerMeaning, ...]:
        """What an integer may mean as a citation, the likelier first."""
        return ("positions", "ids") if "positions" in self.citations else ("ids", "positions")

    @property
    def topic_key(self) -> str:
        """The key of an answer's metadata that holds the topic."""
        return next(key.name for key in self.keys if key.holds == "topic")

    @property
    def run_key(self) -> str:
        """The key of an answer's metadata that holds the run id."""
        return next(key.name for key in self.keys if key.holds == "run")

    def owns(self, name: str) -> bool:
        """Whether an id has the form of the track's corpus."""
        return self.id_form is None or bool(re.fullmatch(self.id_form, name))

    def misses(self, name: str) -> bool:
        """Whether an id names a document of the corpus, or a part of one, but no official segment."""
        pieces = self.document_form and re.fullmatch(rf"{self.document_form}(#.*)?", name)
        return bool(pieces) and not self.owns(name)

    def is_default_team(self, team_id: str) -> bool:
        """Whether answers of this track would carry Keystone's default in place of a team's own name."""
        return team_id == DEFAULT_TEAM and any(key.holds == "team" for key in self.keys)

    def takes_run_id(self, run_id: str) -> bool:
        """Whether a run may have this id."""
        most = self.run_id_length
        return most is None or (len(run_id) <= most and bool(RUN_ID.fullmatch(run_id)))

    def describe_run_ids(self) -> str:
        """Describe the run ids that the track takes, in words that follow "expected"."""
        return f"at most {self.run_id_length} letters, digits, '-', '_' and '.', not beginning with '.'"

    def limit(self, topic_id: str) -> int | None:
        """The length limit of the answer to a topic."""
        return self.limits.get(topic_id, self.length.limit)


_RAG24 = Track(
    name="rag24",
    retrieval_file="r_output_trec_rag_2024.tsv",
    answer_file="rag_output_trec_rag_2024.jsonl",
    id_form=MS_MARCO_SEGMENT_PATTERN,
    segments=True,
    metadata=None,
    keys=(Key("run_id", "run"), Key("topic_id", "topic"), Key("topic", "narrative")),
    sentences="answer",
    citations=("positions",),
    length=Length(400),
    words=399,
    rows=100,
    references=20,
    strict_ids=True,
    length_key="response_length",
    document_form=MS_MARCO_DOCUMENT_PATTERN,
    topic_form=r"2024-\d+",
)
_RAG25 = Track(
    name="rag25",
    retrieval_file="r_output_trec_rag_2025.tsv",
    answer_file="rag_output_trec_rag_2025.jsonl",
    id_form=MS_MARCO_SEGMENT_PATTERN,
    segments=True,
    metadata="metadata",
    keys=(
        Key("team_id", "team"),
        Key("run_id", "run"),
        Key("type", "type"),
        Key("narrative_id", "topic"),
        Key("narrative", "narrative"),
    ),
    sentences="answer",
    citations=("positions", "ids"),
    length=Length(400),
    words=399,
    rows=100,
    references=100,
    one_form="file",
    has_gate=True,
    document_form=MS_MARCO_DOCUMENT_PATTERN,
)
_RAG26 = Track(
    name="rag26",
    retrieval_file="r_output_trec_rag_2026.tsv",
    answer_file="rag_output_trec_rag_2026.jsonl",
    id_form=r"shard_\d{5}_\d+",
    segments=False,
    metadata="metadata",
    keys=(
        Key("team_id", "team"),
        Key("narrative_id", "topic"),
        Key("narrative", "narrative"),
        Key("run_id", "run"),
        Key("run_desc", "description"),
    ),
    sentences="answer",
    citations=("positions", "ids"),
    length=Length(1024, nfkc=False),
    words=1024,
    chooses_depth=True,
    cited=3,
    one_form="answer",
    strict_ids=True,
    has_gate=True,
    run_id_length=20,
    topic_form=r"rag2026-\d+",
)
_RESPONSES = Track(
    name="responses",
    retrieval_file="retrieval.tsv",
    answer_file="responses.jsonl",
    id_form=None,
    segments=False,
    metadata="metadata",
    keys=(Key("team_id", "team"), Key("run_id", "run"), Key("topic_id", "topic")),
    sentences="responses",
    citations=("ids", "scores"),
    length=Length(),
    words=400,
)
_RAGTIME25 = replace(
    _RESPONSES,
    name="ragtime25",
    id_form=r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}_\d+",
    length=Length(unit="characters"),
    words=300,
    language="English",
    request=RequestForm(
        ("title", "background", "problem_statement"), ("problem_statement",), ("topic_id", "request_id")
    ),
    rows=1000,
    cited=3,
    one_form="answer",
    uncited=False,
    strict_ids=True,
    has_gate=True,
    run_id_length=25,
    topic_limit="limit",
    task_key="task",
    accepted=("too many citations",),
)
_RAGTIME26 = replace(
    _RAGTIME25,
    name="ragtime26",
    keys=(*_RESPONSES.keys, Key("run_desc", "description", required=False)),
    task_key="",
    uncited=True,
    listed="advised",
    run_id_length=20,
    nugget_run_id_length=25,
    accepted=("too many citations", "citation without reference"),
)
_DRAGUN25 = replace(
    _RESPONSES,
    name="dragun25",
    id_form=MS_MARCO_SEGMENT_PATTERN,
    document_form=MS_MARCO_DOCUMENT_PATTERN,
    telling_ids=False,
    segments=True,
    keys=(*_RESPONSES.keys, Key("type", "type"), Key("use_starter_kit", "kit")),
    citations=("ids",),
    length=Length(250),
    words=249,
    cited=3,
    listed="optional",
    strict_ids=True,
    has_gate=True,
    accepted=("too many citations", "repeated reference", "citation without reference"),
)
_BIOGEN = replace(
    _RESPONSES,
    name="biogen",
    id_form=r"[1-9]\d{0,7}",
    telling_ids=False,
    strict_ids=True,
    length=Length(250, nfkc=False),
    words=250,
    cited=3,
    uncited=False,
    listed="optional",
    runs=10,
    request=RequestForm(("topic", "question", "narrative"), ("topic", "question", "narrative")),
    accepted=("id as a number",),
)
_BIOGEN_A = replace(
    _BIOGEN,
    name="biogen-a",
    retrieval_file="task_a.tsv",
    answer_file="task_a.jsonl",
    keys=(Key("team_id", "team"), Key("run_id", "run"), Key("qa_id", "topic")),
    sentences="answer",
    length=Length(),
    request=None,
    grounds=True,
)

_OWN = {
    track.name: track
    for track in (
        _RAG24,
        _RAG25,
        _RAG26,
        _RESPONSES,
        _RAGTIME25,
        _RAGTIME26,
        _DRAGUN25,
        _BIOGEN,
        _BIOGEN_A,
    )
}
TRACKS = OpenTable("keystone.tracks", Track, _OWN)
"""The tracks by name, and those of other packages.

`responses` is the format that RAGTIME, DRAGUN, BioGen and others share, without limits.
"""

SHARED_FORM = replace(_RESPONSES, guessed=True, listed="advised", accepted=_BIOGEN.accepted)
"""The rules for a file of that form whose track is unknown: what any of the tracks accepts is no error."""


def find_request(record: Mapping[str, Any]) -> tuple[RequestForm, tuple[str, ...]] | None:
    """Find the form of a topic in several parts, and the parts that it has; None for another topic."""
    forms = dict.fromkeys(track.request for track in TRACKS.values() if track.request)
    found = [(form, parts) for form in forms if (parts := form.find_parts(record))]
    return max(found, key=lambda one: len(one[0].required), default=None)


def find_given_answer(record: Mapping[str, Any]) -> tuple[Track, str] | None:
    """Find the track that grounds the sentences of a given answer, and the answer's id; None for another object."""
    for track in (one for one in TRACKS.values() if one.grounds):
        metadata = record.get(track.metadata) if track.metadata else None
        name = (metadata if isinstance(metadata, dict) else record).get(track.topic_key)
        if isinstance(record.get(track.sentences), list) and isinstance(name, str | int) and name != "":
            return track, str(name)
    return None


def encode_rules(track: Track) -> dict[str, Any]:
    """Encode the rules as values of JSON for the keys of results.

    Later rules are left out at their defaults, and `UNKEYED_RULES` always.
    """
    defaults = {one.name: one.default for one in fields(Track) if one.name in LATER_RULES}
    rules = {name: value for name, value in asdict(track).items() if defaults.get(name, MISSING) != value}
    return {name: value for name, value in rules.items() if name not in UNKEYED_RULES}


def set_topic_limits(track: Track, topics: Iterable[Topic]) -> Track:
    """Set the length limits that the topics give, if the track has such limits, and return the new track.

    `UserError` with file and line for a limit that is not a whole number above 0.
    """
    limits = {}
    for topic in topics:
        found = topic.record.get(track.topic_limit) if track.topic_limit else None
        if is_missing(found):
            continue
        limit = read_whole_number(found)
        if limit is None or limit < 1:
            raise UserError(f"{topic.place}: {track.topic_limit}: expected a whole number above 0, found {found!r}")
        limits[topic.id] = limit
    return replace(track, limits=limits) if limits else track
