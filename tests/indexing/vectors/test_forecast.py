"""The forecast of a step: tried on few texts from everywhere, and only if somebody wants to know."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from keystone.indexing.builds.changes import change_parts
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.embedder import Effort, Forecast
from keystone.indexing.impacts import settle_impacts
from keystone.indexing.types import Embedding
from keystone.indexing.vectors import shards
from keystone.indexing.vectors.shards import FIRST_TEXTS, TRIED_SHARE, foretell
from tests.support.models.checkpoints import write_checkpoint
from tests.support.servers.embeddings import serving

LEAST_TEXTS = int(FIRST_TEXTS / TRIED_SHARE)


@pytest.mark.parametrize("texts", [LEAST_TEXTS, 3 * LEAST_TEXTS, 10_000, 1_000_000])
@pytest.mark.parametrize("pace", [0.0001, 0.02, 3.0])
def test_the_speed_of_a_trial_is_that_of_the_whole(texts: int, pace: float, monkeypatch: pytest.MonkeyPatch) -> None:
    now, tried, said = [100.0], list[Sequence[int]](), list[Forecast]()
    monkeypatch.setattr(shards, "perf_counter", lambda: now[0])

    def measure(places: Sequence[int]) -> int:
        tried.append(places)
        now[0] += pace * len(places)
        return 12 * len(places)

    foretell("Embedding", texts, Effort(foretell=said.append), measure)
    (found,) = said
    assert (found.step, found.texts, found.bytes) == ("Embedding", texts, 12 * texts)
    assert found.seconds == pytest.approx(pace * texts)
    for places in tried:
        assert (min(places), max(places), len(set(places))) == (0, texts - 1, len(places))
        assert len(places) <= texts * TRIED_SHARE
    assert sum(map(len, tried[:-1])) * pace < 2 * shards.TRIAL_SECONDS, "the trials before the last one are short"


@pytest.mark.parametrize(("texts", "listens"), [(LEAST_TEXTS - 1, True), (0, True), (10_000, False)])
def test_nothing_is_tried_for_a_short_work_or_for_nobody(texts: int, listens: bool) -> None:
    said = list[Forecast]()

    def measure(_: Sequence[int]) -> int:
        raise AssertionError

    foretell("Embedding", texts, Effort(foretell=said.append if listens else None), measure)
    assert not said


@pytest.mark.slow
def test_an_index_foretells_its_vectors_and_impacts(tmp_path: Path) -> None:
    """Of a model at a URL nothing is tried, because a trial would be paid."""
    write_checkpoint(tmp_path / "splade", head="words")
    corpus, said = tmp_path / "corpus.jsonl", list[Forecast]()
    corpus.write_text("".join(f'{{"id": "d{n}", "text": "Bee {n} flies."}}\n' for n in range(LEAST_TEXTS)))
    impacts = {"s": settle_impacts(str(tmp_path / "splade"))}
    index, _ = build_index(corpus, tmp_path / "index", BuildSettings(impacts=impacts), foretell=said.append)
    vectors, encoded = said
    assert (vectors.step, vectors.texts, vectors.bytes) == ("Embedding documents", LEAST_TEXTS, LEAST_TEXTS * 384 * 4)
    assert (vectors.seconds or 0) > 0
    folder = index.impacts_of("s")
    size = sum((folder / name).stat().st_size for name in ("rows.npy", "frequencies.npy"))
    assert (encoded.step, encoded.texts) == ("Encoding documents by splade", LEAST_TEXTS)
    assert encoded.bytes == pytest.approx(size, rel=0.3)
    said.clear()
    with serving() as server:
        served = BuildSettings(vectors={"b": Embedding("letters", server.url)})
        change_parts(tmp_path / "index", served, foretell=said.append)
    assert [(one.step, one.texts, one.seconds) for one in said] == [("Embedding documents", LEAST_TEXTS, None)]
    assert sum(map(len, server.requests)) <= LEAST_TEXTS + 1, "each text once, and one that tells the dimension"
