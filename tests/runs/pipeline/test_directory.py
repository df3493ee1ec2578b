"""The run directory: right artifacts are kept, others are made anew, and no two configurations are mixed."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing.errors import UserError
from keystone.indexing.io.writing import lock_folder
from keystone.runs.pipeline.directory import Stage, Watch, perform_stages, plan_stages
from keystone.runs.pipeline.job import Job
from keystone.runs.pipeline.made_config import read_run_config
from keystone.runs.pipeline.values import Artifact, Values


def test_the_error_of_a_configuration_names_the_packages_that_are_missing_here(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("run_id: r\nindex: i\ntopics: t\nfusion: {method: best_rank}\n")
    with pytest.raises(UserError, match=r"fusion\.method: found 'best_rank'.*[^e]$"):
        read_run_config(tmp_path)
    versions = {"numpy": "1.0", "keystone-tiny": "0.1", "faiss": "1.9"}
    (tmp_path / "manifest.json").write_bytes(orjson.dumps({"versions": versions}))
    with pytest.raises(UserError) as told:
        read_run_config(tmp_path)
    assert str(told.value).splitlines()[1:] == ["the run was made with keystone-tiny 0.1, which is not installed here"]


def text(name: str) -> Artifact[str]:
    """A file of text."""

    def write(path: Path, value: str, _: Values) -> None:
        path.write_text(value)

    return Artifact(name, lambda path, _: path.read_text(), write)


def open_values(folder: Path) -> Values:
    """The values of a folder whose files need no job."""
    return Values(folder, cast(Job, None))


def make_stage(
    name: str,
    makes: tuple[Artifact[str], ...],
    reads: tuple[Artifact[str], ...],
    settings: object,
    make: Callable[..., Sequence[str]],
) -> Stage:
    """Make a stage whose function takes the values of `reads`, and returns those of `makes`."""

    def work(values: Values) -> None:
        for artifact, value in zip(makes, make(*map(values.get, reads)), strict=True):
            values.put(artifact, value)

    return Stage(name, makes, reads, settings, work)


def pipeline(made: list[str], a: str = "a", b: str = "b", extra: bool = False) -> list[Stage]:
    """Make three stages: `first` writes a, `second` writes b from it, `third` writes two files from b."""

    def make(names: str, *inputs: str) -> list[str]:
        made.extend(names.lower())
        return [name + "".join(inputs) for name in names]

    stages = [
        make_stage("first", (text("a"),), (), a, partial(make, a)),
        make_stage("second", (text("b"),), (text("a"),), b, partial(make, b)),
        make_stage("third", (text("c"), text("d")), (text("b"),), None, partial(make, "cd")),
    ]
    return [*stages, make_stage("fourth", (text("e"),), (), None, partial(make, "e"))] if extra else stages


def bring(folder: Path, **changes: object) -> list[str]:
    made: list[str] = []
    perform_stages(open_values(folder), pipeline(made, **changes), {"versions": {}})  # type: ignore[arg-type]
    return made


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_second_run_makes_nothing(tmp_path: Path) -> None:
    assert bring(tmp_path) == ["a", "b", "c", "d"]
    before = content(tmp_path)
    assert bring(tmp_path) == []
    assert content(tmp_path) == before


@pytest.mark.parametrize(
    ("changes", "made"),
    [
        pytest.param({"a": "A"}, ["a", "b", "c", "d"], id="the first stage: all after it"),
        pytest.param({"b": "B"}, ["b", "c", "d"], id="the second stage: the first is kept"),
        pytest.param({"extra": True}, ["e"], id="one more stage: only that"),
    ],
)
def test_a_changed_setting_remakes_its_dependents(tmp_path: Path, changes: dict[str, object], made: list[str]) -> None:
    bring(tmp_path)
    assert bring(tmp_path, **changes) == made
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    bring(fresh, **changes)
    assert content(fresh) == content(tmp_path)


@pytest.mark.parametrize(("name", "made"), [("a", ["a"]), ("b", ["b"]), ("c", ["c", "d"])])
def test_an_artifact_that_was_edited_or_lost_is_made_again(tmp_path: Path, name: str, made: list[str]) -> None:
    bring(tmp_path)
    before = content(tmp_path)
    (tmp_path / name).write_text("edited")
    assert bring(tmp_path) == made
    (tmp_path / name).unlink()
    assert bring(tmp_path) == made
    assert content(tmp_path) == before


def test_a_plan_tells_which_stages_ask_again_for_unusable_replies(tmp_path: Path) -> None:
    facts = iter([{}, {"steps": {"asked": 2, "unusable": 1}}, {}])
    watch = Watch(take_facts=lambda: next(facts))
    perform_stages(open_values(tmp_path), pipeline([]), {"versions": {}}, watch)
    plans = [[plan for _, plan in plan_stages(tmp_path, pipeline([]), {}, retry=retry)] for retry in (False, True)]
    assert plans == [["kept"] * 3, ["kept", "made", "made if an input changes"]]


def test_artifacts_of_an_old_configuration_are_removed_and_foreign_files_stay(tmp_path: Path) -> None:
    bring(tmp_path, extra=True)
    (tmp_path / "notes.txt").write_text("mine")
    bring(tmp_path)
    assert sorted(content(tmp_path)) == ["a", "b", "c", "d", "manifest.json", "notes.txt"]


def test_a_failing_stage_keeps_earlier_artifacts(tmp_path: Path) -> None:
    made: list[str] = []
    stages = pipeline(made)

    def fail(_: Values) -> None:
        raise UserError("no")

    with pytest.raises(UserError):
        perform_stages(open_values(tmp_path), [*stages[:2], replace(stages[2], make=fail)], {"versions": {}})
    assert bring(tmp_path) == ["c", "d"]


@pytest.mark.parametrize("manifest", [b"", b"{", b"[]", b'{"artifacts": 7}', b'{"artifacts": {"a": 7}}'])
def test_a_broken_manifest_counts_as_none(tmp_path: Path, manifest: bytes) -> None:
    bring(tmp_path)
    (tmp_path / "manifest.json").write_bytes(manifest)
    assert bring(tmp_path) == ["a", "b", "c", "d"]
    assert set(orjson.loads((tmp_path / "manifest.json").read_bytes())["artifacts"]) == {"a", "b", "c", "d"}


def test_a_folder_of_other_files_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("mine")
    with pytest.raises(UserError, match=r"holds files but no manifest\.json"):
        bring(tmp_path)
    assert content(tmp_path) == {"a": b"mine"}


def test_other_versions_of_the_packages_remake_everything(tmp_path: Path) -> None:
    bring(tmp_path)
    made: list[str] = []
    perform_stages(open_values(tmp_path), pipeline(made), {"versions": {"onnxruntime": "3"}})
    assert made == ["a", "b", "c", "d"]


def test_a_directory_is_held_by_one_process_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with lock_folder(folder), pytest.raises(UserError, match="another process is writing here"), lock_folder(folder):
        pass
    with lock_folder(folder):
        pass


def chained(words: dict[str, str], made: list[str]) -> list[Stage]:
    """Make four stages in a diamond. Each writes its own word and a digest of its inputs' bytes."""

    def stage(name: str, inputs: tuple[str, ...], kept: int = 64) -> Stage:
        def make(*read: str) -> list[str]:
            made.append(name)
            return [words[name] + sha256("".join(read).encode()).hexdigest()[:kept]]

        return make_stage(name, (text(name),), tuple(map(text, inputs)), None, make)

    return [stage("a", ()), stage("b", ("a",)), stage("c", ("a",), kept=0), stage("d", ("b", "c"))]


def follow(folder: Path, words: dict[str, str]) -> list[str]:
    folder.mkdir(exist_ok=True)
    made: list[str] = []
    perform_stages(open_values(folder), chained(words, made), {"versions": {}})
    return made


@pytest.mark.slow
@given(
    st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["other", "same", "edited"]), min_size=1),
    st.sampled_from(["", "abcd"]),
)
def test_only_artifacts_whose_inputs_changed_are_made_again(changes: dict[str, str], interrupted: str) -> None:
    words = dict.fromkeys("abcd", "word")
    with TemporaryDirectory() as name:
        folder, fresh = Path(name, "run"), Path(name, "fresh")
        follow(folder, words)
        for artifact, change in changes.items():
            if change == "edited":
                (folder / artifact).write_text("edited")
            else:
                (folder / artifact).unlink()
                words[artifact] += change if change == "other" else ""
        if interrupted:  # as after a kill: some stages are done already
            with suppress(KeyboardInterrupt):
                stages = chained(words, [])
                perform_stages(
                    open_values(folder), [*stages[:2], replace(stages[2], make=stop), stages[3]], {"versions": {}}
                )
        made = follow(folder, words)
        follow(fresh, words)
        assert content(folder) == content(fresh)
        assert follow(folder, words) == []
        assert interrupted or set(made) == after(changes)


def after(changes: dict[str, str]) -> set[str]:
    """List the artifacts to make: those that changed, and those whose inputs have other bytes. `c` hides its word."""
    made, other = set(changes), {name for name, change in changes.items() if change == "other"}
    if "a" in other:
        made |= {"b", "c"}
        other |= {"b"}
    return made | ({"d"} if other & {"b", "c"} else set())


def stop(_: Values) -> None:
    raise KeyboardInterrupt


def test_a_finished_directory_is_not_written_to(tmp_path: Path) -> None:
    bring(tmp_path)
    before = (tmp_path / "manifest.json").stat().st_ino
    bring(tmp_path)
    assert (tmp_path / "manifest.json").stat().st_ino == before


def test_an_artifact_is_read_once_and_never_after_it_was_made(tmp_path: Path) -> None:
    read: list[str] = []

    def counted(name: str) -> Artifact[str]:
        return Artifact(name, lambda path, _: read.append(name) or path.read_text(), text(name).write)  # type: ignore[func-returns-value]

    def stages(c: str) -> list[Stage]:
        a, b = counted("a"), counted("b")
        return [
            make_stage("first", (a,), (), None, lambda: ["a"]),
            make_stage("second", (b,), (a,), None, lambda value: [value + "b"]),
            make_stage("third", (counted("c"),), (a, b), c, lambda *values: [c + "".join(values)]),
            make_stage("fourth", (counted("d"),), (a, b), c, lambda *values: ["d" + "".join(values)]),
        ]

    perform_stages(open_values(tmp_path), stages("c"), {"versions": {}})
    assert read == []
    perform_stages(open_values(tmp_path), stages("C"), {"versions": {}})
    assert read == ["a", "b"]
    assert content(tmp_path)["c"] == b"Caab"
