"""Sets of vectors and impacts that come and go later: those of a new build, and all other files untouched."""

import errno
import os
import shutil
from pathlib import Path
from typing import IO

import pytest

from keystone.indexing.builds import changes
from keystone.indexing.builds.changes import change_parts
from keystone.indexing.builds.index import OF_PASSAGES, build_index, remove_shards
from keystone.indexing.builds.settings import BuildSettings, Kind
from keystone.indexing.builds.update import update_index
from keystone.indexing.errors import NotWritten, UserError
from keystone.indexing.impacts import settle_impacts
from keystone.indexing.index import ImpactSet, Index, open_index
from keystone.indexing.io import staged
from keystone.indexing.io.json_values import digest
from keystone.indexing.types import Embedding
from keystone.indexing.vectors.embed import settle_embedding
from tests.support.indexes.small_corpus import write_corpus, write_long_corpus
from tests.support.models.checkpoints import write_checkpoint
from tests.support.processes import run_with_kills
from tests.support.runs.command_line import keystone

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_checkpoint(folder / "encoder", pooling="mean", prompts={"query": "q: "})
    write_checkpoint(folder / "splade", head="words")
    return folder


def settle(models: Path) -> BuildSettings:
    encoder = settle_embedding(Embedding(str(models / "encoder")), (), lambda _: None)
    impacts = settle_impacts(str(models / "splade"))
    return BuildSettings(vectors={"a": encoder}, impacts={"s": impacts})


def read_files(index: Index) -> dict[str, bytes]:
    """The files of an index whose bytes do not depend on chance, without its description."""
    paths = [path for path in index.folder.rglob("*") if path.is_file() and "lucene" not in path.parts]
    named = {path.relative_to(index.folder).as_posix(): path for path in paths}
    return {name: path.read_bytes() for name, path in sorted(named.items()) if name != "index.json"}


@pytest.mark.parametrize("passages", [False, True])
def test_added_sets_are_those_of_a_new_build_and_dropping_them_leaves_the_first_index(
    models: Path, passages: bool, tmp_path: Path
) -> None:
    corpus, settings = write_corpus(tmp_path / "corpus.jsonl"), settle(models)
    first, _ = build_index(corpus, tmp_path / "index", BuildSettings(passages=passages))
    before, inode = read_files(first), (first.folder / "dense.faiss").stat().st_ino
    whole = BuildSettings(passages=passages, vectors=settings.vectors, impacts=settings.impacts)
    fresh, _ = build_index(corpus, tmp_path / "fresh", whole)
    index = change_parts(tmp_path / "index", settings)
    assert read_files(index) == read_files(fresh)
    assert (index.vectors, index.impacts, index.embedding) == (fresh.vectors, fresh.impacts, fresh.embedding)
    assert index.key != first.key
    assert (index.folder / "dense.faiss").stat().st_ino == inode
    index = change_parts(tmp_path / "index", BuildSettings(embedding=None), ["a"])
    assert (list(index.vectors), list(index.impacts)) == ([], ["s"])
    index = change_parts(tmp_path / "index", BuildSettings(embedding=None), ["s"])
    assert read_files(index) == before
    assert not list(tmp_path.glob(".index*"))


def read_impacts(index: Index) -> dict[str, bytes]:
    """The files of a set of impacts, and of the passages."""
    return {name: own for name, own in read_files(index).items() if name.startswith(("impacts/", "passages"))}


def test_impacts_of_a_pool_of_passages_are_those_of_passages(models: Path, tmp_path: Path) -> None:
    corpus, sets = write_long_corpus(tmp_path / "corpus.jsonl"), settle(models)
    made = {
        name: build_index(corpus, tmp_path / name, settings)[0]
        for name, settings in {
            "passages": BuildSettings(passages=True, impacts=sets.impacts),
            "pool": BuildSettings(passages=True, faiss=None, impacts=sets.impacts),
            "documents": BuildSettings(faiss=None, impacts=sets.impacts),
        }.items()
    }
    expected = read_impacts(made["passages"])
    assert "passages.npy" in expected
    assert read_impacts(made["pool"]) == expected
    assert read_impacts(made["documents"]) != expected
    added = change_parts(tmp_path / "pool", BuildSettings(vectors=sets.vectors))
    assert (read_impacts(added), added.vectors["a"].passages) == (expected, True)


def test_an_older_index_with_impacts_of_beginnings_is_another_index(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl")
    pool = BuildSettings(passages=True, faiss=None, impacts=settle(models).impacts)
    with monkeypatch.context() as older:
        own = "keystone.indexing.builds.index.digest"
        older.setattr(own, lambda value: digest([one for one in value if one != OF_PASSAGES]))
        build_index(corpus, tmp_path / "index", pool)
    with pytest.raises(UserError, match="holds an index of another corpus or other settings"):
        build_index(corpus, tmp_path / "index", pool)


def test_impacts_of_beginnings_in_an_index_of_passages_are_made_anew(models: Path, tmp_path: Path) -> None:
    """An older version made such an index."""
    corpus, sets = write_long_corpus(tmp_path / "corpus.jsonl"), settle(models)
    pool = BuildSettings(passages=True, faiss=None, impacts=sets.impacts)
    older, _ = build_index(corpus, tmp_path / "older", pool)
    build_index(corpus, tmp_path / "documents", BuildSettings(faiss=None, impacts=sets.impacts))
    older.offsets.unlink()
    shutil.rmtree(older.folder / "impacts")
    shutil.copytree(tmp_path / "documents/impacts", older.folder / "impacts")
    shutil.copytree(older.folder, tmp_path / "updated")
    with pytest.raises(UserError, match="holds a set 's' of beginnings of documents, expected one of passages"):
        change_parts(older.folder, BuildSettings(vectors=sets.vectors))
    whole, _ = build_index(corpus, tmp_path / "whole", pool)
    assert read_impacts(change_parts(older.folder, sets, ["s"])) == read_impacts(whole)
    (new := tmp_path / "new.jsonl").write_text('{"id": "new", "text": "Bees dance."}\n')
    (both := tmp_path / "both.jsonl").write_text(corpus.read_text() + new.read_text())
    fresh, _ = build_index(both, tmp_path / "fresh", pool)
    assert read_impacts(update_index(tmp_path / "updated", [new])[0]) == read_impacts(fresh)


def test_an_index_with_added_sets_can_be_updated_and_run(models: Path, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl")
    build_index(corpus, tmp_path / "index", BuildSettings(embedding=None))
    options = ["--vectors", f"a={models / 'encoder'}", "--impacts", f"s={models / 'splade'}", "-q"]
    shown = keystone("index", "--add", *options, "--out", tmp_path / "index")
    assert shown.returncode == 0, shown.stderr
    (tmp_path / "new.jsonl").write_text('{"id": "new", "text": "Bees dance."}\n')
    index, changes = update_index(tmp_path / "index", [tmp_path / "new.jsonl"])
    assert (changes.added, list(index.vectors), list(index.impacts)) == (1, ["a"], ["s"])
    systems = "{a: {kind: dense, vectors: a}, s: {kind: impact, impacts: s}}"
    shown = keystone("search", tmp_path / "index", "bees", "--set", f"retrieval.systems={systems}", "-q")
    assert (shown.returncode, "new" in shown.stdout) == (0, True), shown.stderr


@pytest.mark.parametrize(
    ("main", "added", "kinds"),
    [
        (Kind("Flat", None), Kind("smallest", 0.5), ("Flat", None, True)),
        (Kind("Flat", None), Kind("SQ8", None), ("Flat", "SQ8", False)),
        (Kind("SQ8", None), Kind("Flat", None), ("SQ8", "Flat", False)),
        (Kind(None, None), Kind("Flat", None), (None, "Flat", False)),
    ],
)
def test_each_set_of_vectors_keeps_its_kind(
    models: Path, main: Kind, added: Kind, kinds: tuple[str | None, str | None, bool], tmp_path: Path
) -> None:
    encoder = settle(models).vectors["a"]
    corpus = write_corpus(tmp_path / "corpus.jsonl")
    build_index(corpus, tmp_path / "index", BuildSettings(embedding=encoder, faiss=main.faiss))
    before = change_parts(
        tmp_path / "index", BuildSettings(vectors={"b": encoder}, faiss=added.faiss, recall=added.recall)
    )
    (tmp_path / "new.jsonl").write_text('{"id": "new", "text": "Bees dance."}\n')
    index, _ = update_index(tmp_path / "index", [tmp_path / "new.jsonl"])
    recall = index.vectors["b"].recall
    assert index.faiss == kinds[0]
    assert index.vectors["b"].faiss == (kinds[1] or before.vectors["b"].faiss)
    assert (recall is not None and recall.chosen) == kinds[2]


def test_a_kill_while_files_are_copied_leaves_no_half_file(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = build_index(write_corpus(tmp_path / "corpus.jsonl"), tmp_path / "index", BuildSettings())
    before, settings = read_files(first), BuildSettings(embedding=None, vectors=settle(models).vectors)

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no hard links")

    def stop_within(source: IO[bytes], out: IO[bytes]) -> None:
        out.write(source.read(10))
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "link", refuse)
    with monkeypatch.context() as killed:
        killed.setattr(shutil, "copyfileobj", stop_within)
        with pytest.raises(KeyboardInterrupt):
            change_parts(tmp_path / "index", settings)
    change_parts(tmp_path / "index", settings)
    assert read_files(change_parts(tmp_path / "index", BuildSettings(embedding=None), ["a"])) == before


def test_after_a_stop_at_the_very_end_nothing_is_encoded_again(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_index(write_corpus(tmp_path / "corpus.jsonl"), tmp_path / "index", BuildSettings(embedding=None))

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as stopped:
        stopped.setattr(staged, "exchange", stop)
        with pytest.raises(KeyboardInterrupt):
            change_parts(tmp_path / "index", settle(models))
    monkeypatch.setattr(changes, "write_vectors", lambda *_: pytest.fail("embeds again"))
    index = change_parts(tmp_path / "index", settle(models))
    assert (list(index.vectors), list(index.impacts)) == (["a"], ["s"])
    assert not (index.folder / "key").exists()


def test_a_disk_without_space_for_impacts_is_one_message(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To write into a mapped file without space on the disk would end the process by a signal."""
    first, _ = build_index(write_corpus(tmp_path / "corpus.jsonl"), tmp_path / "index", BuildSettings(embedding=None))

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(NotWritten, match=r"index/impacts/s/rows\.npy: cannot be written: No space left on device"):
        change_parts(first.folder, BuildSettings(embedding=None, impacts=settle(models).impacts))


def test_half_written_files_of_a_killed_build_do_not_stay(tmp_path: Path) -> None:
    names = ["vectors/.00000012.npy.7.partial", "vectors/b/.dense.faiss.7.partial", "vectors/b/dense.faiss"]
    names += [f"{kind}/.s.json.7.partial" for kind in ("impacts", "plaid", "languages")]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("half")
    remove_shards(tmp_path, ["b"])
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["dense.faiss"]


def test_an_index_behind_a_link_is_updated_where_it_is(tmp_path: Path) -> None:
    first, _ = build_index(write_corpus(tmp_path / "corpus.jsonl"), tmp_path / "index", BuildSettings(embedding=None))
    (tmp_path / "link").symlink_to("index")
    for number in range(2):
        (new := tmp_path / "new.jsonl").write_text(f'{{"id": "new{number}", "text": "Bees dance."}}\n')
        index, _ = update_index(tmp_path / "link", [new])
        assert (tmp_path / "link").is_symlink()
        assert open_index(tmp_path / "index") == index
    assert (index.documents or 0) - (first.documents or 0) == 2


def test_a_killed_command_goes_on_and_the_older_index_is_whole_until_then(models: Path, tmp_path: Path) -> None:
    build_index(write_corpus(tmp_path / "corpus.jsonl"), tmp_path / "first", BuildSettings(embedding=None))
    shutil.copytree(tmp_path / "first", tmp_path / "index")
    expected = read_files(change_parts(tmp_path / "index", settle(models)))
    shutil.rmtree(tmp_path / "index")
    shutil.copytree(tmp_path / "first", tmp_path / "index")

    def compare() -> None:
        assert read_files(open_index(tmp_path / "index")) == expected
        shutil.rmtree(tmp_path / "index")
        shutil.copytree(tmp_path / "first", tmp_path / "index")

    options = ["--vectors", f"a={models / 'encoder'}", "--impacts", f"s={models / 'splade'}"]
    run_with_kills(
        "index", "--add", *options, "--out", tmp_path / "index", "-q", times=8, kills=4, done=compare
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--add"], "expected with --vectors NAME=MODEL, --impacts NAME=MODEL or --plaid NAME=MODEL"),
        (["--drop", "b"], "holds no set 'b' to drop, expected one of a"),
        (["--add", "--vectors", "a=all-MiniLM-L6-v2"], "holds a set 'a', expected a new name"),
        (["--add", "--vectors", "b=all-MiniLM-L6-v2", "--recall", "95"], "--recall: found 95, expected a number above"),
        (["--add", "--vectors", "b=all-MiniLM-L6-v2", "--faiss", "smallest"], "'smallest': found without --recall"),
        (["--drop", "a", "--recall", ".9"], "--recall without vectors of all documents, expected --dense all, --dense"),
        (["--drop", "a", "--update", "x"], "found --drop with --update or --delete, expected only one of them"),
        (["--drop", "a", "--windows"], "found --windows with --add or --drop, expected only one of them"),
    ],
)
def test_what_cannot_be_changed_is_named(options: list[str], message: str, tmp_path: Path) -> None:
    settings = BuildSettings(embedding=None, vectors={"a": Embedding()})
    build_index(write_corpus(tmp_path / "corpus.jsonl"), tmp_path / "index", settings)
    before = read_files(open_index(tmp_path / "index"))
    shown = keystone("index", *options, "--out", tmp_path / "index", "-q")
    assert shown.returncode != 0
    assert message in " ".join(shown.stderr.replace("│", " ").split())
    assert read_files(open_index(tmp_path / "index")) == before


def test_sets_of_two_kinds_need_two_names(tmp_path: Path) -> None:
    corpus, out = write_corpus(tmp_path / "corpus.jsonl"), tmp_path / "index"
    settings = BuildSettings(embedding=None, vectors={"a": Embedding()}, impacts={"a": ImpactSet("m", "w")})
    message = "found two sets with the name 'a', expected a name of its own for each"
    with pytest.raises(UserError, match=message):
        build_index(corpus, out, settings)
    assert not out.exists()
    build_index(corpus, out, BuildSettings(embedding=None))
    with pytest.raises(UserError, match=message):
        change_parts(out, settings)


def test_an_index_elsewhere_keeps_its_parts(tmp_path: Path) -> None:
    index, _ = build_index(write_corpus(tmp_path / "c.jsonl"), tmp_path / "index", BuildSettings(embedding=None))
    text = (index.folder / "index.json").read_text().replace('"at": {}', '"at": {"backend": "rest", "url": "http://x"}')
    (index.folder / "index.json").write_text(text)
    with pytest.raises(UserError, match="holds its documents in rest, expected an index in the folder"):
        change_parts(index.folder, BuildSettings(embedding=None), ["a"])
