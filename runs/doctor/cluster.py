"""Checks of an OpenSearch cluster and of an index in it, and advice about settings to change."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from keystone.indexing.errors import UserError
from keystone.indexing.opensearch.analysis import ANALYSIS, ANALYZER
from keystone.indexing.opensearch.cluster import Node, Place, as_expected, close, place_of
from keystone.indexing.opensearch.index import SIMILARITY, held_at
from keystone.indexing.opensearch.nodes import SNIFF, connect_to_all, reads_true
from keystone.indexing.opensearch.requests import administer
from keystone.indexing.opensearch.search import version_of
from keystone.runs.doctor.machine import Finding
from keystone.runs.wording import plural

if TYPE_CHECKING:
    from opensearchpy import OpenSearch

GLOBAL_RANK_VERSION = (3, 5)
"""The first version whose own rank fusion ranks over all shards together."""
MIN_HEAP_GIB, MAX_HEAP_GIB = 1.0, 31.0
"""With less heap, OpenSearch refuses loading and deep rankings. With more, references take twice the memory."""
SHARD_GB = 30.0
"""The size up to which one shard is fast."""
SAMPLE_TEXTS = (
    "The students' study in the U.S.A. wasn't about bees; it's NASA's 2nd-best well-known re-evaluation, said O'Neill.",
    "Generously dying skies, universal news, relational happiness, hopping ponies and agreed singing",
    "Straße naïve CAFÉS 北京 e-mail@example.com 3.14 http://example.com/a_b?c=d Müller\u2019s",
)
"""Texts that analyzers treat differently: apostrophes, abbreviations, hyphens, endings, other scripts, addresses."""
REPLY_TIMEOUT_S = 10.0
"""The time for which the doctor waits for each reply."""


def examine_cluster(where: str) -> Iterator[Finding]:
    """Check version, heap, k-NN and analyzer of a cluster at `URL[,URL...]`, and an index if `where` names one."""
    last = where.rsplit(",", 1)[-1]
    has_index = "://" not in last or "/" in last.partition("://")[2].strip("/")
    try:
        place = place_of(where if has_index else f"{where.rstrip('/')}/none")
        nodes = connect_to_all(place.urls)
    except (UserError, ValueError) as error:
        yield Finding("problem", "OpenSearch", str(error))
        return
    with contextlib.ExitStack() as stack:
        stack.callback(close, nodes)
        try:
            with as_expected(where):
                yield from _examine_nodes(nodes, place if has_index else None)
        except UserError as error:
            yield Finding("problem", "OpenSearch", str(error))


def _examine_nodes(nodes: Sequence[Node], place: Place | None) -> Iterator[Finding]:
    cluster = administer(nodes, REPLY_TIMEOUT_S)
    version = cluster.info()["version"]
    shards, settings, held = 1, {}, None
    if place and (held := held_at(nodes, place)):
        answer = cluster.indices.get_settings(index=place.name, flat_settings=True, include_defaults=True)
        settings = answer[held.place.name]["defaults"] | answer[held.place.name]["settings"]
        shards = int(settings["index.number_of_shards"])
    yield check_version(version, shards)
    stats = cluster.nodes.stats(metric="jvm,os")["nodes"].values()
    for node in stats:
        yield check_heap(node["name"], node["jvm"]["mem"]["heap_max_in_bytes"], node["os"]["mem"]["total_in_bytes"])
    answered = cluster.nodes.info(metric="http")["nodes"].values()
    addresses = [node["http"]["publish_address"].rpartition("/")[2] for node in answered if node.get("http")]
    if not reads_true(SNIFF):  # otherwise a warning has named the nodes that are left out
        yield from check_addresses(len(nodes), addresses)
    yield check_plugins([plugin["component"] for plugin in cluster.cat.plugins(format="json")])
    yield check_analyzer(_collect_stems(cluster, place if held else None))
    if place is None:
        return
    if held is None:
        yield Finding(
            "problem", "index", f"{place}: found no index: keystone index CORPUS --opensearch {place} makes one"
        )
        return
    health = cluster.cluster.health(index=place.name)
    yield check_health(health["status"], health["unassigned_shards"])
    found = cluster.indices.stats(index=place.name, metric="docs,store,segments")["_all"]["primaries"]
    yield check_documents(held.finished, found["docs"]["count"], held.meta.get("documents"))
    yield from check_settings(settings, len(list(stats)))
    yield from check_shards(shards, found["store"]["size_in_bytes"] / 1e9, found["segments"]["count"])


def check_version(version: Mapping[str, Any], shards: int) -> Finding:
    """Check the server's version, and whether its own rank fusion ranks each shard by itself."""
    number, distribution = str(version["number"]), version.get("distribution", "elasticsearch")
    if distribution != "opensearch":
        return Finding("problem", "OpenSearch", f"found {distribution} {number}, expected OpenSearch 2.19 or newer")
    known = version_of(number)
    if known < (2,):
        return Finding("problem", "OpenSearch", f"found version {number}, expected 2.19 or newer")
    if known >= GLOBAL_RANK_VERSION:
        return Finding("ok", "OpenSearch", number)
    found = f"{number}: before 3.5, its own rank fusion (score-ranker-processor) ranks each shard for itself"
    index = f", and this index has {shards}" if shards > 1 else ""
    return Finding("note", "OpenSearch", f"{found}{index}: leave fusion to keystone, as runs do, or upgrade")


def check_heap(name: str, heap: int, memory: int) -> Finding:
    """Compare a node's heap with the memory of its machine, both in bytes."""
    size, total = heap / 2**30, memory / 2**30
    found = f"{name}: {size:.1f} GiB of {total:.0f} GiB"
    advice = f"set -Xms and -Xmx to {min(MAX_HEAP_GIB, max(MIN_HEAP_GIB, total / 2)):.0f}g"
    if size < MIN_HEAP_GIB * 0.95:
        return Finding("note", "heap", f"{found} is little: {advice}")
    if size > MAX_HEAP_GIB * 1.05:
        return Finding("note", "heap", f"{found} is too much for references of 4 bytes: {advice}")
    return Finding("ok", "heap", found)


def check_addresses(urls: int, addresses: Sequence[str]) -> Iterator[Finding]:
    """Compare the number of URLs with the HTTP addresses that the nodes of a cluster publish."""
    if urls == 1 and len(addresses) > 1:
        yield Finding(
            "note",
            "nodes",
            f"the URL names one of {len(addresses)}: {', '.join(sorted(addresses))}. Unless it is a proxy for "
            f"all, name all, with commas, or set {SNIFF}=true. A run then goes on when one fails",
        )


def check_plugins(components: Sequence[str]) -> Finding:
    """Check whether the cluster can search vectors."""
    if any("knn" in component.lower() for component in components):
        return Finding("ok", "k-NN", "installed")
    return Finding(
        "note", "k-NN", "not installed, so dense search fails: take the distribution that has it, or --dense pool"
    )


def check_analyzer(texts: Sequence[tuple[list[str], list[str]]]) -> Finding:
    """Compare the cluster's stems of each text (first) with those of Anserini (second)."""
    for found, expected in texts:
        if found != expected:
            one, other = next(
                (pair for pair in zip([*found, ""], [*expected, ""], strict=False) if pair[0] != pair[1]), ("", "")
            )
            found_stem = f"found {one!r}, expected {other!r}: rankings differ from those of a local index"
            return Finding(
                "problem", "analyzer", f"{found_stem}: load the index again with keystone index --opensearch"
            )
    return Finding("ok", "analyzer", "the same stems as Anserini's")


def check_health(status: str, unassigned: int) -> Finding:
    """Check the state of the index's shards. `unassigned` is the number of copies without a node."""
    if status == "red":
        return Finding(
            "problem", "shards", "red: some shards have no copy left, so every search fails: start the missing node"
        )
    if status == "yellow":
        copies = f"{plural(unassigned, 'copy', 'copies')} {'has' if unassigned == 1 else 'have'}"
        return Finding("note", "shards", f"yellow: {copies} no node: add a node, or ask for fewer copies")
    return Finding("ok", "shards", status)


def check_documents(finished: bool, found: int, expected: int | None) -> Finding:
    """Check whether the index was loaded to its end, with all documents of the corpus."""
    if not finished:
        return Finding("problem", "documents", f"{found} so far: run the same keystone index command again, to its end")
    if found != expected:
        return Finding("problem", "documents", f"found {found}, expected {expected}: remove it and load it again")
    return Finding("ok", "documents", f"{found}")


def check_settings(settings: Mapping[str, Any], nodes: int) -> Iterator[Finding]:
    """Check copies, refresh and similarity of an index in a cluster of `nodes`. The settings are flat."""
    copies = int(settings["index.number_of_replicas"])
    change = 'PUT .../_settings {"index.number_of_replicas": '
    if copies == 0 and nodes > 1:
        yield Finding("note", "copies", f"none: if a node fails, its shards are lost: {change}1}}")
    elif copies >= nodes:
        limit = f"{plural(nodes, 'node')} can hold"
        yield Finding("note", "copies", f"{copies}, but {limit} at most {nodes - 1}: {change}{nodes - 1}}}")
    else:
        yield Finding("ok", "copies", f"{copies} besides the primary shards")
    if settings.get("index.refresh_interval") in ("-1", -1):
        change = 'PUT .../_settings {"index.refresh_interval": null}'
        yield Finding("note", "refresh", f"-1, as during loading: searches miss new documents: {change}")
    found = {name: settings.get(f"index.similarity.default.{name}") for name in SIMILARITY}
    if {name: str(value) for name, value in SIMILARITY.items()} != {name: str(value) for name, value in found.items()}:
        yield Finding("problem", "similarity", f"found {found}, expected {SIMILARITY}: load the index again")


def check_shards(shards: int, gigabytes: float, segments: int) -> Iterator[Finding]:
    """Check shards and segments of an index. Its primary shards take `gigabytes`."""
    wanted = max(1, round(gigabytes / SHARD_GB + 0.5))
    size = f"{gigabytes:.2f} GB in {plural(shards, 'shard')}"
    if shards > wanted:
        yield Finding("note", "size", f"{size}: {wanted} would do, and each further one costs time: --shards {wanted}")
    else:
        yield Finding("ok", "size", size)
    if segments > shards:
        merge = "POST .../_forcemerge?max_num_segments=1"
        yield Finding(
            "note",
            "segments",
            f"{segments} in {plural(shards, 'shard')}: searches are faster with one in each shard: {merge}",
        )


def _collect_stems(cluster: "OpenSearch", place: Place | None) -> list[tuple[list[str], list[str]]]:
    """Collect stems of the sample texts: those of the cluster (or of the index at `place`) and of Anserini."""
    from keystone.indexing.lucene.analyzer import stems_of

    parts = ANALYSIS["analyzer"][ANALYZER]
    filters = [ANALYSIS["filter"].get(name, name) for name in parts["filter"]]
    inline = {"tokenizer": parts["tokenizer"], "filter": filters}
    found = []
    for text in SAMPLE_TEXTS:
        body = {**({"analyzer": ANALYZER} if place else inline), "text": text}
        answer = cluster.indices.analyze(index=place.name if place else None, body=body)
        found.append(([token["token"] for token in answer["tokens"]], stems_of(text)))
    return found
