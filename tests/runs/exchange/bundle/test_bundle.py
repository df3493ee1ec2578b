"""A run is made again from its bundle alone, byte for byte; changes are found and named; metadata list every step."""

import hashlib
import shutil
import socket
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from types import SimpleNamespace

import orjson
import pytest
import typer
import yaml

from keystone.fusion.depth import name_features
from keystone.indexing.embedder import Effort
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.vectors import embed
from keystone.runs.cli.commands import run_commands
from keystone.runs.config.read import read_config
from keystone.runs.config.run_config import RunConfig
from keystone.runs.exchange.bundle.parts import SUMS
from keystone.runs.exchange.bundle.reproduce import FACTS, Reproduction, list_ranked_ids, reproduce
from keystone.runs.exchange.bundle.write import METADATA, Contents, describe_run, write_bundle
from keystone.runs.pipeline.run import run
from tests.support.indexes.small_corpus import CORPUS, write_topics
from tests.support.models.late import write_pylate
from tests.support.models.reading_model import say
from tests.support.mutation import mutate
from tests.support.servers.chat import serving

EFFORT = Effort(threads=2)
KEY = "sk-a-secret-of-the-bundle"
PRESETS = {"rules": None, "late": None, "model": "keystone", "reader": "rdr2"}
LATE = "retrieval.systems={bm25: {kind: bm25}, dense: {kind: dense}, late: {kind: late, model: pylate, within: bm25}}"
READ = {"documents.jsonl", "replies.jsonl", "vectors/vectors.npy"}


@pytest.fixture(scope="module")
def runs(index: Index, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run by rules, one with late interaction, one with a server, one with a structure-aware reader."""
    folder, made = tmp_path_factory.mktemp("bundled"), {}
    write_pylate(folder / "pylate")
    topics = write_topics(folder / "topics.jsonl")
    with serving(model=say) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", KEY)
        patch.chdir(folder)
        for name, preset in PRESETS.items():
            settings = [f"run_id={name}", f"index={index.folder}", f"topics={topics}", f"out={folder / name}"]
            if name == "late":
                settings.append(LATE)
            if preset:
                settings.append(f"model={{name: plain, urls: ['{server.url}'], window: 4096, thinking: 7}}")
            made[name] = run(read_config(None, settings, preset), threads=2)
    return made


@pytest.fixture(scope="module")
def bundles(runs: dict[str, Path]) -> dict[str, tuple[Path, Contents]]:
    made = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(runs["late"].parent.parent)
        for name, directory in runs.items():
            out = directory.with_name(f"{name}.zip")
            made[name] = out, write_bundle(directory, out, EFFORT)
    return made


def change(bundle: Path, out: Path, edit: Callable[[dict[str, bytes]], None], with_sums: bool = False) -> Path:
    """Write a bundle with other files. `with_sums` makes their hashes right again."""
    with zipfile.ZipFile(bundle) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    edit(files)
    if with_sums:
        sums = ((hashlib.sha256(files[name]).hexdigest(), name) for name in sorted(files) if name != SUMS)
        files[SUMS] = "".join(f"{digest}  {name}\n" for digest, name in sums).encode()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out


def list_differences(found: Reproduction) -> dict[str, str]:
    return {one.name: one.difference for one in found.remade if one.difference}


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESETS)
def test_a_bundle_gives_every_artifact_without_index_model_and_network(
    name: str,
    runs: dict[str, Path],
    bundles: dict[str, tuple[Path, Contents]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_arguments: object) -> None:
        raise AssertionError("asks a model or the network")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(embed, "load_model", refuse)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    bundle, contents = bundles[name]
    found = reproduce(bundle, tmp_path / "again", EFFORT)
    assert list_differences(found) == {}
    assert set(found.stored) == {"queries", "search", *(["gather"] if name == "model" else [])}
    made = {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()}
    assert {"hybrid.trec", "narrative.trec", "answers.jsonl"} < made.keys()
    assert ("evidence.jsonl" in made) == (name != "model")
    assert len([file for file in made if "_output_trec_rag_" in file]) == 2
    assert ("grades.jsonl" in made) == (contents.replies > 0) == bool(PRESETS[name])
    del made["config.yaml"]
    assert made == {file: (runs[name] / file).read_bytes() for file in made}
    assert 0 < contents.documents <= len(CORPUS)


@pytest.mark.slow
def test_the_same_run_gives_the_same_bundle(
    runs: dict[str, Path], bundles: dict[str, tuple[Path, Contents]], tmp_path: Path
) -> None:
    write_bundle(runs["model"], tmp_path / "again.zip", EFFORT)
    assert (tmp_path / "again.zip").read_bytes() == bundles["model"][0].read_bytes()


def test_a_bundle_holds_no_key_and_no_folder_of_the_machine(
    runs: dict[str, Path], index: Index, bundles: dict[str, tuple[Path, Contents]]
) -> None:
    with zipfile.ZipFile(bundles["model"][0]) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    for secret in (KEY, str(index.folder), str(runs["model"].parent), str(Path.home().joinpath(""))):
        assert [name for name, content in files.items() if secret.encode() in content] == []
    assert files.keys() > READ
    described = yaml.safe_load(files[METADATA])
    assert list(described) == [
        "tag", "platform", "research goal", "implementation", "method", "actor", "data",
    ]  # fmt: skip
    assert (described["tag"], described["actor"]["team"]) == ("model", "keystone")
    steps = {step["name"]: step for step in described["method"]["retrieval"]}
    assert steps["hybrid"]["interpolates"] == [name for name in steps if name in ("bm25", "dense", "hyde", "query2doc")]
    assert steps["graded"]["reranks"] == "narrative"
    assert steps["keystone"]["reranks"] == "graded"


@pytest.mark.slow
def test_each_changed_missing_or_added_file_is_named(bundles: dict[str, tuple[Path, Contents]], tmp_path: Path) -> None:
    bundle = bundles["model"][0]
    with zipfile.ZipFile(bundle) as archive:
        names = archive.namelist()
    for name in names:

        def flip(files: dict[str, bytes], name: str = name) -> None:
            files[name] = files[name][:-2] + bytes([files[name][-2] ^ 1]) + files[name][-1:]

        def drop(files: dict[str, bytes], name: str = name) -> None:
            del files[name]

        for edit in (flip, drop):
            with pytest.raises(UserError, match=rf"changed\.zip: .*{name}"):
                reproduce(change(bundle, tmp_path / "changed.zip", edit), None, EFFORT)
    for name in ("added.txt", "../outside.txt"):

        def add(files: dict[str, bytes], name: str = name) -> None:
            files[name] = b""

        with pytest.raises(UserError, match=name):
            reproduce(change(bundle, tmp_path / "changed.zip", add), None, EFFORT)
    assert not (tmp_path.parent / "outside.txt").exists()
    damaged = bytearray(bundle.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (tmp_path / "damaged.zip").write_bytes(damaged)
    with pytest.raises(UserError, match=r"damaged\.zip: \S+: (damaged|was changed)"):
        reproduce(tmp_path / "damaged.zip", None, EFFORT)
    with zipfile.ZipFile(tmp_path / "other.zip", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("run/config.yaml", "a")
    with pytest.raises(UserError, match=r"run/config\.yaml: found an entry that no bundle has"):
        reproduce(tmp_path / "other.zip", None, EFFORT)
    (tmp_path / "text.zip").write_text("no archive")
    with pytest.raises(UserError, match="not a bundle"):
        reproduce(tmp_path / "text.zip", None, EFFORT)


def test_a_bundle_that_is_larger_than_the_disk_is_not_unpacked(
    bundles: dict[str, tuple[Path, Contents]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: SimpleNamespace(free=10))
    with pytest.raises(UserError, match=r"rules\.zip: holds [\d,]+ bytes, and \S+ has room for 10"):
        reproduce(bundles["rules"][0], None, EFFORT)


def test_files_that_contradict_each_other_are_no_traceback(
    bundles: dict[str, tuple[Path, Contents]], tmp_path: Path
) -> None:
    def lose_the_index(files: dict[str, bytes]) -> None:
        facts = orjson.loads(files[FACTS])
        del facts["index"]
        files[FACTS] = orjson.dumps(facts)

    with pytest.raises(UserError, match=r"c\.zip: its files contradict each other: KeyError\('index'\)"):
        reproduce(change(bundles["rules"][0], tmp_path / "c.zip", lose_the_index, True), None, EFFORT)


@pytest.mark.slow
def test_damaged_files_with_right_hashes_are_differences_or_errors(
    bundles: dict[str, tuple[Path, Contents]], tmp_path: Path
) -> None:
    """A few of many: a longer run of it is made by hand."""
    for seed in range(30):
        chance = Random(seed)

        def damage(files: dict[str, bytes], chance: Random = chance) -> None:
            name = chance.choice(sorted(files.keys() - {SUMS}))
            files[name] = mutate(files[name], chance)

        with suppress(UserError):
            reproduce(change(bundles["rules"][0], tmp_path / "m.zip", damage, True), None, EFFORT)


@pytest.mark.slow
def test_a_change_with_right_hashes_is_found_in_the_artifacts_that_follow(
    bundles: dict[str, tuple[Path, Contents]], tmp_path: Path
) -> None:
    def swap(files: dict[str, bytes]) -> None:
        lines = files["run/narrative.trec"].splitlines(keepends=True)
        files["run/narrative.trec"] = b"".join([lines[0], lines[1].replace(b" Q0 ", b" Q0 other-"), *lines[2:]])

    def rewrite(files: dict[str, bytes]) -> None:
        files["documents.jsonl"] = files["documents.jsonl"].replace(b"Honey bees live", b"Honey flies live")

    def forget(files: dict[str, bytes]) -> None:
        files["replies.jsonl"] = b"".join(files["replies.jsonl"].splitlines(keepends=True)[1:])

    bundle = bundles["model"][0]
    for edit, artifact, expected in (
        (swap, "narrative.trec", "line 2: found"),
        (rewrite, "grades.jsonl", "cannot be made: the bundle lacks the vector"),
        (forget, "", "a reply of the model is missing"),
    ):
        found = list_differences(reproduce(change(bundle, tmp_path / "c.zip", edit, True), None, EFFORT))
        named = [difference for name, difference in found.items() if artifact in ("", name)]
        assert any(expected in difference for difference in named), found


def test_a_configuration_in_another_form_is_no_difference(
    bundles: dict[str, tuple[Path, Contents]], tmp_path: Path
) -> None:
    def sort_keys(files: dict[str, bytes]) -> None:
        files["run/config.yaml"] = yaml.safe_dump(yaml.safe_load(files["run/config.yaml"])).encode()

    found = reproduce(change(bundles["rules"][0], tmp_path / "c.zip", sort_keys, True), tmp_path / "again", EFFORT)
    assert list_differences(found) == {}
    with zipfile.ZipFile(tmp_path / "c.zip") as archive:
        assert (tmp_path / "again" / "config.yaml").read_bytes() != archive.read("run/config.yaml")


def test_no_bundle_can_ask_for_a_search(bundles: dict[str, tuple[Path, Contents]], tmp_path: Path) -> None:
    def store_nothing(files: dict[str, bytes]) -> None:
        files[FACTS] = orjson.dumps({**orjson.loads(files[FACTS]), "stored": {}})

    found = reproduce(change(bundles["rules"][0], tmp_path / "c.zip", store_nothing, True), None, EFFORT)
    assert set(found.stored) == {"queries", "search"}
    assert list_differences(found) == {}


@pytest.mark.slow
def test_a_stage_whose_replies_are_lost_is_stored_with_the_reason(runs: dict[str, Path], tmp_path: Path) -> None:
    directory = runs["model"]
    kept = directory.parent / "replies.sqlite"
    shutil.move(kept, tmp_path / "kept")
    try:
        contents = write_bundle(directory, tmp_path / "lost.zip", EFFORT)
    finally:
        shutil.move(tmp_path / "kept", kept)
    assert contents.stored.keys() >= {"search", "queries", "grades", "answer"}
    assert "a reply of the model is missing" in contents.stored["grades"]
    assert contents.replies == 0
    assert list_differences(reproduce(tmp_path / "lost.zip", None, EFFORT)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("described", [["run_desc=~20 documents, BM25, ~baseline"], []])
def test_a_bundle_holds_the_calibration_of_chosen_depths(
    described: list[str], index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibration, topics = tmp_path / "fitted.json", write_topics(tmp_path / "topics.jsonl")
    weights = [0.5, -1.0, *[0.0] * (len(name_features([])) - 2)]
    calibration.write_bytes(orjson.dumps({"features": name_features([]), "weights": weights}))
    settings = ["run_id=r", "track=rag26", "answer.documents=1", *described]
    depth = f"fusion.depth={{choose: expected, calibration: {calibration}}}"
    places = [f"index={index.folder}", f"topics={topics}", f"out={tmp_path / 'out'}"]
    directory = run(read_config(None, [*settings, depth, *places]), threads=2)
    write_bundle(directory, tmp_path / "r.zip", EFFORT)
    with zipfile.ZipFile(tmp_path / "r.zip") as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    assert files["calibration/fitted.json"] == calibration.read_bytes()
    assert [name for name, content in files.items() if str(tmp_path).encode() in content] == []
    calibration.unlink()
    monkeypatch.chdir(tmp_path)
    found = reproduce(tmp_path / "r.zip", None, EFFORT)
    assert list_differences(found) == {}
    submitted = {"r_output_trec_rag_2026.tsv", "rag_output_trec_rag_2026.jsonl"}
    assert {"depths.jsonl", *submitted} <= {one.name for one in found.remade}
    assert found.stored == {
        "queries": "looks up words in the index",
        "search": "searches the index",
        "config": "names its calibration",
    }


def test_documents_that_only_a_reader_found_are_among_those_of_a_bundle(tmp_path: Path) -> None:
    span = {"start": 0, "end": 1}
    record = {
        "items": [{"span": {"doc_id": "shown", **span}}],
        "notes": [{"kind": "seen", "sources": [{"doc_id": "seen", **span}]}],
        "added": ["added"],
    }
    (tmp_path / "evidence.jsonl").write_bytes(orjson.dumps(record))
    config = read_config(None, ["run_id=r", "index=i", "topics=t"])
    assert {*list_ranked_ids(tmp_path, config)} == {"shown", "seen", "added"}


def test_only_a_whole_run_of_the_same_inputs_is_bundled(runs: dict[str, Path], tmp_path: Path) -> None:
    directory = tmp_path / "rules"
    shutil.copytree(runs["rules"], directory)
    (directory / "answers.jsonl").write_bytes(b"{}\n")
    with pytest.raises(UserError, match=r"answers\.jsonl: missing, or changed"):
        write_bundle(directory, tmp_path / "out.zip", EFFORT)
    topics = read_config(runs["rules"] / "config.yaml").topics
    content = topics.read_bytes()
    topics.write_bytes(content.replace(b"bees", b"wasps"))
    try:
        with pytest.raises(UserError, match=r"topics\.jsonl: was changed since the run"):
            write_bundle(runs["rules"], tmp_path / "out.zip", EFFORT)
    finally:
        topics.write_bytes(content)
    manifest = orjson.loads((runs["rules"] / "manifest.json").read_bytes())
    shutil.copytree(runs["rules"], directory, dirs_exist_ok=True)
    for key, value, found in (("file", "/home/me/file", "the path /home/me/file"), ("api_key", "k", "a secret")):
        shown = manifest | {"topics": {**manifest["topics"], key: value}}
        (directory / "manifest.json").write_bytes(orjson.dumps(shown))
        with pytest.raises(UserError, match=rf"manifest\.json\.topics\.{key}: found {found}, which a bundle"):
            write_bundle(directory, tmp_path / "out.zip", EFFORT)
    assert not (tmp_path / "out.zip").exists()
    manifest["index"]["embedding"]["model"] = "/home/me/arctic"
    (directory / "manifest.json").write_bytes(orjson.dumps(manifest))
    write_bundle(directory, tmp_path / "out.zip", EFFORT)
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        assert orjson.loads(archive.read("run/manifest.json"))["index"]["embedding"]["model"] == "arctic"
        assert b"/home/me" not in b"".join(map(archive.read, archive.namelist()))


@pytest.mark.slow
def test_the_commands_tell_the_documents_the_stored_stages_and_each_difference(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, changed = tmp_path / "mine.zip", tmp_path / "changed.zip"
    run_commands.bundle(runs["rules"], out, threads=2, quiet=True)
    assert "documents with their text: 9; mind the licence" in capsys.readouterr().out
    run_commands.reproduce(out, threads=2, quiet=True)
    told = capsys.readouterr().out
    assert "search: stored only, not made again: searches the index\n" in told
    assert told.endswith("7 artifacts made again, none of them with other bytes\n")
    run_commands.reproduce(out, json=True, threads=2, quiet=True)
    result = orjson.loads(capsys.readouterr().out)["result"]
    assert [one["difference"] for one in result["remade"]] == [""] * 7
    assert result["stored"]["search"] == "searches the index"

    def edit(files: dict[str, bytes]) -> None:
        files["run/answers.jsonl"] = files["run/answers.jsonl"].replace(b".", b"!", 1)

    with pytest.raises(typer.Exit):
        run_commands.reproduce(change(out, changed, edit, with_sums=True), threads=2, quiet=True)
    assert "answers.jsonl: line 1: found ...'" in capsys.readouterr().out


MANIFEST = {
    "versions": {"numpy": "2"},
    "index": {"embedding": None, "key": "k", "documents": 9},
    "topics": {"sha256": "s"},
}
MODEL = {"name": "m", "urls": ["http://localhost:1/v1"]}
GRADES = {"method": "grid", "documents": 20}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param({}, {"narrative": (None, ["hybrid"])}, id="fusion alone"),
        pytest.param(
            {"rerank": {"method": "listwise"}},
            {"narrative": (None, ["hybrid"]), "reranked": ("narrative", None)},
            id="a reranker",
        ),
        pytest.param(
            {"grading": GRADES},
            {"narrative": (None, ["hybrid"]), "keystone": ("narrative", None)},
            id="grades",
        ),
        pytest.param(
            {"grading": {**GRADES, "rounds": 2}},
            {
                "rounds": (None, ["hybrid"]),
                "narrative": (None, ["hybrid"]),
                "keystone": ("narrative", ["rounds"]),
            },
            id="grades after further rounds",
        ),
        pytest.param(
            {"grading": {**GRADES, "rounds": 2}, "rerank": {"method": "listwise", "after": "grades"}},
            {
                "rounds": (None, ["hybrid"]),
                "narrative": (None, ["hybrid"]),
                "graded": ("narrative", ["rounds"]),
                "keystone": ("graded", None),
            },
            id="a reranker after the grades",
        ),
    ],
)
def test_the_metadata_list_every_step_of_the_ranking(
    settings: dict[str, object], expected: dict[str, tuple[str | None, list[str] | None]]
) -> None:
    config = RunConfig.model_validate({"run_id": "r", "index": "i", "topics": "t", "model": MODEL, **settings})
    steps = describe_run(config, MANIFEST)["method"]["retrieval"]
    assert [step["name"] for step in steps[:3]] == ["bm25", "dense", "hybrid"]
    assert {step["name"]: (step.get("reranks"), step.get("interpolates")) for step in steps[3:]} == expected
    assert all(step["rounds"] == 2 for step in steps if step["name"] == "rounds")
