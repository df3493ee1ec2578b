"""Short commands import only what they need, since most of their time goes into imports."""

import sys
from pathlib import Path

import pytest

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.index import Index, open_index
from tests.support import programs

NEVER = "ranx matplotlib pandas ir_datasets pyarrow jnius aiohttp openai opensearchpy uvicorn".split()
MODELS = "faiss onnx onnxruntime tokenizers keystone.generation.llm.client".split()
COMPILED = ["numba", "scipy"]
STAGES = "asyncio ssl keystone.generation.prompts keystone.runs.pipeline.stages".split()
OTHERS = ["keystone.runs.cli.commands.run_commands", "keystone.runs.cli.commands.evaluate_command"]
LIGHT = [*COMPILED, "yaml", "keystone.runs.evaluation.evaluate"]
SEARCH = [*NEVER, *COMPILED, *STAGES, "keystone.generation.llm.client", "keystone.runs.python", "keystone.runs.trec"]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a run, judgments, topics and rubrics."""
    (tmp_path / "run").write_text("1 Q0 bees 1 2.5 tag\n")
    (tmp_path / "qrels").write_text("1 0 bees 1\n")
    (tmp_path / "topics.jsonl").write_text('{"id": "1", "narrative": "bees"}\n')
    (tmp_path / "rubrics.jsonl").write_text('{"qid": "1", "criteria": [{"text": "Bees.", "weight": 1}]}\n')
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "unwanted"),
    [
        ("search INDEX bees --set retrieval.systems=[bm25]", [*SEARCH, *MODELS]),
        ("search INDEX bees", SEARCH),
        ("show INDEX bees", [*SEARCH, *MODELS, *OTHERS, "yaml"]),
        ("validate FILES/run --topics FILES/topics.jsonl", [*NEVER, *MODELS, *STAGES]),
        ("fuse FILES/run FILES/run --out FILES/fused", [*NEVER, *MODELS, *STAGES]),
        ("rubrics convert FILES/rubrics.jsonl --to ragdoll --out FILES/out.jsonl", [*NEVER, *MODELS, *LIGHT]),
        ("evaluate FILES/run --qrels FILES/qrels", ["jnius", "aiohttp", "openai", "opensearchpy", "uvicorn", *MODELS]),
    ],
)
def test_a_command_imports_only_what_it_needs(index: Index, files: Path, command: str, unwanted: list[str]) -> None:
    check_imports(command.replace("INDEX", str(index.folder)).replace("FILES", str(files)), unwanted)


@pytest.mark.slow
def test_an_update_without_vectors_imports_only_what_it_needs(tmp_path: Path) -> None:
    (corpus := tmp_path / "corpus.jsonl").write_text('{"id": "a", "text": "Honey bees."}\n')
    (new := tmp_path / "new.jsonl").write_text('{"id": "b", "text": "A volcano."}\n')
    index, _ = build_index(corpus, tmp_path / "index", BuildSettings(embedding=None))
    unwanted = [*NEVER, *COMPILED, *MODELS, *OTHERS, "pydantic", "selectolax", "keystone.indexing.vectors.shards"]
    check_imports(f"index --update {new} --out {index.folder} --quiet", unwanted)
    assert open_index(index.folder).documents == 2


def check_imports(command: str, unwanted: list[str]) -> None:
    """Check that a command imports none of the unwanted modules."""
    code = f"""if True:
        import sys
        from keystone.runs.cli.main import app
        try:
            app({command.split()!r}, standalone_mode=False)
        finally:
            print([name for name in {unwanted!r} if name in sys.modules], file=sys.stderr)
    """
    shown = programs.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert shown.stderr.splitlines()[-1:] == ["[]"]
