"""The administration of a cluster: calls of opensearch-py, sent by Keystone's own connections.

opensearch-py knows the path and the parameters of each call. The connections bring credentials, limits of replies, and
patience with a cluster that is busy or down.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from keystone.indexing.errors import MissingPackage
from keystone.indexing.io.retry import PATIENCE_S
from keystone.indexing.opensearch.cluster import REPLY_TIMEOUT_S, Node, Request
from keystone.indexing.opensearch.requests import ask

if TYPE_CHECKING:
    from opensearchpy import OpenSearch


def administer(nodes: Sequence[Node], patience: float = PATIENCE_S) -> "OpenSearch":
    """Return opensearch-py's client of a cluster. Its calls return the JSON of an answer.

    A call raises `ClusterRefused` for the status of an error that it does not `ignore`, and `GaveUp` if nothing
    succeeds for `patience` seconds. `MissingPackage` if opensearch-py is not installed.
    """
    try:
        import opensearchpy
    except ImportError as error:
        raise MissingPackage(
            "opensearch-py is needed to load an index or to examine a cluster: pip install 'keystone-rag[opensearch]'"
        ) from error

    class Connections(opensearchpy.Transport):
        """The transport of the client, in place of opensearch-py's own connections."""

        def __init__(self, *_: Any) -> None:
            """Opens nothing: the nodes are connected."""

        def perform_request(
            self,
            method: str,
            url: str,
            params: Mapping[str, Any] | None = None,
            body: Any = None,
            *_: Any,
            **__: Any,
        ) -> Any:
            """Send one request; `params` may hold a status to `ignore`, and a `request_timeout` in seconds."""
            sent = dict(params or {})
            ignored, seconds = sent.pop("ignore", None), sent.pop("request_timeout", REPLY_TIMEOUT_S)
            content = None if body is None else orjson.dumps(body)
            reply = ask(nodes, Request(method, url, content, sent, seconds), patience)
            return reply.value if reply.status == ignored else reply.checked()

    return opensearchpy.OpenSearch(transport_class=Connections)
