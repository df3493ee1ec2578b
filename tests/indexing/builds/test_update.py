"""An updated index equals a new one of the documents that result, and embeds only texts that it lacks."""

import json
import random
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from keystone.indexing.builds import changes
from keystone.indexing.builds import update as updates
from keystone.indexing.builds.changes import Changes, Reading
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.builds.update import update_index
from keystone.indexing.errors import BadRecord, UserError
from keystone.indexing.index import Index, open_index
from keystone.indexing.types import Document, Embedding, Segment, Span
from keystone.indexing.vectors import shards as vectors
from keystone.indexing.vectors.embed import load_model
from keystone.indexing.vectors.reuse import JoinedShards
from keystone.retrieval.backends import open_store
from keystone.retrieval.types import Query
from tests.support import programs
from tests.support.indexes.searches import search_all
from tests.support.indexes.small_corpus import CORPUS, SAME_BYTES_NAMES, read_contents, write_corpus
from tests.support.mutation import FUZZ_CASES
from tests.support.processes import run_with_kills
from tests.support.runs.command_line import keystone
from tests.support.servers.embeddings import Server, serving, status

WORDS = ["the", "Ωmega", "日本", "🐝", "bee " * 300, "a" * 300]
"""Words that only Lucene reads, a stop word, a frequent and a long one."""
SENTENCES = [sentence for _, text in CORPUS.values() for sentence in text.split(". ")]
KINDS: Mapping[str, BuildSettings] = {
    "documents": BuildSettings(),
    "passages": BuildSettings(passages=True),
    "files": BuildSettings(faiss_shard=3),
    "HNSW": BuildSettings(faiss="HNSW4"),
    "lists": BuildSettings(faiss="IVF2,Flat"),
    "compressed": BuildSettings(faiss="SQ8"),
    "refined": BuildSettings(faiss="RaBitQ,RFlat", recall=0.9),
    "chosen": BuildSettings(faiss="smallest", recall=0.9),
    "no vectors": BuildSettings(embedding=None),
    "pool": BuildSettings(faiss=None),
    "two sets": BuildSettings(vectors={"b": Embedding(query_prefix="q: ")}),
    "two chosen sets": BuildSettings(
        faiss="smallest", recall=0.99, vectors={"b": Embedding(query_prefix="q: ")}, passages=True, faiss_shard=5
    ),
    "two sets of passages": BuildSettings(vectors={"b": Embedding(query_prefix="q: ")}, passages=True, faiss_shard=5),
    "a further set alone": BuildSettings(embedding=None, vectors={"b": Embedding(passage_prefix="p: ")}),
}

Texts = dict[str, str]


def write(path: Path, texts: Mapping[str, str]) -> Path:
    path.write_text("".join(json.dumps({"id": name, "text": text}) + "\n" for name, text in texts.items()))
    return path


def change(texts: Texts, choose: random.Random) -> tuple[Texts, list[str]]:
    """Choose new documents, new texts of documents, equal documents, and ids to remove."""
    known = choose.sample(sorted(texts), min(len(texts), 4))
    removed, replaced, equal = known[:1] * choose.randint(0, 1), known[1:3], known[3:]
    made = {f"d{choose.randint(0, 99)}": "" for _ in range(choose.randint(0, 3))}
    given = {name: draw_text(choose) for name in [*made, *replaced] if name not in removed}
    given |= {name: texts[name] for name in equal}
    if removed and choose.random() < 0.5:  # a document that moves keeps its vectors
        given["moved-" + removed[0]] = texts[removed[0]]
    names = list(given)
    choose.shuffle(names)
    return {name: given[name] for name in names}, removed


def draw_text(choose: random.Random) -> str:
    return ". ".join([*choose.sample(SENTENCES, choose.randint(1, 16)), *choose.choices(WORDS, k=2)])


def apply(texts: Texts, given: Texts, removed: list[str]) -> Texts:
    """The documents that result, in their order: those that stay, then the others in the order of the file."""
    changed = {name: text for name, text in given.items() if texts.get(name) != text}
    return {name: text for name, text in texts.items() if name not in (*removed, *changed)} | changed


def describe(index: Index) -> dict[str, Any]:
    """What an index holds, without the name of its corpus and the records that it left out."""
    same = [name for name in SAME_BYTES_NAMES if name != "index.json"]
    further = [*(f"vectors/{name}" for name in index.vectors), "dense-0000.faiss", "dense-0001.faiss"]
    found: dict[str, Any] = dict(read_contents(index.folder, [*same, *further]))
    names = {path.name for path in index.folder.iterdir() if path.suffix != ".sqlite"}
    found["files"] = sorted(names - {"lucene"})  # an update leaves it out
    said = json.loads((index.folder / "index.json").read_text())
    return found | {name: said[name] for name in said if name not in ("key", "corpus", "left_out")}


def rankings(index: Index) -> list[Any]:
    queries = [Query(str(n), f"{n}-1", text, text, text) for n, (text, _) in enumerate(CORPUS.values())]
    systems = ["bm25", "dense"] if index.embedding and not index.pooled else ["bm25"]
    found = search_all(index, open_store(index), queries, systems=systems, depth=9).values()
    return [(ranked.docs.tolist(), ranked.scores.tolist()) for ranked in found]


def check(index: Index, texts: Texts, settings: BuildSettings, place: Path) -> None:
    fresh, _ = build_index(write(place.with_suffix(".jsonl"), texts), place, settings)
    assert describe(index) == describe(fresh)
    assert rankings(index) == rankings(fresh)


class Killed(BaseException):
    """Ends a build at once, as a signal would."""


STAGES = [
    "find_changes",
    "update_store",
    "_update_postings",
    "write_vectors",
    "write_description",
    "copy_kept",
    "none",
]


def update_after_stops(monkeypatch: pytest.MonkeyPatch, stage: str, *arguments: Any) -> tuple[Index, Changes]:
    """Update an index; a first try ends after one of its stages."""
    before = open_index(arguments[0]).key
    if stage != "none":
        with monkeypatch.context() as patch:
            module = updates if hasattr(updates, stage) else changes
            perform = getattr(module, stage)

            def stop(*given: Any, **named: Any) -> None:
                perform(*given, **named)
                raise Killed

            patch.setattr(module, stage, stop)
            try:
                return update_index(*arguments)
            except Killed:
                assert open_index(arguments[0]).key == before
    return update_index(*arguments)


def test_vectors_of_an_older_index_are_all_kept() -> None:
    old = np.eye(3, dtype=np.float32)
    joined = JoinedShards(
        [], 3, 0, lambda rows: old[rows], np.arange(3), np.zeros(3, np.int64), vectors.Shards([], 0, 0)
    )
    assert np.array_equal(np.concatenate([*joined]), old)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(200 if FUZZ_CASES else len(KINDS)))
def test_any_sequence_of_updates_ends_in_the_index_of_a_new_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(vectors, "SHARD_DOCUMENTS", 4)
    settings, choose = list(KINDS.values())[number % len(KINDS)], random.Random(number)
    texts = {f"d{n}": draw_text(choose) for n in range(6, 16)}
    out = tmp_path / "index"
    build_index(write(tmp_path / "corpus.jsonl", texts), out, settings)
    for turn in range(2):
        given, removed = change(texts, choose)
        corpora = [write(tmp_path / f"{turn}.jsonl", given)] if given else []
        (gone := tmp_path / "gone").write_text("\n".join(removed))
        texts = apply(texts, given, removed)
        index, _ = update_after_stops(monkeypatch, choose.choice(STAGES), out, corpora, gone)
        assert update_index(out, corpora)[1] == Changes()
        assert not list(tmp_path.glob(".*"))
        check(index, texts, settings, tmp_path / f"fresh-{turn}")


@pytest.mark.slow
def test_a_command_killed_at_random_moments_ends_in_the_index_of_an_undisturbed_one(tmp_path: Path) -> None:
    base, out = tmp_path / "base", tmp_path / "index"
    build_index(write_corpus(tmp_path / "corpus.jsonl"), base, BuildSettings())
    new = write(tmp_path / "new.jsonl", {f"n{n}": f"New text {n}." for n in range(6)} | {"bees": "Bees hum."})
    (gone := tmp_path / "gone").write_text("wasps\n")
    expected: list[Any] = []

    def begin() -> None:
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(base, out)

    def compare() -> None:
        expected.append(describe(open_index(out)))
        assert expected[-1] == expected[0]
        assert not list(tmp_path.glob(".*"))
        begin()

    begin()
    command = ("index", "--update", new, "--delete", gone, "--out", out, "--quiet")
    run_with_kills(*command, times=8, kills=4, done=compare)
    keystone(*command)
    assert open_index(out).documents == len(CORPUS) + 6 - 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["corpus.jsonl", "--update", "new.jsonl"], "found CORPUS with --update or --delete, expected only one"),
        (["--update", "new.jsonl", "--dense", "all"], "found --dense with --update or --delete, expected only one"),
        ([], "missing; expected CORPUS, --update CORPUS, --delete FILE, --add or --drop NAME"),
    ],
)
def test_a_command_that_both_builds_and_updates_is_refused(plain: Path, arguments: list[str], message: str) -> None:
    done = keystone("index", *arguments, "--out", plain)
    assert done.returncode
    assert message in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.slow
def test_a_text_that_the_index_holds_is_not_embedded_again(tmp_path: Path) -> None:
    texts = {name: text for name, (_, text) in CORPUS.items() if name != "twin-b"}
    out = tmp_path / "index"
    with serving() as server:
        settings = BuildSettings(embedding=Embedding("letters", server.url))
        build_index(write(tmp_path / "corpus.jsonl", texts), out, settings)
        server.requests.clear()
        given = {"bees": "Bees hum.", "new": "Ants build.", "wasps-again": texts["wasps"], "flowers": texts["flowers"]}
        (tmp_path / "gone").write_text("wasps\nglacier\n")
        _, changes = update_index(out, [write(tmp_path / "new.jsonl", given)], tmp_path / "gone")
        assert sorted(sent(server)) == ["Ants build.", "Bees hum."]
        assert changes == Changes(added=2, replaced=1, removed=2)


@pytest.mark.slow
@pytest.mark.parametrize("faiss", ["Flat", None])
def test_a_deletion_does_not_ask_the_server_of_the_model(faiss: str | None, tmp_path: Path) -> None:
    with serving() as server:
        embedding = Embedding("letters", server.url)
        settings = BuildSettings(embedding=embedding, faiss=faiss, vectors={"b": embedding})
        whole, _ = build_index(write_corpus(tmp_path / "corpus.jsonl"), tmp_path / "index", settings)
        server.requests.clear()
        load_model.cache_clear()
        (tmp_path / "gone").write_text("wasps\n")
        index, _ = update_index(whole.folder, delete=tmp_path / "gone")
        assert (index.documents, server.requests) == ((whole.documents or 0) - 1, [])


@pytest.mark.slow
def test_a_stopped_update_does_not_embed_a_finished_shard_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "SHARD_DOCUMENTS", 2)
    out = tmp_path / "index"
    with serving() as server:
        build_index(
            write_corpus(tmp_path / "corpus.jsonl"), out, BuildSettings(embedding=Embedding("letters", server.url))
        )
        before = read_contents(out)
        new = write(tmp_path / "new.jsonl", {f"n{n}": f"New text {n}." for n in range(6)})
        server.requests.clear()
        refuses = iter([False, False, True])
        server.always = lambda handler, texts: next(refuses, True) and status(403, "closed")(handler, texts)
        with pytest.raises(UserError, match="closed"):
            update_index(out, [new])
        assert read_contents(out) == before
        kept = sent(server)[:-2]
        server.requests.clear()
        server.always = None
        index, _ = update_index(out, [new])
        assert index.documents == len(CORPUS) + 6
        assert sorted(kept + sent(server)) == [f"New text {n}." for n in range(6)]


def sent(server: Server) -> list[str]:
    return [text for request in server.requests for text in request if text != "dimension"]


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """An index without embeddings of the documents a and b."""
    corpus = write(tmp_path / "corpus.jsonl", {"a": "Honey bees.", "b": "A volcano."})
    return build_index(corpus, tmp_path / "index", BuildSettings(embedding=None))[0].folder


def test_an_unknown_id_is_reported_with_its_line(plain: Path, tmp_path: Path) -> None:
    (gone := tmp_path / "gone").write_text("a\n\nzz\n")
    said: list[BadRecord] = []
    index, changes = update_index(plain, delete=gone, report=said.append)
    assert [str(error) for error in said] == [f"{gone}:3: the index holds no document 'zz'"]
    assert (index.documents, changes.removed, changes.left_out) == (1, 1, {"unknown id": 1})


def test_unknown_ids_to_remove_are_no_bad_records_of_the_corpus(plain: Path, tmp_path: Path) -> None:
    corpus = write(tmp_path / "new.jsonl", {"c": "Wasps.", "d": "Ash."})
    (gone := tmp_path / "gone").write_text("yy\nzz\n")
    _, first = update_index(plain, [corpus], gone, report=lambda _: None, since=Reading())
    assert first.reading is not None
    assert (first.left_out, first.reading.left_out) == ({"unknown id": 2}, 0)
    corpus.write_text(corpus.read_text()[:-9])  # a half of the last record
    index, second = update_index(plain, [corpus], report=lambda _: None, since=first.reading)
    assert (index.documents, second.removed, sum(second.left_out.values())) == (4, 0, 1)


@pytest.mark.parametrize(
    ("removed", "given", "message"),
    [
        ("a\nb\n", {}, "names all 2 documents of the index, expected one to be left"),
        ("a\nb\n", {"b": "New."}, ":2: found the id 'b' of a document in .*new.jsonl, expected it in one of them"),
    ],
)
def test_an_update_that_cannot_be_leaves_the_index_as_it_was(
    plain: Path, tmp_path: Path, removed: str, given: Texts, message: str
) -> None:
    (gone := tmp_path / "gone").write_text(removed)
    before = open_index(plain)
    with pytest.raises(UserError, match=message):
        update_index(plain, [write(tmp_path / "new.jsonl", given)] if given else [], gone)
    assert open_index(plain) == before
    assert not list(tmp_path.glob(".*"))


@pytest.mark.slow
def test_an_update_writes_no_lucene_index_but_one_can_be_added(plain: Path, tmp_path: Path) -> None:
    new = write(tmp_path / "new.jsonl", {"c": "Bees dance.", "a": "Wasps."})
    index, _ = update_index(plain, [new])
    assert not index.lucene.exists()
    ours = rankings(index)
    command = [sys.executable, "-m", "keystone.indexing.builds.lucene"]
    for _ in range(2):
        programs.run([*command, plain], check=True)
    shutil.rmtree(index.postings)  # so that Lucene searches
    assert rankings(index) == ours
    index, _ = update_index(plain, [write(tmp_path / "more.jsonl", {"c": "Bees."})])
    check(index, {"b": "A volcano.", "a": "Wasps.", "c": "Bees."}, BuildSettings(embedding=None), tmp_path / "fresh")
    done = programs.run([*command, tmp_path / "none"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        f"{tmp_path}/none: not an index: expected a folder made by `keystone index`\n",
    )


@pytest.mark.slow
def test_documents_that_share_an_id_are_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store of such a corpus holds all of them, and uses the first."""
    monkeypatch.setattr("keystone.indexing.store.CHUNK_BYTES", 5)
    lines = [{"id": name, "text": text} for name, text in (("b", "Bees."), ("b", "Wasps."), ("c", "Ice."), ("a", "X."))]
    (corpus := tmp_path / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    said: list[BadRecord] = []
    index, _ = build_index(corpus, tmp_path / "index", BuildSettings(embedding=None), report=said.append)
    index, _ = update_index(index.folder, [write(tmp_path / "new.jsonl", {"a-longer-id": "Y."})])
    texts = {"b": "Bees.", "c": "Ice.", "a": "X.", "a-longer-id": "Y."}
    check(index, texts, BuildSettings(embedding=None), tmp_path / "fresh")


def test_an_index_of_another_engine_is_refused(plain: Path, tmp_path: Path) -> None:
    said = json.loads((plain / "index.json").read_text())
    (plain / "index.json").write_text(json.dumps(said | {"at": {"backend": "rest", "url": "http://x"}}))
    with pytest.raises(UserError, match="holds its documents in rest, which Keystone only searches; expected an index"):
        update_index(plain, [write(tmp_path / "new.jsonl", {"c": "New."})])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["documents", "no vectors"])
def test_an_update_that_leaves_no_document_as_it_was_ends_in_a_new_build(kind: str, tmp_path: Path) -> None:
    build_index(write(tmp_path / "old.jsonl", {"a": "Bees.", "b": "Wasps."}), tmp_path / "index", KINDS[kind])
    new = write(tmp_path / "new.jsonl", {"a": "Bees fly."})
    (tmp_path / "gone").write_text("b\n")
    index, _ = update_index(tmp_path / "index", [new], tmp_path / "gone")
    assert describe(index) == describe(build_index(new, tmp_path / "fresh", KINDS[kind])[0])


@pytest.mark.slow
def test_an_opened_index_keeps_its_documents_or_says_that_it_changed(plain: Path, tmp_path: Path) -> None:
    index = open_index(plain)
    store = open_store(index)
    update_index(plain, [write(tmp_path / "new.jsonl", {"a": "Wasps."})])
    assert [document.text for document in store] == ["Honey bees.", "A volcano."]
    with pytest.raises(UserError, match="was replaced or removed while it was in use"):
        open_store(index)


@pytest.mark.slow
def test_the_key_of_an_updated_index_tells_what_was_updated(plain: Path, tmp_path: Path) -> None:
    new, old = (write(tmp_path / f"{text}.jsonl", {"b": text}) for text in ("Lava", "Ash"))
    copy = Path(shutil.copytree(plain, tmp_path / "copy"))
    keys = [update_index(place, [corpus])[0].key for place, corpus in ((plain, new), (copy, new), (copy, old))]
    assert keys[0] == keys[1] != keys[2]


def test_an_update_counts_the_segments_of_what_comes_and_goes(plain: Path, tmp_path: Path) -> None:
    new = write(tmp_path / "new.jsonl", {"a": " ".join(["Bees fly far."] * 30), "c": "Wasps.", "d": "Ash."})
    (gone := tmp_path / "gone").write_text("b\n")
    index, _ = update_index(plain, [new], gone)
    assert index.segments["windows"] == sum(len(document.segments) for document in open_store(index))
    assert index.documents == 3 < index.segments["windows"]


@pytest.mark.slow
def test_another_update_at_the_same_time_is_refused(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = write(tmp_path / "new.jsonl", {"c": "New."})
    perform = getattr(updates, "update_store")  # noqa: B009

    def meet(*arguments: Any) -> None:
        with pytest.raises(UserError, match="another process is writing here"):
            update_index(plain, [new])
        perform(*arguments)

    monkeypatch.setattr(updates, "update_store", meet)
    assert update_index(plain, [new])[0].documents == 3


@pytest.mark.slow
@pytest.mark.parametrize("replaced", [False, True])
def test_names_are_exchanged_also_without_a_call_of_the_system(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    """A stop between the renames loses nothing."""
    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: object())
    rename = Path.rename

    def stop(path: Path, target: Path) -> Path:
        moved = rename(path, target)
        if (path == plain) != replaced:
            raise Killed
        return moved

    new = write(tmp_path / "new.jsonl", {"c": "New."})
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", stop)
        with pytest.raises(Killed):
            update_index(plain, [new])
    assert update_index(plain, [new])[0].documents == 3
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("found", [{"segments": {"windows": 1, "blank": 0}}, {}])
def test_segments_are_counted_also_if_an_older_version_found_the_changes(found: Mapping[str, Any]) -> None:
    document = Document("d", "Bees.", segments=(Segment("d#w0_0", Span("d", 0, 5)),))
    older: Any = SimpleNamespace(segments={"windows": 5, "blank": 0})
    counted = changes.change_segments(older, found, [document, document], [document])
    assert counted == {"windows": 6, "blank": 0}
