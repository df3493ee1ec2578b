"""What the manifest of a run says besides its artifacts, and what a person is told of it."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import orjson

from indexing.corpora.segments import is_window
from indexing.io.json_values import digest
from indexing.io.reading import hash_file, read_json_lines
from indexing.vectors.faiss_index import import_faiss
from runs.config.run_config import RunConfig
from runs.pipeline.artifacts import ANSWERS, GRADES, QUERIES, SUMMARIES
from runs.pipeline.directory import MANIFEST
from runs.pipeline.job import Job
from runs.trec.run_files import read_run


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
    counted = {"segments": job.index.segments} if job.index.segments else {}
    config = job.config
    return {
        "run_id": config.run_id,
        "index": {"key": job.index.key, "documents": job.index.documents, "embedding": embedding, **counted},
        "topics": {"sha256": hash_file(config.topics), "number": len(job.topics)},
        "methods": {
            "queries": config.queries.method,
            "fusion": config.fusion.method,
            "grading": config.grading.method,
            "answer": "none" if config.track == "none" else config.answer.method,
        },
        "model": config.model.name if config.model and config.asks() else None,
        "versions": {**{package: version(package) for package in packages}, "faiss": import_faiss().__version__},
    }


def concluded(job: Job) -> dict[str, Any]:
    """What the artifacts tell: how many segments are official, what the model was spared, and where it gave nothing."""
    return {**_ranked_segments(job), **_asked_of_model(job)}


def _ranked_segments(job: Job) -> dict[str, Any]:
    """Of the ranking that is submitted: how many of its segments are official and how many are windows of ours."""
    if job.config.track == "none" or not job.track.segments:
        return {}
    names = set(read_run(job.directory / job.track.retrieval_file).docs.decode_ids())
    cut = sum(map(is_window, names))
    missed = sum(map(job.track.misses, names))
    return {"ranked_segments": {"official": len(names) - cut, "windows": cut, "unknown_to_track": missed}}


def _asked_of_model(job: Job) -> dict[str, Any]:
    if job.config.model is None:
        return {}
    artifacts = [job.directory / name for name in (QUERIES, SUMMARIES, GRADES, ANSWERS)]
    found = [record for path in artifacts if path.exists() for _, record in read_json_lines(path)]
    summary: dict[str, Any] = {"fallbacks": [fallback for record in found for fallback in record["fallbacks"]]}
    if job.config.grading.method != "none":
        pairs, asked = (sum(record.get(key, 0) for record in found) for key in ("pairs", "asked"))
        summary["grading"] = {"pairs": pairs, "asked": asked, "saved": round(1 - asked / pairs, 4) if pairs else 0.0}
    return summary


def told(directory: Path) -> Iterator[str]:
    """What a person should know of a run: segments that no track knows, grades that were not needed, fallbacks."""
    manifest = orjson.loads((directory / MANIFEST).read_bytes())
    if missed := manifest.get("ranked_segments", {}).get("unknown_to_track"):
        all_of_them = manifest["ranked_segments"]["official"] + manifest["ranked_segments"]["windows"]
        yield f"segments: {missed:,} of the {all_of_them:,} ranked ones are windows that the track does not know"
    if grading := manifest.get("grading"):
        yield f"grades: {grading['asked']} of {grading['pairs']} pairs asked, {grading['saved']:.0%} saved"
    if fallbacks := manifest.get("fallbacks"):
        counted = ", ".join(f"{step} {n}" for step, n in sorted(Counter(f["step"] for f in fallbacks).items()))
        yield f"fallbacks: {len(fallbacks)} ({counted}), listed in {directory / MANIFEST}"
