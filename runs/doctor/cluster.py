"""What an OpenSearch cluster, and an index in it, have of what a run needs, and what to change."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson
from yarl import URL

from indexing.errors import UserError
from indexing.opensearch.cluster import Node, Place, Request, as_expected, close, connect, place_of
from indexing.opensearch.index import ANALYSIS, ANALYZER, SIMILARITY, held_at
from indexing.opensearch.requests import ask
from indexing.opensearch.search import version_of
from runs.doctor.machine import Finding

GLOBAL_RANKS = (3, 5)
"""The version whose own rank fusion no longer ranks in each shard for itself."""
LEAST_HEAP, MOST_HEAP = 1.0, 31.0
"""GiB: below, loading and deep rankings are turned away; above, references take twice the memory."""
SHARD = 30.0
"""GB that one shard holds well."""
SAMPLES = (
    "The students' study in the U.S.A. wasn't about bees; it's NASA's 2nd-best well-known re-evaluation, said O'Neill.",
    "Generously dying skies, universal news, relational happiness, hopping ponies and agreed singing",
    "Straße naïve CAFÉS 北京 e-mail@example.com 3.14 http://example.com/a_b?c=d Müller\u2019s",
)
"""Texts on which analyzers differ: apostrophes, abbreviations, hyphens, endings, other scripts, addresses."""
PATIENCE = 10.0


def examine_cluster(where: str) -> Iterator[Finding]:
    """Version, nodes, heap, k-NN and analyzer of a cluster at `URL[,URL...]`, and of an index there if one is named."""
    named = bool(URL(where.rsplit(",", 1)[-1]).path.strip("/"))
    try:
        place = place_of(where if named else f"{where.rstrip('/')}/none")
        nodes = connect(place.urls, 1)
    except (UserError, ValueError) as error:
        yield Finding("problem", "OpenSearch", str(error))
        return
    with contextlib.ExitStack() as stack:
        stack.callback(close, nodes)
        try:
            with as_expected(where):
                yield from _examined(nodes, place if named else None)
        except UserError as error:
            yield Finding("problem", "OpenSearch", str(error))


def _examined(nodes: Sequence[Node], place: Place | None) -> Iterator[Finding]:
    def get(path: str, **params: str) -> Any:
        return ask(nodes, Request("GET", path, params=params), PATIENCE).checked()

    version = get("/")["version"]
    shards, settings, held = 1, {}, None
    if place and (held := held_at(nodes, place)):
        answer = get(f"{place.path}/_settings", flat_settings="true", include_defaults="true")[place.name]
        settings = answer["defaults"] | answer["settings"]
        shards = int(settings["index.number_of_shards"])
    yield of_version(version, shards)
    stats = get("/_nodes/stats/jvm,os")["nodes"].values()
    for node in stats:
        yield of_heap(node["name"], node["jvm"]["mem"]["heap_max_in_bytes"], node["os"]["mem"]["total_in_bytes"])
    yield of_plugins([plugin["component"] for plugin in get("/_cat/plugins", format="json")])
    yield of_analyzer(_stems(nodes, place if held else None))
    if place is None:
        return
    if held is None:
        yield Finding("problem", "index", f"{place}: there is none: keystone index CORPUS --opensearch {place}")
        return
    health = get(f"/_cluster/health{place.path}")
    yield of_health(health["status"], health["unassigned_shards"])
    found = get(f"{place.path}/_stats/docs,store,segments")["_all"]["primaries"]
    yield of_documents(held.finished, found["docs"]["count"], held.meta.get("documents"))
    yield from of_settings(settings, len(list(stats)))
    yield from of_shards(shards, found["store"]["size_in_bytes"] / 1e9, found["segments"]["count"])


def of_version(version: Mapping[str, Any], shards: int) -> Finding:
    """The server's version, and what follows from it for scores and for rank fusion inside the cluster."""
    number, distribution = str(version["number"]), version.get("distribution", "elasticsearch")
    if distribution != "opensearch":
        return Finding("problem", "OpenSearch", f"found {distribution} {number}, expected OpenSearch 2.19 or newer")
    known = version_of(number)
    if known < (2,):
        return Finding("problem", "OpenSearch", f"found version {number}, expected 2.19 or newer")
    if known >= GLOBAL_RANKS:
        return Finding("ok", "OpenSearch", number)
    words = f"{number}: its own rank fusion (score-ranker-processor) ranks each shard for itself before 3.5"
    where = f", and this index has {shards}" if shards > 1 else ""
    return Finding("note", "OpenSearch", f"{words}{where}: leave fusion to keystone, as runs do, or upgrade")


def of_heap(name: str, heap: int, memory: int) -> Finding:
    """A node's heap (bytes) beside the machine's memory (bytes)."""
    size, whole = heap / 2**30, memory / 2**30
    found = f"{name}: {size:.1f} GiB of {whole:.0f} GiB"
    advice = f"set -Xms and -Xmx to {min(MOST_HEAP, max(LEAST_HEAP, whole / 2)):.0f}g"
    if size < LEAST_HEAP * 0.95:
        return Finding("note", "heap", f"{found} is little: {advice}")
    if size > MOST_HEAP * 1.05:
        return Finding("note", "heap", f"{found} is more than references of 4 bytes reach: {advice}")
    return Finding("ok", "heap", found)


def of_plugins(components: Sequence[str]) -> Finding:
    """Whether vectors can be searched."""
    if any("knn" in component.lower() for component in components):
        return Finding("ok", "k-NN", "installed")
    return Finding(
        "note", "k-NN", "not installed, so no dense search there: take the distribution that has it, or --dense pool"
    )


def of_analyzer(texts: Sequence[tuple[list[str], list[str]]]) -> Finding:
    """Whether the cluster's stems of texts (first) are those of Anserini (second)."""
    for found, expected in texts:
        if found != expected:
            one, other = next(
                (pair for pair in zip([*found, ""], [*expected, ""], strict=False) if pair[0] != pair[1]), ("", "")
            )
            words = f"found {one!r}, expected {other!r}: rankings are not those of a local index"
            return Finding("problem", "analyzer", f"{words}: load the index again with keystone index --opensearch")
    return Finding("ok", "analyzer", "stems as Anserini's")


def of_health(status: str, unassigned: int) -> Finding:
    """The state of the index's shards; `unassigned` copies have no node."""
    if status == "red":
        return Finding(
            "problem", "shards", "red: some have no copy left and no search is answered: start the missing node"
        )
    if status == "yellow":
        return Finding("note", "shards", f"yellow: {unassigned} copies have no node: add one, or ask for fewer")
    return Finding("ok", "shards", status)


def of_documents(finished: bool, found: int, expected: int | None) -> Finding:
    """Whether the index was loaded to its end, and holds what the corpus held."""
    if not finished:
        return Finding("problem", "documents", f"{found} so far: run the same keystone index again, to its end")
    if found != expected:
        return Finding("problem", "documents", f"found {found}, expected {expected}: remove it and load it again")
    return Finding("ok", "documents", f"{found}")


def of_settings(settings: Mapping[str, Any], nodes: int) -> Iterator[Finding]:
    """Copies, refresh and similarity of an index whose settings are flat, in a cluster of so many nodes."""
    copies = int(settings["index.number_of_replicas"])
    change = 'PUT .../_settings {"index.number_of_replicas": '
    if copies == 0 and nodes > 1:
        yield Finding("note", "copies", f"none: a node that falls takes its shards along: {change}1}}")
    elif copies >= nodes:
        yield Finding("note", "copies", f"{copies}, but {nodes} nodes have room for {nodes - 1}: {change}{nodes - 1}}}")
    else:
        yield Finding("ok", "copies", f"{copies} besides the primary shards")
    if settings.get("index.refresh_interval") in ("-1", -1):
        change = 'PUT .../_settings {"index.refresh_interval": null}'
        yield Finding("note", "refresh", f"-1, as while loading: what is written is not found: {change}")
    found = {name: settings.get(f"index.similarity.default.{name}") for name in SIMILARITY}
    if {name: str(value) for name, value in SIMILARITY.items()} != {name: str(value) for name, value in found.items()}:
        yield Finding("problem", "similarity", f"found {found}, expected {SIMILARITY}: load the index again")


def of_shards(shards: int, gigabytes: float, segments: int) -> Iterator[Finding]:
    """Shards and segments of an index whose primary shards take so many gigabytes."""
    wanted = max(1, round(gigabytes / SHARD + 0.5))
    words = f"{gigabytes:.2f} GB in {shards} shards"
    if shards > wanted:
        yield Finding("note", "size", f"{words}: {wanted} would do, and each one more is work: --shards {wanted}")
    else:
        yield Finding("ok", "size", words)
    if segments > shards:
        merge = "POST .../_forcemerge?max_num_segments=1"
        yield Finding("note", "segments", f"{segments} in {shards} shards: searches are faster in one a shard: {merge}")


def _stems(nodes: Sequence[Node], place: Place | None) -> list[tuple[list[str], list[str]]]:
    """Stems of the samples: the cluster's, by the analyzer of the index if there is one, and Anserini's."""
    from retrieval.lucene.analyzer import stems_of

    analysis: dict[str, Any] = ANALYSIS
    parts = analysis["analyzer"][ANALYZER]
    filters = [analysis["filter"].get(name, name) for name in parts["filter"]]
    inline = {"tokenizer": parts["tokenizer"], "filter": filters}
    found = []
    for text in SAMPLES:
        body = orjson.dumps({**({"analyzer": ANALYZER} if place else inline), "text": text})
        answer = ask(nodes, Request("POST", f"{place.path if place else ''}/_analyze", body), PATIENCE).checked()
        found.append(([token["token"] for token in answer["tokens"]], stems_of(text)))
    return found
