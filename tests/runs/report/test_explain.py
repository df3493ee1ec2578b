"""The explained place of a document equals that of a run without a query or an engine."""

import json
import random
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

import keystone as api
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.runs.pipeline.directory import MANIFEST
from keystone.runs.pipeline.file_names import NARRATIVE
from keystone.runs.report.explain import explain, format_explanation
from tests.support import programs
from tests.support.indexes.small_corpus import CORPUS
from tests.support.mutation import FUZZ_CASES
from tests.support.runs.command_line import keystone_here

FOR_NUMBERS_AND_CONFIGURATION = ("numpy", "pydantic", "yaml", "orjson")
"""Packages that `explain` needs, but not `--version` and `--help`."""
SLOW_IMPORTS = (
    "numba",
    "scipy",
    "pandas",
    "ranx",
    "onnxruntime",
    "faiss",
    "jnius",
    "aiohttp",
    "openai",
    "asyncio",
    "ssl",
    "yarl",
)
"""Packages that none of the three needs."""
PAIRS = 200 if FUZZ_CASES else 60
TOPICS = 24
SETTINGS: dict[str, Any] = {"retrieval": {"depth": 7}, "fusion": {"depth": 6}, "track": "none"}


@pytest.fixture(scope="module")
def run(index: Index, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 24 narratives, each of three sentences from the corpus."""
    folder, rng = tmp_path_factory.mktemp("explained"), random.Random(0)
    sentences = [f"{part.strip(' .')}." for _, text in CORPUS.values() for part in text.split(". ")]
    lines = (json.dumps({"id": str(i), "narrative": " ".join(rng.sample(sentences, 3))}) for i in range(TOPICS))
    (folder / "topics.jsonl").write_text("\n".join(lines))
    places: dict[str, Any] = {"index": str(index.folder), "topics": str(folder / "topics.jsonl"), "out": str(folder)}
    return api.make_run(run_id="run", **places, **SETTINGS)


def list_places(run: api.Run) -> dict[tuple[str, str], int]:
    return {(topic, doc): rank for topic, hits in run.list_hits().items() for rank, (doc, _) in enumerate(hits, 1)}


@pytest.mark.slow
def test_a_place_equals_that_of_a_run_without_a_query_or_an_engine(run: Path, index: Index) -> None:
    topics = api.read_topics(run.parent / "topics.jsonl")
    config = api.configure(**SETTINGS)
    queries = api.decompose(index, topics, config)
    of_topic = {topic.id: [query for query in queries if query.topic_id == topic.id] for topic in topics}

    def search_and_fuse(asked: list[api.Query], config: api.RunConfig) -> dict[tuple[str, str], int]:
        return list_places(api.fuse(api.search(index, asked, config), asked, config))

    whole = list_places(api.read_run(run / "narrative.trec"))
    without_query = [
        search_and_fuse([query for own in of_topic.values() for i, query in enumerate(own) if i != left_out], config)
        for left_out in range(max(map(len, of_topic.values())))
    ]
    without_engine = {
        engine: search_and_fuse(queries, api.configure(**{**SETTINGS, "retrieval": {"depth": 7, "systems": [other]}}))
        for engine, other in (("bm25", "dense"), ("dense", "bm25"))
    }

    def keep(place: int | None) -> int | None:
        return place if place is not None and place <= 6 else None

    lists = [list_places(api.read_run(run / f"{engine}.trec")) for engine in without_engine]
    found_pairs = sorted({(query.partition("#")[0], doc) for places in lists for query, doc in places})
    pairs = random.Random(1).sample(found_pairs, PAIRS)
    moved = 0
    for pair in pairs:
        found = explain(run, *pair)
        assert keep(found.place) == whole.get(pair)
        for i, part in enumerate(found.parts):
            assert keep(part.without) == without_query[i].get(pair)
            moved += part.without != found.place
        for engine, place in found.without_engine.items():
            assert keep(place) == without_engine[engine].get(pair)
            moved += place != found.place
        assert sum(part.share or 0 for part in found.parts) == pytest.approx(float(found.place is not None))
    assert moved > PAIRS, "leaving a part out changes places"


def test_ranks_are_those_of_the_stored_lists(run: Path) -> None:
    ranks = {name: list_places(api.read_run(run / f"{name}.trec")) for name in ("bm25", "dense", "hybrid")}
    found = explain(run, "0", "bees")
    for part in found.parts:
        pair = (part.query.id, "bees")
        assert part.ranks == {name: ranks[name].get(pair) for name in ("bm25", "dense")}
        assert part.hybrid == ranks["hybrid"].get(pair)
        assert part.grade is None
    text = "\n".join(format_explanation(found))
    assert text.startswith(f"document bees, topic 0: place {found.place} of its lists fused")
    assert f"without dense: place {found.without_engine['dense']}" in text


def test_the_place_in_each_later_ranking_is_told(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    manifest = orjson.loads((copy / MANIFEST).read_bytes())
    assert manifest["rankings"] == [NARRATIVE]
    manifest["rankings"] += ["graded.trec", "keystone.trec", "researched.trec"]
    (copy / MANIFEST).write_bytes(orjson.dumps(manifest))
    for name, ids in (("graded", "wasps bees"), ("keystone", "bees wasps"), ("researched", "wasps")):
        rows = (f"0 Q0 {doc} {rank} {9 - rank} run\n" for rank, doc in enumerate(ids.split(), 1))
        (copy / f"{name}.trec").write_text("".join(rows))
    found = explain(copy, "0", "bees")
    assert found.later == {"graded.trec": 2, "keystone.trec": 1, "researched.trec": None}
    second = "place 2 in graded.trec, place 1 in keystone.trec, place - in researched.trec"
    assert [*format_explanation(found)][1] == second


@pytest.mark.parametrize("manifest", ["{}", "[]", '{"rankings": []}', '{"rankings"', None])
def test_the_settings_tell_later_rankings_where_the_manifest_does_not(
    manifest: str | None, run: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    (copy / MANIFEST).unlink()
    if manifest is not None:
        (copy / MANIFEST).write_text(manifest)
    config = yaml.safe_load((copy / "config.yaml").read_text())
    config |= {"rerank": {"method": "listwise"}, "model": {"name": "m", "urls": ["http://localhost:1/v1"]}}
    (copy / "config.yaml").write_text(yaml.safe_dump(config))
    (copy / "reranked.trec").write_text("0 Q0 wasps 1 9 run\n0 Q0 bees 2 8 run\n")
    assert explain(copy, "0", "bees").later == {"reranked.trec": 2}


def test_a_run_of_one_query_and_one_engine_has_nothing_to_leave_out(run: Path, index: Index) -> None:
    places: dict[str, Any] = {"index": str(index.folder), "topics": str(run.parent / "topics.jsonl")}
    one: dict[str, Any] = SETTINGS | {
        "retrieval": {"systems": ["bm25"], "depth": 7},
        "queries": {"method": "narrative"},
    }
    directory = api.make_run(run_id="one", out=str(run.parent / "one"), **places, **one)
    best = next(doc for topic, doc in list_places(api.read_run(directory / "narrative.trec")) if topic == "3")
    found = explain(directory, "3", best)
    assert (found.place, found.parts[0].without, dict(found.without_engine)) == (1, None, {})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("topic", "doc", "message"),
    [
        ("99", "bees", "topic 99 is missing"),
        ("0", "none", "document none: the index .*index has no document with this id"),
        ("0", "bees#0_0", "its document: ask for bees"),
    ],
)
def test_an_unknown_topic_or_document_is_refused(run: Path, topic: str, doc: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        explain(run, topic, doc)
    refused = keystone_here("explain", run, topic, doc)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert re.search(message, refused.stderr)


def test_a_document_that_every_query_missed_is_not_unknown(run: Path, tmp_path: Path) -> None:
    copy, missed = tmp_path / "run", "document {}: no query of topic 0 found it"
    shutil.copytree(run, copy)
    for engine in ("bm25", "dense"):
        rows = (copy / f"{engine}.trec").read_text().splitlines(keepends=True)
        (copy / f"{engine}.trec").write_text("".join(row for row in rows if " bees " not in row))
    with pytest.raises(UserError, match=missed.format("bees")):
        explain(copy, "0", "bees")
    config = (copy / "config.yaml").read_text()
    (copy / "config.yaml").write_text(re.sub("(?m)^index: .*", f"index: {tmp_path / 'gone'}", config))
    with pytest.raises(UserError, match=missed.format("none")):  # without the index, nobody knows
        explain(copy, "0", "none")


@pytest.mark.slow
def test_version_help_and_explain_import_no_slow_package(run: Path) -> None:
    """One process runs all three, so the later ones are checked together with the earlier ones."""
    code = f"""if True:
        import sys
        from keystone.runs.cli.main import app
        quick = [["--version"], ["--help"]]
        for arguments in [*quick, ["explain", {str(run)!r}, "0", "bees"]]:
            app(arguments, standalone_mode=False)
            slow = {SLOW_IMPORTS} + {FOR_NUMBERS_AND_CONFIGURATION} * (arguments in quick)
            print(arguments, [name for name in slow if name in sys.modules], file=sys.stderr)
    """
    shown = programs.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = shown.stderr.splitlines()
    assert len(found) == 3
    assert [line for line in found if not line.endswith(" []")] == []
