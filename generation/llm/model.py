"""The interface of language models, and the key of a request."""

from collections.abc import AsyncIterator, Iterable, MutableMapping, Sequence
from typing import Protocol, runtime_checkable

from keystone.generation.llm.prompt_sizes import PromptSizes
from keystone.generation.types import Failure, Reply, Request, Usage
from keystone.indexing.io.json_values import digest


class Model(Protocol):
    """A language model. All calls of `complete` at one time share its capacity."""

    name: str

    def complete(self, requests: Iterable[Request]) -> AsyncIterator[tuple[int, Reply | Failure]]:
        """Yield each request's number with its reply or failure, in the order in which they come.

        The model draws a request when it has room for it. `UserError` if no request can be answered: the key is wrong,
        the model unknown, or no endpoint can be reached. `Waits` if another program has to make replies.
        """
        ...


@runtime_checkable
class TakesOutcomes(Protocol):
    """A model that is told what became of its replies."""

    def take_outcome(self, asked: Sequence[Request], refusal: str, cut: bool, /) -> None:
        """Note the outcome of a step, after its last request.

        `asked` are its requests that got a reply: one, or its repair too. `refusal` is the reason why the step has no
        usable reply, empty if a reader took one. `cut` says whether the last reply was cut at `max_tokens`.
        """
        ...


class OpenModel(Model, Protocol):
    """A model that counts its cost, and has notes for the user."""

    @property
    def usage(self) -> MutableMapping[str, Usage]:
        """The cost since its reader last cleared it, by purpose."""
        ...

    @property
    def notes(self) -> list[str]:
        """Notes, for instance that an endpoint takes no schemas."""
        ...

    @property
    def prompts(self) -> PromptSizes:
        """The sizes of the prompts that it has answered."""
        ...


def tell_outcome(model: Model, asked: Sequence[Request], refusal: str = "", cut: bool = False) -> None:
    """Tell a model the outcome of a step, if it wants to know: see `TakesOutcomes`."""
    if isinstance(model, TakesOutcomes):
        model.take_outcome(asked, refusal, cut)


def make_request_key(model: str, request: Request) -> str:
    """Make the key of a request's content and the model's name, without the purpose: 64 hexadecimal digits."""
    content = [model, request.messages, request.max_tokens, request.schema, request.temperature, request.top_logprobs]
    return digest(content if request.seed is None else [*content, request.seed])
