"""Runs with a language model behind a real endpoint: every preset, recorded replies, and faults."""

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from keystone.generation.context.texts import count_tokens
from keystone.generation.llm.replay import record_replies
from keystone.generation.llm.settings import REPLIES_FILE
from keystone.generation.prompts.grading import UMBRELA_GRID
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.index import Index
from keystone.runs.config.read import PRESETS, read_config
from keystone.runs.evaluation.measures import parse_measure
from keystone.runs.evaluation.sweep import measure_rankings, read_usage_cost, sweep
from keystone.runs.pipeline.file_names import COSTS_FILE, USAGE_FILE
from keystone.runs.pipeline.run import run
from keystone.runs.track_rules import TRACKS
from keystone.runs.tracks.validate import validate
from keystone.runs.trec.run_files import read_qrels, read_run
from keystone.runs.trec.topics import read_topics
from tests.support import programs
from tests.support.indexes.preset_sets import settle_preset_sets
from tests.support.indexes.small_corpus import CORPUS, NARRATIVES, TRIAL_WARNINGS, write_corpus, write_topics
from tests.support.models.reading_model import say
from tests.support.runs.command_line import keystone, keystone_here
from tests.support.runs.model_runs import answer_command, check_submissions, list_submissions, read_run_content
from tests.support.servers.chat import Server, serving

pytestmark = pytest.mark.slow

MEASURES = [parse_measure("nDCG@5")]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(model=say) as found:
        yield found


@pytest.fixture(scope="module")
def index_of_sets(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """An index with the sets of vectors and of impacts that presets name, by small models."""
    folder = tmp_path_factory.mktemp("sets")
    settings = settle_preset_sets(folder / "models")
    return build_index(write_corpus(folder / "corpus.jsonl"), folder / "index", settings)[0]


def make(preset: str, index: Index, folder: Path, server: Server, *changes: str) -> Path:
    """Make a run of a preset in a folder, in this process."""
    topics = write_topics(folder / "topics.jsonl")
    settings = [
        f"index={index.folder}",
        f"topics={topics}",
        f"out={folder / 'out'}",
        f"model={{name: plain, urls: ['{server.url}'], window: 4096}}",
        *changes,
    ]
    return run(read_config(None, settings, preset), threads=2)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_valid_and_the_same_from_recorded_replies(
    preset: str, index_of_sets: Index, tmp_path: Path, server: Server
) -> None:
    directory = make(preset, index_of_sets, tmp_path, server)
    topics = read_topics(tmp_path / "topics.jsonl")
    assert list_submissions(directory)
    check_submissions(directory, topics)
    replies = tmp_path / "replies.jsonl"
    made = record_replies(tmp_path / "out" / REPLIES_FILE, replies) if (tmp_path / "out" / REPLIES_FILE).exists() else 0
    if made:
        asked = len(server.requests)
        (tmp_path / "again").mkdir()
        again = make(
            preset, index_of_sets, tmp_path / "again", server, "model.backend=replay", f"model.replies={replies}"
        )
        assert read_run_content(again) == read_run_content(directory)
        assert len(server.requests) == asked


def test_the_cost_of_calls_is_reported_and_a_repeated_run_makes_none(
    index: Index, tmp_path: Path, server: Server
) -> None:
    prices = "model.prices={prompt: 500000, cached: 0, completion: 1000000}"
    directory = make("uema21lab_B4", index, tmp_path, server, prices)
    told = orjson.loads((directory / USAGE_FILE).read_bytes())
    total = told["purposes"].pop("total")
    assert set(told["purposes"]) == {"decompose", "topic", "expand", "umbrela", "answer"}
    assert total["calls"] == sum(row["calls"] for row in told["purposes"].values())
    assert total["cost"] == total["calls"] * (10 - 4 + 2 * 3) / 2
    before, asked = (read_run_content(directory), (directory / USAGE_FILE).read_bytes()), len(server.requests)
    assert make("uema21lab_B4", index, tmp_path, server, prices) == directory
    assert (read_run_content(directory), (directory / USAGE_FILE).read_bytes()) == before
    shutil.rmtree(directory)
    make("uema21lab_B4", index, tmp_path, server, prices)
    assert read_run_content(directory) == before[0]
    assert len(server.requests) == asked


def test_a_sweep_shares_calls_and_shows_the_cost_of_each_run_alone(
    index: Index, tmp_path: Path, server: Server
) -> None:
    (tmp_path / "qrels.txt").write_text("1 0 bees 2\n2 0 volcano 2\n")
    topics = write_topics(tmp_path / "topics.jsonl")
    overrides = [f"topics={topics}", f"index={index.folder}", f"model={{name: plain, urls: ['{server.url}']}}"]
    (tmp_path / "run.yaml").write_text("run_id: r\ntrack: none\nqueries: {method: model}\ngrading: {method: grid}\n")
    config, asked = tmp_path / "run.yaml", len(server.requests)
    tries, measure = ["grading.select=[parasol, coverage]"], measure_rankings(tmp_path / "qrels.txt", MEASURES)
    found = sweep(config, [*overrides, f"out={tmp_path}"], tries, measure, folds=2, threads=2)
    shared = len(server.requests) - asked
    calls = [point.cost.calls for point in found.points.values()]
    for number, (setting, own) in enumerate(zip(found.points, calls, strict=True)):
        alone = run(read_config(config, [*overrides, *setting, f"out={tmp_path / str(number)}"]))
        assert read_usage_cost(alone).calls == own
    assert shared < sum(calls)


def test_the_manifest_records_a_model_that_gives_nothing_and_the_run_is_valid(index: Index, tmp_path: Path) -> None:
    with serving(model=lambda _body: "I would rather not.") as silent:
        directory = make("uema21lab_B4", index, tmp_path, silent)
        manifest = orjson.loads((directory / "manifest.json").read_bytes())
        steps = [fallback["step"] for fallback in manifest["fallbacks"] if fallback["topic_id"] == "1"]
        assert {"decompose", "topic", "expand", "umbrela", "answer"} <= set(steps)
        assert b" " not in (directory / "grades.qrels").read_bytes(), "a failed grade is absent"
    topics = read_topics(tmp_path / "topics.jsonl")
    check_submissions(directory, topics)


@pytest.mark.parametrize("stop", range(16))
def test_a_run_that_spends_its_budget_is_valid_wherever_it_stops(
    index: Index, tmp_path: Path, server: Server, stop: int
) -> None:
    """Without a budget the run makes more calls than the largest one here."""
    asked = len(server.requests)
    changes = ("queries.passages=hyde", "grading.rounds=1", "grading.pool=1")
    directory = make("keystone", index, tmp_path, server, *changes, f"model.budget={{calls: {stop}}}")
    assert len(server.requests) - asked == stop
    topics = read_topics(tmp_path / "topics.jsonl")
    check_submissions(directory, topics)
    reasons = [one["reason"] for one in orjson.loads((directory / "manifest.json").read_bytes())["fallbacks"]]
    assert any("the budget is spent" in reason for reason in reasons)
    shutil.rmtree(directory)
    make("keystone", index, tmp_path, server, *changes, f"model.budget={{calls: {stop}}}")
    assert len(server.requests) - asked <= 2 * stop, "a new directory has a new budget"


def test_a_budget_pays_for_the_first_documents_of_every_topic_before_any_further_one(
    index: Index, tmp_path: Path, server: Server
) -> None:
    changes = ("grading.pool=8", "grading.deeper=0", "answer.method=rules")
    start = len(server.requests)
    (tmp_path / "free").mkdir()
    free = make("keystone", index, tmp_path / "free", server, *changes)
    middle = len(server.requests)
    paid = make("keystone", index, tmp_path, server, *changes, "model.budget={calls: 1000}")
    assert read_run_content(paid).keys() - read_run_content(free).keys() == {COSTS_FILE}
    assert all((paid / name).read_bytes() == content for name, content in read_run_content(free).items())
    assert len(server.requests) - middle == middle - start, "no document costs twice"
    manifests = [orjson.loads((made / "manifest.json").read_bytes()) for made in (free, paid)]
    steps = [manifest["artifacts"]["grades.jsonl"]["steps"] for manifest in manifests]
    assert steps[0] == steps[1], "and none counts twice"
    messages = [body["messages"] for body in server.requests[middle:]]
    graded = [
        user["content"].rsplit("Queries:") for system, user, *_ in messages if system["content"] == UMBRELA_GRID.system
    ]
    topics = [orjson.loads(line) for line in (paid / "grades.jsonl").read_bytes().splitlines()]
    for topic, word in zip(topics, ("bees", "volcano"), strict=True):
        texts = list(dict.fromkeys(CORPUS[doc_id][1] for doc_id in topic["documents"]))
        own = {
            text: place
            for place, (passage, queries) in enumerate(graded)
            for text in texts
            if word in queries and text in passage
        }
        assert len(own) == len(texts) > 6
        assert all(own[text] < 10 for text in texts[:4]), "four texts, because the twins have one"


def test_a_budget_that_cannot_pay_all_grades_pays_for_the_reranker_after_them(
    index: Index, tmp_path: Path, server: Server
) -> None:
    changes = ("queries.method=rules", "queries.passages=none", "grading.pool=8", "answer.method=none")
    start = len(server.requests)
    make("keystone", index, tmp_path, server, *changes, "model.budget={calls: 9}")
    asked = [body["messages"][0]["content"] for body in server.requests[start:]]
    assert asked.count(UMBRELA_GRID.system) == 6, "two thirds of the budget"
    assert len(asked) == 6 + len(NARRATIVES)


@pytest.mark.parametrize("method", ["rules", "model", "narrative"])
def test_passages_add_rankings_for_every_query_and_weigh_as_configured(
    method: str, index: Index, tmp_path: Path, server: Server
) -> None:
    expand = "queries.expand=narrative"
    settings = [
        f"queries.method={method}",
        expand,
        "queries.passages=both",
        "answer.method=none",
        "grading.method=none",
        "rerank.method=none",
    ]
    directory = make("keystone", index, tmp_path, server, *settings)
    topics = [orjson.loads(line) for line in (directory / "queries.jsonl").read_bytes().splitlines()]
    queries = [query for topic in topics for query in topic["queries"]]
    assert all(query["passage"].endswith(query["question"][-9:]) or "#" not in query["id"] for query in queries)
    systems = ("bm25", "dense", "hyde", "query2doc")
    found = {system: read_run(directory / f"{system}.trec") for system in systems}
    assert all(found["hyde"].list_hits()[query["id"]] for query in queries)
    hybrid = (directory / "hybrid.trec").read_bytes()
    assert hybrid != (make("keystone", index, tmp_path, server, *settings, "queries.passage_weight=9")
                      / "hybrid.trec").read_bytes()  # fmt: skip
    sparse = make("keystone", index, tmp_path, server, *settings, "retrieval.systems=[bm25]")
    assert [path.name for path in sorted(sparse.glob("*.trec"))] == [
        "bm25.trec", "hybrid.trec", "narrative.trec", "query2doc.trec"]  # fmt: skip
    plain = make("keystone", index, tmp_path, server, *settings, "queries.passages=none")
    assert b'"passage"' not in (plain / "queries.jsonl").read_bytes()
    assert not (plain / "hyde.trec").exists()


@pytest.mark.parametrize("preset", ["keystone", "uema21lab_B4"])
def test_our_own_ranking_as_the_only_given_run_has_the_same_grades_and_answers(
    preset: str, index: Index, tmp_path: Path, server: Server
) -> None:
    settings = ("queries.method=narrative", "queries.narrative_weight=1", "grading.method=pointwise", "run_id=small")
    made = make(preset, index, tmp_path, server, *settings)
    ranking = made / "narrative.trec"
    given = ("retrieval.systems=[]", f"retrieval.runs=[{ranking}]", f"out={tmp_path / 'again'}")
    again = make(preset, index, tmp_path, server, *settings, *given)
    for name in ("narrative.trec", "keystone.trec"):  # of a given run only the order counts
        first, second = ((folder / name).read_text().splitlines() for folder in (again, made))
        assert [line.split()[:4] for line in first] == [line.split()[:4] for line in second], name
    for name in ("grades.jsonl", "evidence.jsonl", "answers.jsonl"):
        assert (again / name).read_bytes() == (made / name).read_bytes(), name


@pytest.mark.parametrize("preset", ["keystone", "uema21lab_base"])
def test_narratives_ranked_by_another_system_are_graded_and_answered_for_each_query(
    preset: str, index: Index, tmp_path: Path, server: Server
) -> None:
    theirs = tmp_path / "theirs.trec"
    theirs.write_text("".join(f"{topic} Q0 {name} 1 1 theirs\n" for topic in "12" for name in ("bees", "volcano")))
    given = (
        "queries.narrative_weight=1",
        "retrieval.systems=[]",
        f"retrieval.runs=[{theirs}]",
        "queries.passages=none",
    )
    directory = make(preset, index, tmp_path, server, *given)
    for line in (directory / "answers.jsonl").read_bytes().splitlines():
        assert orjson.loads(line)["sentences"]
    if (directory / "grades.jsonl").exists():
        for line in (directory / "grades.jsonl").read_bytes().splitlines():
            assert set(orjson.loads(line)["documents"]) == {"bees", "volcano"}


@pytest.mark.parametrize("select", ["parasol", "coverage"])
@pytest.mark.parametrize("method", ["pointwise", "grid"])
def test_bounds_and_grids_select_the_same_documents_as_all_grades(
    index: Index, tmp_path: Path, server: Server, method: str, select: str
) -> None:
    def graded(folder: str, *changes: str) -> dict[str, Any]:
        (tmp_path / folder).mkdir()
        settings = (f"grading.select={select}", "grading.documents=2", "answer.documents=2", *changes)
        directory = make("uema21lab_B4", index, tmp_path / folder, server, *settings)
        first: dict[str, Any] = orjson.loads((directory / "grades.jsonl").read_bytes().splitlines()[0])
        return first

    every = graded("all", "grading.bounds=false")
    some = graded("some", f"grading.method={method}")
    assert (some["selected"], some["scores"]) == (every["selected"], every["scores"])
    assert every["asked"] == every["pairs"] >= some["asked"]


def test_grades_are_qrels_for_queries_and_narratives(index: Index, tmp_path: Path, server: Server) -> None:
    directory = make("uema21lab_B4", index, tmp_path, server, "grading.bounds=false")
    qrels = read_qrels(directory / "grades.qrels")
    grades = orjson.loads((directory / "grades.jsonl").read_bytes().splitlines()[0])
    rows = [dict(zip(grades["documents"], map(int, row), strict=True)) for row in grades["grades"]]
    found = make_qrels(directory / "grades.qrels")
    assert [found[query] for query in grades["queries"]] == rows
    assert found["1"] == {doc_id: max(row[doc_id] for row in rows) for doc_id in grades["documents"]}
    assert set(qrels.query_ids) == set(found)


def make_qrels(path: Path) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for line in path.read_text().splitlines():
        query, graded_by, doc_id, grade = line.split(" ")
        assert graded_by == "plain"
        found.setdefault(query, {})[doc_id] = int(grade)
    return found


def test_answers_come_through_a_pipe_and_continue_an_unfinished_file(
    index: Index, tmp_path: Path, server: Server
) -> None:
    topics, out = write_topics(tmp_path / "topics.jsonl"), tmp_path / "answers.jsonl"
    here = answer_command(index, tmp_path, server)
    piped = programs.run(
        [sys.executable, "-m", "keystone.runs.cli.main", *here],
        input=topics.read_bytes(),
        capture_output=True,
        check=True,
    )
    lines = sorted(piped.stdout.splitlines(keepends=True))
    assert [orjson.loads(line)["metadata"]["narrative_id"] for line in lines] == ["1", "2"]
    assert all(orjson.loads(line)["answer"] for line in lines)
    out.write_bytes(lines[1] + lines[0][:99])
    asked = len(server.requests)
    shown = keystone(*here, "--topics", topics, "--out", out)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert out.read_bytes() == lines[1] + lines[0]
    assert len(server.requests) == asked
    assert {v.kind for v in validate(out, TRACKS["rag25"], read_topics(topics))} <= TRIAL_WARNINGS


def test_a_batch_run_ends_with_code_3_until_its_replies_exist(index: Index, tmp_path: Path, server: Server) -> None:
    """A loop over the lines answers the files here, in the form of a batch service."""
    write_topics(tmp_path / "topics.jsonl")
    waits = [*answer_command(index, tmp_path, server, "run"), "--set", "model.backend=batch"]
    rounds = 0
    while (shown := keystone(*waits)).returncode == 3:
        rounds += 1
        assert rounds < 10, shown.stderr
        for requests in (tmp_path / "out/batch").glob("*.requests.jsonl"):
            replies = requests.with_name(requests.name.replace(".requests.", ".replies."))
            assert replies.name in shown.stderr or replies.exists()
            if not replies.exists():
                asked = map(orjson.loads, requests.read_bytes().splitlines())
                replies.write_bytes(b"".join(map(answered, asked)))
    assert shown.returncode == 0
    assert re.fullmatch(r"\S+\.replies\.jsonl: 2 replies are taken\n", shown.stderr)
    assert keystone(*waits).stderr == "", "they are told of once"
    assert rounds == 8, "contract, passages, grades, order, check, answers, mended wording, support"
    plain = tmp_path / "plain"
    plain.mkdir()
    assert read_run_content(tmp_path / "out/keystone") == read_run_content(make("keystone", index, plain, server))


def answered(line: dict[str, Any]) -> bytes:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": say(line["body"])}}
    body = {"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
    return orjson.dumps({"custom_id": line["custom_id"], "response": {"status_code": 200, "body": body}}) + b"\n"


@pytest.mark.parametrize("preset", ["uema21lab_B4", "uema21lab_base", "keystone"])
def test_a_narrative_that_finds_nothing_has_an_empty_answer(
    preset: str, index: Index, tmp_path: Path, server: Server
) -> None:
    topics = tmp_path / "topics.jsonl"
    topics.write_text('{"id": "1", "title": "Zyzzyva qwxyz?"}\n{"id": "2", "title": "Tell me about bees and wasps."}\n')
    model = f"model={{name: plain, urls: ['{server.url}'], window: 4096}}"
    where = [f"index={index.folder}", f"topics={topics}", f"out={tmp_path / 'out'}", "retrieval.systems=[bm25]"]
    directory = run(read_config(None, [model, *where, "queries.variants=0", "queries.topic=none"], preset))
    answers = [orjson.loads(line) for line in (directory / "answers.jsonl").read_bytes().splitlines()]
    assert [bool(answer["sentences"]) for answer in answers] == [False, True]


def test_a_track_without_fixed_depth_gets_the_covering_set_alone(index: Index, tmp_path: Path, server: Server) -> None:
    directory = make("keystone", index, tmp_path, server, "track=rag26", "grading.cap=3", "rerank.method=none")
    grades = [orjson.loads(line) for line in (directory / "grades.jsonl").read_bytes().splitlines()]
    ranked = read_run(directory / TRACKS["rag26"].retrieval_file).list_hits()
    assert {topic: [doc_id for doc_id, _ in hits] for topic, hits in ranked.items()} == {
        one["topic_id"]: one["selected"] for one in grades
    }
    assert [len(hits) for hits in ranked.values()] == [2, 2], "as many as it takes to cover the queries"


def test_the_user_is_told_of_saved_grades_and_of_fallbacks(index: Index, tmp_path: Path, server: Server) -> None:
    write_topics(tmp_path / "topics.jsonl")
    arguments = [part for part in answer_command(index, tmp_path, server, "run") if part != "--quiet"]
    shown = keystone(*arguments, "--set", "grading.select=parasol", "--set", "grading.documents=2",
                     "--set", "answer.documents=2", "--set", "queries.method=model",
                     "--set", "queries.variants=30")  # fmt: skip
    assert shown.returncode == 0
    assert re.search(r"grades: \d+ of 27 pairs asked, \d+% saved\n", shown.stderr)
    assert re.search(r"fallbacks: \d+ \(expand 2(?:, mend \d+)?\), listed in .*/manifest.json\n", shown.stderr)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        pytest.param(b'{"a": 1}', ":1: found no answer that Keystone wrote", id="JSON without an end"),
        pytest.param(b'{"a": 1}\n', ":1: found no answer of run 'keystone' for rag25", id="JSON"),
        pytest.param(b"my notes\nmore", ":1: found no answer of run", id="notes"),
        pytest.param(b'{"metadata": {"run_id": "other"}}\n', ":1: found no answer of run", id="another run"),
    ],
)
def test_a_file_that_is_not_ours_is_not_touched(
    index: Index, tmp_path: Path, server: Server, content: bytes, told: str
) -> None:
    topics, out = write_topics(tmp_path / "topics.jsonl"), tmp_path / "answers.jsonl"
    out.write_bytes(content)
    here = [*answer_command(index, tmp_path, server), "--topics", str(topics)]
    shown = keystone_here(*here, "--out", out)
    assert shown.returncode == 1
    assert shown.stderr.startswith(f"error: {out}{told}")
    assert out.read_bytes() == content
    for where in (tmp_path / "none/a.jsonl", tmp_path, tmp_path / "a.jsonl.gz"):
        assert re.match(rf"error: (--out )?{where}: ", keystone_here(*here, "--out", where).stderr)


def test_the_documents_of_a_prompt_fit_half_of_the_window(tmp_path: Path, server: Server) -> None:
    """Twenty documents have one long segment each, and the model has a small window."""
    corpus = tmp_path / "corpus.jsonl"
    text = " ".join(["The bees fly around the old garden wall again and again until the evening comes."] * 10)
    corpus.write_text("".join(json.dumps({"id": f"d{n}", "text": f"{text} Number {n}."}) + "\n" for n in range(20)))
    long = build_index(corpus, tmp_path / "long")[0]
    directory = make("uema21lab_B4", long, tmp_path, server, "answer.words=60", "grading.documents=20")
    shown = [orjson.loads(line) for line in (directory / "evidence.jsonl").read_bytes().splitlines()]
    assert [one["topic_id"] for one in shown] == ["1", "2"]
    for one in shown:
        own = [item["text"] for item in one["items"]]
        assert len(own) == 20
        assert 1000 < sum(map(count_tokens, own)) <= 4096 // 2


def test_stages_that_do_not_ask_the_model_are_kept_when_it_changes(
    index: Index, tmp_path: Path, server: Server
) -> None:
    write_topics(tmp_path / "topics.jsonl")
    arguments = [part for part in answer_command(index, tmp_path, server, "run") if part != "--quiet"]
    rules = [*arguments, "--set", "queries.method=rules", "--set", "queries.passages=none"]
    rules += ["--set", "answer.method=rules"]
    assert keystone(*rules).returncode == 0
    shown = keystone(*rules, "--set", "model.extra={seed: 1}")
    assert "; kept queries, search, hybrid, narrative\n" in shown.stderr


def test_a_price_for_cached_tokens_is_optional(index: Index, tmp_path: Path, server: Server) -> None:
    directory = make("uema21lab_base", index, tmp_path, server, "model.prices={prompt: 1000000, completion: 0}")
    total = orjson.loads((directory / USAGE_FILE).read_bytes())["purposes"]["total"]
    assert total["cost"] == 10 * total["calls"]


def test_long_candidates_are_summarised_before_they_are_embedded(tmp_path: Path, server: Server) -> None:
    """In the paper's pool, the run embeds the documents that BM25 finds, and the summaries of long ones."""
    corpus = tmp_path / "corpus.jsonl"
    long = "Honey bees dance for flowers. " * 1_200
    short = "A volcano erupts, and the weather of the planet changes."
    corpus.write_text("".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in (("bees", long), ("volcano", short))))
    pooled = build_index(corpus, tmp_path / "pooled", BuildSettings(faiss=None))[0]
    directory = make("uema2lab_rrf", pooled, tmp_path, server)
    (summary,) = map(orjson.loads, (directory / "summaries.jsonl").read_bytes().splitlines())
    assert (summary["doc_id"], summary["fallbacks"]) == ("bees", [])
    assert count_tokens(summary["summary"]) <= 8_000
    assert {doc_id for hits in read_run(directory / "dense.trec").list_hits().values() for doc_id, _ in hits} == {
        "bees",
        "volcano",
    }
