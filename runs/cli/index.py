"""`keystone index`: an index made of a corpus, here or in OpenSearch, or one over what is searched where it is."""

from pathlib import Path

from indexing.attached.rest_server import PREFIX as REST
from indexing.build.index import build_index
from indexing.errors import Report, UserError
from indexing.index import Index
from indexing.types import Embedding, Progress

OPENSEARCH = "opensearch:"


def make_index(
    corpus: str,
    out: Path,
    *,
    format: str | None,
    in_place: bool,
    segments: Path | None,
    windows: bool,
    embedding: Embedding | None,
    faiss: str | None,
    faiss_shard: int | None,
    opensearch: str | None,
    shards: int,
    replicas: int,
    engine: str,
    threads: int,
    progress: Progress,
    report: Report,
) -> tuple[Index, bool]:
    """The index of what `corpus` names, and whether it had to be made: see the options of the command line.

    `UserError` for options that do not go together.
    """
    if corpus.startswith((REST, OPENSEARCH)):
        in_place = True
    if in_place:
        options: dict[str, object] = {"--opensearch": opensearch, "--faiss-shard": faiss_shard, "--format": format}
        if not corpus.startswith("pyserini:"):
            options["--segments"] = segments
        if windows and not corpus.startswith("pyserini:"):
            options["--windows"] = windows
        if given := [name for name, value in options.items() if value is not None]:
            raise UserError(f"found {given[0]} with {corpus}, which is searched where it is; expected one of them")
    if corpus.startswith(REST):
        from indexing.attached.rest_store import adopt_server

        return adopt_server(Path(corpus), out, embedding)
    if corpus.startswith(OPENSEARCH):
        from indexing.opensearch.build import attach
        from indexing.opensearch.cluster import place_of

        return attach(place_of(corpus.removeprefix(OPENSEARCH)), out, embedding.key_env if embedding else None)
    if in_place:
        from indexing.attached.lucene_index import adopt_prebuilt

        return adopt_prebuilt(Path(corpus), out, segments, windows, embedding, progress)
    target = None
    if opensearch:
        from indexing.opensearch.cluster import place_of
        from indexing.opensearch.index import Target

        if faiss_shard:
            raise UserError("found --faiss-shard with --opensearch, which has --shards; expected one of them")
        target = Target(place_of(opensearch), shards, replicas)
    return build_index(
        Path(corpus),
        out,
        format=format,
        segments=segments,
        windows=windows,
        embedding=embedding,
        faiss=faiss,
        faiss_shard=faiss_shard,
        opensearch=target,
        engine=engine,
        threads=threads,
        progress=progress,
        report=report,
    )
