"""The reranker `model`, which runs a checkpoint here, and rerankers that follow each other."""

import json
from pathlib import Path
from typing import Any

import pytest

from keystone.generation.rerank.endpoint import SCORES_FILE
from keystone.generation.rerank.settings import RerankSettings
from keystone.indexing.encoders.pairs import open_pair_scorer
from keystone.indexing.errors import UserError
from tests.support import programs
from tests.support.models.checkpoints import write_checkpoint
from tests.support.places import ROOT
from tests.support.runs.rerankings import make_candidates, rerank
from tests.support.servers.rerank import serving
from tests.support.servers.vllm import PYTHON, needs_vllm

pytestmark = pytest.mark.slow

NARRATIVE = "abcdefgh"
WORDS = ["xyz", "abc", "abcdefgh", "a", "abcdef", "qqq", "ab"]


def documents(*texts: str) -> Any:
    return make_candidates(NARRATIVE, [[text] for text in texts])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("model") / "cross-encoder", head="labels", seed=5)


def test_documents_are_in_the_order_of_the_scores_and_a_score_is_computed_once(model: Path, tmp_path: Path) -> None:
    scores = open_pair_scorer(str(model))(NARRATIVE, WORDS, 1).tolist()
    expected = sorted(range(len(WORDS)), key=lambda place: -scores[place])
    settings = {"method": "model", "model": str(model)}
    (found,) = rerank(settings, tmp_path, [documents(*WORDS)])
    assert found.order == expected
    assert expected != sorted(expected)
    kept = (tmp_path / SCORES_FILE).read_bytes()
    (again,) = rerank(settings, tmp_path, [documents(*WORDS)])
    assert (again.order, (tmp_path / SCORES_FILE).read_bytes()) == (expected, kept)
    other = write_checkpoint(tmp_path / "other", head="labels", seed=3)
    assert rerank({"method": "model", "model": str(other)}, tmp_path, [documents(*WORDS)])[0].order != expected


def test_a_further_reranker_orders_the_first_documents_once_more(model: Path, tmp_path: Path) -> None:
    with serving() as server:
        first = {"method": "endpoint", "endpoint": {"url": f"{server.root}/v1", "name": "letters"}}
        (by_letters,) = rerank(first, tmp_path, [documents(*WORDS)])
        both = first | {"then": {"method": "model", "model": str(model), "depth": 4}}
        (found,) = rerank(both, tmp_path, [documents(*WORDS)])
    best, rest = by_letters.order[:4], by_letters.order[4:]
    scores = open_pair_scorer(str(model))(NARRATIVE, [WORDS[place] for place in best], 1).tolist()
    assert found.order == [best[place] for place in sorted(range(4), key=lambda place: -scores[place])] + rest
    assert found.order != by_letters.order


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"method": "model"}, r"found 'model' without a model; expected its folder or name under model"),
        ({"method": "listwise", "then": {"method": "none"}}, r"then: found a further reranker where a method is none"),
        ({"then": {"method": "listwise"}}, r"then: found a further reranker where a method is none"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RerankSettings.model_validate(values)


def test_a_checkpoint_that_is_no_reranker_is_an_error(tmp_path: Path) -> None:
    encoder = write_checkpoint(tmp_path / "encoder", pooling="mean")
    with pytest.raises(UserError, match=r"found BertModel, expected a reranker"):
        rerank({"method": "model", "model": str(encoder)}, tmp_path, [documents(*WORDS)])


def test_networks_that_only_pytorch_runs_compute_what_transformers_computes(tmp_path: Path) -> None:
    needs_vllm()
    done = programs.run(
        [PYTHON, "-m", "tests.support.models.torch_parity", tmp_path],
        cwd=ROOT, capture_output=True, text=True, check=True, seconds=300,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert found.keys() == {"qwen3", "mxbai", "monot5", "encoder", "t5"}
    for own, expected in found.values():
        assert own == pytest.approx(expected, abs=1e-4)
        assert len(own) == 3
