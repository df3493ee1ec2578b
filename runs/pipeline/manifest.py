"""The manifest of a run directory, what is remarkable in it, and warnings for the user."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

import orjson

from keystone.fusion.methods import METHODS
from keystone.generation.llm.usage import BUDGET_SPENT
from keystone.generation.readers.settings import READERS, list_combined
from keystone.generation.types import Answer, Answered, Support, SupportAction
from keystone.indexing.corpora.segments import is_window
from keystone.indexing.lucene.java import find_anserini_jar
from keystone.indexing.types import VLLM
from keystone.indexing.vectors.faiss_index import import_faiss
from keystone.retrieval.search import KINDS
from keystone.runs.config.run_config import RunConfig
from keystone.runs.doctor.server_records import select_facts
from keystone.runs.pipeline.directory import MANIFEST, NARRATIVES, count_steps
from keystone.runs.pipeline.evidence_files import EVIDENCE_FILE
from keystone.runs.pipeline.job import Job
from keystone.runs.pipeline.model_runner import read_cut_prompt
from keystone.runs.pipeline.questions import ReadQuestion, list_read_questions
from keystone.runs.pipeline.stages.answer import ANSWERS_FILE
from keystone.runs.pipeline.stages.grades import GRADES_FILE
from keystone.runs.pipeline.stages.queries import QUERIES_FILE
from keystone.runs.pipeline.stages.rerank import RERANKS_FILE
from keystone.runs.pipeline.stages.research import has_research
from keystone.runs.pipeline.stages.segments import DEPTHS_FILE, get_retrieval_file
from keystone.runs.pipeline.table import list_rankings, list_records
from keystone.runs.pipeline.values import Values, leave_out_empty
from keystone.runs.track_rules import TRACKS
from keystone.runs.trec.topics import hash_topics
from keystone.runs.wording import plural


def describe_inputs(job: Job) -> dict[str, Any]:
    """Describe the inputs of a run for its manifest: index, topics, methods, model, and versions of packages."""
    packages = ("keystone-rag", "onnxruntime", "tokenizers", "numpy")
    embedding = job.index.embedding.as_json() if job.index.embedding else None
    counted: dict[str, Any] = {"segments": job.index.segments} if job.index.segments else {}
    if job.index.vectors:
        counted["vectors"] = {name: one.embedding.as_json() for name, one in job.index.vectors.items()}
    for kind, sets in (("impacts", job.index.impacts), ("plaid", job.index.plaid)):
        if sets:
            counted[kind] = {name: one.as_json() for name, one in sets.items()}
    if job.index.recall:
        counted["recall"] = {"faiss": job.index.faiss, **asdict(job.index.recall)}
    if job.index.device != "cpu":
        counted["device"] = job.index.device
    config, plain = job.config, job.config.model_dump(mode="json")
    model, reader = config.model if config.find_model_step() else None, config.reader
    servers = select_facts(config.out, model.name, model.urls) if model else []  # by keystone doctor --model
    return {
        "run_id": config.run_id,
        "index": {"key": job.index.key, "documents": job.index.documents, "embedding": embedding, **counted},
        "topics": {"sha256": hash_topics(config.topics, job.topics), "number": len(job.topics)},
        **({"runs": [{"sha256": one.sha256, "unknown": one.unknown} for one in job.given]} if job.given else {}),
        "methods": {
            **{part: plain[part]["method"] for part in ("queries", "fusion", "grading")},
            "answer": plain["track"] if config.track is None else plain["answer"]["method"],
        },
        "rankings": [file.name for file in list_rankings(config).narrative_rankings],
        "model": model.name if model else None,
        **({"servers": servers} if servers else {}),
        "versions": {
            **{package: version(package) for package in packages},
            **METHODS.find_package(config.fusion.method),
            **TRACKS.find_package(config.track or ""),
            **dict(own for name in (reader.name, *list_combined(reader)) for own in READERS.find_package(name).items()),
            **dict(own for one in config.make_systems().values() for own in KINDS.find_package(one.kind).items()),
            **({} if "url" in job.index.at else {"anserini": find_anserini_jar().name}),  # a server has its own
            "faiss": import_faiss().__version__,
        },
    }


def describe_outcome(values: Values) -> dict[str, Any]:
    """Describe the outcome of a run for its manifest: segments, saved grades, support, fallbacks, and a cut prompt."""
    config = values.job.config
    cut = read_cut_prompt(values.directory) if config.model else None
    chooses_rows = config.track is not None and config.fusion.choice is not None
    return {
        **({"depths": [asdict(one) for one in values.get(DEPTHS_FILE)]} if chooses_rows else {}),
        **_count_segments(values),
        **_collect_facts(values),
        **({"cut_prompt": asdict(cut)} if cut else {}),
        **_describe_reranker(values),
    }


def _describe_reranker(values: Values) -> dict[str, Any]:
    """Describe where vLLM's engine reranked, and what makes the scores of a server doubtful, once for all topics."""
    if not (values.directory / RERANKS_FILE.name).exists():
        return {}
    records = values.get(RERANKS_FILE)
    warning = next((record.warning for record in records if record.warning), "")
    device = next((record.device for record in records if record.device), "")
    return {
        **({"reranker_warning": warning} if warning else {}),
        **({"reranker": {"backend": VLLM, "device": device}} if device else {}),
    }


def _count_segments(values: Values) -> dict[str, Any]:
    """Count the submitted segments: official ones, windows that Keystone cut, and those unknown to the track."""
    track = values.job.track
    if values.job.config.track is None or not track.segments:
        return {}
    names = set(values.get(get_retrieval_file(values.job.config)).docs.decode_ids())
    cut = sum(map(is_window, names))
    missed = sum(map(track.misses, names))
    return {"ranked_segments": {"official": len(names) - cut, "windows": cut, "unknown_to_track": missed}}


def _collect_facts(values: Values) -> dict[str, Any]:
    """Collect steps without a usable reply, empty answers, gaps, and the numbers of grades and checks of support."""
    config = values.job.config
    answers = values.get(ANSWERS_FILE) if config.has_answers else []
    fallbacks = [asdict(fallback) for one in list_records(values) for fallback in one.fallbacks]
    summary: dict[str, Any] = {"fallbacks": fallbacks} if config.model or fallbacks else {}
    if empty := sum(not answer.sentences for answer in answers):
        summary["empty_answers"] = empty
    if answers:
        summary |= _describe_questions(values)
    if config.model is None:
        return summary
    grades = values.get(GRADES_FILE) if config.grading.method is not None else []
    if checks := [check for answer in answers for check in answer.checks]:
        levels = Counter(check.support for check in checks)
        summary["support"] = {"checked": len(checks) - levels["unchecked"], **levels}
        summary["support"] |= Counter(check.action for check in checks)
    if config.grading.method is not None:
        pairs, graded = sum(one.pairs for one in grades), sum(one.asked for one in grades)
        summary["grading"] = {"pairs": pairs, "asked": graded, "saved": round(1 - graded / pairs, 4) if pairs else 0.0}
    return summary


def _has_gap(answer: Answer) -> bool:
    """Return whether an answer leaves something open: it says so, or it cites nothing."""
    return bool(answer.missing) or not any(one.citations for one in answer.sentences)


def _describe_questions(values: Values) -> dict[str, Any]:
    """Count how far documents answer the questions, and tell for each narrative what was read for each question."""
    levels, last, lines = Counter[str](), Counter[str](), dict[str, Any]()
    understood, evidence, answers = values.get(QUERIES_FILE), values.get(EVIDENCE_FILE), values.get(ANSWERS_FILE)
    for one, own, answer in zip(understood, evidence, answers, strict=True):
        questions = list_read_questions(one.queries, own)
        levels.update(question.found for question in questions if question.found)
        last.update(question.level for question in questions if question.level)
        told = {question.query.id: _describe_question(question) for question in questions}
        line = {"questions": told, "added_documents": len(own.added), "gap": _has_gap(answer)}
        lines[answer.topic_id] = leave_out_empty(line, "added_documents", "gap")
    counted: dict[str, Any] = {**levels, "answers_with_gaps": sum(map(_has_gap, answers))}
    if levels and not has_research(values.job.config):  # an agent searches before it is judged
        counted["added_documents"] = sum(len(one.added) for one in evidence)
    if any(one.rechecks for one in evidence):
        counted["again"] = last
    return {"questions": counted, NARRATIVES: lines}


def _describe_question(one: ReadQuestion) -> dict[str, Any]:
    record = {"found": one.found, "again": one.again, "documents": one.documents, "tokens": one.tokens}
    return leave_out_empty(record, "found", "again")


def list_remarks(directory: Path) -> Iterator[str]:
    """List remarks on a run for the user: unknown documents and segments, saved grades, support, fallbacks."""
    manifest = _read_manifest(directory)
    for number, given in enumerate(manifest.get("runs", ()), 1):
        if given["unknown"]:
            lines = plural(given["unknown"], "line")
            yield f"retrieval.runs: file {number} has {lines} with a document that the index lacks"
    if missed := manifest.get("ranked_segments", {}).get("unknown_to_track"):
        all_of_them = manifest["ranked_segments"]["official"] + manifest["ranked_segments"]["windows"]
        yield f"segments: {missed:,} of the {all_of_them:,} ranked ones are windows that the track does not know"
    if grading := manifest.get("grading"):
        yield f"grades: {grading['asked']} of {grading['pairs']} pairs asked, {grading['saved']:.0%} saved"
    if questions := manifest.get("questions"):
        levels, added, gaps = _join_levels(questions), questions.get("added_documents"), questions["answers_with_gaps"]
        if added is not None:
            levels += f", before {plural(added, 'document')} were searched for"
        if again := questions.get("again"):
            levels += f"; {_join_levels(again)}, by the last check"
        if levels or gaps:
            yield f"questions: {levels}{'; ' if levels else ''}{plural(gaps, 'answer')} with gaps"
    if support := manifest.get("support"):
        levels, actions = (
            ", ".join(f"{support.get(name, 0)} {name}" for name in get_args(names))
            for names in (Support, SupportAction)
        )
        yield f"support: {support['checked']} sentences checked: {levels}; {actions}"
        if unchecked := support.get("unchecked"):
            yield (
                f"support: {plural(unchecked, 'sentence')} not checked, and kept with the citations of the model: what "
                "they cite is in another language, which answer.support: model can compare"
            )
    if empty := manifest.get("empty_answers"):
        yield f"answers: no text to cite was found for {plural(empty, 'topic')}, whose answers have no sentence"
    if fallbacks := manifest.get("fallbacks"):
        counted = ", ".join(f"{step} {n}" for step, n in sorted(Counter(f["step"] for f in fallbacks).items()))
        yield f"fallbacks: {len(fallbacks)} ({counted}), listed in {directory / MANIFEST}"


def _join_levels(counts: Mapping[str, int]) -> str:
    names = get_args(Answered)
    return ", ".join(f"{counts.get(name, 0)} {name}" for name in names) if counts.keys() & set(names) else ""


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
    reasons = sum((Counter(entry.get("steps", {}).get("reasons", {})) for entry in entries), Counter[str]())
    ((reason, _),) = reasons.most_common(1)
    text = f"the model gave no usable reply in {unusable:,} of {asked:,} steps (most often: {reason})"
    if 2 * cut > unusable:
        text += (
            f". {cut:,} of these replies were cut at their limit, max_tokens: raise model.thinking, the tokens that a "
            "reply may have beyond those of its step, as models that think first need them"
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
