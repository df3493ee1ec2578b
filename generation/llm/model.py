"""The interface of every language model for the steps that ask it."""

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Protocol

from generation.types import Failure, Reply, Request, Usage
from indexing.io.files import digest


class Model(Protocol):
    """Requests in, replies out. All calls of `complete` at one time share the model's capacity."""

    name: str

    def complete(self, requests: Iterable[Request]) -> AsyncIterator[tuple[int, Reply | Failure]]:
        """Each request's number with its reply or failure, in the order in which they come.

        The model draws from `requests` as it has room for more, never all at once. `UserError` if no request can be
        answered: a wrong key, an unknown model, no endpoint that can be reached. `Waits` if replies are made
        elsewhere.
        """
        ...


class OpenModel(Model, Protocol):
    """A model with an account of its cost, and with notes for the reader of the results."""

    @property
    def usage(self) -> Mapping[str, Usage]:
        """The cost so far, by purpose."""
        ...

    @property
    def notes(self) -> list[str]:
        """Notes such as that an endpoint takes no schemas."""
        ...


def make_request_key(model: str, request: Request) -> str:
    """The key of a request's content, with the model's name and without the purpose: 64 hexadecimal digits."""
    return digest(
        [model, request.messages, request.max_tokens, request.schema, request.temperature, request.top_logprobs]
    )
