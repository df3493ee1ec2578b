"""Lucene indexes that BM25 with Anserini's English analyzer cannot search are refused, and the message says why."""

import json
from pathlib import Path
from typing import Any

import pytest

from keystone.indexing.attached.lucene_index import adopt_prebuilt
from keystone.indexing.errors import UserError
from keystone.indexing.lucene.java import java_class, java_instance
from tests.support.indexes.lucene_indexes import build_anserini_index

pytestmark = pytest.mark.slow

TEXT = "The rivers are flooding {} towns, and the running dogs were barking loudly again and again"
RECORDS = [{"id": f"d{n}", "contents": TEXT.format(n)} for n in range(6)]
WEIGHTS = [record | {"vector": {"river": 120, "flood": 80, f"{n}": 7}} for n, record in enumerate(RECORDS)]
CHINESE = [
    {"id": f"z{n}", "contents": f"\u6cb3\u6c34\u4e0a\u6da8\u4e86\u4e24\u7c73 {n} \u57ce\u5e02"} for n in range(6)
]


@pytest.mark.parametrize(
    ("records", "options", "message"),
    [
        pytest.param(
            WEIGHTS,
            ("-impact", "-pretokenized"),
            r"impacts .* of a document sum up to 207, and",
            id="impacts",
        ),
        pytest.param(RECORDS, ("-language", "de"), "another analyzer, such as 'rivers' in place", id="for German"),
        pytest.param(CHINESE, ("-language", "zh"), "terms of another analyzer", id="for Chinese"),
        pytest.param(RECORDS, ("-stemmer", "krovetz"), "such as 'running' in place of 'run'", id="another stemmer"),
    ],
)
def test_an_index_for_another_ranking_is_refused(
    tmp_path: Path, records: list[dict[str, Any]], options: tuple[str, ...], message: str
) -> None:
    collection = "JsonVectorCollection" if "-impact" in options else "JsonCollection"
    made = build_anserini_index(tmp_path, "other", [records], "-storeRaw", *options, collection=collection)
    with pytest.raises(UserError, match=f"for BM25 with Anserini's English analyzer, found .*{message}"):
        adopt_prebuilt(Path(f"pyserini:{made}"), tmp_path / "index")
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(RECORDS, id="sentences"),
        pytest.param(CHINESE, id="Chinese, sign by sign"),
        pytest.param([{"id": f"w{n}", "contents": "bees"} for n in range(3)], id="one word each"),
    ],
)
def test_an_index_by_the_english_analyzer_is_taken(tmp_path: Path, records: list[dict[str, Any]]) -> None:
    made = build_anserini_index(tmp_path, "plain", [records], "-storeRaw")
    assert adopt_prebuilt(Path(f"pyserini:{made}"), tmp_path / "index")[0].documents == len(records)


@pytest.mark.parametrize(
    ("field", "options", "norms", "message"),
    [
        pytest.param(
            "body", "DOCS_AND_FREQS", True, r"no indexed field contents \(its fields: body, id, raw\)", id="name"
        ),
        pytest.param("contents", "DOCS", True, "a field contents without frequencies of terms", id="frequencies"),
        pytest.param(
            "contents", "DOCS_AND_FREQS", False, "a field contents without lengths of documents", id="lengths"
        ),
    ],
)
def test_an_index_with_other_fields_is_refused(
    tmp_path: Path, field: str, options: str, norms: bool, message: str
) -> None:
    write_index(tmp_path / "made", field, options, norms)
    with pytest.raises(UserError, match=message):
        adopt_prebuilt(Path(f"pyserini:{tmp_path / 'made'}"), tmp_path / "index")


def write_index(folder: Path, field: str, options: str, norms: bool) -> None:
    """Write an index of one document by Lucene's own classes."""
    of_index, of_documents = "org.apache.lucene.index.", "org.apache.lucene.document."
    analyzer = java_class("org.apache.lucene.analysis.standard.StandardAnalyzer")()
    place = java_class("org.apache.lucene.store.FSDirectory").open(java_class("java.nio.file.Paths").get(str(folder)))
    writer = java_class(f"{of_index}IndexWriter")(place, java_class(f"{of_index}IndexWriterConfig")(analyzer))
    kind, store = java_class(f"{of_documents}FieldType")(), java_class(f"{of_documents}Field$Store")
    kind.setIndexOptions(getattr(java_class(f"{of_index}IndexOptions"), options))
    kind.setOmitNorms(not norms)
    document = java_class(f"{of_documents}Document")()
    document.add(java_class(f"{of_documents}StringField")("id", "d", store.YES))
    document.add(java_class(f"{of_documents}StoredField")("raw", json.dumps(RECORDS[0])))
    text = java_instance("java.lang.CharSequence", java_class("java.lang.String")(RECORDS[0]["contents"]))
    document.add(java_class(f"{of_documents}Field")(field, text, kind))
    writer.addDocument(document)
    writer.close()
