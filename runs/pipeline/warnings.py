"""What a user must know about the model's part in a run: no step asks it, steps without a usable reply, cut prompts."""

from collections import Counter
from pathlib import Path
from typing import Any

import orjson

from keystone.generation.llm.usage import BUDGET_SPENT
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.directory import MANIFEST, count_steps


def warn_of_idle_model(config: RunConfig) -> str:
    """Say that a configuration has a model, but no step that asks it; empty if a step does, or without a model."""
    if config.model is None or config.find_model_step():
        return ""
    return (
        f"model: no step of this run asks {config.model.name!r}: choose a preset such as --preset listwise, "
        "or set queries.method, rerank.method, grading.method or answer.method"
    )


def warn_of_unusable_replies(directory: Path) -> str:
    """Say in how many steps of a run the model gave no usable reply, and why; empty if it always gave one."""
    entries = _read_manifest(directory)["artifacts"].values()
    asked, unusable, cut = (sum(count_steps(entry, what) for entry in entries) for what in ("asked", "unusable", "cut"))
    if not unusable:
        return ""
    reasons = Counter[str]()
    for entry in entries:
        reasons.update(entry.get("steps", {}).get("reasons", {}))
    ((reason, _),) = reasons.most_common(1)
    text = f"the model gave no usable reply in {unusable:,} of {asked:,} steps (most often: {reason})"
    if cut == unusable:
        text += (
            ". All these replies were cut at their limit, max_tokens: raise model.thinking, the tokens that a reply "
            "may have beyond those of its step, as models that think first need them"
        )
    advice = "" if reason.startswith(BUDGET_SPENT) else ". keystone run --retry-unusable asks for them again"
    return f"{text}{advice}"


def warn_of_cut_prompts(directory: Path) -> str:
    """Say that the server has cut prompts, and what to do; empty if it read all of them whole."""
    cut = _read_manifest(directory).get("cut_prompt")
    if not cut:
        return ""
    return (
        f"the model's server seems to cut long prompts: it counted {cut['tokens']:,} tokens for "
        f"{cut['characters']:,} characters. Raise the window of the server (such as num_ctx of Ollama), or set "
        "model.window to the one that keystone doctor --model finds; then make the run with another out, because "
        "replies to cut prompts are kept"
    )


def warn_of_reranker(directory: Path) -> str:
    """Say that the scores of the reranker's server are doubtful, and why; empty if they are not."""
    return str(_read_manifest(directory).get("reranker_warning", ""))


def _read_manifest(directory: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = orjson.loads((directory / MANIFEST).read_bytes())
    return manifest
