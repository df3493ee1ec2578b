"""Artifacts that are removed, edited or remade, and indexes that are replaced: no stale data is used."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from keystone.indexing.builds.index import build_index
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index, open_index
from keystone.indexing.types import MINILM, Embedding
from keystone.indexing.vectors.of_documents import document_vectors
from keystone.indexing.vectors.of_segments import hash_texts, segment_vectors
from keystone.retrieval.backends import open_dense, open_sparse, open_store
from keystone.retrieval.types import Query
from keystone.runs.config.read import read_config
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.directory import Stage, perform_stages
from keystone.runs.pipeline.job import open_job
from keystone.runs.pipeline.model_runner import open_model_runner
from keystone.runs.pipeline.run import run
from keystone.runs.pipeline.table import bind_stages
from keystone.runs.pipeline.values import Artifact, Values
from tests.support.indexes.searches import search_all
from tests.support.indexes.small_corpus import write_corpus, write_topics

ARTIFACTS = [
    "config.yaml",
    "queries.jsonl",
    "bm25.trec",
    "dense.trec",
    "hybrid.trec",
    "narrative.trec",
    "r_output_trec_rag_2025.tsv",
    "evidence.jsonl",
    "answers.jsonl",
    "rag_output_trec_rag_2025.jsonl",
]


def configured(index: Index, out: Path) -> RunConfig:
    """The configuration of a small run to a folder."""
    out.mkdir(exist_ok=True)
    topics, config = write_topics(out / "topics.jsonl"), out / "run.yaml"
    config.write_text(
        f"run_id: small\nindex: {index.folder}\ntopics: {topics}\nout: {out}\n"
        "retrieval: {depth: 8}\nfusion: {depth: 6}\nanswer: {documents: 5, words: 60}\n"
    )
    return read_config(config, [])


@pytest.fixture(scope="module")
def whole(index: Index, tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """The configuration of an undisturbed run. Its directory is `small`, and a copy of it `undisturbed`."""
    config = configured(index, tmp_path_factory.mktemp("whole"))
    shutil.copytree(run(config), config.out / "undisturbed")
    return config


@pytest.fixture
def directory(whole: RunConfig) -> Path:
    """The directory of the undisturbed run."""
    shutil.rmtree(whole.out / "small")
    return Path(shutil.copytree(whole.out / "undisturbed", whole.out / "small"))


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def remade(config: RunConfig) -> list[str]:
    made: list[str] = []

    def announce(stage: Stage, reused: bool) -> None:
        made.extend(() if reused else stage.artifacts)

    run(config, announce=announce)
    return made


def edit(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b" \n")


@pytest.mark.parametrize("change", [pytest.param(Path.unlink, id="removed"), pytest.param(edit, id="edited")])
@pytest.mark.parametrize("name", ARTIFACTS)
def test_an_artifact_is_made_again_with_the_same_bytes_and_later_ones_are_kept(
    whole: RunConfig, directory: Path, name: str, change: Callable[[Path], None]
) -> None:
    before = contents(directory)
    change(directory / name)
    made = remade(whole)
    assert name in made
    assert len(made) <= 2, "made again with its stage, and nothing else"
    assert contents(directory) == before


@pytest.mark.slow
@pytest.mark.parametrize("name", ARTIFACTS[1:-1])
def test_artifacts_after_one_with_other_bytes_are_as_in_a_fresh_run(
    index: Index, whole: RunConfig, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A changed artifact here replaces a model that gives another reply when it is asked again."""

    def otherwise(values: Values, found: list[Stage], *rest: Any) -> None:
        put = values.put

        def put_shortened(artifact: Artifact[Any], value: Any) -> None:
            put(artifact, value)
            if artifact.name == name:
                shorten(values.directory / name)
                values._kept[name] = artifact.read(values.directory / name, values)

        values.put = put_shortened  # type: ignore[method-assign]
        perform_stages(values, found, *rest)

    monkeypatch.setattr("keystone.runs.pipeline.run.perform_stages", otherwise)
    (directory / name).unlink()
    run(whole)
    fresh = contents(run(configured(index, tmp_path / "fresh")))
    found = contents(directory)
    assert found.keys() == fresh.keys()
    assert [other for other in ARTIFACTS[1:] if found[other] != fresh[other]] == []


def shorten(path: Path) -> None:
    """Remove the last row of a file, or the last query, evidence or sentence of each topic."""
    lines = path.read_bytes().splitlines(keepends=True)
    part = {"queries.jsonl": "queries", "evidence.jsonl": "items", "answers.jsonl": "sentences"}.get(path.name)
    if part is None:
        path.write_bytes(b"".join(lines[:-1]))
        return
    records = [orjson.loads(line) for line in lines]
    path.write_bytes(b"".join(orjson.dumps({**one, part: one[part][:-1]}) + b"\n" for one in records))


@pytest.mark.slow
def test_a_stage_reads_no_artifact_but_its_inputs(index: Index, whole: RunConfig, tmp_path: Path) -> None:
    for number, name in enumerate(ARTIFACTS):
        config = configured(index, tmp_path / str(number))
        job = open_job(config)
        job.directory.mkdir(parents=True)
        values = Values(job.directory, job)
        with open_model_runner(config, None) as ask:
            (stage,) = (stage for stage in bind_stages(job, ask) if name in stage.artifacts)
            for needed in stage.inputs:
                shutil.copy(whole.out / "undisturbed" / needed, job.directory / needed)
            stage.make(values)
        made, wanted = (folder / name for folder in (job.directory, whole.out / "undisturbed"))
        assert name == "config.yaml" or made.read_bytes() == wanted.read_bytes()


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two indexes of documents with the same ids. In the second, the texts are different and longer."""
    folder = tmp_path_factory.mktemp("two")
    corpus = write_corpus(folder / "corpus.jsonl")
    build_index(corpus, folder / "one")
    corpus.write_text(
        corpus.read_text().replace("colony", "colony of ants").replace('."}', ". " + "More. " * 400 + '"}')
    )
    build_index(corpus, folder / "two")
    return folder / "one", folder / "two"


@pytest.fixture
def begun(indexes: tuple[Path, Path], tmp_path: Path) -> tuple[Index, Callable[[], None]]:
    """An open index, and a function that replaces it with another one."""
    shutil.copytree(indexes[0], tmp_path / "index")

    def replace_index() -> None:
        shutil.rmtree(tmp_path / "index")
        shutil.copytree(indexes[1], tmp_path / "index")

    return open_index(tmp_path / "index"), replace_index


def search(index: Index) -> object:
    query = Query("1", "1-1", "honey", "honey", "honey")
    return search_all(index, open_store(index), [query], depth=5)


OPENED = [
    pytest.param(open_store, id="the store"),
    pytest.param(lambda index: open_sparse(index, open_store(index)), id="the postings"),
    pytest.param(open_dense, id="the vectors"),
    pytest.param(search, id="a search"),
]


@pytest.mark.parametrize("use", OPENED)
def test_an_index_that_was_replaced_is_one_error(
    begun: tuple[Index, Callable[[], None]], use: Callable[[Index], object]
) -> None:
    index, replace_index = begun
    use(index)
    replace_index()
    with pytest.raises(UserError, match=f"{index.folder}: was replaced or removed while it was in use"):
        use(index)
    shutil.rmtree(index.folder)
    with pytest.raises(UserError, match=f"{index.folder}: was replaced or removed while it was in use"):
        use(index)


@pytest.mark.slow
def test_a_run_whose_index_is_replaced_mixes_nothing(
    begun: tuple[Index, Callable[[], None]], indexes: tuple[Path, Path], tmp_path: Path
) -> None:
    index, replace_index = begun
    config = configured(index, tmp_path / "out")

    def announce(stage: Stage, _reused: bool) -> None:
        if stage.name == "search":
            replace_index()

    with pytest.raises(UserError, match="was replaced or removed"):
        run(config, announce=announce)
    run(config)
    fresh = run(configured(open_index(indexes[1]), tmp_path / "fresh"))
    names = ["bm25.trec", "dense.trec", "r_output_trec_rag_2025.tsv", "answers.jsonl"]
    assert [(config.out / "small" / name).read_bytes() for name in names] == [
        (fresh / name).read_bytes() for name in names
    ]


@pytest.mark.slow
def test_vectors_are_kept_by_text_for_any_index(
    begun: tuple[Index, Callable[[], None]], indexes: tuple[Path, Path]
) -> None:
    index, replace_index = begun
    store = open_store(index)
    replace_index()
    segment_vectors(index, store, range(len(store)))  # of the old texts, kept beside the new index
    document_vectors(index, store, range(len(store)))
    now, other = open_index(index.folder), open_index(indexes[1])
    found, wanted = (segment_vectors(one, open_store(one), range(len(store))) for one in (now, other))
    assert {row: own.tolist() for row, own in found.items()} == {row: own.tolist() for row, own in wanted.items()}
    whole = [document_vectors(one, open_store(one), range(len(store))).tolist() for one in (now, other)]
    assert whole[0] == whole[1]


def test_a_cache_of_an_earlier_version_is_not_read(begun: tuple[Index, Callable[[], None]]) -> None:
    import sqlite3

    index, _ = begun
    wanted = segment_vectors(index, open_store(index), [0])
    (index.folder / "segments.sqlite").unlink()
    with sqlite3.connect(index.folder / "segments.sqlite") as cache:
        cache.execute("CREATE TABLE vectors (id TEXT PRIMARY KEY, vectors BLOB NOT NULL)")
        cache.execute("INSERT INTO vectors VALUES (?, ?)", (open_store(index).ids([0])[0], b"\0" * wanted[0].nbytes))
    assert segment_vectors(index, open_store(index), [0])[0].tolist() == wanted[0].tolist()


def test_a_key_depends_on_the_model_and_on_each_text() -> None:
    asked = [(MINILM, ["a", "bc"]), (MINILM, ["ab", "c"]), (MINILM, ["abc"]), (Embedding(passage_prefix="p"), ["abc"])]
    assert len({hash_texts(*one) for one in asked}) == len(asked)
    assert hash_texts(MINILM, ["\ud800"]) == hash_texts(Embedding(), ["\ud800"])
