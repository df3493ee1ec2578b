"""Runs of other systems as the first stage of our own."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keystone.indexing.embedder import Effort
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.retrieval.backends import open_store
from keystone.runs.cli.options import check_run_outputs
from keystone.runs.config.read import read_config
from keystone.runs.exchange.bundle.reproduce import reproduce
from keystone.runs.exchange.bundle.write import write_bundle
from keystone.runs.pipeline import run as pipeline
from keystone.runs.pipeline.answering import answer_to_file
from keystone.runs.pipeline.manifest import list_remarks
from keystone.runs.track_rules import TRACKS
from keystone.runs.trec.run_files import read_given_run, read_run
from tests.support.indexes.small_corpus import CORPUS, NARRATIVES, write_topics
from tests.support.runs.model_runs import read_run_content


def write_lists(path: Path, lists: Mapping[str, Sequence[str]], score: float = 100.0) -> Path:
    """Write a run file whose lists have these orders."""
    lines = [f"{topic} Q0 {name} 1 {score - i} theirs\n" for topic, own in lists.items() for i, name in enumerate(own)]
    path.write_text("".join(lines))
    return path


def list_docs(path: Path) -> dict[str, list[str]]:
    return {topic: [name for name, _ in hits] for topic, hits in read_run(path).list_hits().items()}


def run(index: Index, folder: Path, name: str, *settings: str) -> Path:
    places = [f"index={index.folder}", f"topics={write_topics(folder / 'topics.jsonl')}", f"out={folder / 'out'}"]
    return pipeline.run(read_config(None, [f"run_id={name}", "answer.documents=4", *places, *settings]), threads=2)


@settings(max_examples=20, deadline=None)
@given(st.permutations(list(CORPUS)), st.data())
def test_a_list_keeps_its_order_and_segments_count_for_their_documents(
    index: Index, tmp_path_factory: pytest.TempPathFactory, names: list[str], data: st.DataObject
) -> None:
    store = open_store(index)
    ids = [name + data.draw(st.sampled_from(["", "#w0_5", "#2"])) for name in names]
    ids += [f"{name}#9" for name in names[: data.draw(st.integers(0, 4))]]
    lines = [*ids[:3], "unknown", "unknown#1", *ids[3:]]
    path = write_lists(tmp_path_factory.mktemp("given") / "theirs.trec", {"1": lines, "1#2": ids, "other": ids})
    found = read_given_run(path, store, ["1", "2"])
    assert found.docs == {"1": names, "1#2": names}
    assert found.unknown == 2


@pytest.mark.slow
def test_a_run_file_alone_gives_the_ranking_of_narratives_even_from_a_bundle(index: Index, tmp_path: Path) -> None:
    orders = random.Random(7)
    theirs = tmp_path / "theirs.trec"
    for method in ("rrf", "sum"):
        lists = {topic: orders.sample(list(CORPUS), len(CORPUS)) for topic in NARRATIVES}
        write_lists(theirs, {**lists, "other topic": ["bees"]})
        settings = (
            "retrieval.systems=[]",
            f"retrieval.runs=[{theirs}]",
            f"fusion.method={method}",
            "queries.narrative_weight=1",
        )
        directory = run(index, tmp_path, "theirs", *settings)
        assert list_docs(directory / "narrative.trec") == lists
        assert all(orjson.loads(line)["sentences"] for line in (directory / "answers.jsonl").read_bytes().splitlines())
    out = tmp_path / "theirs.zip"
    assert set(write_bundle(directory, out, Effort()).stored) == {"queries", "search"}
    theirs.unlink()
    assert not [one for one in reproduce(out, None, Effort()).remade if one.difference]


@pytest.mark.slow
def test_our_own_ranking_of_narratives_gives_the_same_evidence_and_answers(index: Index, tmp_path: Path) -> None:
    ours = run(index, tmp_path, "ours", "queries.method=narrative")
    ranking = ours / "narrative.trec"
    again = run(
        index, tmp_path, "again", "queries.method=narrative", "retrieval.systems=[]", f"retrieval.runs=[{ranking}]"
    )
    for name in ("evidence.jsonl", "answers.jsonl"):
        assert (again / name).read_bytes() == (ours / name).read_bytes()
    assert list_docs(again / "narrative.trec") == list_docs(ranking)


@pytest.mark.slow
def test_an_agent_searches_the_documents_of_a_run_file_alone(index: Index, tmp_path: Path) -> None:
    theirs = write_lists(tmp_path / "theirs.trec", {topic: ["glacier", "bees"] for topic in NARRATIVES})
    settings = ("queries.method=narrative", "retrieval.systems=[]", f"retrieval.runs=[{theirs}]", "reader.name=agent")
    directory = run(index, tmp_path, "theirs", *settings, "reader.least_cosine=1")
    steps = [orjson.loads(line) for line in (directory / "trace.jsonl").read_bytes().splitlines()]
    searches = [step["observation"] for step in steps if step["action"].startswith("search ")]
    assert len(searches) > len(NARRATIVES), "there is a second round"
    assert all(": 2 documents found" in shown for shown in searches)


@pytest.mark.slow
def test_a_run_file_beside_systems_is_fused_with_them_and_unknown_documents_are_told(
    index: Index, tmp_path: Path
) -> None:
    theirs = write_lists(tmp_path / "theirs.trec", {"1": ["glacier", "unknown", "glacier#w0_5"], "1#1": ["volcano"]})
    given_run = f"retrieval.runs=[{theirs}]"
    directory = run(index, tmp_path, "both", given_run)
    assert list_docs(directory / "given1.trec") == {"1": ["glacier"], "1#1": ["volcano"]}
    plain = list_docs(run(index, tmp_path, "plain") / "hybrid.trec")
    fused = list_docs(directory / "hybrid.trec")
    assert {name for name in plain if plain[name] != fused[name]} == {"1", "1#1"}
    assert orjson.loads((directory / "manifest.json").read_bytes())["runs"][0]["unknown"] == 1
    assert "retrieval.runs: file 1 has 1 line with a document that the index lacks" in list(list_remarks(directory))
    answered, submitted = tmp_path / "answers.jsonl", directory / TRACKS["rag25"].answer_file
    answer_to_file(read_config(directory / "config.yaml"), answered, threads=2)
    assert sorted(answered.read_bytes().splitlines()) == sorted(submitted.read_bytes().splitlines())
    content = read_run_content(directory)
    (directory / "narrative.trec").unlink()
    assert read_run_content(run(index, tmp_path, "both", given_run)) == content


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        pytest.param(["retrieval.runs=[missing.trec]"], "retrieval.runs.0: missing.trec: no such file", id="no file"),
        pytest.param(
            ["retrieval.runs=[other.trec]"], "found '77', expected rankings of the topics, such as '1'", id="topics"
        ),
        pytest.param(["retrieval.runs=[empty.trec]"], "found no line, expected rankings", id="empty"),
        pytest.param(["retrieval.runs=[bad.trec]"], "bad.trec:1", id="no run file"),
        pytest.param(["retrieval.runs=[other.trec]", "queries.narrative_weight=0"], "found a file with", id="weight"),
        pytest.param(["retrieval.systems=[]"], "found [], expected at least 1 system", id="nothing"),
    ],
)
def test_files_that_cannot_be_fused_are_user_errors(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_lists(Path("other.trec"), {"77": ["bees"]})
    Path("empty.trec").write_text("")
    Path("bad.trec").write_text("1 Q0 bees\n")
    with pytest.raises(UserError) as error:
        run(index, tmp_path, "wrong", *settings)
    assert message in str(error.value)


def test_no_output_is_written_over_a_given_run(index: Index, tmp_path: Path) -> None:
    theirs = write_lists(tmp_path / "theirs.trec", {"1": ["bees"]})
    settings = ["run_id=small", f"index={index.folder}", f"topics={tmp_path}/t.jsonl", f"retrieval.runs=[{theirs}]"]
    with pytest.raises(UserError, match="which the command reads"):
        check_run_outputs(read_config(None, settings), [], {"--out": theirs})
