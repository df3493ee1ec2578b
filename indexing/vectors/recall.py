"""Recall of a FAISS index that is not exact, measured when it is built, and the choice of its kind by that.

Sampled vectors of the index are the queries. Recall at k is the share of the k found vectors that are no worse than the
k-th of an exact search, averaged over the queries. A query does not find itself. In a graph, its own node would lead to
its neighbours; there the queries are unlinked first, and no query finds another one.

A kind reaches a recall if the lower end of the one-sided 99 % interval of this mean does, even with one more hit
missed. So only an exact kind reaches 1.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.embedder import ONE_THREAD, Effort, Vectors
from keystone.indexing.errors import UserError
from keystone.indexing.index import SMALLEST, Recall, shard_files
from keystone.indexing.io.staged import stage
from keystone.indexing.vectors.faiss_index import (
    SEED,
    Search,
    bind_search,
    build_dense,
    build_dense_shards,
    fill_index,
    find_graph,
    import_faiss,
    is_flat,
    list_parameters,
    load_dense,
    make_faiss_index,
    search_shards,
    set_parameters,
    train_index,
)
from keystone.indexing.vectors.shards import Shards

DEPTHS = (10, 100)
"""The depths at which recall is measured. The first one counts: answers and measures read the first documents most."""
MOST_QUERIES, LEAST_QUERIES = 1_000, 100
SAMPLED_PART, UNLINKED_PART = 2, 20
"""At most one of so many vectors is a query: of those that stay in the index, and of those that leave a graph."""
MOST_PRODUCTS = 10**9
"""The inner products of the exact search. Above a million vectors, there are fewer queries: at least 100."""
TRIAL_QUERIES = 200
"""The queries by whose neighbours alone the kinds are first compared, unless the index has as few vectors."""
SIGMAS = 2.326
"""The one-sided 99 % interval of a mean reaches so many standard errors below it."""
SMALL_KINDS = (
    "RaBitQ", "RaBitQ2", "RaBitQ3", "SQ4", "RaBitQ4", "RaBitQ5", "SQ6", "RaBitQ6", "SQ8", "SQfp16", "Flat",
)  # fmt: skip
"""The kinds among which the smallest is chosen. All of them scan codes.

A graph, lists of rows or a refinement make an index larger, and find no more than a scan of the same codes.
"""

Rows = NDArray[np.int64]
Shares = NDArray[np.float64]
"""The recall of each query at each of `DEPTHS`: float64[depths, queries]."""
Open = Callable[[str], Iterable[Any]]
"""Opens the parts of an index one after the other, with these search parameters."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What an exact search finds for the sampled queries, beyond the deepest of `DEPTHS`, without forbidden hits.

    `rows` and `scores` are int64 and float32[queries, found]. `apart` says that no query may find another one;
    otherwise it may not find itself.
    """

    own: Rows
    queries: Vectors
    rows: Rows
    scores: NDArray[np.float32]
    apart: bool

    @property
    def extra(self) -> int:
        """The hits that a search must find beyond the wanted ones, since the query itself does not count."""
        return 0 if self.apart else 1

    def first(self, count: int) -> "Truth":
        """The truth of the first `count` queries."""
        return replace(self, **{name: getattr(self, name)[:count] for name in ("own", "queries", "rows", "scores")})


def draw_queries(shards: Shards, apart: bool = False) -> Rows:
    """Draw the rows of the queries, int64[queries], ascending. Zero vectors are left out, since all others tie.

    If they are to be unlinked (`apart`), they are a small part of any graph, which would break otherwise.
    """
    count = shards.documents
    most = min(MOST_QUERIES, max(LEAST_QUERIES, MOST_PRODUCTS // max(1, count)))
    wanted = min(most, count // (UNLINKED_PART if apart else SAMPLED_PART))
    rows = np.sort(np.random.default_rng(SEED).choice(count, wanted, replace=False)).astype(np.int64)
    found: Rows = rows[np.any(shards.take(rows) != 0, axis=1)]
    return found


def find_exactly(shards: Shards, own: Rows, apart: bool, effort: Effort = ONE_THREAD) -> Truth:
    """Search all vectors exactly for the queries in the rows `own`. One shard of vectors is in memory at a time."""
    faiss = import_faiss()
    faiss.omp_set_num_threads(effort.threads)
    queries, depth = shards.take(own), max(DEPTHS) + 1
    best, start = faiss.ResultHeap(len(own), depth, keep_max=True), 0
    with effort.progress("Measuring recall", shards.documents) as tick:
        for vectors in shards:
            rows = np.arange(start, start + len(vectors))
            start += len(vectors)
            if apart:
                rows = rows[~np.isin(rows, own)]
            if len(rows):
                base = np.ascontiguousarray(vectors[rows - (start - len(vectors))])
                scores, places = faiss.knn(queries, base, min(depth + 1, len(rows)), metric=faiss.METRIC_INNER_PRODUCT)
                found = rows[places]
                found[found == own[:, None]] = -1
                best.add_result(np.where(found < 0, -np.inf, scores).astype(np.float32), found)
            tick(len(vectors))
        best.finalize()
    return Truth(own, queries, best.I, best.D, apart)


def measure_shares(truth: Truth, search: Search, shards: Shards) -> Shares:
    """The recall of each query at each of `DEPTHS`, by a search as `bind_search` makes it."""
    return np.stack([_measure_at(depth, truth, search, shards) for depth in DEPTHS])


def _measure_at(depth: int, truth: Truth, search: Search, shards: Shards) -> NDArray[np.float64]:
    within = min(depth, int((truth.rows >= 0).sum(axis=1).min(initial=depth)))
    if not within:
        return np.ones(len(truth.own))
    _, found = search(truth.queries, within + truth.extra)
    if not truth.apart:  # the query itself goes to the end, where it is cut off
        order = np.argsort(found == truth.own[:, None], axis=1, kind="stable")
        found = np.take_along_axis(found, order, axis=1)[:, :within]
    least = truth.scores[:, within - 1 : within]
    good = np.zeros(found.shape, dtype=bool)
    for query, (rows, scores) in enumerate(zip(truth.rows, truth.scores, strict=True)):
        good[query] = np.isin(found[query], rows[(rows >= 0) & (scores >= least[query])])
        if scores[-1] == least[query] and not good[query].all():  # further rows may tie with the last that counts
            others = (found[query] >= 0) & ~good[query] & (found[query] != truth.own[query])
            products = shards.take(found[query][others]) @ truth.queries[query]
            good[query][others] = products >= least[query]
    share: NDArray[np.float64] = good.mean(axis=1)
    return share


def _reaches(shares: NDArray[np.float64], wanted: float) -> bool:
    if len(shares) < 2:
        return False
    missed = 1 / (DEPTHS[0] * len(shares))
    return float(shares.mean() - SIGMAS * shares.std(ddof=1) / len(shares) ** 0.5 - missed) >= wanted


def open_parts_of(files: Sequence[Path], own: Rows) -> Open:
    """How parts in files are opened: mapped, or graphs one by one, from which the rows `own` are unlinked."""
    mapped = len(files) > 1
    first = load_dense(files[0], mapped=mapped)
    if find_graph(first) is None:
        parts = [first, *(load_dense(file, mapped=mapped) for file in files[1:])]
    elif not mapped:
        _unlink(first, own)
        parts = [first]
    else:
        return partial(_read_graphs, files, own)

    def again(parameters: str) -> list[Any]:
        for part in parts:
            set_parameters(part, parameters)
        return parts

    return again


def _read_graphs(files: Sequence[Path], own: Rows, parameters: str) -> Iterator[Any]:
    start = 0
    for file in files:
        part = load_dense(file, parameters)
        _unlink(part, own - start)
        start += part.ntotal
        yield part


def _unlink(index: Any, rows: Rows) -> None:
    """Point each edge that leads to these rows back to its own start, in the graph of an index in memory."""
    faiss = import_faiss()
    graph = find_graph(index)
    ends = faiss.vector_to_array(graph.neighbors)
    begins = np.repeat(
        np.arange(index.ntotal, dtype=ends.dtype), np.diff(faiss.vector_to_array(graph.offsets)).astype(int)
    )
    removed = np.isin(ends, rows[(rows >= 0) & (rows < index.ntotal)])
    faiss.copy_array_to_vector(np.where(removed, begins, ends), graph.neighbors)


def choose_parameters(open_parts: Open, truth: Truth, shards: Shards, wanted: float) -> tuple[str, Shares]:
    """The least search parameters with which an index reaches a recall, and its recall with them.

    Each parameter is doubled from 1, the others at their most or as already chosen. If even the most of all does not
    reach the recall, that is the choice.
    """
    chosen = list_parameters(next(iter(open_parts(""))))
    measured: dict[str, Shares] = {}

    def measure(values: dict[str, int]) -> bool:
        name = _join(values)
        if name not in measured:
            measured[name] = measure_shares(truth, bind_parts(open_parts, name), shards)
        return _reaches(measured[name][0], wanted)

    if measure(chosen):
        for name, most in list(chosen.items()):
            steps = [*(2**n for n in range(most.bit_length()) if 2**n < most), most]
            chosen[name] = next(value for value in steps if measure({**chosen, name: value}))
    return _join(chosen), measured[_join(chosen)]


def _join(values: dict[str, int]) -> str:
    return ",".join(f"{name}={value}" for name, value in values.items())


def bind_parts(open_parts: Open, parameters: str) -> Search:
    """The search of an index in parts, with search parameters."""

    def search(queries: Vectors, depth: int) -> tuple[Any, Any]:
        parts = open_parts(parameters)
        if isinstance(parts, list) and len(parts) == 1:
            return bind_search(parts[0])(queries, depth)
        return search_shards(parts, queries, depth)

    return search


def list_by_size(dimension: int) -> list[str]:
    """The kinds among which the smallest is chosen, by the bytes of a vector's code, for vectors of this dimension."""
    return sorted(SMALL_KINDS, key=lambda kind: int(make_faiss_index(dimension, kind).sa_code_size()))


def build_chosen(
    shards: Shards, kind: str, wanted: float | None, size: int | None, folder: Path, effort: Effort = ONE_THREAD
) -> tuple[str, int, Recall | None]:
    """Build the FAISS index of all vectors in a folder, as stages; returns its kind, its number of files and recall.

    The number of files is 0 for one file, if `size` is None. A recall `wanted` chooses the search parameters, and for
    the kind `SMALLEST` the kind too: that of the fewest bytes a vector that reaches it. The recall of an exact index is
    None, unless it was wanted. The index is the same on any number of threads, and so are recall and choice.

    `UserError` if no kind reaches the wanted recall, and as from `build_dense`.
    """
    find = cache(lambda apart: find_exactly(shards, draw_queries(shards, apart), apart, effort))
    if wanted is None:
        files, found = _build_in(folder, kind, None, shards, size, find, effort)
        return kind, files, Recall(**found["recall"]) if found else None
    kinds = list_by_size(shards.dimension) if kind == SMALLEST else [kind]
    for one in kinds:
        place = folder / f"kind-{sha256(one.encode()).hexdigest()[:12]}"
        place.mkdir(exist_ok=True)
        if len(kinds) > 1 and not stage(place, "trial", partial(_try, one, wanted, shards, find, effort)):
            continue
        files, found = _build_in(place, one, wanted, shards, size, find, effort)
        if found["reached"]:
            for file in place.glob("dense*.faiss"):
                file.replace(folder / file.name)
            return one, files, Recall(**found["recall"], wanted=wanted, chosen=kind == SMALLEST)
        for file in place.glob("*.faiss"):
            file.unlink()
    raise UserError(
        f"--recall {wanted:g}: found {found['recall']['at_10']:.4f} for FAISS index {kind!r} with "
        f"{found['recall']['parameters'] or 'no search parameters'}, as the mean over {found['recall']['queries']} "
        "sampled vectors; expected a kind that reaches it safely, or no --faiss, which chooses the smallest"
    )


def _build_in(
    folder: Path,
    kind: str,
    wanted: float | None,
    shards: Shards,
    size: int | None,
    find: Callable[[bool], Truth],
    effort: Effort,
) -> tuple[int, dict[str, Any]]:
    """Build and measure an index of one kind in a folder; returns its number of files, and what was measured."""
    files = [folder / "dense.faiss"]
    if size:
        files = shard_files(folder, build_dense_shards(shards, kind, size, folder, effort.progress))
    else:
        stage(folder, "dense.faiss", lambda path: build_dense(shards, kind, path, effort.progress))
    found = stage(folder, "recall", lambda _: _measure(files, kind, wanted, shards, find, effort))
    return len(files) if size else 0, found


def _measure(
    files: Sequence[Path],
    kind: str,
    wanted: float | None,
    shards: Shards,
    find: Callable[[bool], Truth],
    effort: Effort,
) -> dict[str, Any]:
    """What is kept of the measured recall of an index in files; nothing for an exact one whose recall nobody wants."""
    empty = make_faiss_index(shards.dimension, kind)
    if is_flat(empty):
        exact = {"at_10": 1.0, "at_100": 1.0, "queries": 0, "bytes": _count_bytes(files, shards), "parameters": ""}
        return {} if wanted is None else {"reached": True, "recall": exact}
    truth, parameters, reached = find(find_graph(empty) is not None), "", False
    import_faiss().omp_set_num_threads(effort.threads)
    open_parts = open_parts_of(files, truth.own)
    if wanted is None:
        shares = measure_shares(truth, bind_parts(open_parts, parameters), shards)
    else:
        parameters, shares = choose_parameters(open_parts, truth, shards, wanted)
        reached = _reaches(shares[0], wanted)
    means = [round(float(own.mean()), 4) if len(own) else 0.0 for own in shares]
    recall = dict(zip(("at_10", "at_100"), means, strict=True))
    known = {"queries": len(truth.own), "bytes": _count_bytes(files, shards), "parameters": parameters}
    return {"reached": reached, "recall": {**recall, **known}} if len(truth.own) or wanted is not None else {}


def _count_bytes(files: Sequence[Path], shards: Shards) -> float:
    return round(sum(file.stat().st_size for file in files) / shards.documents, 1)


def _try(kind: str, wanted: float, shards: Shards, find: Callable[[bool], Truth], effort: Effort, _path: Path) -> bool:
    """Tell whether a kind may reach a recall, by an index of the exact hits of some queries and of no other vectors.

    Most other vectors would be found by none of them. So a kind that fails here would fail in the whole index, too.
    """
    if shards.documents <= TRIAL_QUERIES * max(DEPTHS):
        return True
    truth = find(False).first(TRIAL_QUERIES)
    rows = np.unique(np.concatenate([truth.own, truth.rows[truth.rows >= 0]]))
    index = train_index(shards, kind)
    fill_index(index, [shards.take(rows)])
    import_faiss().omp_set_num_threads(effort.threads)

    def search(queries: Vectors, depth: int) -> tuple[Any, Any]:
        scores, found = bind_search(index)(queries, depth)
        return scores, np.where(found < 0, found, rows[found])

    return float(_measure_at(DEPTHS[0], truth, search, shards).mean()) >= wanted
