"""The types that flow between the steps: requests and replies, understandings, evidence and cited answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal, NamedTuple

from keystone.indexing.types import Span
from keystone.retrieval.types import Ask

Functions = Mapping[str, tuple[str, tuple[str, ...]]]
"""Functions by name, each with its description and those members of the reply that it takes."""

Message = tuple[str, str]
"""A role (`system`, `user` or `assistant`) and its text."""


@dataclass(frozen=True, slots=True)
class Request:
    """One chat request. `purpose` names the step that sends it; usage is counted by purpose."""

    purpose: str
    messages: tuple[Message, ...]
    max_tokens: int
    schema: Mapping[str, Any] | None = None
    """The JSON schema of the reply. None: the reply is prose."""
    temperature: float = 0.0
    top_logprobs: int = 0
    """For how many alternatives of each token the reply gives log-probabilities."""
    seed: int | None = None
    """The seed of a sampled reply. Requests that differ by it alone have replies of their own."""
    functions: Functions = field(default_factory=dict, hash=False)
    """The functions that the member `tool` of the reply may name, for servers that take tool calls."""
    doubled: bool = field(default=False, compare=False)
    """Whether `max_tokens` is twice that of a request whose reply was cut. The tokens for thoughts then double, too."""


class Prompt(NamedTuple):
    """The texts of a step's requests, the schema of its replies (None: prose), and the most tokens of one."""

    purpose: str
    system: str
    user: str
    schema: Mapping[str, Any] | None = None
    max_tokens: int = 0

    def request(self, max_tokens: int = 0, /, **parts: object) -> Request:
        """Make a request with these parts in the user's text; `max_tokens` above 0 counts in place of the prompt's."""
        messages = (("system", self.system), ("user", self.user.format(**parts)))
        return Request(self.purpose, messages, max_tokens or self.max_tokens, self.schema)


@dataclass(frozen=True, slots=True)
class Usage:
    """The cost of calls: their number, the number of retries, tokens, and the seconds spent waiting for replies.

    `prompt_tokens` include `cached_tokens`. A reply from the cache is not a call; `cache_hits` counts it.
    """

    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    retries: int = 0
    cache_hits: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(*(getattr(self, part) + getattr(other, part) for part in self.__slots__))


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's reply. `finish` is `length` if the reply was cut at `max_tokens`, else `stop`."""

    text: str
    finish: str = "stop"
    logprobs: tuple[Mapping[str, float], ...] = ()
    """The log-probabilities of each token's alternatives, if the request asked for them."""
    starts: tuple[int, ...] = ()
    """The place in the text at which each of these tokens begins; empty if the server did not say its tokens."""
    last: bool = False
    """Whether the model is not asked again. A reader then mends what it otherwise refuses, where it can."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why a request has no usable reply after all tries. No value replaces the missing one."""

    reason: str


@dataclass(frozen=True, slots=True)
class Fallback:
    """A record that a step went on without the model's reply, with the reason."""

    topic_id: str
    step: str
    reason: str


@dataclass(frozen=True, slots=True)
class Understanding:
    """A narrative's questions (decomposition), its topic, and the topic's variants (expansion)."""

    topic_id: str
    questions: tuple[str, ...]
    topic: str = ""
    variants: tuple[str, ...] = ()
    asks: tuple[Ask, ...] = ()
    """What each question wants, beside `questions`; empty if nobody said so."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A stretch of a document that an answer may use, with its score for the query `query_id`."""

    span: Span
    text: str
    score: float
    query_id: str
    heading: str = ""
    """The headings above the stretch, outermost first. An answer is shown them, and cites none of them."""
    why: str = ""
    """The step of the reader that chose the stretch, such as `answered by node 41`."""
    segments: tuple[str, ...] = ()
    """The ids of the segments that overlap the stretch. A run names them after its reader has gathered."""


@dataclass(frozen=True, slots=True)
class Note:
    """A text that a reader wrote while it gathered evidence, and the stretches of documents behind it.

    `kind` names its use, such as a plan or a notebook entry; `step` counts the reader's steps from 0. The answer to the
    query `query_id` is shown the text.
    """

    text: str
    sources: tuple[Span, ...]
    kind: str
    step: int = 0
    query_id: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a reader, for its trace: the text that it saw, the reply, the action, and the cost in tokens.

    `agent` tells apart the walks of one question, and `number` counts the steps of one walk from 0. `added` are the
    stretches that became evidence. Tokens are estimates, so a repeated run writes the same trace.
    """

    query_id: str
    doc_id: str
    agent: int
    number: int
    purpose: str
    shown: str
    reply: str
    action: str
    observation: str = ""
    added: tuple[Span, ...] = ()
    prompt_tokens: int = 0
    reply_tokens: int = 0
    stop: str = ""
    """The reason why the walk ended with this step; empty if it went on."""


Stop = Literal["done", "budget", "max_steps", "invalid", "stalled", "empty", "llm_error"]
"""The reason why a reader stopped gathering. Its evidence can be used in every case."""


Answered = Literal["answered", "partly", "not"]
"""How far documents answer a question."""


@dataclass(frozen=True, slots=True)
class QuestionCheck:
    """The check of one query's question against the evidence: how far it is answered, and the words that do so."""

    query_id: str
    found: Answered
    quote: Span | None = None
    """The place of these words; None if nothing answers the question."""
    searches: tuple[str, ...] = ()
    """The texts by which the part that is missing may be found."""


@dataclass(frozen=True, slots=True)
class EvidenceSet:
    """All evidence that a reader gathered for one topic. `by` is the name of the model that it asked, or `rules`."""

    items: tuple[Evidence, ...]
    notes: tuple[Note, ...] = ()
    stop: Stop = "done"
    reader: str = "plain"
    by: str = "rules"
    steps: tuple[Step, ...] = ()
    checks: tuple[QuestionCheck, ...] = ()
    """How far the first evidence answers each question, if that was checked."""
    added: tuple[str, ...] = ()
    """The ids of the documents that were searched for afterwards."""
    fallbacks: tuple[Fallback, ...] = ()
    """Each step of the check in which the model gave no usable reply."""
    rechecks: tuple[QuestionCheck, ...] = ()
    """How far the evidence answers each question once documents were added, if it was checked again."""


MOST_CITATIONS = 3
"""The most segments that one sentence cites. Every track accepts them."""
Citation = str
"""The id of a segment, or of a document as long as none of its segments is chosen, or where a track cites documents."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of an answer with its citations, best support first."""

    text: str
    citations: tuple[Citation, ...]
    evidence: tuple[int, ...] = ()
    """The places of its evidence in the items of the topic, from 0. A run names them after its reader has answered."""


Support = Literal["full", "partial", "none"]
"""How far the cited segments state a sentence: every claim in it, some of its claims, or no claim."""


Checked = Support | Literal["unchecked"]
"""The outcome of a check. A sentence is unchecked if it cites a text in another language: rules cannot compare."""

SupportAction = Literal["kept", "cited anew", "rewritten", "dropped"]
"""The consequence of a check for its sentence."""


@dataclass(frozen=True, slots=True)
class SupportCheck:
    """The check of one sentence of a draft: its text then, how far its citations supported it, and the consequence."""

    text: str
    support: Checked
    action: SupportAction


@dataclass(frozen=True, slots=True)
class Answer:
    """The cited answer to a topic, each step in which the model gave no usable reply, and the checks of support."""

    topic_id: str
    sentences: tuple[Sentence, ...]
    fallbacks: tuple[Fallback, ...] = ()
    checks: tuple[SupportCheck, ...] = ()
    missing: str = ""
    """A sentence about the parts of the request that the documents leave open."""

    def list_texts(self) -> list[str]:
        """List the texts of all sentences but the one about what the documents leave open."""
        return [sentence.text for sentence in self.sentences if sentence.text != self.missing]

    def list_citations(self) -> list[Citation]:
        """List the cited ids, each once, in the order of their first citations. Their numbers count from 1."""
        return list(dict.fromkeys(citation for sentence in self.sentences for citation in sentence.citations))

    def number_citations(self) -> str:
        """Join the sentences, each with the numbers of its citations, such as `[1] [2]`."""
        number = {citation: place for place, citation in enumerate(self.list_citations(), 1)}
        marks = ("".join(f" [{number[citation]}]" for citation in sentence.citations) for sentence in self.sentences)
        return " ".join(f"{sentence.text}{own}" for sentence, own in zip(self.sentences, marks, strict=True))

    def _repr_html_(self) -> str:
        cited = "".join(f"<li>{escape(name)}</li>" for name in self.list_citations())
        return f"<p>{escape(self.number_citations())}</p><ol>{cited}</ol>"

    def __str__(self) -> str:
        """Show the sentences with the numbers of their citations, then the cited ids by number."""
        return "\n".join([self.number_citations(), *(f"[{n}] {id}" for n, id in enumerate(self.list_citations(), 1))])
