"""Ten thousand damaged files: each gives a defined result, or an error that names it, and leaves no other file.

A kind and a number determine a file. A failure reports both, and the bytes.
"""

import re
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
import orjson
import pytest
import yaml

from keystone.fusion.fuse import FusionSettings
from keystone.indexing.corpora.corpus import read_corpus
from keystone.indexing.corpora.segments import cut_segments
from keystone.indexing.errors import BadRecord, UserError
from keystone.indexing.io.writing import unicode_name
from keystone.indexing.store import DocumentStore, build_store
from keystone.indexing.types import Document, is_id
from keystone.runs.config.read import read_config
from keystone.runs.config.run_config import RunConfig
from keystone.runs.evaluation.evaluate import evaluate_files
from keystone.runs.track_rules import TRACKS, Track, set_topic_limits
from keystone.runs.tracks.answer_files import read_answer_file
from keystone.runs.tracks.validate import detect_track, fix, validate
from keystone.runs.trec.fuse_files import fuse_files
from keystone.runs.trec.run_files import read_qrels, read_run, write_run
from keystone.runs.trec.topics import read_topics
from keystone.runs.trec.types import Run, make_run
from tests.support.mutation import FUZZ_CASES, compress_and_damage, mutate
from tests.support.runs.answer_files import HOW, REPAIRABLE, WHY, make_record, tighten_limits
from tests.support.runs.command_line import keystone

pytestmark = pytest.mark.slow

T = TypeVar("T")
Seeds = dict[str, bytes]
Check = Callable[[Path, Path, Random], None]
"""Checks a file, with a folder to write into and a generator of choices."""

TEXT = "One sentence stands here. Another follows, with caf\u00e9 and \U0001d538. A third one ends it.\n"


def lines_of(*records: Any) -> bytes:
    return b"".join(orjson.dumps(record) + b"\n" for record in records)


CORPORA: Seeds = {
    "beir.jsonl": lines_of(*({"_id": f"d{n}", "title": f"T{n}", "text": TEXT * n, "metadata": {}} for n in range(4))),
    "documents.jsonl": lines_of(
        *({"docid": f"d#{n}", "url": "u", "title": "T", "headings": "a\nb", "body": TEXT} for n in range(3))
    ),
    "segments.jsonl": lines_of(
        *({"docid": f"d#{n}_{5 * n}", "title": "T", "segment": TEXT * 2, "url": "u"} for n in range(4))
    ),
    "offsets.jsonl": lines_of(*({"docid": f"d#{n % 3}#{n}", "start_char": n, "end_char": 3 * n} for n in range(6))),
    "ft911": b"".join(
        f"<DOC>\n<DOCNO> FT911-{n} </DOCNO>\n<HEADLINE>A &amp; B</HEADLINE>\n<TEXT>\n{TEXT}</TEXT>\n</DOC>\n".encode()
        for n in range(3)
    ),
    "wiki.tokens": f"\n = One = \n\n {TEXT}\n = = Part = = \n\n {TEXT}\n = Two = \n\n {TEXT}".encode(),
    "a.txt": TEXT.encode(),
    "b.md": f"# Title\n\n{TEXT}\n## Part ##\n{TEXT}".encode(),
    "c.html": f"<html><head><title>T</title></head><body><h1>One</h1><p>{TEXT}</p><!-- x --></body></html>".encode(),
}
NARRATIVES = {"1": "Why?", "2": "How does it work, and what\u00e9?"}
TOPICS: Seeds = {
    "topics.jsonl": lines_of(*({"id": name, "title": text, "limit": 200} for name, text in NARRATIVES.items())),
    "numbers.jsonl": lines_of(*({"qid": int(name), "narrative": text} for name, text in NARRATIVES.items())),
    "topics.tsv": "".join(f"{name}\t{text}\n" for name, text in NARRATIVES.items()).encode(),
    "header.tsv": "".join(f"{a}\t{b}\n" for a, b in [("qid", "query"), *NARRATIVES.items()]).encode(),
    "topics.txt": "".join(
        f"<top>\n<num> Number: {name}\n<title> T\n<desc> Description:\n{text}\n<narr> N &amp; M\n</top>\n"
        for name, text in NARRATIVES.items()
    ).encode(),
    "quoted.tsv": b"qid\tquery\n"
    + b"".join(f'{name}\t"{text} ""so""\nAnd?"\n'.encode() for name, text in NARRATIVES.items()),
    "web.xml": "<?xml version='1.0'?>\n<topics>\n{}</topics>\n".format(
        "".join(
            f'<topic number="{name}">\n<query>T</query>\n<description>{text} A &amp; B &nbsp;C & D</description>\n'
            '<subtopic number="1">S</subtopic>\n</topic>\n'
            for name, text in NARRATIVES.items()
        )
    ).encode(),
    "trials.xml": "<topics>\n{}</topics>\n".format(
        "".join(
            f'<topic number="{name}">\n<!-- x -->{text}<![CDATA[ <b> ]]></topic>\n' for name, text in NARRATIVES.items()
        )
    ).encode(),
    "news.txt": "".join(
        f"<top>\n<num> Number: {name} </num>\n<docid>d</docid>\n<title> T </title>\n<EN-desc>{text}</EN-desc>\n</top>\n"
        for name, text in NARRATIVES.items()
    ).encode(),
}


def run_lines(doc: str, apart: str = " ", second: str = "Q0") -> bytes:
    rows = [(t, second, doc.format(n), str(n + 1), f"{9.5 - n}", "tag") for t in NARRATIVES for n in range(5)]
    return "".join(f"{apart.join(row)}\n" for row in rows).encode()


RUNS: Seeds = {
    "run.trec": run_lines("d{}"),
    "tabs.tsv": run_lines("msmarco_v2.1_doc_00_1#{}_7", "\t", "0"),
    "ties.trec": b"# a comment\n" + run_lines("d{}").replace(b".5", b"e-1").replace(b"7e", b"8e"),
}
QRELS: Seeds = {
    "qrels.txt": "".join(f"{t} 0 d{n} {n - 1}\n" for t in NARRATIVES for n in range(5)).encode(),
    "tabs.qrels": "".join(f"{t}\tQ0\td{n}\t{n % 2}\n" for t in NARRATIVES for n in range(5)).encode(),
}


def answers_of(track: Track) -> Seeds:
    """Make two answers that cite by positions or scores, the same answers that cite by ids, and a run."""
    ids = make_record(track.name)["references"]
    other: list[Any] = [[1, 0], []] if "positions" in track.citations else [dict.fromkeys(ids, 0.5), {}]
    files = {
        f"form-{number}.jsonl": lines_of(
            *(
                make_record(track.name, topic) | {track.sentences: [{"text": "So.", "citations": c} for c in cited]}
                for topic in (WHY, HOW)
            )
        )
        for number, cited in enumerate([[ids, []], other])
    }
    return {
        track.answer_file: lines_of(make_record(track.name, WHY), make_record(track.name, HOW)),
        track.retrieval_file: run_lines(ids[0][:-1] + "{}"),
        **files,
    }


ANSWERS = {name: answers_of(track) for name, track in TRACKS.items()}
CONFIG: Seeds = {
    "run.yaml": b"run_id: my-run\nindex: index\ntopics: topics.jsonl\nqueries:\n  method: rules\n  variants: 3\n"
    b"retrieval:\n  systems: [bm25, dense]\n  depth: 100\nfusion: {k: 60, norm: null}\nanswer:\n  documents: 5\n",
    "flow.yaml": b'{"run_id": "r", "index": "i", "topics": "t", "fusion": {"method": "sum", "parameters": {}}}\n',
}

WHOLE = re.compile(
    r": (cannot be read|holds no|its form|none of its topics|no judged topic|not YAML|expected keys|is empty|no line)"
)
"""The parts of messages about a whole file, which name no line."""


def result(path: Path, call: Callable[[], T], lined: bool = True) -> T | None:
    """Return the result of a call; None if it raises an error that names the file, and the line of a broken line."""
    try:
        return call()
    except UserError as error:
        message = str(error)
    assert str(path) in message
    assert not lined or re.search(re.escape(str(path)) + r":\d+: ", message) or WHOLE.search(message), message
    return None


def check_corpus(path: Path, folder: Path, chance: Random) -> None:
    """Each document that is kept comes out of the store unchanged, and each other one is reported."""
    corpus, cuts = chance.choice([path, path.parent]), None
    if "offsets" in path.name:
        corpus, cuts = folder / "documents.jsonl", path
        corpus.write_bytes(CORPORA["documents.jsonl"])
    arrived: list[Document] = []
    errors: list[BadRecord] = []

    def documents() -> Iterator[Document]:
        for document in map(cut_segments, read_corpus(corpus, None, cuts, errors.append)):
            arrived.append(document)
            yield document

    count = result(corpus, lambda: build_store(documents(), folder / "store", report=errors.append), lined=False)
    assert all(unicode_name(str(error)).startswith((unicode_name(path), str(folder / "documents"))) for error in errors)
    if count is None:
        return
    found = list(DocumentStore(folder / "store"))
    first = {document.id: document for document in reversed(arrived)}
    assert found == [first[name] for name in sorted(first)]
    assert len(arrived) - count == sum(error.kind == "repeated id" for error in errors)
    for document in found:
        assert is_id(document.id)
        assert all(is_id(s.id) and 0 <= s.span.start <= s.span.end <= len(document.text) for s in document.segments)


def check_topics(path: Path, folder: Path, _chance: Random) -> None:
    """Topics that the reader accepts can be answered: a run for them is valid, and its ids are read unchanged."""
    topics = result(path, lambda: read_topics(path))
    if topics is None:
        return
    result(path, lambda: set_topic_limits(TRACKS["ragtime26"], topics))
    assert all(is_id(topic.id) and topic.narrative.strip() for topic in topics)
    orjson.dumps([topic.narrative for topic in topics])
    write_run(folder / "run", make_run("tag", {topic.id: [("d", 1.0)] for topic in topics}))
    assert read_run(folder / "run").query_ids == tuple(topic.id for topic in topics)
    assert validate(folder / "run", TRACKS["responses"], topics) == []


def check_run(path: Path, folder: Path, chance: Random) -> None:
    """A run that the reader accepts is in trec_eval's order, and can be written, measured and fused."""
    other, judged = folder / "other", folder / "qrels"
    other.write_bytes(RUNS["run.trec"])
    judged.write_bytes(QRELS["qrels.txt"])
    run = result(path, lambda: read_run(path))
    measured = result(path, lambda: evaluate_files([other, path], judged))
    method, norm = chance.choice([("rrf", None), ("sum", None), ("sum", "none"), ("condorcet", None)])
    fused = result(path, lambda: fuse_files([other, path], "fused", FusionSettings(method, norm=norm)), lined=False)
    if run is None:
        assert (measured, fused) == (None, None)
        return
    assert_ranked(run)
    write_run(folder / "copy", run)
    assert documents_of(read_run(folder / "copy")) == documents_of(run)
    for evaluation in measured or ():
        assert all(((values >= 0) & (values <= 1)).all() for values in evaluation.values.values())
    if fused:
        write_run(folder / "fused", fused)
        assert documents_of(read_run(folder / "fused")) == documents_of(fused)


def documents_of(run: Run) -> dict[str, list[str]]:
    return {topic: [doc_id for doc_id, _ in hits] for topic, hits in run.list_hits().items()}


def assert_ranked(run: Run) -> None:
    """Assert the order by score in float32 down, then by document id down, and that no document is repeated."""
    assert np.isfinite(run.scores).all()
    with np.errstate(over="ignore"):
        scores = run.scores.astype(np.float32).tolist()
    for doc_ids, (start, end) in zip(documents_of(run).values(), pairwise(run.offsets.tolist()), strict=True):
        keys = [(score, doc_id.encode()) for score, doc_id in zip(scores[start:end], doc_ids, strict=True)]
        assert keys == sorted(keys, reverse=True)
        assert len(set(doc_ids)) == len(doc_ids) > 0


def check_qrels(path: Path, folder: Path, _chance: Random) -> None:
    """Judgments that the reader accepts are in the order of their grades, and measure a run."""
    (folder / "run").write_bytes(RUNS["run.trec"])
    qrels = result(path, lambda: read_qrels(path))
    measured = result(path if qrels is None else folder / "run", lambda: evaluate_files([folder / "run"], path))
    if qrels is None:
        assert measured is None
        return
    for start, end in pairwise(qrels.offsets.tolist()):
        assert (np.diff(qrels.grades[start:end]) <= 0).all()
        assert len(set(qrels.docs[start:end].decode_ids())) == end - start > 0
    for evaluation in measured or ():
        for values in evaluation.values.values():
            assert np.isnan(values).all() or ((values >= 0) & (values <= 1 + 1e-12)).all()


def check_submission(path: Path, folder: Path, track: Track) -> None:
    """A valid file is read. A second repair finds nothing to do, and a repair adds no error."""
    topics, out, again = [WHY, HOW], folder / f"fixed-{path.name}", folder / f"again-{path.name}"
    result(path, lambda: detect_track(path))
    before = result(path, lambda: validate(path, track, topics))
    after = result(path, lambda: fix(path, out, track, topics))
    if before is None or after is None:
        assert (before, after) == (None, None)
        assert not out.exists()
        return
    repairs, judged = after
    left = judged.violations
    assert left == validate(out, track, topics)
    assert fix(out, again, track, topics) == ([], judged)
    assert again.read_bytes() == out.read_bytes()
    answers, kinds = ".jsonl" in path.suffixes, {violation.kind for violation in left}
    errors_before, errors = ({v.kind for v in found if v.severity == "error"} for found in (before, left))
    assert errors <= errors_before or any("byte order mark" in repair.message for repair in repairs)
    assert not kinds & ({"blank line"} if answers else MENDED_IN_A_RUN)
    assert not answers or not errors or errors - REPAIRABLE or errors & NOT_ALWAYS
    for file, found in ((path, before), (out, left)):
        if all(violation.severity != "error" for violation in found):
            ids = (
                {s.answer.topic_id for s in read_answer_file(file, track)} if answers else set(read_run(file).query_ids)
            )
            assert ids == {"1", "2"} or (not answers and ids < {"1", "2"})


NOT_ALWAYS = {"text", "too long"}
"""Violations that are repaired, unless an answer has no text, or its first sentence alone is too long."""
MENDED_IN_A_RUN = {"blank line", "comment", "second column", "rows apart"}


def check_config(path: Path, _folder: Path, _chance: Random) -> None:
    """A configuration that is written and read again is the same."""
    config = result(path, lambda: read_config(path), lined=False)
    if config is not None:
        assert RunConfig.model_validate(yaml.safe_load(yaml.safe_dump(config.model_dump(mode="json")))) == config


def of_track(name: str) -> Check:
    return lambda path, folder, chance: check_submission(
        path, folder, chance.choice([TRACKS[name], tighten_limits(TRACKS[name])])
    )


KINDS: dict[str, tuple[Seeds, Check, int]] = {
    "corpus": (CORPORA, check_corpus, 3000),
    "topics": (TOPICS, check_topics, 1500),
    "run": (RUNS, check_run, 1500),
    "qrels": (QRELS, check_qrels, 1000),
    **{name: (seeds, of_track(name), 500) for name, seeds in ANSWERS.items()},
    "config": (CONFIG, check_config, 500),
}
"""For each kind of file: valid files, the check for each damaged one, and its share of 10,000 damaged files."""


def make(kind: str, number: int, folder: Path) -> tuple[Path, Random]:
    """Make the file of a kind and a number in a new folder, and the generator that chooses the operations on it."""
    chance, seeds = Random(f"{kind} {number}"), KINDS[kind][0]
    name = chance.choice([*seeds])
    suffix = "" if kind == "config" else chance.choice(["", "", "", "", ".gz", ".zst"])
    path = folder / "files" / (chance.choice(PREFIXES) + name + suffix)
    path.parent.mkdir(parents=True)
    path.write_bytes(compress_and_damage(mutate(seeds[name], chance), suffix, chance))
    return path, chance


def fuzz(kind: str, number: int) -> None:
    """Make a file and check its result."""
    with TemporaryDirectory() as temporary:
        path, chance = make(kind, number, Path(temporary))
        try:
            KINDS[kind][1](path, path.parents[1], chance)
            assert not [*path.parents[1].rglob("*.partial")]
        except Exception as error:
            raise AssertionError(f"{kind} {number}, {path.name}: {path.read_bytes()[:2000]!r}") from error


PREFIXES = ["", "", "", "", "\u00e9 ", "\udcff" if sys.platform == "linux" else ""]
"""The beginning of a file's name, which need not be UTF-8 on Linux."""
QUICK = 20


@pytest.mark.parametrize("kind", KINDS)
def test_some_damaged_files_have_a_defined_result(kind: str) -> None:
    for number in range(QUICK):
        fuzz(kind, number)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_damaged_files_have_a_defined_result(kind: str) -> None:
    for number in range(QUICK, KINDS[kind][2] * (FUZZ_CASES or 1_000) // 10_000 + QUICK):
        fuzz(kind, number)


COMMANDS: dict[str, list[list[str]]] = {
    "corpus": [["index", which, "--out", "{out}/index", "--no-dense", "-q"] for which in ("{file}", "{folder}")],
    "topics": [["validate", "{valid}/run.trec", "--topics", "{file}", "--track", "ragtime26", "--fix", "{out}/fixed"]],
    "run": [
        ["evaluate", "{valid}/run.trec", "{file}", "--qrels", "{valid}/qrels.txt", "--out", "{out}/json", "-q"],
        ["fuse", "{file}", "{valid}/run.trec", "--out", "{out}/fused.trec"],
        ["validate", "{file}", "--topics", "{valid}/topics.jsonl", "--track", "rag25", "--fix", "{out}/fixed"],
    ],
    "qrels": [["evaluate", "{valid}/run.trec", "--qrels", "{file}", "--out", "{out}/json", "-q"]],
    "rag24": [["validate", "{file}", "--topics", "{valid}/topics.jsonl", "--fix", "{out}/fixed"]],
    "rag26": [["validate", "{file}", "--topics", "{valid}/topics.jsonl"]],
    "config": [["run", "{file}", "-q"]],
}
"""The command for a file of each kind, in a process of its own."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", COMMANDS)
def test_commands_report_damaged_files_and_write_no_partial_output(kind: str, tmp_path: Path) -> None:
    for name, data in (RUNS | QRELS | TOPICS).items():
        (tmp_path / name).write_bytes(data)
    for number in range((SAMPLE if FUZZ_CASES else SAMPLE // 3) // len(COMMANDS)):
        folder = tmp_path / str(number)
        path, chance = make(kind, number, folder)
        (folder / "out").mkdir()
        places = {"file": str(path), "folder": str(path.parent), "valid": str(tmp_path), "out": str(folder / "out")}
        arguments = [argument.format_map(places) for argument in chance.choice(COMMANDS[kind])]
        done = keystone(*arguments, cwd=folder)
        told = f"{kind} {number}: {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
        assert done.returncode in (0, 1), told
        assert "Traceback" not in done.stderr, told
        assert not [*folder.rglob("*.partial")], told
        assert done.returncode == 0 or done.stdout or done.stderr, told
        if (folder / "out" / "json").exists():
            orjson.loads((folder / "out" / "json").read_bytes())
        if (folder / "out" / "fused.trec").exists():
            read_run(folder / "out" / "fused.trec")


SAMPLE = 60
"""The number of processes for all kinds in `make nightly`; other runs start a third."""
