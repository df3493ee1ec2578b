"""`keystone convert` tells all that a target cannot hold, derives requests, and refuses what no form can be made of."""

import bz2
import gzip
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import Field

from keystone.indexing.errors import UserError
from keystone.retrieval.types import Topic
from keystone.runs.cli.commands.convert_command import _print_forms
from keystone.runs.cli.commands.convert_command import convert as command
from keystone.runs.exchange.convert import ConversionSettings, Losses, convert, describe
from keystone.runs.exchange.records import count_unread
from keystone.runs.exchange.table import FORMS
from keystone.runs.parts import Id, Listed, Objects, Part, first_of
from keystone.runs.track_rules import TRACKS
from keystone.runs.tracks.validate import validate
from keystone.runs.trec.topics import read_topics
from tests.runs.exchange.examples import EXAMPLES
from tests.support.runs.answer_files import IDS, NEWS, A, make_line, make_sentences

REQUEST = (
    '{"query":{"qid":"1","text":"bees"},"candidates":[{"docid":"a","score":2,"doc":{"title":"T","segment":"S"}},'
    '{"docid":"b","score":2,"doc":{"segment":"U"}}],"trace":{"x":1}}\n'
)
NUGGETS = (
    '{"query_id":"1","title_query":"bees","claim_bank":{"A":{"claim":"A","claim_id":"n1","importance":"vital",'
    '"references":[{"doc_id":"d1"},{"doc_id":"d2"}]},"B":{"claim":"B","references":[{"doc_id":"d1"}]}}}\n'
)
ANSWER = EXAMPLES["auto-judge"].given
CASES = {
    "a run holds no texts, and its scores decrease": (
        REQUEST,
        "run",
        "1 Q0 a 1 2 keystone\n1 Q0 b 2 1.9999999 keystone\n",
        Losses(
            {"query": 1, "candidate.text": 2, "candidate.title": 1, "trace": 1}, {"candidate.score": 1}, {"run_id": 1}
        ),
    ),
    "topics hold no candidates": (
        REQUEST,
        "topics-tsv",
        "1\tbees\n",
        Losses(
            {
                "candidate": 2,
                "candidate.docid": 2,
                "candidate.rank": 2,
                "candidate.score": 2,
                "trace": 1,
                "candidate.text": 2,
                "candidate.title": 1,
            },
            {},
            {},
        ),
    ),
    "an answer becomes a request with its references": (
        ANSWER,
        "requests",
        '{"query":{"text":"","qid":"1"},"candidates":[{"docid":"d1","doc":{"title":"Bees","text":"Bees see blue."}}],'
        '"run_id":"r"}\n',
        Losses({"answer": 1, "citation": 1, "evaldata": 1, "sentence": 1, "team_id": 1}, {}, {}),
    ),
    "nuggets become judgments by nugget": (
        NUGGETS,
        "nugget-qrels",
        "1 n1 d1 1\n1 2 d1 1\n1 n1 d2 1\n",
        Losses({"nugget": 2, "nugget.importance": 1, "query": 1}, {}, {"candidate.grade": 2}),
    ),
    "nuggetizer names no documents": (
        NUGGETS,
        "nuggetizer",
        '{"query":"bees","qid":"1","nuggets":[{"text":"A","importance":"vital"},{"text":"B"}]}\n',
        Losses({"nugget.id": 1, "nugget.references": 2}, {}, {}),
    ),
    "sub-narratives are nuggets of a topic, and their narrative is its query": (
        EXAMPLES["sub-narratives"].given,
        "topics",
        '{"id":"464","narrative":"bees"}\n{"id":"9","narrative":"ants"}\n',
        Losses({"nugget": 1, "nugget.importance": 1, "year": 1}, {}, {}),
    ),
    "a line for each nugget does not name its sub-narrative": (
        '{"query":"bees","qid":"1","nuggets":[{"text":"A","mapped_sub_narrative":"What do bees see?"}]}\n',
        "nuggets",
        None,
        Losses({"nugget.sub_narrative": 1, "query": 1}, {}, {"nugget.id": 1}),
    ),
    "nuggets may stand in one JSON array": (
        f"[\n{NUGGETS}]",
        "sub-narratives",
        None,
        Losses({"nugget.id": 1, "nugget.references": 2}, {}, {}),
    ),
    "ragnarok's form has no team, and its citations are positions": (
        EXAMPLES["rag26"].given,
        "rag24",
        '{"run_id":"r","topic_id":"1","topic":"bees","references":["d1","d2"],"response_length":2,"answer":'
        '[{"text":"Bees see.","citations":[1]}]}\n',
        Losses({"team_id": 1, "description": 1}, {}, {}),
    ),
    "answers without a team get a name that says so": (
        EXAMPLES["rag24"].given,
        "biogen24",
        None,
        Losses({"query": 1, "trace": 1}, {}, {"team_id": 1}),
    ),
    "a second text of a candidate, and second ids, are lost": (
        '{"query":{"qid":"1","id":2,"text":"bees"},"id":"1","qid":"3","candidates":[{"docid":"d","doc":"A.","text":"B."'
        "}]}\n",
        "requests",
        '{"query":{"text":"bees","qid":"1"},"candidates":[{"docid":"d","doc":{"contents":"A."}}]}\n',
        Losses({"candidates[].text": 1, "qid": 1, "query.id": 1}, {}, {}),
    ),
    "values beside the metadata are lost if the metadata have others": (
        '{"topic":"ants","run_id":"s","narrative_id":"1","metadata":{"run_id":"r","narrative_id":1,"narrative":"bees"},'
        '"answer":[]}\n',
        "rag25",
        '{"metadata":{"team_id":"keystone","run_id":"r","narrative_id":"1","narrative":"bees"},"references":[],'
        '"answer":[]}\n',
        Losses({"run_id": 1, "topic": 1}, {}, {"team_id": 1}),
    ),
    "a second topic is lost in a form that names topics by its key": (
        '{"metadata":{"run_id":"r","team_id":"t","topic_id":"99","narrative_id":"1"},"answer":[]}\n',
        "responses",
        '{"metadata":{"topic_id":"1","team_id":"t","run_id":"r"},"references":[],"responses":[]}\n',
        Losses({"metadata.topic_id": 1}, {}, {}),
    ),
    "a measure of a topic has one score": (
        '{"run_id":"r","topic_id":"1","measure":"m","value":0.5}\n'
        '{"run_id":"r","topic_id":"1","measure":"m","value":0.6}\n',
        "metrics",
        '{"run_id":"r","qid":"1","m":0.6}\n',
        Losses({"score": 1}, {"score": 1}, {}),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_conversion_tells_all_that_its_target_cannot_hold(case: str, tmp_path: Path) -> None:
    given, form, golden, losses = CASES[case]
    path, out = tmp_path / "in", tmp_path / "out"
    path.write_text(given)
    done = convert(path, out, ConversionSettings(form))
    assert done.losses == losses
    assert golden is None or out.read_text() == golden
    out.unlink()
    with pytest.raises(UserError, match=f"^{path}: {form} cannot hold all of it: dropped: "):
        convert(path, out, ConversionSettings(form, strict=True))
    assert not out.exists()


@pytest.mark.parametrize(
    ("given", "form", "message"),
    [
        (REQUEST, "rag25", "requests holds requests, but rag25 holds answers; Keystone makes requests from answers"),
        (REQUEST, "qrels", "out: expected grades of candidates, found none; it is made from .*in .requests"),
        (REQUEST, "evidence", r"in:1: candidate 'a': expected a text, start_char and end_char"),
        (REQUEST, "nugget-qrels", "expected grades of candidates for nuggets, found none"),
        (REQUEST, "poem", "--to poem: unknown; expected one of topics, topics-tsv, run"),
        ('{"query":"bees","candidates":["S"]}\n', "run", "in:1: topic: expected an id without space, found none"),
        ('{"query":{"qid":"1"},"candidates":[{"docid":"a b","score":1}]}\n', "run", "document: expected an id .*'a b'"),
        ('{"query":{"qid":"1"},"candidates":[{"docid":"a"}]}\n', "run", "expected a score of a, found none"),
        ('{"query":{"qid":"1"},"candidates":[]}\n', "run", "out: expected candidates, found none"),
        (
            '{"query":{"qid":"1"},"candidates":[{"docid":"a","score":1}],"run_id":"my run"}\n',
            "run",
            "out: run_id: expected an id without space, found 'my run'; it is made from .*in .requests",
        ),
        ('{"query":{"qid":"1"},"candidates":[]}\n', "topics", "topic '1': expected a query or narrative, found none"),
        ('{"query":{"qid":"#1","text":"x"},"candidates":[]}\n', "topics-tsv", "in:1: topic: expected an id without #"),
        ('{"query":{"qid":"#1"},"candidates":[{"docid":"a","judgment":1}]}\n', "qrels", "found '#1'"),
        ('{"query":{"qid":"1"},"candidates":[7]}\n', "run", r"in:1: candidates\[0\]: expected a text or an object"),
        ('{"metadata":{"qa_id":1},"answer":[{"supported_citations":[1.5]}]}\n', "rag25", r"supported_citations\[0\]"),
        ('{"metadata":{"qa_id":1.5},"answer":[{"supported_citations":[]}]}\n', "rag25", r"metadata\.qa_id: .* 1\.5"),
        (
            '{"topic_id":"1","answer":[{"text":"A.","citations":[2]}],"references":["d"]}',
            "rag25",
            "2 names no reference",
        ),
        ("r 1 M x\nr all M 1\n", "metrics", "in:1: value: expected a number, found 'x'"),
    ],
)
def test_an_impossible_conversion_is_refused_and_writes_nothing(
    given: str, form: str, message: str, tmp_path: Path
) -> None:
    path, out = tmp_path / "in", tmp_path / "out"
    path.write_text(given)
    with pytest.raises(UserError, match=message):
        convert(path, out, ConversionSettings(form))
    assert not out.exists()


@pytest.mark.parametrize(
    ("given", "form", "kept"),
    [
        (
            '{"query":{"qid":"1","text":"q"},"candidates":[{"docid":"d","doc":{"title":"T"},"text":"body"}]}\n',
            "requests",
            '{"docid":"d","doc":{"title":"T","text":"body"}}',
        ),
        (
            '{"query":{"qid":"1","text":"q"},"candidates":[{"docid":"d","doc":{"docid":"e","text":"T"}}]}\n',
            "requests",
            '"doc":{"docid":"e","text":"T"}',
        ),
        ('{"query":{"text":"q"},"qid":"7","candidates":[]}\n', "requests", '"query":{"text":"q","qid":"7"}'),
        ('{"query":{"text":"q"},"qid":7,"passage":"P","judgment":1}\n', "requests", '"query":{"text":"q","qid":"7"}'),
        (
            '{"metadata":{"team_id":"t","run_id":"r","narrative_id":"1","topic_id":"99","narrative":"N","topic":"T",'
            '"run_desc":"D","description":"E"},"answer":[]}\n',
            "rag26",
            '{"metadata":{"topic_id":"99","topic":"T","description":"E","team_id":"t","narrative_id":"1",'
            '"narrative":"N","run_id":"r","run_desc":"D"},',
        ),
    ],
)
def test_a_value_beside_another_one_of_its_kind_is_kept(given: str, form: str, kept: str, tmp_path: Path) -> None:
    path, out = tmp_path / "in", tmp_path / "out"
    path.write_text(given)
    convert(path, out, ConversionSettings(form, strict=True))
    assert kept in out.read_text()


@pytest.mark.parametrize(
    ("form", "given"),
    [
        ("responses", '{"topic_id":"1","references":["a"],"responses":[{"text":"Bees.","citations":["a","a","a"]}]}'),
        ("rag25", '{"narrative_id":"1","references":["a"],"answer":[{"text":"Bees.","citations":[0,0,"a"]}]}'),
        ("answers", '{"topic_id":"1","sentences":[{"text":"Bees.","citations":["a","a","a"]}]}'),
        (
            "biogen24",
            '{"team_id":"t","run_name":"r","results":[{"topic_id":"1","answer":"Bees [7,7,7].","references":[7]}]}',
        ),
        ("biogen-grounded", '{"metadata":{"qa_id":"1"},"answer":[{"text":"Bees.","supported_citations":[7,7,7]}]}'),
    ],
)
def test_citations_that_a_sentence_repeats_are_told(form: str, given: str, tmp_path: Path) -> None:
    (tmp_path / "in").write_text(f"{given}\n")
    done = convert(tmp_path / "in", tmp_path / "out", ConversionSettings("rag25", source=form))
    assert done.losses.dropped["citations repeated in their sentence"] == 2
    with pytest.raises(UserError, match=r"rag25 cannot hold all of it: dropped: .*repeated in their sentence \(2\)"):
        convert(tmp_path / "in", tmp_path / "out", ConversionSettings("rag25", source=form, strict=True))


def test_candidates_of_a_judged_pair_are_named_as_lost_whatever_they_are(tmp_path: Path) -> None:
    path, out = tmp_path / "in", tmp_path / "out"
    path.write_text('{"query":"q","qid":"1","docid":"d","passage":"p","judgment":2,"candidates":3}\n')
    done = convert(path, out, ConversionSettings("qrels", source="umbrela"))
    assert (out.read_text(), done.losses.dropped["candidates"]) == ("1 0 d 2\n", 1)


@pytest.mark.parametrize("number", ["", ',"sentence_index":3'])
def test_pairs_with_different_statements_are_different_sentences(number: str, tmp_path: Path) -> None:
    path, out = tmp_path / "in", tmp_path / "out"
    pairs = [("Second.", "FS", "b"), ("First.", "NS", "a"), ("Second.", "PS", "c")]
    path.write_text(
        "".join(
            f'{{"statement":"{text}","citation":"","support_label":"{label}",'
            f'"metadata":{{"topic_id":"1","docid":"{doc}"{number}}}}}\n'
            for text, label, doc in pairs
        )
    )
    convert(path, out, ConversionSettings("ragdoll-support", strict=True))
    found = [
        (sentence["text"], [(one["reference"], one["support"]) for one in sentence["citations"]])
        for sentence in json.loads(out.read_text())["sentences"]
    ]
    assert found == [("Second.", [("b", "2"), ("c", "1")]), ("First.", [("a", "0")])]


def test_a_form_that_names_sub_narratives_keeps_them(tmp_path: Path) -> None:
    path, out = tmp_path / "in", tmp_path / "out"
    path.write_text('{"query":"bees","qid":"1","nuggets":[{"text":"A","mapped_sub_narrative":"What do bees see?"}]}\n')
    assert convert(path, out, ConversionSettings("nuggetizer", strict=True)).losses == Losses({}, {}, {})
    assert out.read_text() == path.read_text()


def test_a_json_document_and_compressed_files_are_converted(tmp_path: Path) -> None:
    path = tmp_path / "in.json.gz"
    path.write_bytes(gzip.compress(json.dumps([json.loads(REQUEST)] * 2, indent=1).encode()))
    for name, unpack in (("out.jsonl.gz", gzip.decompress), ("out.GZ", gzip.decompress), ("out.bz2", bz2.decompress)):
        out = tmp_path / name
        assert convert(path, out, ConversionSettings("requests")).source.name == "requests"
        assert len(list(map(json.loads, unpack(out.read_bytes()).splitlines()))) == 2
    path.write_bytes(gzip.compress(b'[{"query":{"qid":"1"}},\n7]'))
    with pytest.raises(UserError, match="object 2: expected a JSON object, found 7"):
        convert(path, out, ConversionSettings("requests", source="requests"))


def test_the_command_tells_forms_and_losses_and_spares_its_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "in", tmp_path / "out"
    path.write_text(REQUEST)
    command(path, out, "run")
    said = capsys.readouterr()
    assert said.out == f"{out}\n"
    assert said.err.splitlines() == [
        f"{path}: requests",
        "warning: dropped: candidate.text (2), candidate.title (1), query (1), trace (1)",
        "warning: changed: candidate.score (1)",
        "warning: added: run_id (1: 'keystone')",
    ]
    with pytest.raises(UserError, match=f"OUT {path}: is {path}, which the command reads"):
        command(path, path, "run")
    assert path.read_text() == REQUEST
    with pytest.raises(typer.Exit):
        _print_forms(True)
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [*FORMS]


def test_topics_fill_in_queries_that_a_file_lacks(tmp_path: Path) -> None:
    path, topics, out = tmp_path / "in", tmp_path / "topics", tmp_path / "out"
    path.write_text("1 Q0 a 1 2 r\n2 Q0 a 1 2 r\n")
    topics.write_text("1\tbees\n")
    assert convert(path, out, ConversionSettings("requests", topics=topics)).losses == Losses({}, {}, {})
    assert [json.loads(line)["query"] for line in out.read_text().splitlines()] == [
        {"text": "bees", "qid": "1"},
        {"text": "", "qid": "2"},
    ]


@pytest.mark.slow
def test_any_form_becomes_any_other_or_its_fault_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    path, out = tmp_path / "in", tmp_path / "out"
    made = 0
    for name in EXAMPLES:
        path.write_text(EXAMPLES[name].given)
        for form in FORMS:
            try:
                convert(path, out, ConversionSettings(form, name))
                made += 1
            except UserError as error:
                assert str(path) in str(error), (name, form)  # noqa: PT017
    assert made > 200


def test_citations_between_the_sentences_of_biogen_2024_are_discarded_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "in"
    answer = "[9] Bees see blue [12, 13]. [14] Ants smell well [12]. [15]"
    path.write_text(json.dumps({"team_id": "t", "run_name": "r", "results": [{"topic_id": 5, "answer": answer}]}))
    content = FORMS["biogen24"].read(path)
    sentences = content.answers[0].sentences
    assert [(one.text, [each.doc_id for each in one.citations]) for one in sentences] == [
        ("Bees see blue.", ["12", "13"]),
        ("Ants smell well.", ["12"]),
    ]
    assert content.unread == {"citations outside of sentences": 3}


def test_other_brackets_of_biogen_2024_stay_in_the_text(tmp_path: Path) -> None:
    path = tmp_path / "in"
    answer = "Risk fell (OR 0.7 [95% CI 0.5-0.9]) [123; PMC4, ]. [As reported] it rose [sic] [7]. [8] End []."
    path.write_text(
        json.dumps({"team_id": "t", "results": [{"topic_id": 5, "answer": answer, "references": ["PMC4"]}]})
    )
    content = FORMS["biogen24"].read(path)
    assert [(one.text, [each.doc_id for each in one.citations]) for one in content.answers[0].sentences] == [
        ("Risk fell (OR 0.7 [95% CI 0.5-0.9]).", ["123", "PMC4"]),
        ("[As reported] it rose [sic].", ["7"]),
        ("End.", []),
    ]
    assert content.unread == {"citations outside of sentences": 1}


@pytest.mark.parametrize(
    ("cited", "found"),
    [
        ("PMID: 123", ["123"]),
        ("PMID:123, pmid 456; PMID789", ["123", "456", "789"]),
        ("PMIDs: 123 456", ["123", "456"]),
        ("123 PMC4", ["123", "PMC4"]),
        ("PMID:7", ["PMID:7"]),
        ("123 to 456", []),
    ],
)
def test_lists_of_pmids_of_biogen_2024_are_read(tmp_path: Path, cited: str, found: list[str]) -> None:
    path = tmp_path / "in"
    result = {"topic_id": 5, "answer": f"Risk fell [{cited}].", "references": ["PMC4", "PMID:7"]}
    path.write_text(json.dumps({"team_id": "t", "results": [result]}))
    (sentence,) = FORMS["biogen24"].read(path).answers[0].sentences
    assert [one.doc_id for one in sentence.citations] == found
    assert sentence.text == ("Risk fell." if found else f"Risk fell [{cited}].")


def test_unread_keys_are_counted_by_their_path() -> None:
    class Inner(Part):
        c: Id = first_of("c", "k")

    class Open(Part, extra="allow"):
        f: Any = None

    class Outer(Part):
        a: Any = None
        b: Listed[Inner] = ()
        e: Open = Open()
        h: Objects[Inner] = Field({})
        i: Id = first_of("i", exclude=True)

    record = {
        "a": {"x": 1},
        "b": [{"c": 1, "d": [1, 2]}, {"c": None, "k": 2, "d": {}}, {"c": 1, "k": "1"}, {"c": 1, "k": 2}],
        "e": {"f": 1, "g": 2},
        "h": {"any": {"c": 1, "d": 1}},
        "i": 1,
    }
    count_unread(record, Outer, found := Counter[str]())
    assert found == {"b[].d": 1, "b[].k": 1, "h[].d": 1, "i": 1}


@pytest.mark.parametrize(
    ("form", "given", "unread"),
    [
        (
            "nuggetbank",
            '{"query_id":"1","claim_bank":{"A":{"claim":"A","sub_nuggets":{"B":{"claim":"B","x":1}}}}}',
            {"claim_bank[].sub_nuggets[].x": 1},
        ),
        (
            "nuggetizer",
            '{"qid":"1","topic_id":"2","nuggets":[{"text":"A","claim":"B"}]}',
            {"nuggets[].claim": 1, "qid": 1},
        ),
        ("biogen24", '{"team_id":"t","run_id":"r","results":[]}', {}),
        ("metrics", '{"qid":"1","topic_id":"x","score":1}', {"topic_id": 1}),
    ],
)
def test_a_value_that_is_read_is_not_counted_as_lost_and_a_second_one_is(
    form: str, given: str, unread: dict[str, int], tmp_path: Path
) -> None:
    (tmp_path / "in").write_text(f"{given}\n")
    assert FORMS[form].read(tmp_path / "in").unread == unread


@pytest.mark.parametrize(
    ("form", "given", "message"),
    [
        (
            "evidence",
            '{"topic_id":"1","items":[{"span":{"doc_id":"d","start":"3"}}]}',
            r"items[0].span.start: expected a whole number, found '3'",
        ),
        (
            "evidence",
            '{"topic_id":"1","items":[{"span":{"doc_id":"d","start":3,"end":2}}]}',
            "items[0].span: expected 0 <= start <= end, found 3 and 2",
        ),
        ("answers", '{"topic_id":"1","sentences":null}', "sentences: expected a list, found the keys topic_id"),
        (
            "answers",
            '{"topic_id":"1","sentences":[{"citations":[true]}]}',
            "sentences[0].citations[0]: expected an id, found True",
        ),
        (
            "ragdoll-pairs",
            '{"task_id":"1","support_label":"XS"}',
            "support_label: expected one of FS, PS, NS, found 'XS'",
        ),
        (
            "rag25",
            '{"answer":[]}',
            "expected an id under topic_id or narrative_id or qid or request_id or qa_id, found the keys answer",
        ),
        (
            "auto-judge",
            '{"topic_id":"1","responses":[],"documents":{"d 1":7}}',
            "documents['d 1']: expected a text or an object, found 7",
        ),
    ],
)
def test_a_fault_is_named_by_its_key_with_the_value_expected_and_found(
    form: str, given: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "in").write_text(f"{given}\n")
    with pytest.raises(UserError) as refused:
        FORMS[form].read(tmp_path / "in")
    assert str(refused.value) == f"{tmp_path / 'in'}:1: {message}"


def test_a_query_with_further_keys_loses_them(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_text('{"query":{"qid":"1","text":"bees","lang":"en"},"candidates":["S",{"docid":"d","rank":1}]}\n')
    assert FORMS["requests"].read(path).unread == {"query.lang": 1, "candidates[].rank": 1}


@pytest.mark.parametrize(
    ("answer", "unread"),
    [
        ('"answer":"Bees see."', {}),
        ('"answer":["Bees see.",{"text":"So.","citations":[],"x":1}]', {"answer[].x": 1}),
        ('"responses":["Bees see."],"answer":[{"text":"No."}],"response":"No."', {"answer": 1, "response": 1}),
    ],
)
def test_sentences_that_are_texts_are_kept_and_a_second_answer_is_not(
    answer: str, unread: dict[str, int], tmp_path: Path
) -> None:
    path = tmp_path / "in"
    path.write_text(f'{{"topic_id":"1",{answer}}}\n')
    content = FORMS["rag25"].read(path)
    assert content.answers[0].sentences[0].text == "Bees see."
    assert content.unread == unread


def test_losses_are_described_in_the_order_of_their_names() -> None:
    assert describe(Losses({"b": 1, "a": 2000}, {}, {"c": 1})) == ["dropped: a (2,000), b (1)", "added: c (1)"]


BARE = '{"topic_id":"1","topic":"bees","references":["d1"],"answer":[{"text":"Bees see.","citations":[0]}]}\n'
NARRATIVES = [Topic("1", "bees")]


@pytest.mark.parametrize(
    ("form", "warnings"),
    [
        (
            "rag26",
            [
                "added: run_id (1: 'unnamed'), team_id (1: 'keystone')",
                "missing: run_desc (1), which rag26 requires: --run-desc gives it",
            ],
        ),
        (
            "rag25",
            [
                "added: run_id (1: 'unnamed'), team_id (1: 'keystone')",
                "missing: type (1), which rag25 requires: --type gives it",
            ],
        ),
        (
            "biogen24",
            [
                "dropped: query (1)",
                "added: run_id (1: 'unnamed'), team_id (1: 'keystone')",
                "missing: contact_email (1), which biogen24 requires",
            ],
        ),
    ],
)
def test_every_value_that_is_added_or_missing_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, warnings: list[str]
) -> None:
    path, out = tmp_path / "in", tmp_path / "out"
    path.write_text(BARE)
    command(path, out, form)
    assert capsys.readouterr().err.splitlines()[1:] == [f"warning: {line}" for line in warnings]
    assert '""' not in out.read_text() or form == "biogen24"
    if form == "biogen24":
        return
    left = [v for v in validate(out, TRACKS[form], NARRATIVES) if v.severity == "error"]
    option = "--run-desc" if form == "rag26" else "--type"
    assert [v.message.rpartition("; ")[2] for v in left if v.kind != "id of another corpus"] == [
        f"keystone convert --to {form} {option} adds it"
    ]


@pytest.mark.parametrize("form", ["rag24", "rag25", "rag26", "responses", "dragun25"])
def test_a_file_with_the_values_that_the_command_gives_is_valid(tmp_path: Path, form: str) -> None:
    path, out = tmp_path / "in", tmp_path / "out"
    path.write_text(BARE.replace("d1", IDS.get(form, (A,))[0]))
    given: dict[str, Any] = {"team": "t", "run_id": "r", "run_desc": "Bees.", "type": "manual"}
    if form == "rag24":
        del given["team"], given["run_desc"], given["type"]
    command(path, out, form, **given)
    assert validate(out, TRACKS[form], NARRATIVES) == []
    answer = FORMS[form].read(out).answers[0]
    values = {"team": answer.team_id, "run_id": answer.run_id, "run_desc": answer.description, "type": answer.type}
    assert {key: values[key] for key in given} == given


@pytest.mark.parametrize(
    ("given", "named", "message"),
    [
        (REQUEST, {"team": "t"}, "--team: found it for content that has no team"),
        ("r 1 M 1\n", {"run_desc": "t"}, "--run-desc: found it for content that has no description"),
        (BARE, {"run_desc": " "}, "--run-desc: expected text, found ' '"),
    ],
)
def test_a_value_that_the_content_cannot_have_is_an_error(
    tmp_path: Path, given: str, named: dict[str, Any], message: str
) -> None:
    (tmp_path / "in").write_text(given)
    source = None if given == BARE else "leaderboard" if given[0] == "r" else "requests"
    with pytest.raises(UserError, match=message):
        command(tmp_path / "in", tmp_path / "out", "requests", source, **named)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("references", "cited", "expected"),
    [
        pytest.param(None, [30000001, "7"], ["30000001", "7"], id="listed nowhere"),
        pytest.param(["7", "30000001"], [30000001, 7], ["30000001", "7"], id="listed as texts"),
        pytest.param([7, 30000001], [30000001, 7], ["30000001", "7"], id="listed as numbers"),
        pytest.param(["7"], [30000001], ["30000001"], id="not listed"),
        pytest.param(["a", "b"], [1, 0], ["b", "a"], id="positions"),
    ],
)
def test_the_integers_that_biogen_cites_are_ids(
    tmp_path: Path, references: Any, cited: list[Any], expected: list[str]
) -> None:
    path, out = tmp_path / "in", tmp_path / "out"
    path.write_text(make_line("biogen", references=references, responses=make_sentences(citations=cited)))
    convert(path, out, ConversionSettings("responses"))
    record = json.loads(out.read_text())
    assert record["responses"][0]["citations"] == expected
    assert set(record["references"]) >= set(expected)


def test_scores_of_an_answer_stay_in_one_form(tmp_path: Path) -> None:
    """The organisers of RAGTIME refuse an answer with a list beside objects."""
    path, out = tmp_path / "in", tmp_path / "out"
    sentences = [*make_sentences(citations={NEWS[0]: 0.5, NEWS[1]: 1}), *make_sentences(citations=[])]
    path.write_text(make_line("ragtime26", responses=sentences))
    convert(path, out, ConversionSettings("responses"))
    assert [s["citations"] for s in json.loads(out.read_text())["responses"]] == [{NEWS[0]: 0.5, NEWS[1]: 1}, {}]


@pytest.mark.parametrize(
    ("record", "added"),
    [
        (
            {"topic_id": "9", "title": "Vapes", "background": "So.", "problem_statement": "Which?", "limit": 5000},
            {"request_id": "9"},
        ),
        ({"id": 9, "question": "What?", "narrative": "It hurts.", "topic": "axons"}, {}),
    ],
)
def test_a_request_in_several_parts_keeps_its_form(
    record: dict[str, object], added: dict[str, object], tmp_path: Path
) -> None:
    """The programs of RAGTIME read its id as `topic_id` and as `request_id`."""
    given, out = tmp_path / "topics.jsonl", tmp_path / "out.jsonl"
    given.write_text(json.dumps(record) + "\n")
    assert not convert(given, out, ConversionSettings("topics")).losses.dropped
    assert json.loads(out.read_text()) == record | added
    assert read_topics(out) == read_topics(given)
