"""The embedder at an endpoint, with a real server on a socket and its faults."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.embedder import GRID_STEP, round_to_grid
from keystone.indexing.encoders.dense import open_encoder
from keystone.indexing.errors import TextRefused, UserError
from keystone.indexing.index import open_index
from keystone.indexing.io import retry
from keystone.indexing.types import MINILM, Embedding
from keystone.indexing.vectors import endpoint as embedding_endpoint
from keystone.indexing.vectors.embed import load_model
from keystone.indexing.vectors.endpoint import Endpoint, read_reply, shorten
from keystone.retrieval.types import Query
from tests.support.indexes.searches import search_embeddings
from tests.support.indexes.small_corpus import CORPUS, write_corpus
from tests.support.runs.command_line import keystone
from tests.support.servers.embeddings import (
    Fault,
    half,
    letters,
    more_than,
    serving,
    slow,
    status,
    torn,
    unhurried,
    wrong,
)

TEXTS = [text for _, text in CORPUS.values()] * 11  # four requests


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Short pauses, and a short time limit for slow servers."""
    monkeypatch.setattr(retry, "LONGEST_PAUSE_S", 0.02)
    monkeypatch.setattr(retry, "LONGEST_REST_S", 0.02)
    if "slow" in request.node.name:
        monkeypatch.setattr(embedding_endpoint, "REPLY_TIMEOUT_S", 2)


@pytest.mark.slow
@pytest.mark.parametrize("as_lists", [False, True], ids=["base64", "lists"])
def test_the_vectors_come_back_in_the_order_of_the_texts(as_lists: bool) -> None:
    ticks: list[int] = []
    with serving(as_lists=as_lists, always=unhurried) as server:
        found = Endpoint("letters", server.url).embed(TEXTS, tick=ticks.append)
    assert found.tobytes() == round_to_grid(letters(TEXTS)).tobytes()
    assert sum(ticks) == len(TEXTS)
    assert 1 < server.most_at_once <= embedding_endpoint.MOST_REQUESTS


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(status(429, Retry_After="0.05"), id="busy"),
        pytest.param(status(500, Retry_After="0.05"), id="error"),
        pytest.param(status(503, Retry_After="0.05"), id="not ready"),
        pytest.param(half, id="half a reply"),
        pytest.param(torn, id="half a reply that claims to be whole"),
        pytest.param(slow, id="slow"),
    ],
)
def test_a_temporary_fault_changes_no_vector(fault: Fault) -> None:
    with serving() as server:
        model = Endpoint("letters", server.url)
        assert model.dimension == 9
        server.faults = [fault, fault]
        assert model.embed(TEXTS).tobytes() == round_to_grid(letters(TEXTS)).tobytes()
        assert not server.faults


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        pytest.param(status(429, "too many", Retry_After="0.01"), "letters: .*too many", id="busy for ever"),
        pytest.param(status(401, "whose key"), "letters: .*whose key", id="no right"),
        pytest.param(half, "asked 8 times: IncompleteRead", id="never a whole reply"),
        pytest.param(torn, "asked 8 times: a wrong reply: unexpected end of data", id="never whole JSON"),
        pytest.param(slow, r"asked 8 times: no whole reply in 2 s", id="always slow"),
        pytest.param(wrong(lambda _: {"answer": 42}), "no list of vectors under 'data'", id="another protocol"),
        pytest.param(wrong(lambda value: [value]), "no list of vectors under 'data'", id="a list"),
        pytest.param(wrong(lambda value: value["data"].pop() and None), "found 8 vectors for 9 texts", id="too few"),
        pytest.param(
            wrong(lambda value: value["data"].append(value["data"][0])), "found 10 vectors for 9 texts", id="too many"
        ),
    ],
)
def test_a_lasting_fault_is_an_error_with_the_url(fault: Fault, message: str) -> None:
    with serving() as server:
        model = Endpoint("letters", server.url)
        assert model.dimension == 9
        server.always = fault
        with pytest.raises(UserError, match=rf"{server.url}: (letters: )?.*{message}"):
            model.embed(TEXTS[:9])


def items(*embeddings: Any, indexes: list[Any] | None = None) -> dict[str, Any]:
    numbers = range(len(embeddings)) if indexes is None else indexes
    return {"data": [{"index": i, "embedding": e} for i, e in zip(numbers, embeddings, strict=True)]}


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        pytest.param(items([1.0], [2.0], indexes=[0, 0]), r"indexes \[0,0\]", id="an index twice"),
        pytest.param(items([1.0], [2.0], indexes=[1, 2]), r"indexes \[1,2\]", id="indexes from 1"),
        pytest.param(items([1.0], [2.0], indexes=[None, None]), "indexes", id="no index"),
        pytest.param(items([1.0], [2.0], indexes=[[0], {}]), "indexes", id="an index that is no number"),
        pytest.param(items([1.0], [2.0], indexes=[False, True]), "indexes", id="an index that is a truth value"),
        pytest.param(items([1.0], [1.0, 2.0]), r"vectors of \[1, 2\] numbers", id="two dimensions"),
        pytest.param(items([1.0], [None]), "not a list of finite numbers", id="a number is missing"),
        pytest.param(items([1.0], ["1"]), "not a list of finite numbers", id="text"),
        pytest.param(items([1.0], []), "not a list of finite numbers", id="no number"),
        pytest.param(items([1.0], None), "not a list of finite numbers", id="no vector"),
        pytest.param(items([1.0], [[1.0]]), "not a list of finite numbers", id="token vectors"),
        pytest.param(items([1.0], [[1.0], [1.0, 2.0]]), "not a list of finite numbers", id="ragged"),
        pytest.param(items([1.0], [float("nan")]), "not a list of finite numbers", id="not a number"),
        pytest.param(items([1.0], "AADAfw=="), "not a list of finite numbers", id="not a number in base64"),
        pytest.param(items([1.0], "AAA="), "not a list of numbers", id="base64 of half a number"),
        pytest.param(items([1.0], "?"), "not a list of numbers", id="not base64"),
        pytest.param(items([1.0], [0.0]), "all zero", id="a zero vector"),
        pytest.param(items([1.0], [1e300, 1e300]), "length inf, expected 1e-09 to 1e", id="longer than numbers reach"),
        pytest.param(items([1.0], [1e10]), "length 1e.10, expected 1e-09 to 1e", id="long"),
        pytest.param(items([1.0], [1e-200, 1e-200]), "length 0, expected", id="shorter than numbers reach"),
        pytest.param(items([1.0], [1e-13]), "length 1e-13, expected", id="short"),
        pytest.param(items([1.0], [1.0] * 65_537), "65537 numbers, expected at most 65536", id="a huge dimension"),
        pytest.param(items([1.0], ["x" * 10**6, *[""] * 10**6]), "not a list of finite numbers", id="a million texts"),
        pytest.param(items([1.0], [True]), "not a list of finite numbers", id="truth values"),
        pytest.param(items([1.0], [1.0], indexes=[0, 2**62]), r"indexes \[0,4611686018427387904\]", id="huge index"),
        pytest.param(items([1.0], [1.0], indexes=[0, -1]), r"indexes \[0,-1\]", id="a negative index"),
        pytest.param({"data": [1, 2]}, "no list of vectors", id="no objects"),
        pytest.param({"data": None}, "no list of vectors", id="no data"),
    ],
)
def test_a_wrong_reply_is_an_error(reply: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_reply(reply, 2)


def test_a_reply_in_another_order_is_put_in_order_by_its_indexes() -> None:
    assert [v.tolist() for v in read_reply(items([1.0], [2.0], [3.0], indexes=[2, 0, 1]), 3)] == [[2], [3], [1]]


def test_indexes_are_read_in_each_form_of_a_whole_number() -> None:
    assert [v.tolist() for v in read_reply(items([1.0], [2.0], [3.0], indexes=["2", 0.0, "1.0"]), 3)] == [[2], [3], [1]]
    with pytest.raises(ValueError, match="no list of vectors under 'data', but embeddings, model"):
        read_reply({"embeddings": [[1.0]], "model": "m"}, 1)


def test_a_later_reply_of_another_dimension_is_an_error() -> None:
    with serving() as server:
        model = Endpoint("letters", server.url)
        assert model.dimension == 9
        server.model = lambda texts: letters(texts)[:, :5]
        with pytest.raises(UserError, match="found a vector of 5 numbers, expected 9"):
            model.embed(TEXTS)


@pytest.mark.slow
@pytest.mark.parametrize("largest", [1, 3, 31])
def test_a_refused_batch_is_split_and_nothing_is_lost(largest: int) -> None:
    with serving(always=more_than(largest, 10_000)) as server:
        assert Endpoint("letters", server.url).embed(TEXTS).tobytes() == round_to_grid(letters(TEXTS)).tobytes()
        assert max(map(len, server.requests)) == 32


@pytest.mark.slow
@pytest.mark.parametrize("tell", [False, True], ids=["the server says no more", "the server says how long"])
def test_a_refused_text_is_cut_further_and_reported(tell: bool) -> None:
    texts = ["a tie " * 20, "tears " * 1000, "no"]
    cut: list[int] = []
    with serving(always=more_than(32, 2000, tell)) as server:
        found = Endpoint("letters", server.url).embed(texts, cut=cut.append)
    assert cut == [1]
    kept = [text for request in server.requests for text in request if len(text) <= 2000 and text.startswith("tears")]
    assert len(kept[-1]) == (1900 if tell else 1500)
    assert found.tobytes() == round_to_grid(letters([texts[0], kept[-1], texts[2]])).tobytes()


def test_a_text_that_is_too_long_for_a_server_that_says_500_is_cut_to_its_window() -> None:
    def too_large(handler: Any, found: list[str]) -> bool:
        longest = max(map(len, found))
        said = f"input ({longest} tokens) is too large to process. increase it (current batch size: 512)"
        return longest > 512 and status(500, said)(handler, found)

    texts, cut = ["tears " * 200, "no"], list[int]()
    with serving(always=too_large) as server:
        found = Endpoint("letters", server.url).embed(texts, cut=cut.append)
    assert cut == [0]
    assert len(server.requests) == 1 + 3 + 1, "the dimension, a batch of two and its halves, the text cut"
    assert found.tobytes() == round_to_grid(letters([texts[0][: int(512 * 0.95)], "no"])).tobytes()


def test_a_server_that_takes_no_base64_is_asked_without_from_then_on() -> None:
    def no_base64(handler: Any, found: list[str]) -> bool:
        return handler.asked.get("encoding_format") == "base64" and status(400, "base64 is not supported")(
            handler, found
        )

    with serving(always=no_base64, as_lists=True) as server:
        assert Endpoint("letters", server.url).embed(TEXTS).tobytes() == round_to_grid(letters(TEXTS)).tobytes()
    assert len(server.requests) == 2 + math.ceil(len(TEXTS) / 32), "one refusal, the dimension, and the texts"


@pytest.mark.slow
def test_a_document_refused_at_any_length_is_named(tmp_path: Path) -> None:
    def fault(handler: Any, texts: list[str]) -> bool:
        if any("Lava" in text for text in texts):
            handler.reply({"error": {"message": "not this one"}}, 400)
            return True
        return False

    with serving(always=fault) as server:
        with pytest.raises(TextRefused, match="not this one") as caught:
            Endpoint("letters", server.url).embed([text for _, text in CORPUS.values()])
        assert caught.value.position == list(CORPUS).index("volcano")
        corpus = write_corpus(tmp_path / "corpus.jsonl")
        with pytest.raises(UserError, match=r"document volcano: .*not this one"):
            build_index(corpus, tmp_path / "index", BuildSettings(embedding=Embedding("letters", server.url)))


@pytest.mark.parametrize(
    ("asked", "listed", "characters"),
    [
        pytest.param(None, None, 4 * 8192, id="nobody says"),
        pytest.param(None, 50, 200, id="the server lists it"),
        pytest.param(10, 50, 40, id="the user says"),
    ],
)
def test_long_texts_are_cut_to_the_window_and_counted(asked: int | None, listed: int | None, characters: int) -> None:
    cut: list[int] = []
    with serving(window=listed) as server:
        Endpoint("letters", server.url, asked).embed(["a" * 40_000, "short"], cut=cut.append)
    assert (cut, max(len(text) for request in server.requests for text in request)) == ([0], characters)


def test_blank_texts_are_not_sent_and_have_the_zero_vector() -> None:
    with serving() as server:
        found = Endpoint("letters", server.url).embed(["", "tea", " \n"])
        assert found.any(axis=1).tolist() == [False, True, False]
        assert Endpoint("letters", server.url).embed([]).shape == (0, 9)
        assert all(text.strip() for request in server.requests for text in request)


def test_a_server_that_is_not_there_or_has_no_such_model_is_an_error() -> None:
    with serving() as server, pytest.raises(UserError, match=rf"{server.url}: other: .*no such model"):
        _ = Endpoint("other", server.url).dimension
    with pytest.raises(UserError, match=rf"{server.url}: letters: asked 8 times: Connection refused"):
        _ = Endpoint("letters", server.url).dimension
    with pytest.raises(UserError, match="no/url"):
        _ = Endpoint("letters", "no/url").dimension


def test_the_key_comes_from_the_environment_and_stays_out_of_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    corpus = write_corpus(tmp_path / "corpus.jsonl")
    with serving() as server:
        embedding = Embedding("letters", server.url, 20, "ask: ", "tell: ")
        made, _ = build_index(corpus, tmp_path / "index", BuildSettings(embedding=embedding))
        assert server.keys == {"Bearer sk-secret"}
        assert (made.embedding, made.cut) == (embedding, len(CORPUS))
        assert open_index(made.folder) == made
        query = Query("1", "1-1", "", "", "rain on stones")
        first = search_embeddings(made, [query], depth=3).of(0)[0]
        sent = [text for request in server.requests for text in request]
        assert sent[-1] == "ask: rain on stones"
        assert sum(text.startswith("tell: ") for text in sent) == len(CORPUS)
        told = letters([f"tell: {CORPUS[name][0]}\n{CORPUS[name][1]}"[:80] for name in sorted(CORPUS)])
        assert first == np.argmax(round_to_grid(told) @ round_to_grid(letters(["ask: rain on stones"]))[0])
        server.model = lambda texts: letters(texts)[:, :4]
        load_model.cache_clear()
        with pytest.raises(UserError, match="found vectors of 4 numbers from letters, expected 9"):
            search_embeddings(made, [query], depth=3)
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and b"sk-secret" in file.read_bytes()]


@pytest.mark.slow
def test_the_name_of_a_key_is_kept_and_used_by_queries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name does not change the index's key, so an earlier index without a name is the same."""
    corpus = write_corpus(tmp_path / "corpus.jsonl")
    with serving() as server:
        options = ["--embedding", "letters", "--embedding-url", server.url, "--embedding-key-env", "MINE", "-q"]
        shown = keystone("index", corpus, "--out", tmp_path / "index", *options, MINE="own-key", OPENAI_API_KEY="other")
        assert (shown.returncode, server.keys) == (0, {"Bearer own-key"})
        monkeypatch.setenv("MINE", "own-key")
        made = open_index(tmp_path / "index")
        assert made.embedding == Embedding("letters", server.url, key_env="MINE")
        server.keys.clear()
        search_embeddings(made, [Query("1", "1-1", "", "", "rain")], depth=3)
        assert server.keys == {"Bearer own-key"}
        assert build_index(corpus, made.folder, BuildSettings(embedding=Embedding("letters", server.url))) == (
            made,
            False,
        )
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and b"own-key" in file.read_bytes()]
    described = json.loads((made.folder / "index.json").read_text())
    del described["embedding"]["key_env"]
    (made.folder / "index.json").write_text(json.dumps(described))
    assert open_index(made.folder).embedding == Embedding("letters", server.url)


@pytest.mark.parametrize(
    "listed",
    [
        pytest.param([], id="a list"),
        pytest.param({"data": 5}, id="no models"),
        pytest.param({"data": [5, {"id": "other"}]}, id="no such model"),
        pytest.param({"data": [{"id": "letters", "max_model_len": "many"}]}, id="a text"),
        pytest.param({"data": [{"id": "letters", "max_model_len": -1}]}, id="less than none"),
        pytest.param({"data": [{"id": "letters", "max_model_len": True}]}, id="a truth value"),
        pytest.param({"data": [{"id": "letters", "max_model_len": 1e99}]}, id="no whole number"),
    ],
)
def test_a_list_of_models_without_a_valid_window_is_ignored(listed: Any) -> None:
    with serving(listed=listed) as server:
        assert Endpoint("letters", server.url).window == embedding_endpoint.WINDOW_TOKENS


@pytest.mark.slow
def test_the_local_model_behind_an_endpoint_gives_its_own_vectors() -> None:
    local = open_encoder(MINILM)
    texts = [text for _, text in CORPUS.values()]
    with serving(model=local.embed) as server:
        found = Endpoint("letters", server.url).embed(texts)
    assert np.abs(found - local.embed(texts)).max() <= GRID_STEP


@pytest.mark.slow
def test_the_command_line_names_the_endpoint_and_says_how_many_were_cut(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl")
    with serving() as server:
        options = ["--embedding", "letters", "--embedding-url", server.url, "--embedding-window", "40"]
        options += ["--faiss", "HNSW8"]
        shown = keystone("index", corpus, "--out", tmp_path / "index", *options, OPENAI_API_KEY="")
    assert shown.returncode == 0, shown.stderr
    longer = sum(len(f"{title}\n{text}") > 160 for title, text in CORPUS.values())
    assert f"documents longer than the model's window, embedded by their beginning: {longer}\n" in shown.stderr
    assert server.keys == {None}
    assert open_index(tmp_path / "index").embedding == Embedding("letters", server.url, 40)


def test_a_window_with_commas_is_read() -> None:
    assert len(shorten("x" * 1000, "maximum context length is 8,192 tokens, however you requested 9,102")) == 855


@given(st.text(min_size=101, max_size=2000), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_shortened_text_is_a_shorter_prefix(text: str, window: int, length: int) -> None:
    for reason in ("too long", f"maximum context length is {window} tokens, however you requested {length} tokens"):
        found = shorten(text, reason)
        assert len(found) < len(text)
        assert text.startswith(found)
