"""Short commands import only what they need, since most of their time goes into imports."""

import sys
from pathlib import Path

import pytest

from keystone.indexing.index import Index
from tests.support import programs

NEVER = "ranx matplotlib pandas ir_datasets pyarrow jnius aiohttp openai opensearchpy uvicorn".split()
MODELS = "faiss onnx onnxruntime tokenizers keystone.generation.llm.open".split()
COMPILED = ["numba", "scipy"]
STAGES = "asyncio ssl keystone.generation.prompts keystone.runs.pipeline.stages".split()
SEARCH = [*NEVER, *COMPILED, *STAGES, "keystone.generation.llm.open", "keystone.runs.python", "keystone.runs.trec"]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a run, judgments, topics and an answer file."""
    (tmp_path / "run").write_text("1 Q0 bees 1 2.5 tag\n")
    (tmp_path / "qrels").write_text("1 0 bees 1\n")
    (tmp_path / "topics.jsonl").write_text('{"id": "1", "narrative": "bees"}\n')
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "unwanted"),
    [
        ("search INDEX bees --set retrieval.systems=[bm25]", [*SEARCH, *MODELS]),
        ("search INDEX bees", SEARCH),
        ("show INDEX bees", [*SEARCH, *MODELS, "yaml"]),
        ("validate FILES/run --topics FILES/topics.jsonl", [*NEVER, *MODELS, *STAGES]),
        ("fuse FILES/run FILES/run --out FILES/fused", [*NEVER, *MODELS, *STAGES]),
        ("evaluate FILES/run --qrels FILES/qrels", ["jnius", "aiohttp", "openai", "opensearchpy", "uvicorn", *MODELS]),
    ],
)
def test_a_command_imports_only_what_it_needs(index: Index, files: Path, command: str, unwanted: list[str]) -> None:
    arguments = [one.replace("INDEX", str(index.folder)).replace("FILES", str(files)) for one in command.split()]
    code = f"""if True:
        import sys
        from keystone.runs.cli.main import app
        try:
            app({arguments!r}, standalone_mode=False)
        finally:
            print([name for name in {unwanted!r} if name in sys.modules], file=sys.stderr)
    """
    shown = programs.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert shown.stderr.splitlines()[-1:] == ["[]"]
