"""The metadata of a run in the schema `ir_metadata`, version 0.1 (Breuer et al., SIGIR 2022; ir-metadata.org).

It holds known facts only: a field that nobody recorded, such as the machine's processor, is absent.
"""

from collections.abc import Mapping
from typing import Any

from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.job import describe_settings
from keystone.runs.pipeline.table import list_wanted

TOOLKITS = ("keystone-rag", "anserini", "faiss")
"""The packages that the schema calls retrieval toolkits."""


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
            "retrieval": [
                {"method": models.get(step.get("vectors", "")), **step}
                for stage, before in list_wanted(config)
                for step in stage.describe(before)
            ],
        },
        "actor": {"team": config.team_id, "role": "experimenter"},
        "data": {
            "test collection": {"topics": str(config.topics), "topics sha256": manifest["topics"]["sha256"]},
            "other": {"index": manifest["index"]["key"], "documents": manifest["index"]["documents"]},
        },
    }
