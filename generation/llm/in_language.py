"""A model that is asked to write in one language, whatever the languages of the documents."""

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field, replace

from keystone.generation.llm.model import Model, tell_outcome
from keystone.generation.types import Failure, Reply, Request


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

    def take_outcome(self, asked: Sequence[Request], refusal: str, cut: bool, /) -> None:
        """Tell the model the outcome of a step."""
        tell_outcome(self.model, [name_language(request, self.language) for request in asked], refusal, cut)


def name_language(request: Request, language: str) -> Request:
    """Name the language to write in at the end of a request's system prompt, or of its only text."""
    (role, text), *others = request.messages
    rule = (
        f"Write in {language}, and translate what documents say in other languages. Only words that you copy as a "
        "quote stay in the language of their document."
    )
    return replace(request, messages=((role, f"{text}\n{rule}"), *others))
