"""A model that answers by a function."""

from collections.abc import AsyncIterator, Callable, Iterable

from generation.types import Failure, Reply, Request


class Scripted:
    """A `Model` whose replies a function makes; `asked` holds every request. Replies come in reverse order."""

    def __init__(self, reply: Callable[[Request], str | Reply | Failure], name: str = "scripted") -> None:
        self.name = name
        self.asked: list[Request] = []
        self._reply = reply

    async def complete(self, requests: Iterable[Request]) -> AsyncIterator[tuple[int, Reply | Failure]]:
        asked = list(requests)
        self.asked += asked
        for number, request in reversed(list(enumerate(asked))):
            said = self._reply(request)
            yield number, Reply(said) if isinstance(said, str) else said
