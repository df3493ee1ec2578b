"""Task A of BioGen: documents that support or contradict the sentences of given answers."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.errors import UserError
from keystone.retrieval.types import Topic
from keystone.runs.config.read import read_config
from keystone.runs.evaluation.answers.grounded import evaluate_grounded
from keystone.runs.pipeline.run import run
from keystone.runs.track_rules import TRACKS, Key
from keystone.runs.tracks.answer_files import Author
from keystone.runs.tracks.grounded import Grounds, make_grounded_records, read_grounded
from keystone.runs.tracks.validate import Verdict, detect_track, fix, judge, validate
from keystone.runs.trec.topics import read_topics
from tests.support.runs.command_line import keystone
from tests.support.servers.chat import serving

TRACK = TRACKS["biogen-a"]
SENTENCES = ("Honey lowers cough.", "Honey is safe for infants.")
DOCUMENTS = {
    "11": "Honey lowers cough in children. SUPPORTS 1",
    "12": "A trial: honey lowers cough. SUPPORTS 1",
    "13": "Honey lowers cough, we found. SUPPORTS 1",
    "14": "Honey lowers cough again. SUPPORTS 1",
    "15": "Honey lowers cough: the first report. SUPPORTS 1",
    "16": "Honey is not safe for infants. CONTRADICTS 2",
    "17": "Honey lowers nothing about cough. CONTRADICTS 1",
    "18": "Bees dance to tell where honey is.",
}


def write_given(path: Path) -> Path:
    """Write task A's topics as the track has them: a JSON array, PMIDs as numbers, null for none."""
    answer = [
        {"text": SENTENCES[0], "existing_supported_citations": [15]},
        {"text": SENTENCES[1], "existing_supported_citations": None},
    ]
    path.write_bytes(orjson.dumps([{"metadata": {"qa_id": "116", "question": "is honey good?"}, "answer": answer}]))
    return path


def say(body: dict[str, Any]) -> str:
    """Judge as the document says itself: which sentence it supports or contradicts."""
    user = body["messages"][1]["content"]
    verdict = re.search(r"(SUPPORTS|CONTRADICTS) (\d)", user)
    fits = verdict is not None and user.rstrip().endswith(SENTENCES[int(verdict[2]) - 1])
    return orjson.dumps({"verdict": verdict[1].lower() if verdict and fits else "neither"}).decode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = (orjson.dumps({"id": name, "contents": text}) + b"\n" for name, text in DOCUMENTS.items())
    (tmp_path / "c.jsonl").write_bytes(b"".join(lines))
    build_index(tmp_path / "c.jsonl", tmp_path / "index", BuildSettings(embedding=None))
    write_given(tmp_path / "given.json")
    return tmp_path


def configure(folder: Path, *changes: str) -> list[str]:
    return [
        "run_id=a1", "team_id=us", "track=biogen-a", "queries.method=narrative", f"index={folder / 'index'}",
        f"topics={folder / 'given.json'}", f"out={folder / 'out'}", *changes,
    ]  # fmt: skip


def test_sentences_are_topics(tmp_path: Path) -> None:
    topics = read_topics(write_given(tmp_path / "given.json"))
    assert [(topic.id, topic.narrative) for topic in topics] == [("116-1", SENTENCES[0]), ("116-2", SENTENCES[1])]
    assert topics[0].record["existing_supported_citations"] == [15]
    assert topics[1].record["question"] == "is honey good?"


@pytest.mark.slow
def test_a_run_names_documents_that_support_and_contradict(folder: Path) -> None:
    with serving(model=say) as server:
        model = f"model={{name: plain, urls: ['{server.url}'], window: 4096}}"
        directory = run(read_config(None, configure(folder, model)), threads=2)
        asked = len(server.requests)
        assert run(read_config(None, configure(folder, model)), threads=2) == directory
        assert len(server.requests) == asked
    path = directory / "task_a.jsonl"
    (record,) = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    assert record["metadata"] == {"team_id": "us", "run_id": "a1", "qa_id": "116", "question": "is honey good?"}
    first, second = record["answer"]
    assert first["existing_supported_citations"] == [15]
    assert len(first["supported_citations"]) == 3
    assert set(first["supported_citations"]) < {"11", "12", "13", "14"}
    assert first["contradicted_citations"] == ["17"]
    assert (second["supported_citations"], second["contradicted_citations"]) == ([], ["16"])
    assert not any(f"document>\n{DOCUMENTS['15']}" in str(one) for one in server.requests)
    topics = read_topics(folder / "given.json")
    assert detect_track(path).name == "biogen-a"
    found = judge(path, TRACK, topics)
    assert {(one.severity, one.kind) for one in found.violations} == {("warning", "id as a number")}
    assert found.size == "1 answer, 2 sentences, 3 supporting, 2 contradicting citations"
    assert keystone("validate", path, "--topics", folder / "given.json").returncode == 0


def test_rules_are_refused_with_a_reason(folder: Path) -> None:
    with pytest.raises(UserError, match=r"track: biogen-a has documents judged .*, which rules cannot do"):
        read_config(None, configure(folder))


def write_answers(path: Path, **changes: Any) -> Path:
    sentence = {
        "text": SENTENCES[0], "existing_supported_citations": ["15"], "supported_citations": ["11", "12"],
        "contradicted_citations": ["17"],
    }  # fmt: skip
    other = {"text": SENTENCES[1], "supported_citations": [], "contradicted_citations": []}
    metadata = {"team_id": "us", "run_id": "a1", "qa_id": "116"}
    path.write_bytes(orjson.dumps({"metadata": metadata, "answer": [sentence | changes, other]}) + b"\n")
    return path


@pytest.mark.parametrize(
    ("changes", "kinds", "left"),
    [
        pytest.param({}, [], [], id="nothing"),
        pytest.param({"supported_citations": [11]}, ["id as a number"], [], id="a number"),
        pytest.param({"supported_citations": ["11", "11"]}, ["repeated citation"], [], id="repeated"),
        pytest.param({"supported_citations": ["15"]}, ["existing citation"], [], id="existing"),
        pytest.param(
            {"contradicted_citations": [15]}, ["existing citation", "id as a number"], [], id="existing number"
        ),
        pytest.param({"supported_citations": list("1234")}, ["too many citations"], [], id="four"),
        pytest.param({"contradicted_citations": list("1234")}, ["too many citations"], [], id="four contradicting"),
        pytest.param({"supported_citations": ["PMC1"]}, ["id of another corpus"], ["id of another corpus"], id="PMC"),
        pytest.param(
            {"supported_citations": ["17"]}, ["supports and contradicts"], ["supports and contradicts"], id="both"
        ),
        pytest.param({"supported_citations": None}, ["no list"], ["no list"], id="no list"),
        pytest.param({"existing_supported_citations": 15}, ["no list"], ["no list"], id="no list of existing ones"),
        pytest.param({"text": "Other."}, ["other sentences"], ["other sentences"], id="another text"),
        pytest.param({"text": ""}, ["no text", "other sentences"], ["no text", "other sentences"], id="no text"),
    ],
)
def test_violations_are_named_and_repaired(
    changes: dict[str, Any], kinds: list[str], left: list[str], tmp_path: Path
) -> None:
    topics = read_topics(write_given(tmp_path / "given.json"))
    path = write_answers(tmp_path / "task_a.jsonl", **changes)
    assert sorted({one.kind for one in validate(path, TRACK, topics)}) == kinds
    repairs, verdict = fix(path, tmp_path / "fixed.jsonl", TRACK, topics)
    assert bool(repairs) == (kinds != left)
    assert sorted({one.kind for one in verdict.violations}) == left


def test_answers_are_complete(tmp_path: Path) -> None:
    topics = read_topics(write_given(tmp_path / "given.json"))
    path = write_answers(tmp_path / "task_a.jsonl")
    twice = path.read_bytes() * 2 + path.read_bytes().replace(b'"116"', b'"9"').replace(b"a1", b"a2") + b"no\n"
    path.write_bytes(twice)
    kinds = {one.kind for one in validate(path, TRACK, topics)}
    assert kinds == {"repeated answer", "unknown topic", "several run ids", "not JSON"}
    one, other = path.read_bytes().splitlines()[0], path.read_bytes().splitlines()[2].replace(b"a2", b"")
    path.write_bytes(one + b"\n" + other)
    assert {one.kind for one in validate(path, TRACK, topics)} == {"unknown topic", "run_id"}
    path.write_bytes(b"\n")
    assert {one.kind for one in validate(path, TRACK, topics)} == {"missing topic", "empty"}


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({"run_id": None}, {"no run_id"}),
        ({"run_id": ["a1"]}, {"run_id"}),
        ({"team_id": " "}, {"team_id"}),
        ({"qa_id": 116}, {"id as a number"}),
        ({"qa_id": None}, {"no qa_id", "missing topic"}),
    ],
)
def test_metadata_are_judged_as_in_other_tracks(changes: dict[str, Any], kinds: set[str], tmp_path: Path) -> None:
    path = write_answers(tmp_path / "task_a.jsonl")
    record = orjson.loads(path.read_bytes())
    record["metadata"] |= changes
    path.write_bytes(orjson.dumps(record) + b"\n")
    topics = read_topics(write_given(tmp_path / "given.json"))
    assert {one.kind for one in validate(path, TRACK, topics)} == kinds
    repairs, verdict = fix(path, tmp_path / "fixed.jsonl", TRACK, topics)
    assert {one.kind for one in verdict.violations} == kinds - {"id as a number"}
    assert [one.message for one in repairs] == ["qa_id: a number is now text"] * ("id as a number" in kinds)


def test_an_object_too_deep_to_write_stays_as_it_is(tmp_path: Path) -> None:
    path = write_answers(tmp_path / "task_a.jsonl", supported_citations=[11])
    path.write_bytes(path.read_bytes().replace(b"{", b'{"x":' + b"[" * 300 + b"]" * 300 + b",", 1))
    repairs, verdict = fix(path, tmp_path / "fixed.jsonl", TRACK, read_topics(write_given(tmp_path / "given.json")))
    kinds = {one.kind for one in verdict.violations}
    assert (repairs, kinds) == ([], {"not JSON", "missing topic", "empty"})
    assert (tmp_path / "fixed.jsonl").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("metadata", [None, "about"])
def test_a_track_of_a_package_names_its_own_keys(metadata: str | None, tmp_path: Path) -> None:
    keys = (Key("group", "team"), Key("run", "run"), Key("answer_id", "topic"))
    track = replace(TRACK, name="next", keys=keys, sentences="claims", metadata=metadata)
    topics = [Topic(f"7-{number}", text, record={"answer_id": "7"}) for number, text in enumerate(SENTENCES, 1)]
    grounds = {"7-1": Grounds(["11", "12"], []), "7-2": Grounds([], ["16"])}
    (record,) = make_grounded_records(topics, grounds, track, Author("us", "a1"))
    assert (record if metadata is None else record[metadata]).items() >= {"group": "us", "run": "a1"}.items()
    (path := tmp_path / "a.jsonl").write_bytes(orjson.dumps(record))
    verdict = judge(path, track, topics)
    assert verdict == Verdict([], "1 answer, 2 sentences, 2 supporting, 1 contradicting citations")
    record["claims"][0]["supported_citations"] = [11, 12, 11]
    path.write_bytes(orjson.dumps(record))
    repairs, verdict = fix(path, tmp_path / "fixed.jsonl", track, topics)
    assert [one.message.split(":")[0] for one in repairs] == ["claims[0].supported_citations"]
    assert verdict.violations == []


JUDGMENTS = """qid,answer_sentence,citation,judgement
116,Honey lowers cough .,"A title
PMID: 11",Supports
116,Honey lowers cough .,"PMID: 12",Partially supports
116,Honey lowers cough .,"PMID: 17",Neutral
116,Honey is safe for infants .,"PMID: 16",Contradicts
"""


def test_measures_are_those_of_the_track(tmp_path: Path) -> None:
    """By hand: of sentence 1, one of two is right, or both if partial support counts; sentence 2 names nothing."""
    (tmp_path / "j.csv").write_text(JUDGMENTS)
    path = write_answers(tmp_path / "task_a.jsonl")
    (found,) = evaluate_grounded([path], tmp_path / "j.csv")
    assert {name: values.tolist() for name, values in found.values.items()} == {
        "support_P": [0.25], "support_R": [0.5], "support_relaxed_P": [0.5], "support_relaxed_R": [0.5],
        "contradict_P": [0.0], "contradict_R": [0.0],
    }  # fmt: skip
    shown = keystone("evaluate", path, "--answers", "--references", tmp_path / "j.csv")
    assert "support_P" in shown.stdout
    assert ".25" in shown.stdout


def test_a_missing_answer_counts_0_for_every_file(tmp_path: Path) -> None:
    judgments = tmp_path / "j.csv"
    judgments.write_text(JUDGMENTS + "117,Other.,PMID: 1,Supports\n118,Third.,PMID: 1,Supports\n")
    line = write_answers(tmp_path / "one").read_bytes()
    (tmp_path / "two").write_bytes(line + line.replace(b'"116"', b'"118"') + line.replace(b'"116"', b'"9"'))
    one, two = evaluate_grounded([tmp_path / "one", tmp_path / "two"], judgments)
    assert one.topics == two.topics == ("116", "117", "118")
    assert one.values["support_P"].tolist() == two.values["support_P"].tolist() == [0.25, 0, 0]
    assert (str(one.counts), str(two.counts)) == ("1 of 3 judged topics answered", "2 of 3 judged topics answered")
    assert "judged topics without an answer, which count 0: 2 of 3, such as 117" in one.cautions[0]
    assert "topics without a judgment, which are left out: 1 of 3, such as 9" in two.cautions[1]


@pytest.mark.parametrize("key", ["supported_citations", "contradicted_citations", "existing_supported_citations"])
def test_ids_that_are_no_list_are_refused(key: str, tmp_path: Path) -> None:
    path = write_answers(tmp_path / "task_a.jsonl", **{key: "123"})
    with pytest.raises(UserError, match=rf"task_a.jsonl: object 1: {key}: expected a list of ids, found '123'"):
        read_grounded(path)


def test_existing_ids_of_a_topic_that_are_no_list_are_refused(tmp_path: Path) -> None:
    path = write_answers(tmp_path / "task_a.jsonl", existing_supported_citations=15)
    message = "line 1, sentence 1: existing_supported_citations: expected a list, found 15"
    with pytest.raises(UserError, match=f"task_a.jsonl: {message}"):
        read_topics(path)
    (table := tmp_path / "topics.csv").write_text("id,narrative,existing_supported_citations\n1,Aspirin helps.,15\n")
    with pytest.raises(UserError, match=r"topics\.csv:2: existing_supported_citations: expected a list, found '15'"):
        read_topics(table)


def test_judgments_of_another_form_are_refused(tmp_path: Path) -> None:
    path = write_answers(tmp_path / "task_a.jsonl")
    (tmp_path / "j.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match=r"j.csv:1: expected the columns qid, .*, found a, b"):
        evaluate_grounded([path], tmp_path / "j.csv")
    (tmp_path / "j.csv").write_text(JUDGMENTS + '116,"' + "a" * 140_000)
    with pytest.raises(UserError, match=r"j.csv:\d+: expected a CSV file, found a line that is not CSV: field larger"):
        evaluate_grounded([path], tmp_path / "j.csv")
    (tmp_path / "j.csv").write_text(JUDGMENTS.replace("116", "7"))
    with pytest.raises(UserError, match="none of its answers has judgments"):
        evaluate_grounded([path], tmp_path / "j.csv")
