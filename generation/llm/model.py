"""The interface of language models, and the key of a request."""

from collections.abc import AsyncIterator, Iterable, MutableMapping
from typing import Protocol

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


def make_request_key(model: str, request: Request) -> str:
    """Make the key of a request's content and the model's name, without the purpose: 64 hexadecimal digits."""
    content = [model, request.messages, request.max_tokens, request.schema, request.temperature, request.top_logprobs]
    return digest(content if request.seed is None else [*content, request.seed])
