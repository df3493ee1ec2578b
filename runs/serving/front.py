"""The interface of a front, such as REST, agents or the web page, to the server and to `keystone replay`."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from keystone.runs.serving.call_log import Call, Reply


@dataclass(frozen=True, slots=True)
class Front:
    """A front of one service. Its routes turn a request into a `Call`, perform it, and log it with its `Reply`."""

    routes: Sequence[BaseRoute]
    perform: Callable[[Call], Awaitable[Reply]]
    """Performs a call, from a request or from the log: the same call on the same index has a reply of equal bytes."""
    direct: Mapping[str, ASGIApp] = field(default_factory=dict)
    """Applications by a path, or by the beginning of all their paths if that ends with `/`.

    They are asked in the order of the fronts, before any route and without its cost.
    """
