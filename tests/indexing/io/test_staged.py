"""What an error leaves of a folder that is being filled: the finished stages, for the next try."""

import os
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from keystone.indexing.io import staged
from keystone.indexing.io.staged import partial_folder, stage


def stop_after(fill: Callable[[Path], object], out: Path) -> None:
    """Fill a folder in part, and stop."""
    with partial_folder(out, "key", ("*",)) as folder:
        fill(folder)
        raise KeyboardInterrupt


@pytest.mark.parametrize("place", [".", "plaid/colbert.shards"])
def test_after_an_error_the_next_try_finds_the_finished_stages_at_any_depth(place: str, tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / place).mkdir(parents=True, exist_ok=True)
        stage(folder / place, "a.npy", lambda path: path.write_bytes(b"1"))

    with pytest.raises(KeyboardInterrupt):
        stop_after(fill, tmp_path / "index")
    with partial_folder(tmp_path / "index", "key", ("*",)) as folder:
        assert (folder / place / "a.npy").read_bytes() == b"1"


def test_after_an_error_files_of_an_older_index_alone_do_not_stay(tmp_path: Path) -> None:
    (tmp_path / "older.json").write_text("{}")
    with pytest.raises(KeyboardInterrupt):
        stop_after(lambda folder: os.link(tmp_path / "older.json", folder / "vectors.json"), tmp_path / "index")
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


@pytest.mark.parametrize("replaces", [False, True])
def test_after_a_stop_while_the_rest_is_removed_the_next_try_finds_the_whole_folder(
    replaces: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = staged._empty
    given = tmp_path / "index", "key", ("index.json",), replaces

    def stop(folder: Path, keep: Collection[str]) -> None:
        empty(folder, keep)
        if keep:
            raise KeyboardInterrupt

    if replaces:
        (tmp_path / "index").mkdir()
    monkeypatch.setattr(staged, "_empty", stop)
    with pytest.raises(KeyboardInterrupt), partial_folder(*given) as folder:
        (folder / "index.json").write_text("{}")
    monkeypatch.undo()
    with partial_folder(*given) as folder:
        assert (folder / "index.json").exists()
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["index", "index/index.json"]
