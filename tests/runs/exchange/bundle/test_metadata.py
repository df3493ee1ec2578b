"""The steps of a ranking in a bundle's metadata: each has its name, and the rankings that it was made from."""

import pytest

from keystone.runs.config.run_config import RunConfig
from keystone.runs.exchange.bundle.write import describe_run

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
