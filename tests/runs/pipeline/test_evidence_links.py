"""Evidence names the segments that overlap it, and each sentence of an answer points to its evidence."""

from pathlib import Path

import orjson
import pytest

from keystone.generation.types import Answer, Evidence, EvidenceSet, Sentence
from keystone.indexing.index import Index
from keystone.indexing.store import build_store, open_store
from keystone.indexing.types import Document, Segment, Span, Store
from keystone.runs.config.read import read_config
from keystone.runs.pipeline.run import run
from keystone.runs.pipeline.stages.answer import point_to_evidence
from keystone.runs.pipeline.stages.gather import name_segments

TEXT = "Bees dance. Bees sleep. Wasps hunt."
SEGMENTS = {"d#0": (0, 23), "d#1": (12, 35)}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    index = Index(tmp_path_factory.mktemp("links"), "key", None, 1, {}, 0, None)
    segments = tuple(Segment(name, Span("d", *place)) for name, place in SEGMENTS.items())
    build_store([Document("d", TEXT, segments=segments)], index.store)
    return open_store(index)


def gather(*texts: str) -> EvidenceSet:
    spans = (Span("d", TEXT.index(text), TEXT.index(text) + len(text)) for text in texts)
    return EvidenceSet(tuple(Evidence(span, text, 1.0, "1") for span, text in zip(spans, texts, strict=True)))


def test_evidence_names_the_segments_that_overlap_it(store: Store) -> None:
    found = name_segments(gather("Bees dance.", "Bees sleep.", "Wasps hunt."), store)
    assert [item.segments for item in found.items] == [("d#0",), ("d#0", "d#1"), ("d#1",)]
    assert name_segments(EvidenceSet(()), store) == EvidenceSet(())


@pytest.mark.parametrize(
    ("text", "citations", "evidence"),
    [
        ("Bees dance.", ("d#0",), (0,)),
        ("Bees sleep.", ("d#1", "d#0"), (1,)),
        ("Bees dance, and wasps hunt.", ("d#0", "d#1"), (0, 2)),
        ("Ants.", ("d#1",), (1,)),
        ("Bees dance.", ("other#0",), ()),
        ("Bees dance.", (), ()),
    ],
)
def test_a_sentence_points_to_the_evidence_in_its_segments_that_shares_most_words(
    store: Store, text: str, citations: tuple[str, ...], evidence: tuple[int, ...]
) -> None:
    found = name_segments(gather("Bees dance.", "Bees sleep.", "Wasps hunt."), store)
    answer = point_to_evidence(Answer("1", (Sentence(text, citations),)), found)
    assert answer.sentences == (Sentence(text, citations, evidence),)


@pytest.mark.slow
def test_in_a_run_by_rules_each_sentence_points_to_its_own_text(index: Index, topics: Path, tmp_path: Path) -> None:
    settings = [f"index={index.folder}", f"topics={topics}", f"out={tmp_path}", "run_id=rules", "answer.documents=9"]
    directory = run(read_config(None, settings), threads=2)
    evidence, answers = (
        [orjson.loads(line) for line in (directory / f"{name}.jsonl").read_bytes().splitlines()]
        for name in ("evidence", "answers")
    )
    for found, answer in zip(evidence, answers, strict=True):
        assert answer["sentences"]
        for sentence in answer["sentences"]:
            items = [found["items"][place] for place in sentence["evidence"]]
            assert any(sentence["text"].endswith(item["text"]) for item in items)  # a line of the question may open it
            assert all(set(item["segments"]) & set(sentence["citations"]) for item in items)
