"""Run directories for reports, with foreign texts that a browser must show and not obey."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
import yaml

from keystone.generation.types import Step
from keystone.indexing.index import Index
from keystone.indexing.store import build_store
from keystone.indexing.types import Document, Segment, Span
from keystone.runs.trec.run_files import write_run
from keystone.runs.trec.types import make_run
from tests.support.indexes.small_corpus import write_index_file

HOSTILE = "<script>document.title='obeyed'</script></script></style><img src=x onerror=alert(1)>]]>--><b>\"'&amp;"
"""Markup that ends elements, loads, and runs if it is not escaped."""
UNSEEN = "\0\u202eevil\u2066"
"""Characters that a browser drops or obeys."""
UNSEEN_SHOWN = "\\x00\\u202eevil\\u2066"
TOPIC_IDS = ("bees<b>", "wasps'\"")
DOC_IDS = tuple(f"doc{n}</script><b>" for n in range(30))
SEGMENT_IDS = tuple(f"{doc_id}#0" for doc_id in DOC_IDS)
LEAD = "Nothing else is here.\n" * 45
TEXT = f"{LEAD}Honey bees dance to tell where the flowers are. {HOSTILE} {UNSEEN}"


def write_index(folder: Path) -> Path:
    """Write an index of hostile documents that no search can use."""
    index = Index(folder, "key", None, len(DOC_IDS), {}, 0, None)
    build_store(
        (
            Document(doc_id, TEXT, f"Title {n} {HOSTILE}", segments=(Segment(name, Span(doc_id, 0, len(TEXT))),))
            for n, (doc_id, name) in enumerate(zip(DOC_IDS, SEGMENT_IDS, strict=True))
        ),
        index.store,
    )
    write_index_file(index)
    return folder


def write_report_run(folder: Path, index: Path, graded: bool) -> Path:
    """Write a run of two narratives with three queries each; with grades, an answer and a trace if it is `graded`."""
    folder.mkdir(parents=True)
    _write_lines(
        folder.parent / "topics.jsonl", [{"id": name, "title": f"About {name} {HOSTILE}"} for name in TOPIC_IDS]
    )
    config: dict[str, Any] = {"run_id": folder.name, "index": str(index), "topics": str(folder.parent / "topics.jsonl")}
    if graded:
        config |= {"grading": {"method": "pointwise"}, "model": {"name": "m", "urls": ["http://localhost:1/v1"]}}
    else:
        config |= {"track": "none"}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    fallbacks = [{"topic_id": TOPIC_IDS[0], "step": "umbrela", "reason": f"no grade {HOSTILE}"}] if graded else []
    index_facts, versions = {"documents": len(DOC_IDS), "key": "k"}, {"numpy": "2"}
    manifest = {"index": index_facts, "topics": {"sha256": "s"}, "versions": versions, "fallbacks": fallbacks}
    (folder / "manifest.json").write_bytes(orjson.dumps(manifest))
    queries = {name: [name, f"{name}#1", f"{name}#2"] for name in TOPIC_IDS}
    _write_lines(
        folder / "queries.jsonl",
        [
            {"topic_id": name, "topic": HOSTILE, "queries": [{"id": id, "question": f"{id}? {HOSTILE}"} for id in own]}
            for name, own in queries.items()
        ],
    )
    names = [id for own in queries.values() for id in own]
    for file, shift in (("bm25", 0), ("dense", 1), ("hybrid", 2)):
        _write_ranking(folder / f"{file}.trec", names, shift)
    _write_ranking(folder / "narrative.trec", TOPIC_IDS, 0 if graded else 3)
    if graded:
        _write_graded(folder, queries)
    return folder


def _write_graded(folder: Path, queries: dict[str, list[str]]) -> None:
    _write_ranking(folder / "keystone.trec", TOPIC_IDS, 1)
    chosen = [DOC_IDS[1], DOC_IDS[2]]
    grades = {
        "documents": chosen,
        "grades": [[3, 0], [1, None]],
        "selected": chosen,
    }
    _write_lines(folder / "grades.jsonl", [{"topic_id": n, "queries": own[1:], **grades} for n, own in queries.items()])
    sentences = [
        {"text": f"Bees dance. {HOSTILE}", "citations": [SEGMENT_IDS[1]]},
        {"text": "Flowers are far.", "citations": [SEGMENT_IDS[2], SEGMENT_IDS[1]]},
        {"text": f"Nobody says so {UNSEEN}.", "citations": []},
    ]
    _write_lines(folder / "answers.jsonl", [{"topic_id": name, "sentences": sentences} for name in queries])
    step = Step("", DOC_IDS[1], 0, 0, "route", "", "", HOSTILE, "x" * 999, (), 1000, 20, "done")
    _write_lines(folder / "trace.jsonl", [{"topic_id": TOPIC_IDS[0], **asdict(step)}])
    usage = {"calls": 3, "prompt_tokens": 1000, "seconds": 1.5, "cost": 0.25}
    (folder / "usage.json").write_bytes(orjson.dumps({"purposes": {"grade": usage, "total": usage}}))


def _write_ranking(path: Path, names: Sequence[str], shift: int) -> None:
    """Rank the documents from the one at `shift` on, then those before it. The last document is in no ranking."""
    docs = DOC_IDS[:-1]
    ranked = [*docs[shift:], *docs[:shift]]
    write_run(path, make_run("tag", {name: [(doc, 100.0 - n) for n, doc in enumerate(ranked)] for name in names}))


def _write_lines(path: Path, records: Sequence[dict[str, Any]]) -> None:
    path.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))
