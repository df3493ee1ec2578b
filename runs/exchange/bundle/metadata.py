"""The metadata of a run in the schema `ir_metadata`, version 0.1 (Breuer et al., SIGIR 2022; ir-metadata.org).

It holds known facts only: a field that nobody recorded, such as the machine's processor, is absent.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.job import describe_settings

TOOLKITS = ("keystone-rag", "anserini", "faiss")
"""The packages that the schema calls retrieval toolkits."""


def describe_run(config: RunConfig, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a run by its configuration and its manifest, in the components of the PRIMAD model."""
    versions = manifest["versions"]
    packages = {
        kind: [f"{name}=={version}" for name, version in versions.items() if (name in TOOLKITS) == is_toolkit]
        for kind, is_toolkit in (("libraries", False), ("retrieval toolkit", True))
    }
    embedding = manifest["index"]["embedding"]
    return {
        "tag": config.run_id,
        "platform": {"software": {**packages, "libraries": {"python": packages["libraries"]}}},
        "research goal": {
            **({} if config.track is None else {"venue": {"name": config.track}}),
            "description": config.run_desc or describe_settings(config),
        },
        "implementation": {
            "executable": {"cmd": "keystone run config.yaml"},
            "source": {"lang": ["python", "java"]},
        },
        "method": {
            "automatic": True,
            "score ties": "the document id that is first in the order of bytes",
            "retrieval": list(_list_steps(config, embedding and embedding["model"])),
        },
        "actor": {"team": config.team_id, "role": "experimenter"},
        "data": {
            "test collection": {"topics": str(config.topics), "topics sha256": manifest["topics"]["sha256"]},
            "other": {"index": manifest["index"]["key"], "documents": manifest["index"]["documents"]},
        },
    }


def _list_steps(config: RunConfig, embedding: str | None) -> Iterator[dict[str, Any]]:
    """List the steps of the ranking, each with the steps before it."""
    retrieval, fusion, systems = config.retrieval, config.fusion, config.list_systems()
    for system in systems:
        if system in ("bm25", "query2doc"):
            yield {"name": system, "method": "BM25", "k1": retrieval.k1, "b": retrieval.b, "depth": retrieval.depth}
        elif system in config.list_given_systems():
            yield {"name": system, "method": "run of another system", "depth": retrieval.depth}
        else:
            yield {"name": system, "method": embedding, "depth": retrieval.depth}
    yield {"name": "hybrid", **config.describe_first_stage(), "interpolates": systems}
    yield {"name": "narrative", "method": fusion.method, "depth": fusion.depth, "interpolates": ["hybrid"]}
    last, reranks_last = "narrative", config.reranks_after("grades")
    if config.reranks_after("fusion"):
        yield {"name": "reranked", "method": config.rerank.method, "reranks": last}
        last = "reranked"
    if config.grading.method is not None and config.model is not None:
        yield {
            "name": "graded" if reranks_last else "keystone",
            "method": f"UMBRELA, {config.grading.method}, {config.grading.select}",
            "model": config.model.name,
            "reranks": last,
        }
    if reranks_last:
        yield {"name": "keystone", "method": config.rerank.method, "reranks": "graded"}
