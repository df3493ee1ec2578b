"""Damaged corpora, topics and judgments in every form that names its fields: a result or an error, and nothing lost.

`KEYSTONE_FUZZ=10000` sets the number of damaged files of each kind; there are a hundred without it. A number and a
name determine a file.
"""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import ncompress
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from keystone.indexing.corpora.corpus import read_corpus
from keystone.indexing.errors import BadRecord, UserError
from keystone.runs.trec.run_files import read_qrels
from keystone.runs.trec.topics import read_topics
from tests.support.mutation import FUZZ_CASES, mutate

CASES = FUZZ_CASES or 100


def parquet(columns: Mapping[str, list[Any]]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, row_group_size=4, write_page_checksum=True)
    return out.getvalue()


def arrow(columns: Mapping[str, list[Any]]) -> bytes:
    out, table = io.BytesIO(), pa.table(columns)
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table, 4)
    return out.getvalue()


def rows(header: str, row: str, count: int = 9) -> bytes:
    return (header + "".join(row.format(n) for n in range(count))).encode()


COLUMNS = {"docno": [f"d{n}" for n in range(9)], "text": [None, *"abcdefgh"], "contents": ["t"] * 9}
CORPORA = {
    "c.parquet": parquet(COLUMNS),
    "c.arrow": arrow(COLUMNS),
    "collection.tsv": rows("", '{0}\ttext "of" {0}\n'),
    "header.tsv": rows("id\ttext\ttitle\n", '{0}\t"say ""of"" {0}"\tT\n'),
    "docs.tsv": rows("", "D{0}\thttps://x\tT\tbody\n"),
    "c.csv": rows("ID,Title,Contents\n", '{0},T,"text, of {0}"\n'),
    "c.md": b"# Title\n\n```\n# code\n```\n\nPart\n---\n\n- a\n  - b\n\n<!-- c -->\n> q\n",
    "c.jsonl.Z": ncompress.compress(rows("", '{{"id":"d{0}","text":"x"}}\n')),
    "passages.jsonl": rows("", '{{"pid":"m{0}","passage":"x","docid":"D{0}"}}\n'),
    "array.json": json.dumps([{"id": f"{n}", "contents": "x"} for n in range(5)]).encode(),
}
TURNS = [{"number": 1, "raw_utterance": "a"}, {"number": 2, "raw_utterance": "b", "resolved_utterance": "c"}]
TOPICS = {
    "t.csv": b'qid,query\n1,"why, so"\n2,"a\nb"\n',
    "t.tsv": b"query_id\ttitle\tdescription\n1\ta\tb\n2\tc\td\n",
    "array.json": json.dumps([{"number": 1, "title": "a"}, {"number": 2, "title": "b"}], indent=1).encode(),
    "turns.json": json.dumps([{"number": 31, "turn": TURNS}]).encode(),
    "list.json": json.dumps({"topics": [{"id": 1, "question": "x"}, {"id": 2, "question": "y"}]}).encode(),
    "by-id.json": json.dumps({"1": {"title": "x"}, "2": {"title": "y"}}).encode(),
    "languages.jsonl": b'{"topic_id":"0","topics":[{"lang":"eng","topic_title":"T","topic_description":"D"}]}\n',
    "t.parquet": parquet({"query_id": ["1", "2"], "text": ["a", "b"]}),
}
QRELS = {
    "beir.tsv": b"query-id\tcorpus-id\tscore\n1\td1\t1.0\n1\td2\t0\n2\td1\t2\n",
    "q.csv": b"\xef\xbb\xbfqid,docno,label\n1,d1,1\n2,d2,0\n",
    "q.jsonl": b'{"query-id":"1","corpus-id":"d1","score":1.0}\n{"query-id":"2","corpus-id":"d2","score":0}\n',
    "trec.txt": b"1 0 d1 1.0\n1 0 d2 0\n2 0 d1 3\n",
    "spaces.txt": b"topic iteration document relevancy\n1 0 d1 1\n2 0 d2 0\n",
    "q.parquet": parquet({"query-id": ["1", "2"], "corpus-id": ["a", "b"], "score": [1, 0]}),
}


def damaged(folder: Path, name: str, raw: bytes, case: int) -> Path:
    file = folder / name
    file.write_bytes(mutate(raw, Random(f"{name} {case}")))
    return file


@pytest.mark.parametrize("name", CORPORA)
def test_each_row_of_a_damaged_corpus_is_read_or_reported(tmp_path: Path, name: str) -> None:
    for case in range(CASES // len(CORPORA)):
        file, errors = damaged(tmp_path, name, CORPORA[name], case), list[BadRecord]()
        try:
            documents = list(read_corpus(file, report=errors.append))
        except UserError as error:
            assert str(error) == f"{file}: holds no document", case  # noqa: PT017
            if name.endswith(".Z") and file.stat().st_size < 5:  # a header of 3 bytes, and less than one code
                continue
            documents = []
        held = [line for line in file.read_bytes().decode("utf-8-sig", "replace").split("\n") if line.strip()]
        if name.endswith((".tsv", ".csv")):
            texts = ("".join((found.text, found.title, found.url, found.headings)) for found in documents)
            assert sum(1 + text.count("\n") for text in texts) + len(errors) >= len(held) - 1, case
        else:
            assert documents or errors or not held, case


@pytest.mark.parametrize("name", TOPICS)
def test_damaged_topics_are_read_or_refused_with_their_file(tmp_path: Path, name: str) -> None:
    for case in range(CASES // len(TOPICS)):
        file = damaged(tmp_path, name, TOPICS[name], case)
        try:
            assert read_topics(file), case
        except UserError as error:
            assert str(error).startswith(str(file)), case  # noqa: PT017


@pytest.mark.parametrize("name", QRELS)
def test_damaged_judgments_are_read_or_refused_with_their_file(tmp_path: Path, name: str) -> None:
    for case in range(CASES // len(QRELS)):
        file = damaged(tmp_path, name, QRELS[name], case)
        try:
            assert len(read_qrels(file).grades), case
        except UserError as error:
            assert str(error).startswith(str(file)), case  # noqa: PT017
