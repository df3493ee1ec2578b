"""Language models: their interface, and the key of a request.

Some servers cut a prompt to their window and answer all the same. Only their count of tokens tells. `InLanguage` is a
model that is asked to write in one language, whatever the languages of the documents.
"""

from collections.abc import AsyncIterator, Iterable, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from keystone.generation.types import Failure, Reply, Request, Usage
from keystone.indexing.io.json_values import digest

LEAST_CHARACTERS = 1_000
"""Shorter prompts tell nothing."""
LEAST_TOKENS = 100
"""Fewer tokens than any window has. A server that counts so few does not count the prompt."""
CHARACTERS_PER_TOKEN = 10
"""More characters than a token has on average in any language."""
LEAST_GROWTH = 1.25
"""If a prompt is longer than another by this factor, it has more tokens."""


@dataclass(frozen=True, slots=True)
class CutPrompt:
    """The tokens that a server counted for a prompt, which must have more, and the characters of the prompt."""

    tokens: int
    characters: int


class PromptSizes:
    """The sizes of the prompts that a model has answered."""

    def __init__(self) -> None:
        self._most = CutPrompt(0, 0)
        """The most tokens of a prompt, and the characters of the longest prompt with that many."""
        self._shortest = 0
        """The characters of the shortest prompt with as many tokens."""
        self._densest = CutPrompt(1, 0)
        """The prompt with the most characters a token."""

    def note(self, request: Request, usage: Usage) -> None:
        """Note the cost of a request that was answered."""
        found = CutPrompt(usage.prompt_tokens, sum(len(text) for _, text in request.messages))
        if found.tokens < LEAST_TOKENS:
            return
        if found.tokens > self._most.tokens:
            self._most, self._shortest = found, found.characters
        elif found.tokens == self._most.tokens:
            self._shortest = min(self._shortest, found.characters)
            self._most = max(self._most, found, key=lambda one: one.characters)
        if found.characters >= LEAST_CHARACTERS:
            self._densest = max(self._densest, found, key=lambda one: one.characters / one.tokens)

    def find_cut(self) -> CutPrompt | None:
        """Find a prompt that the server has cut, if any.

        Either prompts of different length have the same largest count, or one has far fewer tokens than any text of
        its length.
        """
        longest = self._most.characters
        if longest >= LEAST_CHARACTERS and longest >= LEAST_GROWTH * self._shortest:
            return self._most
        if self._densest.characters > CHARACTERS_PER_TOKEN * self._densest.tokens:
            return self._densest
        return None


class Model(Protocol):
    """A language model. All calls of `complete` at the same time share its capacity."""

    name: str

    def complete(self, requests: Iterable[Request]) -> AsyncIterator[tuple[int, Reply | Failure]]:
        """Yield each request's number with its reply or failure, in the order in which they come.

        The model draws a request when it has room for it. `UserError` if no request can be answered: the key is wrong,
        the model unknown, or no endpoint can be reached. `Waits` if another program has to make replies.
        """


@runtime_checkable
class TakesOutcomes(Protocol):
    """A model that is told what became of its replies."""

    def take_outcome(self, step: Request, replied: Sequence[Request], refusal: str, cut: bool, /) -> None:
        """Note the outcome of a step, after its last request.

        `step` is its first request. `replied` are its requests that got a reply: none, one, or its repair too.
        `refusal` is the reason why the step has no usable reply, empty if a reader took one. `cut` says whether the
        last reply was cut at `max_tokens`.
        """


class OpenModel(Model, Protocol):
    """A model that counts its cost, and has notes for the user."""

    @property
    def usage(self) -> MutableMapping[str, Usage]:
        """The cost since its reader last cleared it, by purpose."""

    @property
    def notes(self) -> list[str]:
        """Notes, for instance that an endpoint takes no schemas."""

    @property
    def prompts(self) -> PromptSizes:
        """The sizes of the prompts that it has answered."""


def tell_outcome(model: Model, step: Request, replied: Sequence[Request], refusal: str = "", cut: bool = False) -> None:
    """Tell a model the outcome of a step, if it wants to know: see `TakesOutcomes`."""
    if isinstance(model, TakesOutcomes):
        model.take_outcome(step, replied, refusal, cut)


def make_request_key(model: str, request: Request) -> str:
    """Make the key of a request's content and the model's name, without the purpose: 64 hexadecimal digits."""
    content = [model, request.messages, request.max_tokens, request.schema, request.temperature, request.top_logprobs]
    return digest(content if request.seed is None else [*content, request.seed])


@dataclass(slots=True)
class InLanguage:
    """A model whose requests each end with the language to write in. Everything else is that of `model`."""

    model: Model
    language: str
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.model.name

    def complete(self, requests: Iterable[Request]) -> AsyncIterator[tuple[int, Reply | Failure]]:
        """Yield replies as the model does."""
        return self.model.complete(name_language(request, self.language) for request in requests)

    def take_outcome(self, step: Request, replied: Sequence[Request], refusal: str, cut: bool, /) -> None:
        """Tell the model the outcome of a step."""
        asked, *named = (name_language(request, self.language) for request in (step, *replied))
        tell_outcome(self.model, asked, named, refusal, cut)


def keep_languages(model: Model) -> Model:
    """The model for requests whose replies copy words of documents for a program: they name no language."""
    return model.model if isinstance(model, InLanguage) else model


def name_language(request: Request, language: str) -> Request:
    """Name the language to write in at the end of a request's system prompt, or of its only text."""
    (role, text), *others = request.messages
    rule = (
        f"Write in {language}, and translate what documents say in other languages. Only words that you copy as a "
        "quote stay in the language of their document."
    )
    return replace(request, messages=((role, f"{text}\n{rule}"), *others))
