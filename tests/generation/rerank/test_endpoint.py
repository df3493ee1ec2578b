"""The reranker `endpoint`: each form of server, long documents by their best segments, faults, and kept scores."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keystone.generation.rerank.endpoint import BATCH_PASSAGES, FORMS, MOST_REQUESTS, SCORES_FILE, read_scores
from keystone.indexing.errors import UserError
from tests.support.places import ROOT
from tests.support.runs.rerankings import make_candidates, rerank
from tests.support.servers import vllm
from tests.support.servers.rerank import (
    Fault,
    count_shared_letters,
    half,
    refuses,
    says,
    serving,
    status,
    torn,
)

NARRATIVE = "abcdefgh"
WORDS = ["xyz", "abc", "abcdefgh", "a", "abcdef", "qqq", "ab"]
BY_SHARED_LETTERS = [2, 4, 1, 6, 3, 0, 5]


def settings(root: str, base: str = "/v1", **changes: Any) -> dict[str, Any]:
    endpoint = {"url": root + base, "name": "letters"} | changes.pop("endpoint", {})
    return {"method": "endpoint", "endpoint": endpoint} | changes


def documents(*texts: str) -> Any:
    return make_candidates(NARRATIVE, [[text] for text in texts])


@pytest.mark.parametrize(
    ("base", "form", "path"),
    [
        ("/v1", "rerank", "/v1/rerank"),
        ("/v2", "rerank", "/v2/rerank"),
        ("", "rerank", "/rerank"),
        ("", "score", "/score"),
    ],
)
def test_documents_are_ordered_by_their_scores_in_each_form(base: str, form: str, path: str, tmp_path: Path) -> None:
    with serving() as server:
        chosen = settings(server.root, base, endpoint={"form": form})
        (found,) = rerank(chosen, tmp_path, [documents(*WORDS)])
    assert found.order == BY_SHARED_LETTERS
    ((asked, body),) = server.requests
    assert (asked, body["model"]) == (path, "letters")


def test_a_document_has_the_highest_score_of_its_segments(tmp_path: Path) -> None:
    topic = make_candidates(NARRATIVE, [["abc"], ["xx", "yy", "abcdefgh"], ["x", "abcd"], []])
    with serving() as server:
        orders = [
            rerank(settings(server.root, segments=number), tmp_path, [topic])[0].order for number in (1, 2, 3, 10)
        ]
    assert orders == [[0, 1, 2, 3], [2, 0, 1, 3], [1, 2, 0, 3], [1, 2, 0, 3]]
    assert len(server.scored) == len(set(server.scored)) == 6, "each segment is scored once in all four runs"


def test_scores_are_kept_by_model_form_narrative_and_passage(tmp_path: Path) -> None:
    with serving() as server:
        chosen, topic = settings(server.root), documents(*WORDS, *WORDS)
        first = rerank(chosen, tmp_path, [topic])
        assert sorted(server.scored) == sorted(WORDS)
        assert rerank(chosen, tmp_path, [topic]) == first
        assert len(server.scored) == len(WORDS)
        others = [
            (chosen, make_candidates("xyz", [[word] for word in WORDS])),
            (settings(server.root, endpoint={"name": "other"}), topic),
            (settings(server.root, endpoint={"form": "score"}), topic),
        ]
        for number, (changed, narrative) in enumerate(others, 2):
            rerank(changed, tmp_path, [narrative])
            assert len(server.scored) == number * len(WORDS)


FAULTS: list[Fault] = [status(429, Retry_After="0"), status(503), status(500), half, torn]


@pytest.mark.slow
def test_many_topics_with_faults_get_the_orders_of_a_good_server(tmp_path: Path) -> None:
    topics = [
        make_candidates(NARRATIVE, [[f"{'abcdefgh'[: n % 9]} {topic} {n}"] for n in range(70)], str(topic))
        for topic in range(9)
    ]
    with serving() as server:
        whole = rerank(settings(server.root), tmp_path / "whole", topics)
    with serving(faults=FAULTS * 2) as server:
        assert rerank(settings(server.root), tmp_path / "faults", topics) == whole
    assert len(server.scored) == 9 * 70
    for topic, found in zip(topics, whole, strict=True):
        texts = [document.text for document in topic.context.documents.values()]
        shares = [-count_shared_letters(NARRATIVE, texts[place]) for place in found.order]
        assert shares == sorted(shares)


def test_after_an_error_only_scores_that_did_not_come_are_asked_for_again(tmp_path: Path) -> None:
    topic = make_candidates(NARRATIVE, [[f"a {n}"] for n in range(1000)])

    def refuse_after_600(handler: Any, _right: Any) -> bool:
        return len(handler.state.scored) >= 600 and status(401)(handler, _right)

    with serving(always=refuse_after_600) as server:
        with pytest.raises(UserError, match=r"letters: HTTP 401"):
            rerank(settings(server.root), tmp_path, [topic])
        server.always = None
        rerank(settings(server.root), tmp_path, [topic])
    assert set(server.scored) == {f"a {n}" for n in range(1000)}
    assert len(server.scored) <= 1000 + MOST_REQUESTS * BATCH_PASSAGES, "only replies on their way are lost"


@pytest.mark.parametrize(
    "reply",
    [
        [],
        {"results": {}},
        {"results": []},
        {"results": [{"index": 0, "relevance_score": 0.5}] * 2},
        {"results": [{"index": 0, "relevance_score": 0.5}, {"index": 2, "relevance_score": 0.5}]},
        {"results": [{"index": 0, "relevance_score": 0.5}, {"index": True, "relevance_score": 0.5}]},
        {"results": [{"index": 0, "relevance_score": 0.5}, {"index": 1, "relevance_score": "0.5"}]},
        {"results": [{"index": 0, "relevance_score": 0.5}, {"index": 1, "relevance_score": None}]},
        {"results": [{"index": n, "relevance_score": 0.5} for n in range(3)]},
        {"data": [{"index": n, "score": 0.5} for n in range(2)]},
    ],
)
def test_a_reply_without_one_number_for_each_passage_is_an_error_at_once(reply: Any, tmp_path: Path) -> None:
    with serving(always=says(reply)) as server, pytest.raises(UserError, match=r"letters: a wrong reply: found"):
        rerank(settings(server.root), tmp_path, [documents("a", "b")])
    assert len(server.requests) == 1


def test_a_refused_batch_is_halved_and_a_refused_passage_is_cut(tmp_path: Path) -> None:
    too_long = refuses(lambda _query, passages: len(passages) > 3 or max(map(len, passages)) > 300)
    long = "abcdefgh" + "x" * 900
    with serving(always=too_long) as server:
        (found,) = rerank(settings(server.root, tokens=1000), tmp_path, [documents(*WORDS[:2], long, *WORDS[3:])])
    assert found.order == BY_SHARED_LETTERS
    assert max(map(len, server.scored)) == len(long) // 4


def test_a_passage_that_is_too_long_for_a_server_that_says_500_is_cut(tmp_path: Path) -> None:
    def too_large(handler: Any, _right: Any) -> bool:
        asked = handler.state.requests[-1][1]["documents"]
        if max(map(len, asked)) <= 300:
            return False
        handler.reply({"error": {"code": 500, "message": "input (900 tokens) is too large to process"}}, 500)
        return True

    with serving(always=too_large) as server:
        (found,) = rerank(settings(server.root, tokens=1000), tmp_path, [documents("abcdefgh" + "x" * 900, "abc", "b")])
    assert found.order == [0, 1, 2]
    assert len(server.requests) < 8


def test_indexes_are_read_as_strings_and_other_forms_are_named() -> None:
    items = [{"index": "1", "relevance_score": 0.5}, {"index": 0.0, "relevance_score": 1}]
    assert read_scores({"results": items}, FORMS["rerank"], 2) == [1.0, 0.5]
    with pytest.raises(ValueError, match="no list of scores under 'results', but data, usage"):
        read_scores({"data": items, "usage": {}}, FORMS["rerank"], 2)


def test_a_server_that_refuses_everything_is_a_user_error_with_the_lengths(tmp_path: Path) -> None:
    with (
        serving(always=refuses(lambda _query, _passages: True)) as server,
        pytest.raises(UserError, match=r"too long: found a narrative and a passage of 8 and 62 characters"),
    ):
        rerank(settings(server.root, tokens=1000), tmp_path, [documents("x" * 1000)])


def test_the_key_is_sent_only_if_its_variable_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "for another server")
    monkeypatch.setenv("RERANK_KEY", "secret")
    with serving() as server:
        rerank(settings(server.root), tmp_path / "without", [documents("a")])
        rerank(settings(server.root, endpoint={"key_env": "RERANK_KEY"}), tmp_path / "with", [documents("a")])
        assert server.keys == {None, "Bearer secret"}
        with pytest.raises(UserError, match="NO_KEY: holds no key"):
            rerank(settings(server.root, endpoint={"key_env": "NO_KEY"}), tmp_path, [documents("a")])


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[vllm.Server]:
    """A tiny cross-encoder with random weights, made here and served by vLLM as `cross`."""
    folder = tmp_path_factory.mktemp("cross")
    vllm.run("python", ROOT / "tests/support/models/tiny_cross_encoder.py", folder / "model", folder=folder)
    with vllm.started("cross", folder / "model", vllm.EMBEDDING_OPTIONS) as server:
        yield server


@pytest.mark.nightly
@pytest.mark.slow
def test_vllm_scores_passages_alike_in_all_forms_and_cuts_none_that_fit(
    cross_encoder: vllm.Server, tmp_path: Path
) -> None:
    texts = ["Honey bees dance.", "Wasps eat other insects.", "A volcano erupts.", "bees " * 300, "Bees"]
    topic = make_candidates("How do bees tell each other where flowers are?", [[text] for text in texts])
    root = cross_encoder.url.removesuffix("/v1")
    forms = [("/v1", "rerank"), ("/v2", "rerank"), ("", "rerank"), ("/v1", "score"), ("", "score")]
    orders = []
    for number, (base, form) in enumerate(forms):
        endpoint = {"url": root + base, "name": "cross", "form": form}
        chosen = {"method": "endpoint", "endpoint": endpoint, "tokens": 1000}
        (found,) = rerank(chosen, tmp_path / str(number), [topic])
        orders.append(found.order)
        assert (tmp_path / str(number) / SCORES_FILE).exists()
    assert sorted(orders[0]) == [0, 1, 2, 3, 4]
    assert orders == [orders[0]] * len(forms)
    assert orders[0] != [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", ["Qwen/Qwen3-Reranker-0.6B", "mixedbread-ai/mxbai-rerank-base-v2"])
def test_a_server_without_the_template_of_its_model_is_noticed(name: str, tmp_path: Path) -> None:
    def score_backwards(handler: Any, right: Any) -> bool:
        items = [item | {"relevance_score": -item["relevance_score"]} for item in right["results"]]
        handler.reply({"results": items})
        return True

    with (
        serving(always=score_backwards) as server,
        pytest.raises(UserError, match=r"to lack the template of this model"),
    ):
        rerank(settings(server.root, endpoint={"name": name}), tmp_path, [documents(*WORDS)])
    with serving() as server:
        (found,) = rerank(settings(server.root, endpoint={"name": name}), tmp_path, [documents(*WORDS)])
        assert (found.order, found.warning) == (BY_SHARED_LETTERS, "")
        assert len(server.requests) == 2  # the probe, and the passages
        rerank(settings(server.root, endpoint={"name": name}), tmp_path, [documents(*WORDS)])
        assert len(server.requests) == 2  # no probe where all scores are kept
