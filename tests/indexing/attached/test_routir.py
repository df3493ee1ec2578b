"""RoutIR's search service as a corpus: its pipeline searches, and its collection has the documents."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import orjson
import pytest

from keystone.indexing.attached.attach import AttachSettings
from keystone.indexing.attached.rest_server import address
from keystone.indexing.attached.rest_store import adopt_server
from keystone.indexing.errors import UserError
from keystone.indexing.index import open_index
from keystone.retrieval.backends import open_sparse, open_store
from tests.support.indexes.small_corpus import write_topics
from tests.support.pages import find_words, list_commands
from tests.support.runs.command_line import keystone, keystone_here
from tests.support.servers.routir import routir_server, scripted_routir

DOCUMENTS = {
    "a": ("Dances", "Bees dance to tell where honey is."),
    "b": ("Honey", "Honey never spoils, and bees make honey."),
    "c": ("Ice", "Ice floats."),
}


def write_documents(path: Path) -> None:
    lines = (orjson.dumps({"id": n, "title": title, "text": text}) + b"\n" for n, (title, text) in DOCUMENTS.items())
    path.write_bytes(b"".join(lines))


@pytest.fixture(params=[pytest.param(routir_server, marks=pytest.mark.slow), scripted_routir])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    serve: Callable[[Path, Path], AbstractContextManager[str]] = request.param
    documents = tmp_path / "documents.jsonl"
    write_documents(documents)
    monkeypatch.setenv("SESAME", "sesame")
    with serve(tmp_path, documents) as found:
        yield found


def test_a_pipeline_searches_and_a_collection_has_the_documents(url: str, tmp_path: Path) -> None:
    index, is_new = adopt_server(
        Path(f"routir:{url}/bees?words%2"), tmp_path / "index", AttachSettings(key_env="SESAME")
    )
    assert is_new
    assert index.backend == "rest"
    store = open_store(index)
    found = open_sparse(index, store).search(["1", "2", "3"], ["honey bees spoils", "ice", "nothing here is"], 10)
    assert [store.ids(found.of(i)) for i in range(3)] == [["b", "a"], ["c"], ["a"]]
    assert found.scores_of(0).tolist() == [3.0, 2.0]
    (document,) = store.get(found.of(1))
    assert (document.title, document.text) == DOCUMENTS["c"]


def test_a_wrong_pipeline_collection_or_key_is_named(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"HTTP (400|500)"):
        adopt_server(Path(f"routir:{url}/bees?ants%2 >> none"), tmp_path / "index", AttachSettings(key_env="SESAME"))
    monkeypatch.setenv("SESAME", "open")
    with pytest.raises(UserError, match="expected the server's key in the environment: SESAME"):
        adopt_server(Path(f"routir:{url}/bees?words%2"), tmp_path / "index", AttachSettings(key_env="SESAME"))


@pytest.mark.slow
def test_a_run_over_it_is_whole(url: str, tmp_path: Path) -> None:
    corpus = f"routir:{url}/bees?words%10"
    made = keystone(
        "index", corpus, "--out", tmp_path / "index", "--rest-key-env", "SESAME", "--no-dense", SESAME="sesame"
    )
    assert made.returncode == 0, made.stderr
    settings = ["track=responses", "queries.method=narrative", "queries.topic=lead", "run_id=r"]
    settings += [f"topics={write_topics(tmp_path / 'topics.jsonl')}", f"index={tmp_path / 'index'}"]
    changes = [word for one in [*settings, f"out={tmp_path / 'out'}"] for word in ("--set", one)]
    done = keystone("run", "--preset", "bm25", *changes, SESAME="sesame")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "r" / "narrative.trec").read_text()


def test_the_command_of_the_page_finds_the_documents_of_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROUTIR_API_KEY", "sesame")
    (command,) = list_commands("keystone index 'routir:")
    write_documents(tmp_path / "documents.jsonl")
    with scripted_routir(tmp_path, tmp_path / "documents.jsonl") as url:
        words = find_words(command.replace("http://host:5000", url))
        done = keystone_here(*words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        index = open_index(tmp_path / "index")
        store = open_store(index)
        found = open_sparse(index, store).search(["1"], ["honey bees spoils"], 10)
        assert store.ids(found.of(0)) == ["b", "a"]


@pytest.mark.parametrize(
    "corpus", ["routir:", "routir:http://h/c", "routir:http://h?bm25", "routir:http://h/c? ", "routir:ftp://h/c?bm25"]
)
def test_an_address_has_a_collection_and_a_pipeline(corpus: str) -> None:
    with pytest.raises(UserError, match=r"expected routir:http://HOST:PORT/COLLECTION\?PIPELINE"):
        address(Path(corpus))


def test_a_pipeline_keeps_its_words() -> None:
    corpus = Path("routir:https://h:1/api/ragtime?{zho%100, rus[r]%100}RRF%50 >> rank1%20")
    assert address(corpus) == ("https://h:1/api", "ragtime?{zho%100, rus[r]%100}RRF%50 >> rank1%20")
