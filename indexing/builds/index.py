"""One index build: from a corpus to a folder with `store/`, `lucene/`, `postings/`, `dense.faiss` and `index.json`.

Further sets of vectors lie in `vectors/NAME/`. The folder appears when it is complete, or not at all. If runs embed the
documents that they find (`keystone.indexing.vectors.of_documents`), the folder has no `dense.faiss`. If a build stops
at any moment, running it again goes on from there.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.builds.settings import DEFAULTS, BuildSettings, check_set_names, open_engine
from keystone.indexing.corpora.corpus import ALL, MAIN, guess_format, make_corpus_key, read_corpus
from keystone.indexing.corpora.languages import guess_language
from keystone.indexing.corpora.segments import cut_segments, is_window, refuse_windows
from keystone.indexing.embedder import Effort, Foretell
from keystone.indexing.errors import BadRecord, Report, UserError, stop
from keystone.indexing.index import FORMAT, SMALLEST, Index, VectorSet, open_index
from keystone.indexing.io.json_values import digest
from keystone.indexing.io.reading import hash_file
from keystone.indexing.io.staged import partial_folder, stage, write_description
from keystone.indexing.io.writing import HALF_WRITTEN, unicode_name
from keystone.indexing.languages import DEFAULT_LANGUAGE, PIECES_PREFIX, find_code, has_languages, list_codes
from keystone.indexing.store import DocumentStore, build_store
from keystone.indexing.types import WORDS, Document, Embedding, Progress, silent

if TYPE_CHECKING:
    from keystone.indexing.impacts import OlderImpacts, RowImpacts
    from keystone.indexing.vectors.passages import Offsets, Passages
    from keystone.indexing.vectors.shards import Embed, Shards, Texts

PARTS = ("store", "lucene", "postings", "languages", "dense.faiss", "dense-*.faiss", "passages.npy", "index.json")
"""The files of a complete index folder; `index.json` alone if another engine holds the rest."""
OF_PASSAGES = "sets of passages"
"""What marks an index with impacts or PLAID of passages, and no vectors: in its key, and in OpenSearch's description.

Without the mark, these sets hold the beginnings of documents, as an older version made them.
"""


def build_index(
    corpus: Path,
    out: Path,
    settings: BuildSettings = DEFAULTS,
    progress: Progress = silent,
    report: Report = stop,
    foretell: Foretell | None = None,
) -> tuple[Index, bool]:
    """Index a corpus into the folder `out`; returns the index, and whether it is new.

    `report` receives each bad record once: if an earlier try has read the corpus, the index only counts them.
    `foretell` receives the time and space that each set of vectors or impacts will take, before it is made. If
    `out` already holds this very index, the function leaves it as it is. Engines go on with each other's work.

    If `out` holds anything else, or if the corpus cannot be read or holds no document, the function raises `UserError`.
    It also raises `UserError` for impossible settings, and for a document of MS MARCO V2.1 with neither official
    segments nor `settings.windows`.
    """
    format = settings.format or guess_format(corpus)
    check_recall(settings)
    check_set_names(settings)
    if settings.extract not in (MAIN, ALL):
        raise UserError(f"extract: found {settings.extract!r}, expected {MAIN} or {ALL}")
    segments, embedding, faiss, opensearch = settings.segments, settings.embedding, settings.faiss, settings.opensearch
    with progress("Reading files", None):
        inputs = [
            make_corpus_key(corpus, settings.format, settings.extract),
            *([make_corpus_key(segments, "segments")] if segments else []),
        ]
    made_by = embedding.made_by if embedding else None
    kind = [faiss, settings.faiss_shard, *([] if settings.recall is None else [settings.recall])]
    made_of = [FORMAT, format, made_by, kind if embedding else None, inputs]
    if opensearch:
        made_of.append(["opensearch", opensearch.shards])
        if settings.vectors:
            raise UserError("found --vectors with --opensearch, which holds one set of vectors; expected one of them")
    if settings.vectors:
        made_of.append(["vectors", settings.name_makers("vectors"), *kind])
    if settings.language != DEFAULT_LANGUAGE:
        made_of.append(["language", settings.language])
    if settings.language.startswith(PIECES_PREFIX) and not opensearch:
        made_of.append(["pieces", hash_file(Path(settings.language.removeprefix(PIECES_PREFIX)))])
    if settings.impacts:
        made_of.append(["impacts", settings.name_makers("impacts")])
    if settings.plaid:
        if opensearch:
            raise UserError("found --plaid with --opensearch, which holds no PLAID index; expected one of them")
        made_of.append(["plaid", settings.name_makers("plaid")])
    has_vectors = faiss is not None and bool(embedding or settings.vectors)
    is_marked = bool(settings.passages and not has_vectors and (settings.impacts or settings.plaid))
    made_of += [OF_PASSAGES] if is_marked else []
    key, passages_key = digest(made_of), digest([*made_of, "passages"])
    keys = [key, passages_key] if settings.passages is None else [passages_key if settings.passages else key]
    at = opensearch.place.at if opensearch else {}
    if out.exists():
        existing = open_index(out)
        if existing.key not in keys or existing.at != at:
            raise UserError(f"{out}: holds an index of another corpus or other settings: remove it or choose another")
        return existing, False
    if opensearch:
        from keystone.indexing.opensearch.build import check_cluster

        known = {"faiss": faiss, "passages": settings.passages, "impacts": settings.impacts}
        known |= {} if has_languages(settings.language) else describe_language((), settings.language)
        check_cluster(opensearch, keys, known, embedding)
    parts_key = digest([*keys, at]) if at or len(keys) > 1 else keys[0]
    parts = PARTS[-1:] if at else (*PARTS, *settings.sets)
    with partial_folder(out, parts_key, parts) as folder, open_engine(settings.engine, settings.threads) as engine:
        if not (folder / "index.json").exists():
            documents = partial(
                read_corpus, corpus, settings.format, segments, read=engine.read, extract=settings.extract,
                language_field=settings.language_field,
            )  # fmt: skip
            read = stage(folder, "store", lambda path: _build_store(documents, settings, path, progress, report))
            store, effort = DocumentStore(folder / "store"), Effort(settings.threads, progress, foretell)
            if not opensearch:
                write_postings(store, folder, progress, settings.language)
            elif has_languages(settings.language):
                check_cluster(opensearch, keys, known | describe_language(store, settings.language), embedding)
            made, shards, offsets = write_vectors(store, settings, folder, effort, engine.embed)
            rows: dict[str, RowImpacts] = {}
            if opensearch:
                rows = encode_impact_sets(store, settings, folder, effort)
                made |= describe_sets(settings) | ({OF_PASSAGES: True} if is_marked else {})
            else:
                made |= write_sets(store, settings, folder, effort)
            made |= describe_language(store, settings.language)
            meta = {"format": FORMAT, "key": passages_key if made["passages"] else key, **read, **made}
            meta |= {"corpus": unicode_name(corpus.name), **describe_device(settings)}
            if opensearch:
                from keystone.indexing.opensearch.load import Upload, load

                upload = Upload(opensearch, meta, store, shards, folder / "acknowledged", offsets=offsets, impacts=rows)
                stage(folder, "opensearch", lambda _: load(upload, progress))
            write_description(folder, {**meta, "at": at})
        remove_shards(folder, settings.vectors)
    return open_index(out), True


def write_sets(
    store: DocumentStore,
    settings: BuildSettings,
    folder: Path,
    effort: Effort,
    find_older: Callable[[str], "OlderImpacts | None"] = lambda _: None,
) -> dict[str, Any]:
    """Encode all documents for each set of impacts and each PLAID index; returns what `index.json` says of them.

    If the index has passages, all of a document's passages are encoded. `find_older` gets the name of a set of impacts
    and returns the impacts of an older index; these are not encoded again. `UserError` for a model that is not a
    learned sparse encoder, and as from `write_plaid`.
    """
    if not settings.impacts and not settings.plaid:
        return {}
    texts = _find_texts(store, settings, folder, effort.progress)
    if settings.impacts:
        from keystone.indexing.impacts import write_impacts  # its encoders take long to import

        for name, one in settings.impacts.items():
            write_impacts(texts, one, folder / "impacts" / name, effort, find_older(name))
    if settings.plaid:
        from keystone.indexing.plaid import write_plaid

        for name, one in settings.plaid.items():
            write_plaid(texts, one, folder / "plaid" / name, effort)
    return describe_sets(settings)


def encode_impact_sets(
    store: DocumentStore, settings: BuildSettings, folder: Path, effort: Effort
) -> "dict[str, RowImpacts]":
    """Encode all documents for each set of impacts, for OpenSearch. `UserError` as from `write_sets`."""
    if not settings.impacts:
        return {}
    from keystone.indexing.impacts import RowImpacts, encode_impacts
    from keystone.indexing.opensearch.index import GREATEST_IMPACT

    texts = _find_texts(store, settings, folder, effort.progress)
    return {
        name: RowImpacts(encode_impacts(texts, one, folder / "impacts" / f"{name}.shards", effort), GREATEST_IMPACT)
        for name, one in settings.impacts.items()
    }


def describe_device(settings: BuildSettings, older: Index | None = None) -> dict[str, str]:
    """Say as `index.json` does on which device the models of vectors ran, unless it was the processor.

    The vectors of an older index may stay, so its device stays, too, unless it was the processor.
    """
    if older and older.device != "cpu":
        return {"device": older.device}
    models = [*([settings.embedding] if settings.embedding else []), *settings.vectors.values()]
    if not models:
        return {}
    from keystone.indexing.vectors.embed import find_device

    devices = {find_device(one) for one in models} - {"cpu"}
    return {"device": min(devices)} if devices else {}


def describe_sets(settings: BuildSettings) -> dict[str, Any]:
    """Describe the sets of impacts and the PLAID indexes as `index.json` does."""
    kinds = {"impacts": settings.impacts, "plaid": settings.plaid}
    return {kind: {name: one.as_json() for name, one in own.items()} for kind, own in kinds.items() if own}


def _find_texts(store: DocumentStore, settings: BuildSettings, folder: Path, progress: Progress) -> "Texts":
    """Find the texts that are encoded: the passages if the index is one of passages, otherwise the documents."""
    is_of_passages = settings.passages or (folder / "passages.npy").exists()  # vectors may have decided it
    return _find_passages(store, folder, progress) if is_of_passages else store


def write_postings(store: DocumentStore, folder: Path, progress: Progress, language: str = DEFAULT_LANGUAGE) -> None:
    """Build the Lucene index of a store and its mapped postings in a folder, unless an earlier try has done so.

    If each document has a language of its own, each language has both in `languages/CODE`, and `rows.npy` holds the
    rows of its documents, int32[documents], ascending.
    """
    from keystone.indexing.lucene import postings, write

    if not has_languages(language):
        stage(folder, "lucene", lambda path: write.build_lucene(store, path, progress, language))
        stage(folder, "postings", lambda path: postings.write_postings(folder / "lucene", path, progress))
        return
    told = [document.language for document in store]
    for code in dict.fromkeys(told):
        rows = np.flatnonzero(np.array(told) == code).astype(np.int32)

        def build(path: Path, rows: NDArray[np.int32] = rows, code: str = code) -> None:
            path.mkdir(parents=True)
            write.build_lucene((store.get([row])[0] for row in rows), path / "lucene", progress, code)
            postings.write_postings(path / "lucene", path / "postings", progress)
            np.save(path / "rows.npy", rows)

        (folder / "languages").mkdir(exist_ok=True)
        stage(folder, f"languages/{code}", build)


def describe_language(documents: Iterable[Document], language: str) -> dict[str, Any]:
    """Describe the language of documents as `index.json` does: nothing if all are in English as by default."""
    if language == DEFAULT_LANGUAGE:
        return {}
    counts = Counter(document.language for document in documents) if has_languages(language) else Counter[str]()
    return {"language": language, **({"languages": dict(counts.most_common())} if counts else {})}


Reuse = Callable[[str, "Texts", Callable[["Texts"], "Shards"]], "Shards"]
"""Returns the vectors of texts for the set of this name; only those that are not known already go to the function."""


def write_vectors(
    store: DocumentStore,
    settings: BuildSettings,
    folder: Path,
    effort: Effort,
    embed: "Embed | None",
    reuse: Reuse | None = None,
) -> "tuple[dict[str, Any], Shards | None, Offsets | None]":
    """Embed the texts of a store by an engine's `embed`, and write the FAISS index of each set of vectors.

    Returns what `index.json` says of the vectors, then the main set and the offsets of its passages for an engine that
    holds vectors itself. With `reuse`, no model is asked for anything but new texts. `UserError` for an impossible
    model or FAISS index, and as from `embed_store`.
    """
    passages, sets = settings.passages, {**({"": settings.embedding} if settings.embedding else {}), **settings.vectors}
    if reuse is None:  # else the older index has been made by these models
        for name, one in sets.items():
            _check_model(one, None if settings.opensearch else settings.kind_of(name).faiss)
    made = {name: VectorSet(one, None, passages=bool(passages)) for name, one in sets.items()}
    shards, offsets = dict[str, "Shards"](), None
    if any(settings.kind_of(name).faiss is not None for name in sets):
        from keystone.indexing.vectors.passages import Passages, prefer_passages
        from keystone.indexing.vectors.recall import build_chosen
        from keystone.indexing.vectors.shards import embed_store

        if passages is None:
            passages = prefer_passages(store, next(iter(sets.values())))
        texts = _find_passages(store, folder, effort.progress) if passages else store
        offsets = texts.offsets if isinstance(texts, Passages) else None

        def embed_set(name: str, one: Embedding, place: Path) -> "Shards":
            place.mkdir(parents=True, exist_ok=True)

            def make(new: "Texts") -> "Shards":
                return embed_store(new, one, place, effort, embed)

            return reuse(name, texts, make) if reuse else make(texts)

        for name, one in sets.items():
            kind, wanted = settings.kind_of(name)
            if kind is None:
                continue
            place = folder / "vectors" / name
            shards[name] = embed_set(name, one, place / "shards" if name else place)
            files, recall = 0, None
            if not settings.opensearch:
                home, size = place if name else folder, settings.faiss_shard
                kind, files, recall = build_chosen(shards[name], kind, wanted, size, home, effort)
            made[name] = VectorSet(one, kind, files, bool(passages), shards[name].cut, recall)
    main = made.pop("", VectorSet(WORDS, None))
    meta: dict[str, Any] = {"embedding": settings.embedding.as_json() if settings.embedding else None}
    meta |= {"faiss": main.faiss, "passages": bool(passages), "faiss_shards": main.faiss_shards, "cut": main.cut}
    meta |= {"faiss_shard": settings.faiss_shard} if settings.faiss_shard else {}
    meta |= {"vectors": {name: one.as_json() for name, one in made.items()}} if made else {}
    meta |= {"recall": asdict(main.recall)} if main.recall else {}
    return meta, shards.get(""), offsets


def remove_shards(folder: Path, names: Iterable[str]) -> None:
    """Remove what a build has left beside the FAISS indexes in `vectors`, and in `impacts`, `plaid` and `languages`."""
    for place in [folder / "vectors" / name for name in names]:
        lefts = [path for pattern in ("*.npy", "*.json", HALF_WRITTEN) for path in place.parent.glob(pattern)]
        for left in [*lefts, *place.glob("*.json"), *place.glob("trained.faiss"), *place.glob(HALF_WRITTEN)]:
            left.unlink()
        for folder_of in [place / "shards", *place.glob("kind-*")]:
            shutil.rmtree(folder_of, ignore_errors=True)
    for home in [folder / kind for kind in ("impacts", "plaid", "languages")]:
        for left in [*home.glob("*.shards"), *home.glob("*.json"), *home.glob(HALF_WRITTEN)]:
            shutil.rmtree(left) if left.is_dir() else left.unlink()


def _build_store(
    documents: Callable[..., Iterator[Document]],
    settings: BuildSettings,
    path: Path,
    progress: Progress,
    report: Report,
) -> dict[str, Any]:
    """Build the document store; returns the numbers of documents, left-out records and segments for `index.json`."""
    left_out: Counter[str] = Counter()
    segments: Counter[str] = Counter()

    def counted(error: BadRecord) -> None:
        left_out[error.kind] += 1
        report(error)

    def cut() -> Iterator[Document]:
        for document in cut_documents(documents(report=counted), settings, counted):
            segments.update(count_segments(document))
            yield document

    count = build_store(cut(), path, progress, counted)
    if left_out["repeated id"]:
        segments = sum_segments(DocumentStore(path))
    return {"documents": count, "left_out": dict(left_out), "segments": show_segments(segments)}


def cut_documents(documents: Iterable[Document], settings: BuildSettings, report: Report) -> Iterator[Document]:
    """Yield documents with segments; `report` gets empty ones. `UserError` as from `refuse_windows`."""
    for document in map(cut_segments, documents):
        if has_languages(settings.language):
            try:
                document = replace(document, language=_tell_language(document, settings))
            except ValueError as error:
                report(BadRecord(f"{document.place}: document {document.id}: {error}", "unknown language"))
                continue
        if not document.contents.strip():
            report(BadRecord(f"{document.place}: document {document.id}: has neither text nor title", "empty"))
            continue
        if not settings.windows:
            refuse_windows(document, settings.segments)
        yield document


def _tell_language(document: Document, settings: BuildSettings) -> str:
    """Tell the code of a document's language, English if no rule does. `ValueError` for an unknown field."""
    if not settings.language_field:
        return find_code(guess_language(document.contents)) or DEFAULT_LANGUAGE
    if (code := find_code(document.language)) is None:
        raise ValueError(f"{settings.language_field}: expected {list_codes()}, found {document.language!r}")
    return code


def count_segments(document: Document) -> Counter[str]:
    """Count a document's `official` segments or its `windows`; a document without a text also counts as `blank`."""
    kind = "windows" if is_window(document.segments[0].id) else "official"
    return Counter({kind: len(document.segments), "blank": int(not document.text.strip())})


def sum_segments(documents: Iterable[Document]) -> Counter[str]:
    """Sum what `count_segments` counts of each document."""
    found: Counter[str] = Counter()
    for document in documents:
        found.update(count_segments(document))
    return found


def show_segments(counted: Mapping[str, int]) -> dict[str, int]:
    """Name the numbers of segments as `index.json` holds them: `blank` only if there are such documents."""
    return {
        kind: counted.get(kind, 0) for kind in ("official", "windows", "blank") if counted.get(kind) or kind != "blank"
    }


def _find_passages(store: DocumentStore, folder: Path, progress: Progress) -> "Passages":
    """Find the passages of all documents, unless an earlier try has done so."""
    from keystone.indexing.vectors.passages import Passages, write_offsets

    stage(folder, "passages.npy", lambda path: write_offsets(store, path, progress))
    return Passages(store, np.load(folder / "passages.npy", mmap_mode="r"))


def _check_model(embedding: Embedding, faiss: str | None) -> None:
    from keystone.indexing.vectors.embed import load_embedder

    dimension = load_embedder(embedding).dimension
    if faiss is not None:
        from keystone.indexing.vectors.faiss_index import make_faiss_index

        if faiss != SMALLEST:
            make_faiss_index(dimension, faiss)


def check_recall(settings: BuildSettings) -> None:
    """Raise `UserError` for an impossible wanted recall, or one that no FAISS index here can have."""
    wanted = settings.recall
    if wanted is None:
        if settings.faiss == SMALLEST:
            raise UserError(f"FAISS index {SMALLEST!r}: found without --recall, expected with it")
        return
    if not 0 < wanted <= 1:
        raise UserError(f"--recall: found {wanted:g}, expected a number above 0 and at most 1")
    if settings.opensearch:
        raise UserError("found --recall with --opensearch, which holds vectors in its own way; expected one of them")
    if settings.faiss is None or not (settings.embedding or settings.vectors):
        expected = "expected --dense all, --dense passages or --vectors"
        raise UserError(f"found --recall without vectors of all documents, {expected}")
