"""Does `keystone diagnose` find the damaged stage? `python -m benchmarks.diagnosis DATA WORK` damages one at a time.

Queries and lists are those of a real run. An oracle makes the rest: it gives grade 3 to the wanted documents of the
narrative's ranking, and selects them. It quotes each nugget with its segments, or the first segment of a document. Then
every second wanted document is lost at one stage, and so at all later ones. The program prints a row for each stage:

* losses: damaged nuggets or documents that are lost now, and had been kept or lost at another stage;
* found: those that `keystone diagnose` attributes to the damaged stage;
* kept: damaged ones that the answer still says and cites from another document;
* others: undamaged ones with another finding than before. An undamaged run had kept them through a damaged document.

It fails if a loss is attributed to another stage. DATA and WORK are those of `benchmarks.collections`.
"""

import itertools
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import orjson
import yaml

from benchmarks.collections import COLLECTIONS, search_collection
from keystone.indexing.index import open_index
from keystone.indexing.io.writing import write_json_lines
from keystone.indexing.store import build_store, open_store
from keystone.runs.evaluation.diagnosis.diagnose import Stage, diagnose, list_stages, name_losses
from keystone.runs.evaluation.diagnosis.stored import StoredRun, open_stored_run
from keystone.runs.evaluation.diagnosis.wanted import Wanted, list_nuggets, read_relevant_documents
from keystone.runs.evaluation.nuggets.files import read_nuggets
from keystone.runs.pipeline.file_names import ANSWERS, CONFIG, EVIDENCE, GRADES, HYBRID, NARRATIVE, QUERIES
from keystone.runs.trec.run_files import list_first

LOSSES = name_losses()
STAGES = tuple(LOSSES)
MODEL = {"name": "oracle", "urls": ["http://localhost:1/v1"]}
MOST_DOCUMENTS = 1000
KINDS = {"ibm-claims-wiki": ("nuggets", "qrels"), "multihop-mini": ("qrels",)}
"""The collections, and their files of nuggets and judgments."""


def damage_run(
    run: StoredRun, wanted: Sequence[Wanted], lost: Collection[str], at: Stage | None, filtered: Path, out: Path
) -> None:
    """Write the run of the oracle, in which the documents `lost` are lost from the stage `at` on.

    If `at` is None, no stage is damaged. `filtered` holds the lists without these documents.
    """
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)

    def keeps(stage: Stage, doc_id: str) -> bool:
        return at is None or doc_id not in lost or STAGES.index(stage) < STAGES.index(at)

    index = leave_out_of_corpus(run, lost, out / "index") if at == "corpus" else run.config.index
    config = yaml.safe_load((run.directory / CONFIG).read_text())
    config |= {"index": str(index), "track": "rag25", "model": MODEL}
    config["grading"] = {"method": "pointwise", "documents": MOST_DOCUMENTS}
    config["answer"] = {"method": "rules", "documents": MOST_DOCUMENTS}
    (out / CONFIG).write_text(yaml.safe_dump(config))
    shutil.copy(run.directory / QUERIES, out)
    stage: Stage
    for stage, names in list_files(run).items():
        source = run.directory if at is None or STAGES.index(stage) < STAGES.index(at) else filtered
        for name in names:
            (out / name).symlink_to((source / name).resolve())
    ranked = list_first(out / NARRATIVE, MOST_DOCUMENTS)
    topics = [answer_topic(run, topic, ranked.get(topic, []), wanted, keeps) for topic in run.queries]
    for name, records in zip((GRADES, EVIDENCE, ANSWERS), zip(*topics, strict=True), strict=True):
        write_json_lines(out / name, records)


def leave_out_of_corpus(run: StoredRun, lost: Collection[str], folder: Path) -> Path:
    """Make an index whose document store lacks some documents. It has nothing else, since no diagnosis searches."""
    whole = open_index(run.config.index)
    index = replace(whole, folder=folder)
    folder.mkdir()
    members = orjson.loads((whole.folder / "index.json").read_bytes())
    (folder / "index.json").write_bytes(orjson.dumps(members | {"folder": str(folder)}))
    build_store((document for document in open_store(whole) if document.id not in lost), index.store)
    return folder


def list_files(run: StoredRun) -> dict[Stage, list[str]]:
    """List the run files of the stages that rank."""
    systems = [f"{system}.trec" for system in run.config.list_systems()]
    return {"search": systems, "systems": [HYBRID], "queries": [NARRATIVE]}


def filter_lists(run: StoredRun, lost: Collection[str], folder: Path) -> Path:
    """Copy the rows of all run files whose documents are not lost."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in itertools.chain(*list_files(run).values()):
        with (run.directory / name).open() as lines, (folder / name).open("w") as out:
            out.writelines(line for line in lines if line.split(maxsplit=3)[2] not in lost)
    return folder


def answer_topic(
    run: StoredRun,
    topic: str,
    ranked: Sequence[str],
    wanted: Sequence[Wanted],
    keeps: Callable[[Stage, str], bool],
) -> tuple[dict[str, Any], ...]:
    """Make the records of a topic in the files of grades, of evidence and of answers, by the oracle."""
    own = [one for one in wanted if one.topic_id == topic and one.doc_id in ranked]
    relevant = {one.doc_id for one in own}
    graded: list[float | None] = [
        (3 if keeps("grade", doc) else 1 if keeps("graded", doc) else None) if doc in relevant else 0 for doc in ranked
    ]
    selected = [doc for doc in ranked if doc in relevant and keeps("selected", doc)]
    grades = {
        "topic_id": topic, "graded_by": MODEL["name"], "pairs": len(ranked), "asked": len(ranked),
        "queries": [run.queries[topic][0].id], "documents": ranked, "spans": [[]] * len(ranked), "grades": [graded],
        "selected": selected, "scores": [1.0] * len(selected), "fallbacks": [],
    }  # fmt: skip
    documents = run.get_documents(selected)
    others = run.get_documents([doc for doc in ranked if doc not in relevant][:1])
    wrong = [document.segments[0].id for document in others.values()]
    items, sentences = [], []
    for one in own:
        if one.doc_id not in selected or not keeps("read", one.doc_id):
            continue
        document = documents[one.doc_id]
        span = one.span or document.segments[0].span
        text = document.text[span.start : span.end]
        items.append({"span": asdict(span), "text": text, "score": 1.0, "query_id": run.queries[topic][0].id})
        if keeps("used", one.doc_id):
            own_ids = [segment.id for segment in document.segments if segment.span.overlaps(span)]
            cited = own_ids if keeps("cited", one.doc_id) else wrong
            sentences.append({"text": text, "citations": cited})
    evidence = {"topic_id": topic, "items": items, "notes": [], "stop": "done", "reader": "plain", "by": "oracle"}
    return grades, evidence, {"topic_id": topic, "sentences": sentences, "fallbacks": []}


def compare_stages(run: StoredRun, kind: str, path: Path, out: Path) -> Iterator[tuple[str, int]]:
    """Damage each stage of the run in turn; yields rows of the table, each with the number of losses not found."""
    every = list_nuggets(read_nuggets(path)) if kind == "nuggets" else read_relevant_documents(path, 1, run.store)
    wanted = [one for one in every if one.topic_id in run.queries]
    lost = set(sorted({one.doc_id for one in wanted})[::2])

    filtered = filter_lists(run, lost, out.with_name("filtered"))

    def find_losses(stage: Stage | None) -> list[Stage | None]:
        damage_run(run, wanted, lost, stage, filtered, out)
        return [finding.lost for finding in diagnose(out, lambda _store: wanted).findings]

    before = find_losses(None)
    yield f"| none, of {len(wanted):,} | {len(wanted) - before.count(None):,} | | {before.count(None):,} | |", 0
    for stage in list_stages(open_stored_run(out)):
        pairs = list(zip(wanted, before, find_losses(stage), strict=True))
        damaged = [(old, new) for one, old, new in pairs if one.doc_id in lost]
        losses = [new for old, new in damaged if new != old]
        kept = sum(old is None and new is None for old, new in damaged)
        others = sum(new != old for one, old, new in pairs if one.doc_id not in lost)
        found = losses.count(stage)
        yield f"| {stage}: {LOSSES[stage]} | {len(losses):,} | {found:,} | {kept:,} | {others:,} |", len(losses) - found


if __name__ == "__main__":
    data, work = map(Path, sys.argv[1:])
    missed = 0
    for collection in COLLECTIONS:
        for kind in KINDS.get(collection.name, ()):
            run = open_stored_run(search_collection(collection, data, work, "default"))
            path = data / collection.folder / (collection.qrels if kind == "qrels" else f"{kind}.jsonl")
            print(f"\n{collection.name}, {kind}\n\n| damaged | losses | found | kept | others |\n|---|---|---|---|---|")
            for row, wrong in compare_stages(run, kind, path, work / "damaged"):
                print(row, flush=True)
                missed += wrong
    sys.exit(missed > 0)
