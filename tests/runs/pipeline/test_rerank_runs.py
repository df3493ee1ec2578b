"""Runs with a reranker: its ranking is the one that is graded, answered and submitted, and a killed run pays once."""

import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

import keystone as api
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.runs.config.read import read_config
from keystone.runs.evaluation.circular import find_shaping_grades
from keystone.runs.pipeline.answering import answer_to_file
from keystone.runs.pipeline.directory import MANIFEST, Stage
from keystone.runs.pipeline.file_names import GRADED, KEYSTONE, NARRATIVE, QRELS, RERANKED, RERANKS
from keystone.runs.pipeline.job import describe_settings
from keystone.runs.pipeline.run import run
from keystone.runs.pipeline.table import find_last_ranking
from keystone.runs.track_rules import TRACKS
from keystone.runs.trec.run_files import read_run
from tests.support.indexes.small_corpus import CORPUS, NARRATIVES, write_topics
from tests.support.models.checkpoints import write_checkpoint
from tests.support.models.plain_model import say
from tests.support.runs.command_line import keystone
from tests.support.runs.model_runs import kill_run, read_run_content
from tests.support.servers import chat
from tests.support.servers.rerank import Server, count_shared_letters, serving, status

pytestmark = pytest.mark.slow

DEPTH = 6


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


def list_settings(index: Index, folder: Path, root: str, *changes: str) -> list[str]:
    rerank = f"rerank={{method: endpoint, depth: {DEPTH}, endpoint: {{url: '{root}/v1', name: letters}}}}"
    places = [f"index={index.folder}", f"topics={write_topics(folder / 'topics.jsonl')}", f"out={folder / 'out'}"]
    return ["run_id=reranked", *places, rerank, "fusion.depth=9", "answer.documents=9", *changes]


def read_ranking(path: Path) -> dict[str, list[str]]:
    found = read_run(path)
    return {
        topic: found.docs.decode_ids()[found.offsets[i] : found.offsets[i + 1]]
        for i, topic in enumerate(found.query_ids)
    }


def test_the_first_documents_are_ordered_by_the_reranker_and_the_others_follow(
    index: Index, tmp_path: Path, server: Server
) -> None:
    config = read_config(None, list_settings(index, tmp_path, server.root))
    directory = run(config, threads=2)
    before, after = read_ranking(directory / NARRATIVE), read_ranking(directory / RERANKED)
    for topic, documents in before.items():
        shares = {name: count_shared_letters(NARRATIVES[topic], "\n".join(CORPUS[name])) for name in documents[:DEPTH]}
        assert after[topic] == sorted(documents[:DEPTH], key=lambda name: -shares[name]) + documents[DEPTH:]
    assert after != before
    assert "method endpoint" in describe_settings(config)
    assert server.root not in describe_settings(config)
    submitted = read_ranking(directory / TRACKS["rag25"].retrieval_file)
    assert {topic: [name.partition("#")[0] for name in own] for topic, own in submitted.items()} == after
    records = [orjson.loads(line) for line in (directory / RERANKS).read_bytes().splitlines()]
    assert records == [{"topic_id": topic, "documents": DEPTH, "fallbacks": []} for topic in NARRATIVES]


def test_scores_that_hardly_differ_for_lack_of_a_template_are_told_once_and_recorded(
    index: Index, tmp_path: Path
) -> None:
    def flatten(handler: Any, right: Any) -> bool:
        items = [item | {"relevance_score": item["relevance_score"] / 20} for item in right["results"]]
        handler.reply({"results": items})
        return True

    with serving(always=flatten) as server:
        changes = list_settings(index, tmp_path, server.root, "rerank.endpoint.name=Qwen/Qwen3-Reranker-0.6B")
        options = [part for one in changes for part in ("--set", one)]
        shown, again = keystone("run", *options), keystone("run", *options)
    assert (shown.returncode, shown.stderr.count("seems to lack the template of this model")) == (0, 1), shown.stderr
    assert again.stderr.count("seems to lack the template of this model") == 1
    manifest = orjson.loads((tmp_path / "out/reranked/manifest.json").read_bytes())
    assert "Qwen3-Reranker-0.6B: found the score" in manifest["reranker_warning"]


def test_a_run_without_a_reranker_has_no_files_of_it(index: Index, tmp_path: Path) -> None:
    directory = run(read_config(None, list_settings(index, tmp_path, "http://localhost:1", "rerank.method=none")))
    assert not {RERANKED, RERANKS} & {path.name for path in directory.iterdir()}


def test_a_reranker_after_grades_follows_fusion_if_nothing_is_graded(
    index: Index, tmp_path: Path, server: Server
) -> None:
    rankings = []
    for after in ("fusion", "grades"):
        settings = list_settings(index, tmp_path, server.root, f"rerank.after={after}", f"run_id={after}")
        rankings.append(read_ranking(run(read_config(None, settings), threads=2) / RERANKED))
    assert rankings[0] == rankings[1]


def test_the_first_documents_of_the_reranked_ranking_are_graded(index: Index, tmp_path: Path, server: Server) -> None:
    with chat.serving(model=say) as model:
        settings = ["grading={method: grid, pool: 2}", f"model={{name: plain, urls: ['{model.url}'], window: 4096}}"]
        graded = {}
        for method in ("none", "endpoint"):
            changed = [*settings, f"rerank.method={method}", f"run_id={method}"]
            directory = run(read_config(None, list_settings(index, tmp_path, server.root, *changed)))
            lines = (directory / "grades.jsonl").read_bytes().splitlines()
            graded[method] = {one["topic_id"]: one["documents"] for one in map(orjson.loads, lines)}
    after = read_ranking(directory / RERANKED)
    for topic, documents in graded["endpoint"].items():
        assert documents == after[topic][: len(graded["none"][topic])]
    assert graded["endpoint"] != graded["none"]
    assert read_ranking(directory / KEYSTONE)


def test_the_graded_ranking_is_ranked_again_and_the_answer_reads_what_grades_select(
    index: Index, tmp_path: Path, server: Server
) -> None:
    with chat.serving(model=say) as model:
        plain = f"model={{name: plain, urls: ['{model.url}'], window: 4096}}"
        settings = [plain, "grading={method: grid, pool: 1, documents: 2, select: coverage}", "answer.documents=2"]
        made, answered = dict[str, Path](), dict[str, Any]()
        for after in ("nothing", "grades"):
            rerank = "rerank.method=none" if after == "nothing" else f"rerank.after={after}"
            config = read_config(
                None, list_settings(index, tmp_path, server.root, *settings, rerank, f"run_id={after}")
            )
            made[after] = run(config, threads=2)
            answered[after] = api.answer(index, api.read_topics(tmp_path / "topics.jsonl"), config)
    directory, before = made["grades"], read_ranking(made["nothing"] / KEYSTONE)
    assert read_ranking(directory / GRADED) == before
    assert not (directory / RERANKED).exists()
    last = read_ranking(find_last_ranking(directory))
    for topic, documents in before.items():
        shares = {name: count_shared_letters(NARRATIVES[topic], "\n".join(CORPUS[name])) for name in documents[:DEPTH]}
        assert last[topic] == sorted(documents[:DEPTH], key=lambda name: -shares[name]) + documents[DEPTH:]
    assert last != before
    submitted = read_ranking(directory / TRACKS["rag25"].retrieval_file)
    assert {topic: [name.partition("#")[0] for name in own] for topic, own in submitted.items()} == last
    for name in (KEYSTONE, TRACKS["rag25"].retrieval_file):
        assert find_shaping_grades(directory / name, directory / QRELS) == directory / QRELS
    for name in ("grades.jsonl", "evidence.jsonl", "answers.jsonl"):
        assert (directory / name).read_bytes() == (made["nothing"] / name).read_bytes(), name
    assert answered["grades"] == answered["nothing"]


def test_a_free_answer_reads_the_first_documents_of_the_last_ranking_whichever_way_it_is_made(
    index: Index, tmp_path: Path, server: Server
) -> None:
    with chat.serving(model=say) as model:
        settings = [f"model={{name: plain, urls: ['{model.url}'], window: 4096}}", "rerank.after=grades"]
        settings += ["grading={method: grid, pool: 1, documents: 2}", "answer={method: whole, documents: 2}"]
        config = read_config(None, list_settings(index, tmp_path, server.root, *settings))
        directory = run(config, threads=2)
        found = api.answer(index, api.read_topics(tmp_path / "topics.jsonl"), config)
        answer_to_file(config, tmp_path / "answers.jsonl")
    ranking = read_ranking(find_last_ranking(directory))
    evidence = [orjson.loads(line) for line in (directory / "evidence.jsonl").read_bytes().splitlines()]
    added = {one["topic_id"]: one.get("added", []) for one in evidence}
    shown = {one["topic_id"]: [item["span"]["doc_id"] for item in one["items"]] for one in evidence}
    assert shown == {topic: [*documents[:2], *added[topic]] for topic, documents in ranking.items()}
    assert ranking != read_ranking(directory / GRADED)
    answers = [orjson.loads(line) for line in (directory / "answers.jsonl").read_bytes().splitlines()]
    made = {one["topic_id"]: [(s["text"], s["citations"]) for s in one["sentences"]] for one in answers}
    assert {one.topic_id: [(s.text, list(s.citations)) for s in one.sentences] for one in found} == made
    assert "answer" not in {fallback.step for one in found for fallback in one.fallbacks}
    records = map(orjson.loads, (tmp_path / "answers.jsonl").read_bytes().splitlines())
    texts = {one["metadata"]["narrative_id"]: [s["text"] for s in one["answer"]] for one in records}
    assert texts == {topic: [text for text, _ in sentences] for topic, sentences in made.items()}


def test_run_answer_and_the_python_api_answer_from_the_same_ranking(
    index: Index, tmp_path: Path, server: Server
) -> None:
    settings = list_settings(index, tmp_path, server.root, "answer.documents=2")
    config = read_config(None, settings)
    directory = run(config, threads=2)
    answers = [orjson.loads(line) for line in (directory / "answers.jsonl").read_bytes().splitlines()]
    cited = [[list(sentence["citations"]) for sentence in one["sentences"]] for one in answers]
    found = api.answer(index, api.read_topics(tmp_path / "topics.jsonl"), config)
    assert [[list(sentence.citations) for sentence in one.sentences] for one in found] == cited
    answer_to_file(config, tmp_path / "answers.jsonl")
    records = map(orjson.loads, (tmp_path / "answers.jsonl").read_bytes().splitlines())
    made = {record["metadata"]["narrative_id"]: record["answer"] for record in records}
    lines = (directory / TRACKS["rag25"].answer_file).read_bytes().splitlines()
    assert made == {one["metadata"]["narrative_id"]: one["answer"] for one in map(orjson.loads, lines)}


def test_a_killed_run_ends_with_the_same_bytes_and_keeps_scores_that_came(index: Index, tmp_path: Path) -> None:
    def slowly(_handler: Any, _right: Any) -> bool:
        time.sleep(0.3)
        return False

    with serving(always=slowly) as slow:
        options = [part for setting in list_settings(index, tmp_path, slow.root) for part in ("--set", setting)]
        kill_run(tmp_path / "out/reranked", "run", "--quiet", *options, times=8, kills=4)


@pytest.mark.nightly
def test_a_killed_run_that_ranks_and_grades_deeper_by_the_model_ends_with_the_same_bytes(
    index: Index, tmp_path: Path
) -> None:
    with chat.serving(model=say, latency=0.05) as model:
        by_model = ["rerank.method=listwise", "rerank.block=4", "rerank.stride=2"]
        by_model.append("grading={method: grid, pool: 1, deeper: 5, neighbours: 2, narrative: true, documents: 9}")
        by_model.append(f"model={{name: plain, urls: ['{model.url}'], window: 4096, concurrency: 2}}")
        settings = list_settings(index, tmp_path, "http://localhost:1", *by_model)
        options = [part for setting in settings for part in ("--set", setting)]
        kill_run(tmp_path / "out/reranked", "run", "--quiet", *options, times=6, kills=3)


@pytest.mark.parametrize("method", ["listwise", "sliding"])
def test_a_run_ranked_by_the_language_model_asks_nothing_twice(method: str, index: Index, tmp_path: Path) -> None:
    with chat.serving(model=say) as model:
        by_model = [f"rerank.method={method}", "rerank.block=4", "rerank.stride=2"]
        by_model.append(f"model={{name: plain, urls: ['{model.url}'], window: 4096}}")
        settings = list_settings(index, tmp_path, "http://localhost:1", *by_model)
        directory = run(read_config(None, settings), threads=2)
        asked = len(model.requests)
        assert asked == len(NARRATIVES) * (3 if method == "listwise" else 2)
        before = read_run_content(directory)
        shutil.rmtree(directory)
        assert read_run_content(run(read_config(None, settings), threads=2)) == before
        assert len(model.requests) == asked
    assert read_ranking(directory / RERANKED) != read_ranking(directory / NARRATIVE)


def test_replies_without_a_ranking_leave_the_order_and_are_in_the_manifest(index: Index, tmp_path: Path) -> None:
    with chat.serving(model=lambda _body: "I would rather not.") as model:
        by_model = ["rerank.method=listwise", f"model={{name: plain, urls: ['{model.url}'], window: 4096}}"]
        directory = run(read_config(None, list_settings(index, tmp_path, "http://localhost:1", *by_model)))
    assert read_ranking(directory / RERANKED) == read_ranking(directory / NARRATIVE)
    fallbacks = orjson.loads((directory / MANIFEST).read_bytes())["fallbacks"]
    assert [(one["topic_id"], one["step"]) for one in fallbacks] == [(topic, "rerank") for topic in NARRATIVES]


def test_a_checkpoint_that_was_trained_again_ranks_again(index: Index, tmp_path: Path) -> None:
    model, ranked_again = tmp_path / "model", list[bool]()

    def note(stage: Stage, kept: bool) -> None:
        ranked_again.extend([not kept] if stage.name == "rerank" else [])

    settings = [f"rerank.{one}" for one in ("method=model", "endpoint=null", f"model={model}")]
    for seed in (5, 5, 3):
        write_checkpoint(model, head="labels", seed=seed)
        run(read_config(None, list_settings(index, tmp_path, "http://localhost:1", *settings)), announce=note)
    assert ranked_again == [True, False, True]


def test_a_run_that_is_made_again_asks_for_no_score_twice(index: Index, tmp_path: Path) -> None:
    with serving() as server:
        for run_id in ("one", "two"):
            run(read_config(None, [*list_settings(index, tmp_path, server.root), f"run_id={run_id}"]))
        asked = Counter((body["query"], text) for _, body in server.requests for text in body["documents"])
    assert set(asked.values()) == {1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["rerank.endpoint=null"], "rerank.method: found 'endpoint' without a server; expected its url and name"),
        (["rerank.method=sliding", "rerank.stride=20"], "rerank.stride: found 20, expected below block, which is 20"),
        (["rerank.endpoint.url=nowhere"], "'nowhere': not the URL of a server"),
    ],
)
def test_impossible_settings_are_user_errors(index: Index, tmp_path: Path, changes: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        run(read_config(None, list_settings(index, tmp_path, "http://localhost:1", *changes)))


def test_a_server_with_a_wrong_path_is_a_user_error(index: Index, tmp_path: Path) -> None:
    with (
        serving(always=status(404)) as lost,
        pytest.raises(UserError, match=r"/v1: letters: HTTP 404"),
    ):
        run(read_config(None, list_settings(index, tmp_path, lost.root)))
