"""The metadata of a run in the schema `ir_metadata`, version 0.1 (Breuer et al., SIGIR 2022; ir-metadata.org).

It holds known facts only: a field that nobody recorded, such as the machine's processor, is absent.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.file_names import JOINED
from keystone.runs.pipeline.job import describe_settings
from keystone.runs.pipeline.narrative_rankings import RankingStep, list_narrative_rankings

TOOLKITS = ("keystone-rag", "anserini", "faiss")
"""The packages that the schema calls retrieval toolkits."""
ROUNDS = JOINED.removesuffix(".trec")
"""The name of the hybrid rankings after the further rounds of search."""


def describe_run(config: RunConfig, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a run by its configuration and its manifest, in the components of the PRIMAD model."""
    versions = manifest["versions"]
    packages = {
        kind: [f"{name}=={version}" for name, version in versions.items() if (name in TOOLKITS) == is_toolkit]
        for kind, is_toolkit in (("libraries", False), ("retrieval toolkit", True))
    }
    embedding, further = manifest["index"]["embedding"], manifest["index"].get("vectors", {})
    models = {name: one["model"] for name, one in {"": embedding, **further}.items() if one}
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
            "retrieval": list(_list_steps(config, models)),
        },
        "actor": {"team": config.team_id, "role": "experimenter"},
        "data": {
            "test collection": {"topics": str(config.topics), "topics sha256": manifest["topics"]["sha256"]},
            "other": {"index": manifest["index"]["key"], "documents": manifest["index"]["documents"]},
        },
    }


def _list_steps(config: RunConfig, models: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """List the steps of the ranking, each with the steps before it. `models` are those of `System.describe`."""
    for name, system in config.make_systems().items():
        yield {"name": name, **system.describe(models), "depth": system.depth}
    for name in config.list_given_systems():
        yield {"name": name, "method": "run of another system", "depth": config.retrieval.depth}
    yield {"name": "hybrid", **config.describe_first_stage(), "interpolates": config.list_systems()}
    if config.grading.rounds and config.grading.method is not None:
        settings = {"rounds": config.grading.rounds, "documents": config.grading.round_documents}
        yield {"name": ROUNDS, "method": "further rounds of search", **settings, "interpolates": ["hybrid"]}
    last = ""
    for step, file in list_narrative_rankings(config):
        name = file.removesuffix(".trec")
        yield {"name": name, **_describe_step(step, config), **({"reranks": last} if last else {})}
        last = name


def _describe_step(step: RankingStep, config: RunConfig) -> dict[str, Any]:
    """Describe a step that ranks each narrative, without its name and the ranking before it."""
    fusion, grading = config.fusion, config.grading
    if step == "fusion":
        depths = {"depths": fusion.depths} if fusion.depths else {}
        return {"method": fusion.method, "depth": fusion.depth, **depths, "interpolates": ["hybrid"]}
    if step == "rerank":
        return {"method": config.rerank.method}
    rounds = {"interpolates": [ROUNDS]} if grading.rounds else {}
    model = {} if config.model is None else {"model": config.model.name}
    return {"method": f"UMBRELA, {grading.method}, {grading.select}", **model, **rounds}
