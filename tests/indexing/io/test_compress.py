"""Files of the program compress, as on TREC's disks: read like any compressed file, with reports for damaged ones."""

from pathlib import Path

import ncompress
import pytest

from keystone.indexing.corpora.corpus import read_corpus
from keystone.indexing.errors import BadRecord, UserError
from keystone.indexing.io import reading
from keystone.runs.trec.topics import read_topics

LINES = b"".join(b'{"id": "d%d", "text": "river %d"}\n' % (n, n) for n in range(2000))
PACKED = ncompress.compress(LINES)


@pytest.mark.parametrize("name", ["a.jsonl.Z", "a.jsonl.z", "fr.0z", "fr.1Z", "fr.2z"])
def test_the_endings_of_compress_are_known(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(PACKED)
    assert len(list(read_corpus(tmp_path / name, "jsonl"))) == 2000
    assert len(read_topics(tmp_path / name)) == 2000


def test_a_folder_of_them_is_a_corpus(tmp_path: Path) -> None:
    doc = b"<DOC>\n<DOCNO> D1 </DOCNO>\n<TEXT>\nriver\n</TEXT>\n</DOC>\n"
    (tmp_path / "fr940104.0z").write_bytes(ncompress.compress(doc))
    assert [(document.id, document.text) for document in read_corpus(tmp_path)] == [("D1", "river")]


@pytest.mark.parametrize(
    ("raw", "least"),
    [
        pytest.param(PACKED[: len(PACKED) // 2], 500, id="cut off"),
        pytest.param(PACKED[:9000] + b"\xff" * 90 + PACKED[9090:], 500, id="damaged"),
        pytest.param(LINES, 0, id="not compressed"),
        pytest.param(b"", 0, id="empty"),
    ],
)
def test_a_damaged_file_gives_what_comes_before_the_damage(tmp_path: Path, raw: bytes, least: int) -> None:
    (tmp_path / "a.jsonl.Z").write_bytes(raw)
    errors: list[BadRecord] = []
    try:
        found = len(list(read_corpus(tmp_path / "a.jsonl.Z", "jsonl", report=errors.append)))
    except UserError:
        found = 0
    assert least <= found < 2000
    assert errors


def test_a_file_that_unpacks_to_too_much_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "HELD_LIMIT_BYTES", 1000)
    (tmp_path / "a.jsonl.Z").write_bytes(PACKED)
    with pytest.raises(BadRecord, match="it has more than 1000 bytes"):
        list(read_corpus(tmp_path / "a.jsonl.Z", "jsonl"))
