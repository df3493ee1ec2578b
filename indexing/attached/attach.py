"""Index folders for documents and postings that another engine holds: `index.json`, and what only we need."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import orjson

from indexing.errors import UserError
from indexing.index import FORMAT, Index, open_index
from indexing.io.files import digest, written
from indexing.io.staged import partial_folder
from indexing.types import Embedding
from indexing.vectors.embed import embedder


def adopt(
    corpus: Path,
    out: Path,
    at: dict[str, str],
    embedding: Embedding | None,
    parts: tuple[str, ...],
    fill: Callable[[Path], int | None],
) -> tuple[Index, bool]:
    """An index over what `at` names, whose documents are embedded by the runs that find them; and whether it is new.

    `fill` makes the `parts` in the folder and says how many documents there are, None where nobody knows. A folder
    that already holds this very index is left as it is; one that holds anything else is refused.
    """
    model = asdict(embedding) if embedding else None
    key = digest([FORMAT, at, embedding.made_by if embedding else None])
    if out.exists():
        existing = open_index(out)
        if existing.key != key:
            raise UserError(f"{out}: holds an index of another corpus or other settings: remove it or choose another")
        return existing, False
    if embedding:
        embedder(embedding)  # an impossible model is known now, though it is only used later
    with partial_folder(out, key, (*parts, "index.json")) as folder:
        meta = {"format": FORMAT, "key": key, "embedding": model, "faiss": None, "documents": fill(folder)}
        meta |= {"left_out": {}, "cut": 0, "at": at, "corpus": str(corpus)}
        with written(folder / "index.json") as file:
            file.write(orjson.dumps(meta, option=orjson.OPT_INDENT_2))
    return open_index(out), True
