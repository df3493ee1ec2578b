"""The choice of what runs the network of a checkpoint on this machine."""

from keystone.indexing.encoders.checkpoint import Checkpoint
from keystone.indexing.encoders.graph import Head
from keystone.indexing.encoders.network import Network, open_built, open_graph
from keystone.indexing.encoders.weights import FAMILY


def open_network(checkpoint: Checkpoint, head: Head) -> Network:
    """Load the network of a checkpoint with one of its heads.

    `UserError` if a file is missing or damaged, or if nothing here can run it. `MissingPackage` if a package is
    missing.
    """
    if checkpoint.kind in FAMILY and checkpoint.weights:
        return open_built(checkpoint, head)
    if checkpoint.graph:
        return open_graph(checkpoint.graph, head)

    from keystone.indexing.encoders.torch_network import open_torch

    return open_torch(checkpoint, head)
