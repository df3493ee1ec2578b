"""The doctor on the languages of an index, and on the models for them."""

from pathlib import Path

import orjson
import pytest

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.index import Index
from keystone.indexing.types import MINILM, Embedding
from keystone.runs.doctor.machine import examine_index
from tests.support.declaration import ARTICLE_1, make_texts
from tests.support.indexes.small_corpus import write_index_file
from tests.support.runs.command_line import keystone


def make(folder: Path, codes: tuple[str, ...], language: str, embedding: Embedding | None = None) -> Index:
    """Index the article and ten texts of its words in each language."""
    lines = [
        orjson.dumps({"id": f"{code}-{number}", "text": text, "lang": code}) + b"\n"
        for code in codes
        for number, text in enumerate([ARTICLE_1[code], *make_texts(code, 10, 30, seed=1)])
    ]
    (folder / "c.jsonl").write_bytes(b"".join(lines))
    settings = BuildSettings(embedding=embedding, language=language, faiss=None)
    return build_index(folder / "c.jsonl", folder / "index", settings)[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("codes", "language", "embedding", "expected"),
    [
        (("en",), "en", MINILM, ["ok languages: English, guessed"]),
        (("zh",), "zh", None, ["ok languages: Chinese", "note embedding model: none, expected a multilingual one"]),
        (("zh",), "zh", MINILM, ["ok languages: Chinese", "note embedding model: all-MiniLM-L6-v2, expected a multi"]),
        (("en", "ru"), "field:lang", MINILM, ["ok languages: English, Russian", "note embedding model: all-MiniLM"]),
        (("en", "ru"), "en", MINILM, ["note languages: ", "note embedding model"]),
    ],
    ids=["English", "no vectors", "one", "several", "not told"],
)
def test_a_multilingual_model_is_advised_for_other_languages_than_english(
    codes: tuple[str, ...], language: str, embedding: Embedding | None, expected: list[str], tmp_path: Path
) -> None:
    index = make(tmp_path, codes, language, embedding)
    found = [f"{one.state} {one.subject}: {one.message}" for one in examine_index(index.folder)]
    assert len(found) == len(expected)
    assert all(one.startswith(beginning) for one, beginning in zip(found, expected, strict=True)), found
    assert ("--embedding intfloat/multilingual-e5-small" in found[-1]) == (len(found) > 1)


@pytest.mark.parametrize("name", ["models/multilingual-e5-small", "BAAI/bge-m3", "Qwen/Qwen3-Embedding-0.6B"])
def test_a_multilingual_model_is_known_by_its_name(name: str, tmp_path: Path) -> None:
    index = Index(tmp_path / "index", "k", Embedding(name), 2, {}, 0, None, language="auto", languages={"ru": 2})
    found = list(examine_index(write_index_file(index).folder))
    assert [one.state for one in found] == ["ok", "ok"]


@pytest.mark.slow
def test_the_command_examines_an_index_and_names_what_is_none(tmp_path: Path) -> None:
    make(tmp_path, ("en", "ru"), "field:lang")
    shown = keystone("doctor", "--index", tmp_path / "index")
    assert (shown.returncode, shown.stdout.splitlines()[0]) == (0, "ok       languages: English, Russian")
    missing = keystone("doctor", "--index", tmp_path)
    assert missing.returncode == 1
    assert f"problem  index: {tmp_path}: not an index" in missing.stdout
