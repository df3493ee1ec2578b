"""Lucene indexes of other programs, used in place: rows, ties, stored documents, official segments, whole runs."""

import json
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.rules.answer import NOTHING
from keystone.indexing.attached.attach import AttachSettings
from keystone.indexing.attached.lucene_index import PrebuiltStore, adopt_prebuilt, lucene_folder
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.corpora.corpus import read_corpus
from keystone.indexing.corpora.pyserini import parse_stored_document
from keystone.indexing.corpora.segments import cut_segments
from keystone.indexing.errors import BadRecord, UserError
from keystone.indexing.index import Index, open_index
from keystone.indexing.lucene.java import java_class
from keystone.indexing.lucene.read import IdTerms, StoredTexts
from keystone.indexing.lucene.write import open_reader
from keystone.indexing.store import DocumentStore
from keystone.indexing.types import MINILM, Document, Segment, Span
from keystone.indexing.vectors.embed import embed_queries
from keystone.indexing.vectors.of_segments import segment_vectors
from keystone.retrieval.backends import open_sparse, open_store
from keystone.retrieval.ties import SPARE_HITS, search_past_ties
from keystone.retrieval.types import PassageScore, Query
from keystone.runs.track_rules import TRACKS
from keystone.runs.tracks.answer_files import read_answer_file
from keystone.runs.trec.run_files import read_run
from tests.support.indexes.lucene_indexes import build_anserini_index
from tests.support.indexes.searches import search_all
from tests.support.indexes.small_corpus import write_topics
from tests.support.processes import run_with_kills
from tests.support.runs.command_line import keystone, keystone_here
from tests.support.waiting import LIMIT_S

pytestmark = pytest.mark.slow

WORDS = ["bees", "honey", "queen", "volcano", "ash", "weather", "ice \u2744", "sugar \U0001f600", "rivers", "pollen"]


def many(count: int) -> list[dict[str, Any]]:
    """Records in random order of ids; half of them repeat the texts of others."""
    chance = random.Random(5)
    names = [f"d{number}" for number in range(count)]
    chance.shuffle(names)
    texts = [" ".join(chance.choices(WORDS, k=chance.randint(2, 12))) for _ in range(count // 2)]
    return [{"id": name, "title": name, "contents": chance.choice(texts)} for name in names]


RECORDS = many(600)
BODY = "Bees dance. Their queen lays eggs. Honey is sweet \U0001f600. Ice is cold. Ash of a volcano falls on hives."
DOCUMENTS = [
    {"docid": f"msmarco_v2.1_doc_{n:02d}_{n}", "url": f"u{n}", "title": f"T{n}", "headings": "H", "body": BODY * n}
    for n in (11, 1, 3, 10, 2)
]
CUTS = {record["docid"]: [(s, s + 60) for s in range(0, len(record["body"]) - 60, 30)] for record in DOCUMENTS[:4]}
SEGMENTS = [
    {
        "docid": f"{record['docid']}#{n}_{start}",
        **{key: record[key] for key in ("url", "title", "headings")},
        "segment": record["body"][start:end],
        "start_char": start,
        "end_char": end,
    }
    for record in DOCUMENTS[:4]
    for n, (start, end) in enumerate(CUTS[record["docid"]])
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of indexes by Anserini: `many`, `slim` without documents, and `docs` and `segs` like MS MARCO's."""
    made = tmp_path_factory.mktemp("prebuilt")
    build_anserini_index(made, "many", [RECORDS[:100], RECORDS[100:350], RECORDS[350:]], "-storeRaw")
    build_anserini_index(made, "slim", [RECORDS[:3]])
    marco = "MsMarcoV2DocCollection"
    build_anserini_index(made, "docs", [DOCUMENTS[:2], DOCUMENTS[2:]], "-storeRaw", collection=marco)
    shuffled = random.Random(1).sample(SEGMENTS, len(SEGMENTS))
    build_anserini_index(made, "segs", [shuffled[:50], shuffled[50:]], "-storeRaw", collection=marco)
    return made


@pytest.fixture(scope="module")
def index(folder: Path) -> Index:
    return adopt_prebuilt(Path(f"pyserini:{folder / 'many'}"), folder / "many-index")[0]


def test_rows_are_ranks_of_ids_and_no_index_is_copied(index: Index, folder: Path) -> None:
    store = open_store(index)
    names = sorted(record["id"] for record in RECORDS)
    assert len(open_reader(folder / "many").leaves().toArray()) > 1
    assert (len(store), index.documents, index.faiss, index.pooled) == (len(names), len(names), None, False)
    assert store.ids(range(len(store))) == names
    assert store.rows([*names[:5], "no such", "d1" * 50, "d1\0", ""]).tolist() == [0, 1, 2, 3, 4, -1, -1, -1, -1]
    texts = {record["id"]: record["contents"] for record in RECORDS}
    assert [(d.id, d.title, d.text) for d in store] == [(name, name, texts[name]) for name in names]
    assert store.get([7, 2, 7]) == [list(store)[row] for row in (7, 2, 7)]
    for row in (-1, len(store)):
        with pytest.raises(IndexError):
            store.get([row])
    assert sorted(path.name for path in index.folder.iterdir()) == ["index.json", "rows"]


def test_runs_may_embed_the_passages_of_an_index_that_others_made(folder: Path, tmp_path: Path) -> None:
    corpus, queries = Path(f"pyserini:{folder / 'docs'}"), [Query("1", "1-1", "", "queen honey", "honey of a queen")]
    made = {
        best: adopt_prebuilt(corpus, tmp_path / str(best), AttachSettings(None, True, MINILM, passages=best > 0))[0]
        for best in (0, 1)
    }
    found = {
        best: search_all(index, open_store(index), queries, depth=9, passages=PassageScore(max(1, best)))
        for best, index in made.items()
    }
    assert (made[0].passages, made[1].passages, made[0].key == made[1].key) == (False, True, False)
    rows = sorted(found[0]["bm25"].docs.tolist())
    assert rows
    assert sorted(found[1]["dense"].docs.tolist()) == rows
    vectors = segment_vectors(made[1], open_store(made[1]), rows)
    asked = embed_queries(MINILM, ["honey of a queen"])[0]
    scores = dict(zip(found[1]["dense"].docs.tolist(), found[1]["dense"].scores.tolist(), strict=True))
    assert scores == {row: float((vectors[row] @ asked).max()) for row in rows}


def test_ids_come_in_order_whatever_the_batch(folder: Path) -> None:
    reader = open_reader(folder / "many")
    names = sorted(record["id"].encode() for record in RECORDS)
    for count in (1, 7, 599, 600, 601):
        ids, numbers = zip(*IdTerms(reader).all(count), strict=True)
        assert [name for part in ids for name in part.tolist()] == names
        assert sorted(n for part in numbers for n in part.tolist()) == list(range(len(names)))
    assert [len(ids) for ids, _ in IdTerms(reader).all(599)] == [599, 1]


def test_ids_are_found_by_their_prefix(folder: Path) -> None:
    terms = IdTerms(open_reader(folder / "many"))
    names = sorted(record["id"].encode() for record in RECORDS)
    for prefix in (b"d", b"d1", b"d59", b"d599", b"d9", b"a", b"e", b"d5999", b""):
        ids, numbers = terms.beginning_with(prefix)
        assert ids.tolist() == [name for name in names if name.startswith(prefix)]
        assert len(numbers) == len(ids)


@pytest.mark.parametrize("depth", [1, 5, 40, 1000])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_ranking_is_anserinis_with_ties_by_id_also_at_the_cut(index: Index, depth: int, threads: int) -> None:
    """Anserini's searcher rounds scores to four places and lowers tied ones by a millionth."""
    peer = java_class("io.anserini.search.SimpleSearcher")(str(lucene_folder(index)))
    peer.set_bm25(0.9, 0.4)
    texts = [*WORDS, "honey bees and the queen of rivers", "nothing like it", ""]
    store, searcher, names = open_store(index), open_sparse(index, open_store(index)), [str(n) for n in range(13)]
    ticks: list[int] = []
    found = searcher.search(names, texts, depth, threads, ticks.append)
    assert sum(ticks) == len(texts)
    whole, tied = searcher.search(names, texts, len(RECORDS)), 0
    for i, text in enumerate(texts):
        hits = [(hit.docid, hit.score) for hit in peer.search(text, len(RECORDS))] if text else []
        expected = sorted(hits, key=lambda hit: (-hit[1], hit[0]))
        tied += len(hits) > depth and bool(whole.scores_of(i)[depth - 1] == whole.scores_of(i)[depth])
        assert store.ids(found.of(i)) == [name for name, _ in expected[:depth]]
        assert found.scores_of(i).tolist() == pytest.approx([score for _, score in expected[:depth]], abs=2e-4)
    assert depth == 1000 or tied > 2


@given(st.lists(st.lists(st.integers(0, 3), max_size=30), max_size=4), st.integers(1, 12))
def test_no_tie_is_cut(scores: list[list[int]], depth: int) -> None:
    """The engine keeps the largest numbers of tied documents; the ranking must hold the smallest ones."""
    engine = [sorted(((score, doc) for doc, score in enumerate(own)), reverse=True) for own in scores]
    asked = []

    def search(places: Any, wanted: int) -> list[tuple[Any, Any]]:
        asked.append(wanted)
        hits = [engine[place][:wanted] for place in places]
        return [(np.array([d for _, d in own], int), np.array([s for s, _ in own], np.float32)) for own in hits]

    for own, (docs, kept) in zip(scores, search_past_ties(search, len(scores), depth), strict=True):
        best = sorted(zip(docs.tolist(), kept.tolist(), strict=True), key=lambda hit: (-hit[1], hit[0]))[:depth]
        assert best == sorted(enumerate(own), key=lambda hit: (-hit[1], hit[0]))[:depth]
    assert asked == [(depth + SPARE_HITS) * 2**n for n in range(len(asked))]


def test_scores_and_frequencies_are_those_of_an_index_of_our_own(index: Index, tmp_path: Path) -> None:
    texts = [{"id": record["id"], "contents": record["contents"]} for record in RECORDS]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(record) + "\n" for record in texts))
    own = build_index(tmp_path / "c.jsonl", tmp_path / "own", BuildSettings(embedding=None))[0]
    ours, theirs = open_sparse(own, open_store(own)), open_sparse(index, open_store(index))
    for word in (*WORDS, "the", "of bees"):
        assert ours.stems(word) == theirs.stems(word)
        assert ours.document_frequencies([word]) == theirs.document_frequencies([word])
    for queries in (["honey bees of rivers", "ash"], [{"bee": 0.5, "honei": 1.5}, {"ash": 1.0}]):
        for depth in (3, 50, 1000):
            a, b = (searcher.search(["1", "2"], queries, depth) for searcher in (ours, theirs))
            assert (a.docs.tolist(), a.scores.tolist()) == (b.docs.tolist(), b.scores.tolist())
            assert a.offsets.tolist() == b.offsets.tolist()


def test_an_index_is_adopted_once_and_known_again(index: Index, folder: Path, tmp_path: Path) -> None:
    path = Path(f"pyserini:{folder / 'many'}")
    assert adopt_prebuilt(path, index.folder) == (index, False)
    with pytest.raises(UserError, match="holds an index of another corpus"):
        adopt_prebuilt(Path(f"pyserini:{folder / 'docs'}"), index.folder)
    with pytest.raises(UserError, match=r"msmarco_v2.1_doc_01_1 has no official segment.* --windows"):
        adopt_prebuilt(Path(f"pyserini:{folder / 'docs'}"), tmp_path / "index")
    moved = tmp_path / "moved"
    shutil.copytree(folder / "docs", moved)
    made, _ = adopt_prebuilt(Path(f"pyserini:{moved}"), tmp_path / "index", AttachSettings(windows=True))
    at = json.loads((made.folder / "index.json").read_bytes())
    at["at"]["state"] = "another"
    (made.folder / "index.json").write_text(json.dumps(at))
    for use in (open_store, lambda changed: open_sparse(changed, open_store(index))):
        with pytest.raises(UserError, match=r"is not the index that .* was made for"):
            use(open_index(made.folder))
    (index.folder / "rows/ids.npy").rename(tmp_path / "ids.npy")
    with pytest.raises(UserError, match="not whole: make the index again"):
        open_store(index)
    (tmp_path / "ids.npy").rename(index.folder / "rows/ids.npy")


@pytest.mark.parametrize(
    ("name", "segments", "message"),
    [
        pytest.param("slim", None, "stores no raw documents: take its variant", id="no documents"),
        pytest.param("nothing", None, "neither a folder nor one of Pyserini's|could not fetch it", id="no index"),
        pytest.param("many-texts", None, "not a whole Lucene index", id="a folder of texts"),
        pytest.param("docs", "docs", "expected offsets start_char <= end_char", id="segments that are documents"),
        pytest.param("docs", "many-texts", "not a whole Lucene index", id="segments that are texts"),
    ],
)
def test_an_index_that_cannot_be_adopted_is_an_error_and_leaves_no_files(
    folder: Path, tmp_path: Path, name: str, segments: str | None, message: str
) -> None:
    cut = Path(f"pyserini:{folder / segments}") if segments else None
    with pytest.raises(UserError, match=message):
        adopt_prebuilt(Path(f"pyserini:{folder / name}"), tmp_path / "index", AttachSettings(cut))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        pytest.param(["aa"], (), "2 documents and 1 ids", id="an id twice"),
        pytest.param([["a b"]], (), "expected an id without space, found 'a b'", id="a space"),
        pytest.param(["abcade"], ("-uniqueDocid",), "1 of its documents are deleted", id="one deleted"),
    ],
)
def test_ids_that_no_run_can_hold_are_refused(
    tmp_path: Path, files: list[list[str]], options: tuple[str, ...], message: str
) -> None:
    records = [[{"id": name, "contents": "x"} for name in names] for names in files]
    made = build_anserini_index(tmp_path, "odd", records, "-storeRaw", *options)
    with pytest.raises(UserError, match=message):
        adopt_prebuilt(Path(f"pyserini:{made}"), tmp_path / "index")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param("Just words.", Document("d", "Just words."), id="plain text"),
        pytest.param("", Document("d", ""), id="nothing"),
        pytest.param('{"id": "x", "contents": "C"}', Document("d", "C"), id="an object, by the index's id"),
        pytest.param(
            '{"url": "u", "title": "T", "headings": "H", "body": "B"}', Document("d", "B", "T", "u", "H"), id="MS MARCO"
        ),
        pytest.param(
            '{"title": "T", "segment": "Seg", "start_char": 3, "end_char": 6}',
            Document("d", "Seg", "T", segments=(Segment("d", Span("d", 0, 3)),)),
            id="a segment is its own segment",
        ),
        pytest.param("[1]", "expected a JSON object, found list", id="a list"),
        pytest.param('{"title": "T"}', "expected one of the keys text, contents, body", id="no text"),
        pytest.param('{"contents": 5}', "expected text, found int", id="a number for text"),
    ],
)
def test_stored_documents_of_every_form(raw: str, expected: Document | str) -> None:
    if isinstance(expected, Document):
        assert parse_stored_document(raw, "d", "here") == expected
    else:
        with pytest.raises(BadRecord, match=expected):
            parse_stored_document(raw, "d", "here")


def test_stored_texts_are_read_unchanged_and_missing_ones_are_none(folder: Path) -> None:
    assert StoredTexts(open_reader(folder / "slim")).of([1, 0]) == [None, None]
    texts = StoredTexts(open_reader(folder / "many"), "id").of([0] * 300)
    assert texts == [texts[0]] * 300
    assert StoredTexts(open_reader(folder / "many")).of([]) == []
    raws = StoredTexts(open_reader(folder / "many")).of(range(600))
    assert sorted(json.loads(raw)["contents"] for raw in raws if raw) == sorted(r["contents"] for r in RECORDS)


def official(record: dict[str, Any]) -> Document:
    name = record["docid"]
    found = Document(name, record["body"], record["title"], record["url"], record["headings"])
    cuts = [Segment(f"{name}#{n}_{s}", Span(name, s, e)) for n, (s, e) in enumerate(CUTS.get(name, []))]
    return Document(
        name, found.text, found.title, found.url, found.headings, tuple(cuts) or cut_segments(found).segments
    )


def test_official_segments_are_found_by_id_for_adopted_documents_and_for_a_corpus(folder: Path, tmp_path: Path) -> None:
    segments = Path(f"pyserini:{folder / 'segs'}")
    made, _ = adopt_prebuilt(Path(f"pyserini:{folder / 'docs'}"), tmp_path / "adopted", AttachSettings(segments))
    expected = sorted(map(official, DOCUMENTS), key=lambda document: document.id)
    assert list(open_store(made)) == expected
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(record) + "\n" for record in DOCUMENTS))
    with pytest.raises(UserError, match=r"c\.jsonl:5: document msmarco_v2\.1_doc_02_2 has no official segment"):
        build_index(tmp_path / "c.jsonl", tmp_path / "own", BuildSettings(segments=segments, embedding=None))
    own, _ = build_index(
        tmp_path / "c.jsonl", tmp_path / "own", BuildSettings(segments=segments, windows=True, embedding=None)
    )
    assert own.segments == {"official": len(SEGMENTS), "windows": len(cut_segments(expected[1]).segments)}
    assert list(DocumentStore(own.store)) == expected
    assert not build_index(tmp_path / "c.jsonl", tmp_path / "own", BuildSettings(segments=segments, embedding=None))[1]


def test_an_official_segment_behind_the_end_of_its_document_is_reported(folder: Path, tmp_path: Path) -> None:
    short = {**DOCUMENTS[2], "body": BODY[:70]}
    (tmp_path / "c.jsonl").write_text(json.dumps(short) + "\n")
    told: list[BadRecord] = []
    [read] = read_corpus(tmp_path / "c.jsonl", segments=Path(f"pyserini:{folder / 'segs'}"), report=told.append)
    assert [segment.id.rpartition("#")[2] for segment in read.segments] == ["0_0"]
    assert {error.kind for error in told} == {"bad offsets"}
    assert len(told) == len(CUTS[short["docid"]]) - 1


def test_threads_may_read_while_another_searches(index: Index) -> None:
    store = PrebuiltStore(index)
    expected = [document.text for document in store]
    queries = [Query("1", str(n), word, word, word) for n, word in enumerate(WORDS * 20)]
    searcher = open_sparse(index, store)

    def search() -> int:
        return len(searcher.search([q.id for q in queries], [q.sparse_text for q in queries], 50, 2).docs)

    with ThreadPoolExecutor(4) as pool:
        searches = [pool.submit(search) for _ in range(3)]
        reads = [pool.submit(store.get, range(n, 600, 3)) for n in (0, 1, 2) for _ in range(5)]
        assert len({job.result(LIMIT_S) for job in searches}) == 1
        for n, job in enumerate(reads):
            assert [document.text for document in job.result(LIMIT_S)] == expected[n // 5 :: 3]


def test_a_killed_adoption_continues_to_the_same_rows(folder: Path, tmp_path: Path) -> None:
    files = ("index.json", "rows/ids.npy", "rows/numbers.npy", "rows/rows.npy")
    expected: list[list[bytes]] = []

    def done() -> None:
        expected.append([(tmp_path / "index" / name).read_bytes() for name in files])
        assert expected[-1] == expected[0]
        shutil.rmtree(tmp_path / "index")

    arguments = ("index", f"pyserini:{folder / 'many'}", "--in-place", "--no-dense", "--out", tmp_path / "index", "-q")
    run_with_kills(*arguments, times=8, kills=3, done=done)
    assert [path.name for path in tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["corpus.jsonl", "--in-place"], "expected pyserini:NAME or pyserini:FOLDER", id="a corpus"),
        pytest.param(
            ["pyserini:docs", "--in-place", "--segments", "s.jsonl"], "s.jsonl: expected pyserini:NAME", id="a file"
        ),
        pytest.param(["pyserini:slim", "--in-place"], "stores no raw documents", id="no documents"),
        pytest.param(["rest:http://h", "--no-dense"], "expected rest:http://HOST:PORT/INDEX", id="half a URL"),
        pytest.param(
            ["rest:http://h/i", "--segments", "s.jsonl"], "found --segments with rest:http://h/i", id="segments"
        ),
    ],
)
def test_a_corpus_that_index_in_place_cannot_use_is_one_error(folder: Path, arguments: list[str], message: str) -> None:
    shown = keystone_here("index", *arguments, "--out", "never", "-q", cwd=folder)
    assert (shown.returncode, shown.stdout, shown.stderr.count("\n")) == (1, "", 1)
    assert message in shown.stderr
    assert not (folder / "never").exists()


RUN = """
run_id: marco
index: {folder}/index
topics: {folder}/topics.jsonl
out: {folder}/out
retrieval: {{depth: 40}}
fusion: {{depth: 20}}
answer: {{documents: 3, words: 60}}
"""


@pytest.mark.parametrize(
    ("track", "segments_alone"),
    [
        pytest.param("rag24", False, marks=pytest.mark.nightly),
        ("rag24", True),
        ("rag25", False),
        pytest.param("rag25", True, marks=pytest.mark.nightly),
    ],
)
def test_a_run_over_an_adopted_index_is_valid(folder: Path, tmp_path: Path, track: str, segments_alone: bool) -> None:
    name, cut = ("segs", []) if segments_alone else ("docs", ["--segments", f"pyserini:{folder / 'segs'}"])
    adopted = [f"pyserini:{folder / name}", "--in-place", "--out", str(tmp_path / "index"), "-q", *cut]
    for told in (f"{len(SEGMENTS) if segments_alone else len(DOCUMENTS)} documents", "already indexed"):
        shown = keystone("index", *adopted)
        assert (shown.returncode, shown.stderr) == (0, "")
        assert told in shown.stdout
    write_topics(tmp_path / "topics.jsonl")
    (tmp_path / "run.yaml").write_text(RUN.format(folder=tmp_path))
    shown = keystone("run", tmp_path / "run.yaml", "-q", "--set", f"track={track}")
    assert (shown.returncode, shown.stderr) == (0, "")
    run, rules = tmp_path / "out/marco", TRACKS[track]
    known = {record["docid"] for record in SEGMENTS} | {s.id for s in official(DOCUMENTS[4]).segments}
    for file in (rules.retrieval_file, rules.answer_file):
        shown = keystone("validate", run / file, "--topics", tmp_path / "topics.jsonl", "--track", track)
        found = [line for line in shown.stdout.splitlines() if ": error: " in line]
        assert shown.returncode == bool(found), shown.stdout
        assert all("msmarco_v2.1_doc_02_2#w0_0': a document of the track's corpus" in line for line in found)
        assert len(found) <= (not segments_alone)
    ranked = json.loads((run / "manifest.json").read_bytes())["ranked_segments"]
    assert ranked["windows"] == ranked["unknown_to_track"] == (not segments_alone)
    for hits in read_run(run / rules.retrieval_file).list_hits().values():
        assert hits
        assert {name for name, _ in hits} <= known
    answers = read_answer_file(run / rules.answer_file, rules)
    silent = [one for one in answers if not one.references]
    assert len(silent) < len(answers)
    assert [[said.text for said in one.answer.sentences] for one in silent] == [[NOTHING]] * len(silent)
    assert {reference for one in answers for reference in one.references} <= known
    shown = keystone("answer", "--topics", tmp_path / "topics.jsonl", "--index", tmp_path / "index", "-q",
                     "--out", tmp_path / "answers.jsonl", "--set", f"track={track}",
                     "--set", "answer.words=60", "--set", "answer.documents=3", "--set", "retrieval.depth=40",
                     "--set", "fusion.depth=20")  # fmt: skip
    assert (shown.returncode, shown.stderr) == (0, "")
    ours = sorted(json.loads(line)["answer"][0]["text"] for line in (tmp_path / "answers.jsonl").open())
    assert ours == sorted(json.loads(line)["answer"][0]["text"] for line in (run / rules.answer_file).open())
