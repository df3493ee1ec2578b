"""What the manifest of a run says besides its artifacts, and what a person is told of it."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import orjson

from indexing.dense import faiss_module
from indexing.files import digest, json_lines, sha256
from runs.artifacts import ANSWERS, GRADES, QUERIES, SUMMARIES
from runs.config import RunConfig
from runs.directory import MANIFEST
from runs.job import Job


def asked(config: RunConfig, asks: bool = True) -> Any:
    """What of the model's settings changes its replies, for a stage that asks it; the words of its prompts too."""
    if config.model is None or not asks:
        return None
    prompts = [path.read_text(encoding="utf-8") for path in sorted(files("generation.prompts").iterdir(), key=str)
               if path.name.endswith(".py")]  # fmt: skip
    return [digest(prompts), config.model.model_dump(mode="json", include={"name", "window", "thinking", "extra"})]


def describe(job: Job) -> dict[str, Any]:
    """What the manifest says besides its artifacts: what was used, and who did the understanding and writing."""
    packages = ("keystone-rag", "pyserini", "torch", "tokenizers", "numpy")
    embedding = asdict(job.index.embedding) if job.index.embedding else None
    config = job.config
    return {
        "run_id": config.run_id,
        "index": {"key": job.index.key, "documents": job.index.documents, "embedding": embedding},
        "topics": {"sha256": sha256(config.topics), "number": len(job.topics)},
        "methods": {
            "queries": config.queries.method,
            "fusion": config.fusion.method,
            "grading": config.grading.method,
            "answer": "none" if config.track == "none" else config.answer.method,
        },
        "model": config.model.name if config.model and config.asks() else None,
        "versions": {**{package: version(package) for package in packages}, "faiss": faiss_module().__version__},
    }


def concluded(job: Job) -> dict[str, Any]:
    """What the artifacts tell of the model: what it was spared, and every step that went on without what it asked."""
    if job.config.model is None:
        return {}
    artifacts = [job.directory / name for name in (QUERIES, SUMMARIES, GRADES, ANSWERS)]
    found = [record for path in artifacts if path.exists() for _, record in json_lines(path)]
    summary: dict[str, Any] = {"fallbacks": [fallback for record in found for fallback in record["fallbacks"]]}
    if job.config.grading.method != "none":
        pairs, asked = (sum(record.get(key, 0) for record in found) for key in ("pairs", "asked"))
        summary["grading"] = {"pairs": pairs, "asked": asked, "saved": round(1 - asked / pairs, 4) if pairs else 0.0}
    return summary


def told(directory: Path) -> Iterator[str]:
    """What a person should know of a run's model: the grades that were not needed, and the steps it did not serve."""
    manifest = orjson.loads((directory / MANIFEST).read_bytes())
    if grading := manifest.get("grading"):
        yield f"grades: {grading['asked']} of {grading['pairs']} pairs asked, {grading['saved']:.0%} saved"
    if fallbacks := manifest.get("fallbacks"):
        counted = ", ".join(f"{step} {n}" for step, n in sorted(Counter(f["step"] for f in fallbacks).items()))
        yield f"fallbacks: {len(fallbacks)} ({counted}), listed in {directory / MANIFEST}"
