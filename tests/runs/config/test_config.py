"""Configuration: defaults fill a minimal file. Every error names file, key, value found and allowed values."""

import re
from importlib.resources import as_file
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing.errors import UserError
from keystone.runs.config import read
from keystone.runs.config.presets import find_presets
from keystone.runs.config.read import PRESETS, read_config
from keystone.runs.config.run_config import RunConfig
from keystone.runs.config.sections import Answer, Fusion, Queries, Retrieval, bound_chosen_rows
from keystone.runs.pipeline.job import describe_settings
from keystone.runs.pipeline.stages.config import write_config

MINIMAL = "run_id: r1\nindex: some/index\ntopics: topics.jsonl\n"


def put(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "run.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def error_of(path: Path, overrides: list[str] | None = None) -> str:
    with pytest.raises(UserError) as caught:
        read_config(path, overrides)
    return str(caught.value)


def test_a_minimal_file_reads_with_the_defaults(tmp_path: Path) -> None:
    config = read_config(put(tmp_path, MINIMAL))
    assert config == RunConfig(run_id="r1", index=Path("some/index"), topics=Path("topics.jsonl"))
    assert (config.team_id, config.out, config.track) == ("keystone", Path("out"), "rag25")
    assert config.queries == Queries(method="rules", question_weight=3, variants=0, narrative_weight=2)
    assert config.retrieval == Retrieval(systems=["bm25", "dense"], depth=1000)
    assert config.fusion == Fusion(method="rrf", k=60, k_narrative=10, depth=100)
    assert config.answer == Answer(method="rules", documents=20, words=None)


def test_a_run_directory_stands_for_its_configuration(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected a YAML file, or a run directory with one; found none in it"):
        read_config(tmp_path)
    (tmp_path / "config.yaml").write_text(MINIMAL)
    assert read_config(tmp_path) == read_config(tmp_path / "config.yaml")
    (tmp_path / "other.yaml").write_text(MINIMAL)
    with pytest.raises(UserError, match=r"found config\.yaml, other\.yaml in it"):
        read_config(tmp_path)


def test_a_new_setting_reaches_the_systems_of_a_written_configuration(tmp_path: Path) -> None:
    systems = "retrieval.systems={a: {kind: bm25}, b: {kind: bm25, k1: 0.9}, c: {kind: dense}}"
    settings = ["run_id=r", "index=i", "topics=t", systems, "retrieval.b=0.5"]
    config, new = read_config(None, settings), ["retrieval.k1=1.2", "retrieval.b=0.75", "retrieval.best_passages=1"]
    write_config(tmp_path / "config.yaml", config)
    assert read_config(tmp_path) == config
    assert read_config(tmp_path, new).retrieval == read_config(None, [*settings, *new]).retrieval


@pytest.mark.parametrize(("named", "kept"), [("", None), ("key_env: OPENAI_API_KEY, ", "OPENAI_API_KEY")])
def test_a_run_directory_names_a_variable_for_the_key_only_if_its_user_did(
    tmp_path: Path, named: str, kept: str | None
) -> None:
    model = f"model: {{{named}name: m, urls: ['http://gpu-box:8000/v1']}}\n"
    write_config(tmp_path / "config.yaml", read_config(put(tmp_path, MINIMAL + model)))
    (tmp_path / "run.yaml").unlink()
    assert read_config(tmp_path).require_model("a model").named_key == kept


@pytest.mark.parametrize("name", PRESETS)
def test_the_file_of_a_preset_is_a_configuration(tmp_path: Path, name: str) -> None:
    given = ["index=i", "topics=t", "model={name: m, urls: ['http://localhost:8000/v1'], window: 8192}"]
    whole = read_config(None, given, name)
    with as_file(find_presets()[name]) as path:
        assert read_config(path, given) == whole
    path = put(tmp_path, f"preset: {name}\nteam_id: mine\n")
    assert read_config(path, given) == whole.model_copy(update={"team_id": "mine"})


def test_a_preset_that_a_file_cannot_be_laid_over_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path, MINIMAL + "preset: [bm25]\n")
    assert error_of(path) == f"{path}: preset: found ['bm25']; expected one of {', '.join(PRESETS)}"
    path = put(tmp_path, MINIMAL + "preset: bm25\n")
    with pytest.raises(UserError, match=r"run\.yaml: preset: found with --preset keystone, expected one of them"):
        read_config(path, preset="keystone")
    monkeypatch.setattr(read, "find_presets", lambda: {"bm25": path})
    assert error_of(path).startswith(f"{path}: preset: found 'bm25', which is laid over this file; expected one of ")


def test_a_part_that_is_given_keeps_the_other_defaults(tmp_path: Path) -> None:
    config = read_config(put(tmp_path, MINIMAL + "retrieval:\n  depth: 200\n"))
    assert config.retrieval == Retrieval(depth=200)


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        pytest.param(
            "depth: 5",
            ["depth: unknown key", "value 5", "answer, fusion, grading, index, model, out,"],
            id="unknown key",
        ),
        pytest.param(
            "fusion: {kay: 5}",
            ["fusion.kay: unknown key", "value 5", "dense_weight, depth, depths, k, k_narrative, method, norm"],
            id="unknown nested key",
        ),
        pytest.param(
            "retrieval: {depth: '500'}", ["retrieval.depth: ", "found '500'", "valid integer"], id="text for a number"
        ),
        pytest.param(
            "retrieval: {depth: 500.0}",
            ["retrieval.depth: ", "found 500.0", "valid integer"],
            id="fraction for a whole number",
        ),
        pytest.param(
            "retrieval: {depth: true}",
            ["retrieval.depth: ", "found True (as YAML reads true, yes and on", "valid integer"],
            id="boolean for a number",
        ),
        pytest.param("team_id: 7", ["team_id: ", "found 7", "valid string"], id="number for a text"),
        pytest.param("out: 7", ["out: ", "found 7", "path"], id="number for a path"),
        pytest.param("fusion: rrf", ["fusion: ", "found 'rrf'", "dictionary"], id="value for a part"),
        pytest.param(
            "retrieval: {systems: bm25}", ["retrieval.systems: ", "found 'bm25'", "valid list"], id="value for a list"
        ),
        pytest.param(
            "retrieval: {depth: 0}",
            ["retrieval.depth: ", "found 0", "greater than or equal to 1"],
            id="below the range",
        ),
        pytest.param(
            "queries: {variants: 51}",
            ["queries.variants: ", "found 51", "less than or equal to 50"],
            id="above the range",
        ),
        pytest.param("retrieval: {systems: []}", ["retrieval.systems: ", "found []", "at least 1"], id="no system"),
        pytest.param(
            "retrieval: {systems: [bm25, splade]}",
            ["retrieval.systems.1: ", "found 'splade'", "'bm25' or 'dense'"],
            id="unknown system",
        ),
        pytest.param(
            "retrieval: {systems: [dense, dense]}",
            ["retrieval", "systems: found ['dense', 'dense']", "expected each system once"],
            id="a system twice",
        ),
        pytest.param("track: rag99", ["track: ", "found 'rag99'", "rag24, rag25, rag26", "none"], id="unknown track"),
        pytest.param("track: [rag26]", ["track: found ['rag26']", "valid string"], id="several tracks"),
        pytest.param(
            "fusion: {depth: {choose: expected}, choice: {choose: threshold}}",
            ["fusion", "choice: found beside the long form of depth", "expected its settings in depth"],
            id="the choice of a depth twice",
        ),
        pytest.param(
            "fusion: {method: mean}", ["fusion.method: found 'mean'", "one of min, med", "rrf"], id="unknown method"
        ),
        pytest.param(
            "team_id: two words", ["team_id: ", "found 'two words'", r"match pattern '^\S+$'"], id="id with a space"
        ),
        pytest.param(
            "fusion: {method: frequency}\nqueries: {method: narrative}",
            ["fusion.method: found 'frequency'", "queries.method 'narrative'", "which makes one"],
            id="frequency of one query",
        ),
        pytest.param(
            "fusion: {method: frequency}",
            ["queries.narrative_weight: found 2", "fusion.method 'frequency'", "expected 0 or 1"],
            id="frequency with a weight",
        ),
        pytest.param(
            "fusion: {method: sum}\nqueries: {narrative_weight: 0.5}",
            ["queries.narrative_weight: found 0.5", "fusion.method 'sum'", "expected 0 or 1"],
            id="a method without weights",
        ),
        pytest.param(
            "fusion: {systems: scores}\nretrieval: {runs: [a.trec]}",
            ["fusion.systems: found 'scores'", "retrieval.runs", "expected rrf"],
            id="scores of files of which only the order counts",
        ),
        pytest.param(
            "fusion: {k: 20}",
            ["fusion.k: found 20, which the first stage ignores by default", "expected it with fusion.systems: rrf"],
            id="a k that no fusion uses",
        ),
        pytest.param("fusion: {norm: max}", ["fusion.norm: found 'max'", "looks at ranks"], id="norm of ranks"),
        pytest.param(
            "ranking: segments\ntrack: rag26",
            ["ranking: found 'segments' with track rag26", "expected a track of segments: rag24, rag25"],
            id="segments for a track of documents",
        ),
        pytest.param(
            "fusion: {method: wsum, norm: softmax}", ["fusion.norm: found 'softmax'", "min-max"], id="unknown norm"
        ),
        pytest.param(
            "fusion: {parameters: {phi: 0.5}}",
            ["fusion.parameters.phi: no parameter of method 'rrf'"],
            id="parameter of another method",
        ),
        pytest.param(
            "fusion: {parameters: {k: 5}}", ["fusion.parameters.k: found 5", "as k_narrative"], id="k has its own key"
        ),
        pytest.param(
            "fusion: {method: rbc, parameters: {phi: 2}}",
            ["fusion.parameters.phi: found 2, expected 0.001 to 0.999"],
            id="parameter out of range",
        ),
        pytest.param(
            "retrieval: {depth: 50}",
            ["fusion.depth: found 100", "retrieval.depth 50", "expected at most"],
            id="fusion deeper than retrieval",
        ),
        pytest.param(
            "answer: {documents: 101}",
            ["answer.documents: found 101", "fusion.depth 100", "expected at most"],
            id="answer deeper than fusion",
        ),
    ],
)
def test_an_error_names_file_key_value_and_the_allowed_values(tmp_path: Path, extra: str, named: list[str]) -> None:
    path = put(tmp_path, MINIMAL + extra + "\n")
    message = error_of(path)
    assert message.startswith(f"{path}: ")
    assert [part for part in named if part not in message] == []


def test_every_error_of_a_file_has_a_line_of_its_own(tmp_path: Path) -> None:
    path = put(tmp_path, "run_id: a b\nindex: i\nnew: 1\n")
    lines = sorted(error_of(path).splitlines())
    starts = [
        f"{path}: new: unknown key (value 1); expected one of",
        f"{path}: run_id: found 'a b'; string should match",
        f"{path}: topics: missing; expected a value",
    ]
    assert [line[: len(start)] for line, start in zip(lines, starts, strict=True)] == starts


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("fusion: {method: frequency}\nqueries: {narrative_weight: 0}", id="frequency of equal queries"),
        pytest.param("fusion: {method: mnz, norm: zmuv}\nqueries: {narrative_weight: 1}", id="a method and a norm"),
        pytest.param(
            "fusion: {method: gmnz, parameters: {gamma: 2}}\nqueries: {narrative_weight: 0}", id="a parameter"
        ),
        pytest.param("queries: {narrative_weight: 0.5}", id="a weight that is no whole number"),
        pytest.param("fusion: {method: isr}\nqueries: {method: narrative}", id="one query, so no weight matters"),
        pytest.param("answer: {documents: 101}\ntrack: none", id="no answer, so its depth does not matter"),
        pytest.param("retrieval: {depth: 100}\nanswer: {documents: 100}", id="equal depths"),
    ],
)
def test_possible_combinations_are_accepted(tmp_path: Path, text: str) -> None:
    assert read_config(put(tmp_path, MINIMAL + text)).run_id == "r1"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        pytest.param("- a\n- b\n", "expected keys and values, found list", id="a list"),
        pytest.param("", "expected keys and values, found NoneType", id="empty"),
        pytest.param("a: [1\nb: 2\n", "not YAML: .* line 2", id="not YAML"),
        pytest.param(MINIMAL + "team_id: 2025-02-30\n", "not YAML", id="an impossible date"),
        pytest.param("a: &a {b: *a}\n", "not YAML: found an alias .* in line 1, expected plain values", id="an alias"),
        pytest.param("a: 1\nb: !!timestamp x\n", "not YAML: found .* tag in line 2, expected plain values", id="a tag"),
        pytest.param("[" * 1000 + "]" * 1000, "not YAML: found more than 50 levels in line 1", id="nested too deep"),
        pytest.param(MINIMAL + f"team_id: 0x{'f' * 5000}\n", "not YAML: Exceeds the limit", id="an endless number"),
        pytest.param(MINIMAL + 'out: "a\\0b"\n', r"out: found 'a\\x00b', expected a path, which has no NUL", id="NUL"),
        pytest.param(b"run_id: \xff\n", "cannot be read: .*utf-8", id="not UTF-8"),
        pytest.param(None, "cannot be read: .*No such file", id="missing"),
    ],
)
def test_a_file_that_is_no_configuration_is_named(tmp_path: Path, text: str | bytes | None, named: str) -> None:
    path = tmp_path / "run.yaml" if text is None else put(tmp_path, text)
    assert re.match(f"{re.escape(str(path))}: {named}", error_of(path))


@pytest.mark.parametrize(
    ("override", "part", "key", "value"),
    [
        pytest.param("retrieval.depth=500", "retrieval", "depth", 500, id="a number of a part that the file lacks"),
        pytest.param("fusion.k=7", "fusion", "k", 7, id="over a value of the file"),
        pytest.param("fusion.k_narrative=60", "fusion", "k_narrative", 60, id="beside a value of the file"),
        pytest.param("retrieval.systems=[dense]", "retrieval", "systems", ["dense"], id="a list"),
        pytest.param("answer={words: 100}", "answer", "words", 100, id="a whole part"),
    ],
)
def test_an_override_is_laid_over_the_file(tmp_path: Path, override: str, part: str, key: str, value: Any) -> None:
    path = put(tmp_path, MINIMAL + "fusion: {systems: rrf, k: 6, depth: 70}\n")
    dump = read_config(path).model_dump()
    dump[part][key] = value
    assert read_config(path, [override]).model_dump() == dump


def test_the_last_of_several_overrides_counts_and_a_value_may_hold_an_equals_sign(tmp_path: Path) -> None:
    overrides = ["index=a", "fusion.k_narrative=5", "index=b=c", "fusion.depth=9", "track=none"]
    config = read_config(put(tmp_path, MINIMAL), overrides)
    assert (config.index, config.fusion.k_narrative, config.fusion.depth) == (Path("b=c"), 5, 9)


@pytest.mark.parametrize(
    ("fusion", "chosen"),
    [
        ("{}", ("expected", 0.5, 1000)),
        ("{choice: null}", ("expected", 0.5, 1000)),
        ("{choice: {choose: threshold, threshold: 0.7}}", ("threshold", 0.7, 1000)),
        ("{depth: 50, choice: {choose: threshold, threshold: 0.7}}", ("threshold", 0.7, 50)),
        ("{depth: {choose: threshold, threshold: 0.7, most: 50}}", ("threshold", 0.7, 50)),
    ],
)
def test_a_track_that_chooses_depths_keeps_a_choice_that_is_given(fusion: str, chosen: tuple[str, float, int]) -> None:
    found = read_config(None, ["run_id=r", "index=i", "topics=t", "track=rag26", f"fusion={fusion}"]).fusion
    assert found.choice is not None
    assert (found.choice.choose, found.choice.threshold, found.depth) == chosen


@pytest.mark.parametrize(("depth", "most"), [(None, 1000), (50, 50), (1000, 1000), (5000, 1000), ("500", 1000)])
def test_a_chosen_depth_without_a_number_ends_with_the_search_or_with_1000_rows(depth: Any, most: int) -> None:
    assert bound_chosen_rows(depth) == most
    if isinstance(depth, int):
        settings = ["run_id=r", "index=i", "topics=t", "answer.documents=20", f"retrieval.depth={depth}"]
        by_track = read_config(None, [*settings, "track=rag26"])
        assert (by_track.fusion.depth, by_track.has_default_choice) == (most, True)
        assert read_config(None, [*settings, "fusion.depth={choose: expected}"]).fusion.depth == most


@given(st.integers(100, 100_000))
def test_any_depth_in_range_is_read_back(tmp_path_factory: pytest.TempPathFactory, depth: int) -> None:
    path = put(tmp_path_factory.mktemp("config"), MINIMAL)
    assert read_config(path, [f"retrieval.depth={depth}"]).retrieval.depth == depth


@pytest.mark.parametrize(
    ("override", "named"),
    [
        pytest.param("depth", ["--set depth: expected KEY=VALUE"], id="no value"),
        pytest.param("=5", ["--set =5: expected KEY=VALUE"], id="no key"),
        pytest.param("fusion..k=5", ["--set fusion..k=5: expected KEY=VALUE"], id="an empty key"),
        pytest.param("fusion.k=[5", ["--set fusion.k=[5: the value is not YAML"], id="not YAML"),
        pytest.param(
            "team_id=2025-02-30", ["--set team_id=2025-02-30: the value is not YAML"], id="an impossible date"
        ),
        pytest.param("run_id.x=5", ["--set run_id.x=5: run_id is a value"], id="a key below a value"),
        pytest.param("fusion.kay=5", ["fusion.kay: unknown key", "value 5", "k_narrative"], id="unknown key"),
        pytest.param("fuse.k=5", ["fuse: unknown key", "value {'k': 5}", "fusion"], id="unknown part"),
        pytest.param(
            "reader=agent", ["--set reader: found 'agent'; expected the key name: one of agent"], id="no keys"
        ),
        pytest.param("fusion.k=five", ["fusion.k: ", "found 'five'", "valid integer"], id="wrong type"),
    ],
)
def test_a_bad_override_is_named(tmp_path: Path, override: str, named: list[str]) -> None:
    message = error_of(put(tmp_path, MINIMAL), [override])
    assert [part for part in named if part not in message] == []


def test_a_key_given_twice_is_named_with_its_line(tmp_path: Path) -> None:
    path = put(tmp_path, MINIMAL + "fusion:\n  k: 5\n  k: 6\n")
    number = len(MINIMAL.splitlines()) + 3
    assert error_of(path) == f"{path}:{number}: the key k occurs more than once"


@pytest.mark.parametrize(
    ("file", "overrides", "line"),
    [
        pytest.param(
            "retrieval: {depth: 500}",
            ["retrieval.depth=50"],
            "--set retrieval.depth=50: fusion.depth: found 100, above retrieval.depth 50; expected at most that",
            id="a value of the default is above one that was set",
        ),
        pytest.param(
            "fusion: {depth: 300}",
            ["run_id=x", "retrieval.depth=200", "queries.variants=3"],
            "--set retrieval.depth=200: fusion.depth: found 300, above retrieval.depth 200; expected at most that",
            id="a value of the file is above one that was set",
        ),
        pytest.param(
            "fusion: {depth: 5000}",
            ["queries.variants=3"],
            "{path}: fusion.depth: found 5000, above retrieval.depth 1000; expected at most that",
            id="the file alone",
        ),
        pytest.param(
            "model: {name: m}",
            ["model.budget.dollars=1"],
            "--set model.budget.dollars=1: model.budget.dollars: found without prices, expected the prices of the "
            "model",
            id="dollars without prices",
        ),
        pytest.param(
            "model: {name: m}",
            ["model={backend: batch, name: m, budget: {calls: 1}}"],
            "--set model.budget: found with backend 'batch', expected 'endpoints' or 'command'",
            id="a budget for a batch",
        ),
        pytest.param(
            "",
            ["queries.passages=hyde"],
            "--set queries.passages=hyde: queries.passages: hyde needs a language model; "
            "expected one under the key model, with its name and urls",
            id="passages without a model",
        ),
        pytest.param(
            "",
            ["grading={method: grid}"],
            "--set grading={{method: grid}}: grading.method: grid needs a language model; "
            "expected one under the key model, with its name and urls",
            id="a part that was set",
        ),
        pytest.param(
            "",
            ["fusion={kay: 5}"],
            "--set fusion={{kay: 5}}: fusion.kay: unknown key (value 5); "
            "expected one of choice, dense_weight, depth, depths, k, k_narrative, method, norm, parameters, systems",
            id="a key of a part that was set",
        ),
        pytest.param(
            "fusion: {method: rbc, parameters: {phi: 0.5}}\nqueries: {narrative_weight: 0}",
            ["fusion.method=rrf"],
            "--set fusion.method=rrf: fusion.parameters.phi: no parameter of method 'rrf'; expected one of k",
            id="a value of the file that another setting forbids",
        ),
        pytest.param(
            "",
            ["model.backend=batch", "model.budget.calls=1", "model.name=m"],
            "--set model.budget.calls=1: model.budget: found with backend 'batch', expected 'endpoints' or 'command'",
            id="a setting before one without which the section is not checked",
        ),
        pytest.param(
            "",
            ["rerank.stride=9", "rerank.block=9", "rerank.method=sliding", "rerank.depth=50"],
            "--set rerank.stride=9: rerank.stride: found 9, expected below block, which is 9",
            id="a setting that a later one makes impossible",
        ),
        pytest.param(
            "",
            ["fusion.k=0", "fusion={k: -1}"],
            "--set fusion={{k: -1}}: fusion.k: found -1; input should be greater than or equal to 1",
            id="a setting in place of another one",
        ),
        pytest.param(
            "fusion: {k: .nan}",
            ["queries.method=narrative"],
            "{path}: fusion.k: found nan; input should be a valid integer",
            id="a value of the file that is equal to nothing",
        ),
    ],
)
def test_an_error_names_the_file_or_the_setting_that_causes_it(
    tmp_path: Path, file: str, overrides: list[str], line: str
) -> None:
    path = put(tmp_path, MINIMAL + file + "\n")
    assert error_of(path, overrides) == line.format(path=path)


def test_errors_of_a_file_without_index_and_topics_are_named(tmp_path: Path) -> None:
    path = put(tmp_path, "run_id: r\nfusion: {depth: 5000}\n")
    assert error_of(path, ["topics=t", "index=i"]).startswith(f"{path}: fusion.depth: found 5000")


def test_settings_need_no_file() -> None:
    assert read_config(None, ["run_id=r", "index=i", "topics=t", "fusion.k_narrative=7"]).fusion.k_narrative == 7
    with pytest.raises(UserError) as caught:
        read_config(None, ["run_id=r", "topics=t"])
    assert str(caught.value) == "no YAML file: index: missing; expected a value"


NUMBERS = [
    *(f"retrieval.depth={value}" for value in (".inf", ".nan", "9" * 400)),
    *(f"queries.narrative_weight={value}" for value in (".inf", "-.inf", ".nan")),
    *(f"fusion={{method: rbc, parameters: {{phi: {value}}}}}" for value in (".inf", ".nan")),
    *(f"grading.budget={value}" for value in (".inf", "9" * 30)),
    "grading.cap=.nan",
    *(f"model={{name: m, call_seconds: {value}}}" for value in (".inf", ".nan", "1.0e+300", "9" * 400)),
    *(f"model={{name: m, run_seconds: {value}}}" for value in (".inf", "1.0e+300")),
    *(f"model={{name: m, patience_seconds: {value}}}" for value in (".inf", "1.0e+300")),
    f"model={{name: m, window: {'9' * 30}}}",
    *(f"model={{name: m, prices: {{prompt: {value}, completion: 1}}}}" for value in (".inf", "1.0e+300")),
    *(f"model={{name: m, extra: {{a: {value}}}}}" for value in (".inf", ".nan", "9" * 30, "2025-01-01", "{1: 2}")),
    *(f"model={{name: m, engine: {{a: [{value}]}}}}" for value in (".inf", "9" * 30)),
]


@pytest.mark.parametrize("override", NUMBERS)
def test_numbers_are_finite_and_within_64_bits(override: str) -> None:
    with pytest.raises(UserError) as caught:
        read_config(None, ["run_id=r", "index=i", "topics=t", override])
    message = str(caught.value)
    assert message.startswith("--set ")
    assert len(message) < 700


def test_a_cap_may_be_infinite_and_a_model_may_have_further_fields() -> None:
    extra = "{reasoning: {effort: low}, seed: 9223372036854775807, stop: [a, null, true, 0.5]}"
    config = read_config(
        None, ["run_id=r", "index=i", "topics=t", "grading.cap=.inf", f"model={{name: m, extra: {extra}}}"]
    )
    assert config.grading.cap == float("inf")
    assert config.model
    assert config.model.extra["seed"] == 2**63 - 1


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? ", "[{a: "])
@pytest.mark.parametrize("levels", [60, 3000])
def test_yaml_nested_too_deep_is_an_error_of_the_file_or_the_setting(tmp_path: Path, opening: str, levels: int) -> None:
    assert "not YAML: " in error_of(put(tmp_path, opening * levels))
    message = error_of(put(tmp_path, MINIMAL), [f"retrieval={opening * levels}"])
    assert "the value is not YAML: " in message
    assert len(message) < 700


@pytest.mark.slow
def test_a_long_value_is_shown_short(tmp_path: Path) -> None:
    message = error_of(put(tmp_path, MINIMAL + f"track: {'x' * 10_000}\nretrieval: {{depth: [{'1, ' * 5000}1]}}\n"))
    assert len(message) < 400


def test_the_description_of_a_run_holds_no_server_of_any_reranker() -> None:
    endpoint = "{url: 'http://user:secret@10.0.0.7:8000/v1', name: letters, key_env: MY_KEY}"
    rerank = f"rerank={{method: endpoint, endpoint: {endpoint}, then: {{method: endpoint, endpoint: {endpoint}}}}}"
    described = describe_settings(read_config(None, ["run_id=r", "index=i", "topics=t", rerank]))
    assert "method endpoint" in described
    assert not re.search("secret|10.0.0.7|MY_KEY", described)


@pytest.mark.parametrize("place", ["/home/me/c.json", "fitted/c.json"])
def test_the_description_of_a_run_names_files_without_their_folders(place: str) -> None:
    changes = [f"fusion.depth={{choose: expected, calibration: {place}}}", "rerank={method: model, model: /home/me/ce}"]
    systems = "retrieval.systems={bm25: {kind: bm25}, late: {kind: late, within: bm25, model: /home/me/colbert}}"
    described = describe_settings(read_config(None, ["run_id=r", "index=i", "topics=t", systems, *changes]))
    assert "'calibration': 'c.json'" in described
    assert "model ce" in described
    assert "'model': 'colbert'" in described
    assert not re.search("home|fitted", described)


@pytest.mark.parametrize(("most", "depth"), [("", 500), (", most: 50", 50)])
def test_a_chosen_depth_follows_a_smaller_depth_of_the_search(most: str, depth: int) -> None:
    settings = ["run_id=r", "index=i", "topics=t", "retrieval.depth=500"]
    assert read_config(None, [*settings, f"fusion.depth={{choose: expected{most}}}"]).fusion.depth == depth
