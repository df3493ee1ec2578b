"""Late interaction within another system: the ranking of MaxSim among the documents that this system finds."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.encoders.checkpoint import read_checkpoint
from keystone.indexing.encoders.late import LateEncoder, Matrix
from keystone.indexing.encoders.pairs import open_pair_scorer
from keystone.indexing.errors import UserError
from keystone.indexing.index import open_index
from keystone.indexing.io.kept import hash_parts, open_kept
from keystone.retrieval.backends import open_store
from keystone.retrieval.late import LateSystem
from keystone.retrieval.search import search_all
from keystone.retrieval.system import OpenIndex
from keystone.retrieval.types import Query, Rankings
from keystone.runs.config.read import read_config
from keystone.runs.pipeline.run import run
from keystone.runs.trec.run_files import read_run
from tests.support.indexes.searches import make_system
from tests.support.indexes.small_corpus import write_corpus, write_topics
from tests.support.models.late import DIMENSION, write_pylate

pytestmark = pytest.mark.slow

QUERIES = [Query("1", f"1-{n}", text, text, text) for n, text in enumerate(["honey bees", "ash of a volcano", "zzyzx"])]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint, an index of documents and one of passages, without embeddings, and a run."""
    made = tmp_path_factory.mktemp("late")
    write_pylate(made / "colbert")
    corpus, topics = write_corpus(made / "corpus.jsonl"), write_topics(made / "topics.jsonl")
    build_index(corpus, made / "index", BuildSettings(embedding=None))
    build_index(corpus, made / "passages", BuildSettings(faiss=None, passages=True))
    systems = {
        "bm25": {"kind": "bm25"},
        "late": {"kind": "late", "model": str(made / "colbert"), "within": "bm25", "weight": 0.5},
    }
    values: dict[str, Any] = {"run_id": "r", "index": str(made / "index"), "topics": str(topics), "track": "none"}
    values |= {"out": str(made / "out"), "retrieval": {"systems": systems, "depth": 9}, "fusion": {"depth": 9}}
    (made / "run.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    return made


@pytest.mark.parametrize("kind", ["index", "passages"])
def test_a_ranking_is_that_of_maxsim_among_the_documents_found(kind: str, folder: Path) -> None:
    index = open_index(folder / kind)
    store = open_store(index)
    systems = {
        "bm25": make_system("bm25", depth=3),
        "late": LateSystem(model=str(folder / "colbert"), within="bm25", depth=4),
    }
    found = search_all(systems, OpenIndex(index, store, threads=2), QUERIES, systems["bm25"])
    rows = np.unique(found["bm25"].docs).tolist()
    score = open_pair_scorer(str(folder / "colbert"))
    for place, query in enumerate(QUERIES):
        expected = {}
        for row, document in zip(rows, store.get(rows), strict=True):
            texts = [document.segment_text(one) for one in document.segments] if kind == "passages" else []
            expected[row] = max(score(query.dense_text, texts or [document.contents], 1)) / 24  # vectors of a query
        best = sorted(expected, key=lambda row: (-np.float32(expected[row]), row))[:4]
        assert found["late"].of(place).tolist() == best
        assert found["late"].scores_of(place) == pytest.approx([expected[row] for row in best], abs=1e-6)


@pytest.mark.parametrize("kind", ["index", "passages"])
def test_vectors_of_documents_are_kept_for_later_searches(
    kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wider pool has only its new documents encoded, and every score has the same bits as without the file."""
    index = open_index(folder / kind)
    (index.folder / "tokens.sqlite").unlink(missing_ok=True)
    encoded: list[str] = []
    encode = LateEncoder.encode_passages

    def watch(encoder: LateEncoder, texts: Sequence[str], threads: int = 1) -> list[Matrix]:
        encoded.extend(texts)
        return encode(encoder, texts, threads)

    monkeypatch.setattr(LateEncoder, "encode_passages", watch)

    def search(depth: int) -> Rankings:
        systems = {
            "bm25": make_system("bm25", depth=depth),
            "late": LateSystem(model=str(folder / "colbert"), within="bm25"),
        }
        return search_all(systems, OpenIndex(index, open_store(index), 2), QUERIES, systems["bm25"])["late"]

    few = search(1)
    first = set(encoded)
    encoded.clear()
    whole = search(9)
    assert first
    assert encoded
    assert first.isdisjoint(encoded)
    encoded.clear()
    again = search(9)
    assert not encoded
    (index.folder / "tokens.sqlite").unlink()
    for found in (again, search(9)):
        assert found.docs.tobytes() == whole.docs.tobytes()
        assert found.scores.tobytes() == whole.scores.tobytes()
    assert set(few.docs) < set(whole.docs)


@pytest.mark.parametrize("prompts", [{}, {"query": "q: ", "document": "d: "}])
def test_vectors_that_were_kept_without_the_prompts_of_a_checkpoint_are_not_used(
    prompts: dict[str, str], folder: Path, tmp_path: Path
) -> None:
    model, index = write_pylate(tmp_path / "colbert", prompts=prompts), open_index(folder / "index")
    store, older = open_store(index), f"late {read_checkpoint(str(model)).compute_digest()}".encode()
    with open_kept(index.folder / "tokens.sqlite") as kept:
        kept.put({hash_parts(older, [document.contents]): bytes(4 * DIMENSION) for document in store})
    systems = {
        "bm25": make_system("bm25", depth=9),
        "late": LateSystem(model=str(model), within="bm25"),
    }
    found = search_all(systems, OpenIndex(index, store, 1), QUERIES, systems["bm25"])["late"]
    assert found.scores.any() == bool(prompts)


def test_a_run_ranks_again_if_the_checkpoint_has_changed(folder: Path) -> None:
    directory = run(read_config(folder / "run.yaml"))
    late, bm25 = (read_run(directory / f"{name}.trec") for name in ("late", "bm25"))
    assert set(late.docs.decode_ids()) == set(bm25.docs.decode_ids())
    before = (directory / "late.trec").read_bytes()
    write_pylate(folder / "colbert", query_length=7)
    try:
        assert (run(read_config(folder / "run.yaml")) / "late.trec").read_bytes() != before
    finally:
        write_pylate(folder / "colbert")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["retrieval.systems.late.within=dense"], r"systems\.late\.within: found 'dense'"),
        (["retrieval.systems.late={kind: late, model: m}"], r"retrieval\.systems\.late\.within: missing"),
        (["retrieval.systems.late.model=nowhere"], r"model 'nowhere': found no such folder"),
    ],
)
def test_what_is_missing_is_named(overrides: list[str], message: str, folder: Path) -> None:
    with pytest.raises(UserError, match=message):
        run(read_config(folder / "run.yaml", overrides))
