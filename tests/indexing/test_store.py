"""The document store: rows are ranks of ids, and documents are read back unchanged, many at once."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing import store as store_module
from keystone.indexing.corpora.segments import cut_segments
from keystone.indexing.errors import BadRecord, UserError
from keystone.indexing.store import DocumentStore, build_store
from keystone.indexing.types import Document, Segment, Span, document_id

pytestmark = pytest.mark.slow

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12).filter(
    lambda name: name.split() == [name]
)
TEXT = st.text(st.characters(codec="utf-8"), max_size=60)
DOCUMENTS = st.lists(
    st.builds(Document, NAMES, TEXT, TEXT, TEXT, TEXT).map(cut_segments),
    min_size=1,
    max_size=12,
    unique_by=lambda document: document.id,
)


@pytest.fixture
def store(tmp_path: Path) -> DocumentStore:
    """A store of documents whose ids have several lengths and scripts, some with '#'."""
    segments = (Segment("doc#7_0", Span("doc", 0, 4)), Segment("doc#8_5", Span("doc", 5, 9)))
    documents = [
        Document("zebra", "Z."),
        Document("doc#1", "One."),
        Document("doc", "One. Two.", segments=segments),
        Document("\u00e9t\u00e9", "Summer."),
        Document("\U0001d538", "A."),
        Document("\ufb00", "Ff."),
    ]
    assert build_store(map(cut_segments, documents), tmp_path / "store") == 6
    return DocumentStore(tmp_path / "store")


@given(DOCUMENTS, st.lists(NAMES), st.randoms(use_true_random=False))
def test_rows_are_ranks_of_ids_and_documents_come_back_equal(
    documents: list[Document], others: list[str], random: Random
) -> None:
    with TemporaryDirectory() as folder:
        count = build_store(documents, Path(folder) / "store")
        store = DocumentStore(Path(folder) / "store")
        ordered = sorted(documents, key=lambda document: document.id)
        assert len(store) == count == len(documents)
        assert list(store) == ordered
        shuffled = [*documents, *documents[:2]]
        random.shuffle(shuffled)
        names = [document.id for document in shuffled]
        rows = store.rows(names)
        assert rows.dtype == np.int32
        assert rows.tolist() == [ordered.index(document) for document in shuffled]
        assert store.ids(rows) == names
        assert store.get(rows) == shuffled
        assert [row >= 0 for row in store.rows(others)] == [other in names for other in others]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("a", id="before all"),
        pytest.param("\U0010ffff", id="after all"),
        pytest.param("do", id="beginning of an id"),
        pytest.param("doc#", id="id and more"),
        pytest.param("zebras and many more characters than any id", id="longer than all"),
        pytest.param("", id="empty"),
    ],
)
def test_an_unknown_id_has_row_minus_1_beside_known_ones(store: DocumentStore, name: str) -> None:
    assert store.rows(["zebra", name, "doc"]).tolist() == [2, -1, 0]
    assert store.rows([name]).tolist() == [-1]


def test_ids_are_ordered_by_code_point(store: DocumentStore) -> None:
    assert store.ids(range(6)) == ["doc", "doc#1", "zebra", "\u00e9t\u00e9", "\ufb00", "\U0001d538"]


@pytest.mark.parametrize(
    ("segment", "document"), [("doc#8_5", "doc"), ("doc#1#w0_0", "doc#1"), ("#w1_0", ""), ("doc", "doc")]
)
def test_the_id_of_a_document_ends_before_the_last_number_sign(segment: str, document: str) -> None:
    assert document_id(segment) == document


def test_empty_requests_give_empty_results(store: DocumentStore) -> None:
    assert (store.ids([]), store.rows([]).tolist(), store.get([])) == ([], [], [])


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        pytest.param(["a", "b", "a"], "document id 'a' occurs more than once", id="repeated id"),
        pytest.param(
            ["\u00e9t\u00e9", "a", "\u00e9t\u00e9"], "document id '\u00e9t\u00e9' occurs", id="repeated id beyond ASCII"
        ),
        pytest.param([], "the corpus holds no document", id="empty corpus"),
    ],
)
def test_ids_that_a_store_cannot_hold_are_a_user_error(tmp_path: Path, ids: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build_store((Document(name, "text") for name in ids), tmp_path / "store")


@pytest.mark.parametrize("name", ["doc\0", "\0", "doc\ud800", "doc\0\0"])
def test_an_id_that_is_not_unicode_is_unknown(store: DocumentStore, name: str) -> None:
    assert store.rows([name, "doc"]).tolist() == [-1, 0]


@given(st.lists(st.tuples(NAMES, TEXT), min_size=1, max_size=12), st.integers(1, 4))
def test_the_first_document_of_an_id_is_kept_and_the_others_are_reported(
    tmp_path_factory: pytest.TempPathFactory, found: list[tuple[str, str]], batch: int
) -> None:
    folder = tmp_path_factory.mktemp("repeated")
    names = [name for name, _ in found]
    documents = [Document(name, text, place=f"c:{line}") for line, (name, text) in enumerate(found * 2)]
    told: list[BadRecord] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_module, "BATCH_IDS", batch)
        count = build_store(documents, folder / "store", report=told.append)
    later = [line for line in range(2 * len(names)) if (names * 2)[line] in (names * 2)[:line]]
    assert [str(error).split(": ")[0] for error in told] == [f"c:{line}" for line in later]
    assert {error.kind for error in told} == {"repeated id"}
    assert list(DocumentStore(folder / "store")) == [
        documents[names.index(name)] for name in sorted(set(names), key=str.encode)
    ]
    assert count == len(set(names))
    assert sorted(path.name for path in (folder / "store").iterdir()) == ["documents.jsonl", "ids.npy", "offsets.npy"]


def test_documents_are_read_once_and_counted(tmp_path: Path) -> None:
    ticks: list[int] = []

    def documents() -> Iterator[Document]:
        for i in range(3):
            assert len(ticks) == i
            yield Document(str(i), "text")

    build_store(documents(), tmp_path / "store", lambda _name, _total: nullcontext(ticks.append))
    assert ticks == [1, 1, 1]
