"""A cache of vectors: a run makes them when it first needs them, and keeps them in an SQLite file beside the index.

A key is the hash of `Embedding.made_by` and of the texts that the model embedded together. So a user may delete a file
at any time or copy it between indexes, and several processes may share it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Lock

import numpy as np

from keystone.indexing.io.json_values import digest
from keystone.indexing.io.kept import Kept, hash_parts, open_kept
from keystone.indexing.types import WORDS, Embedding
from keystone.indexing.vectors.embed import load_embedder
from keystone.indexing.vectors.types import Vectors

MakeVectors = Callable[[Sequence[int]], Iterable[Vectors]]
"""Makes the vectors of the groups with these numbers, in order."""
_MAKING = Lock()


class VectorCache:
    """A cache in an open file; `open_cache` opens one."""

    def __init__(self, kept: Kept, embedding: Embedding) -> None:
        self._kept, self._embedding, self._dimension = kept, embedding, load_embedder(embedding).dimension

    def fill(self, groups: Sequence[Sequence[str]], make: MakeVectors) -> list[Vectors]:
        """The vectors of each group of texts, float32[texts of the group, dimension].

        One call of `make` makes the vectors that the file lacks, those of each group once. Then the file holds them.
        While a model of this machine makes vectors, other threads wait, and then find those that they share with it.
        """
        keys = [hash_texts(self._embedding, texts) for texts in groups]
        first = {key: number for number, key in reversed(list(enumerate(keys)))}
        shapes = {key: (len(groups[number]), self._dimension) for key, number in first.items()}
        found = self._get(shapes)
        if len(found) < len(shapes):
            with nullcontext() if self._embedding.url else _MAKING:
                found |= self._get({key: shape for key, shape in shapes.items() if key not in found})
                missing = sorted(number for key, number in first.items() if key not in found)
                made = {keys[number]: vectors for number, vectors in zip(missing, make(missing), strict=True)}
                self._kept.put({key: vectors.tobytes() for key, vectors in made.items()})
            found |= made
        return [found[key] for key in keys]

    def _get(self, shapes: Mapping[bytes, tuple[int, int]]) -> dict[bytes, Vectors]:
        """The vectors of those keys that the file holds, undamaged and of these shapes."""
        return {
            key: np.frombuffer(content, dtype=np.float32).reshape(shapes[key])
            for key, content in self._kept.get(list(shapes)).items()
            if len(content) == 4 * shapes[key][0] * shapes[key][1]
        }


@contextmanager
def open_cache(path: Path, embedding: Embedding) -> Iterator[VectorCache]:
    """The cache in a file, or in memory as `open_kept` says. `UserError` if the file is damaged.

    No file keeps vectors of words, which are made as fast as they would be read.
    """
    with open_kept(Path(":memory:") if embedding == WORDS else path) as kept:
        yield VectorCache(kept, embedding)


def hash_texts(embedding: Embedding, texts: Sequence[str]) -> bytes:
    """The key of the vectors of some texts that a model embeds together: a SHA-256, bytes[32]."""
    return hash_parts(digest(embedding.made_by).encode(), texts)
