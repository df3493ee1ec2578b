"""The command `keystone index`."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from keystone.indexing.errors import BadRecord, UserError
from keystone.indexing.languages import LANGUAGES, check_language
from keystone.runs.cli.options import CORES, REPORTED_RECORDS, Json, Quiet, Threads, check_outputs
from keystone.runs.report.say import say, say_result
from keystone.runs.wording import count_documents, plural

if TYPE_CHECKING:
    from keystone.indexing.builds.changes import Changes
    from keystone.indexing.index import Index

FORMATS = "arrow, folder, ir_datasets, jsonl, parquet, pyserini, segments, trec, tsv or wikitext."


Engine = Literal["local", "ray"]
Dense = Literal["auto", "all", "passages", "pool", "pool-passages", "none"]

_OF_UPDATES = {
    "update", "delete", "watch", "out", "format", "extract", "segments", "windows", "engine", "structures", "strict",
    "json", "threads", "quiet",
}  # fmt: skip
"""The parameters of an update. The index settles all others."""
_OF_PARTS = {
    "add", "drop", "vectors", "impacts", "plaid", "faiss", "recall", "out", "engine", "json", "threads", "quiet",
}  # fmt: skip
"""The parameters of a command that adds or drops sets of vectors, impacts or PLAID."""
QUICKER = (
    "; quicker: --dense all instead of passages, --dense pool (only documents that runs find), --no-dense (no vectors)"
)
"""The end of the message about the time of the first set of vectors, that of `--embedding`."""


def index(
    context: typer.Context,
    corpus: Annotated[
        str | None,
        typer.Argument(
            help="A file, folder or archive (also .gz, .zst, .bz2, .xz) of JSONL, TREC, HTML, Markdown and "
            "other formats, ir_datasets:ID or pyserini:NAME. "
            "Or an index searched in place: "
            "rest:URL/NAME of a Pyserini server, routir:URL/COLLECTION?PIPELINE, or opensearch:URL/NAME that another "
            "machine loaded.",
            show_default=False,
        ),
    ] = None,
    *,
    out: Annotated[Path, typer.Option(help="The index folder to make, or to update.")],
    update: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="CORPUS",
            help="Add the documents of this corpus to the index, or replace those with the same ids. Can be given "
            "several times.",
        ),
    ] = None,
    delete: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Remove documents from the index: a file with an id in each line."),
    ] = None,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="With --update: update again whenever the corpus changes, until Ctrl-C. A document is removed when "
            "its file or record disappears; for one that disappeared before, give --delete.",
        ),
    ] = False,
    add: Annotated[
        bool,
        typer.Option("--add", help="Add the sets of --vectors, --impacts and --plaid to the index; the rest stays."),
    ] = False,
    drop: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Drop a set of vectors, impacts or PLAID. Can be given several times."),
    ] = None,
    format: Annotated[str | None, typer.Option(help=FORMATS, show_default="guessed")] = None,
    extract: Annotated[
        Literal["main", "all"],
        typer.Option(help="What to index of an HTML page: main leaves out navigation, menus and notices."),
    ] = "main",
    language: Annotated[
        str,
        typer.Option(
            metavar="CODE|field:NAME|auto",
            help="The language of the documents, which chooses Lucene's analyzer: ar, bn, da, de, en, ... zh. "
            "field:NAME: each document names its own. auto: it is guessed. tokenizer:FILE: word pieces.",
        ),
    ] = "en",
    in_place: Annotated[
        bool,
        typer.Option(
            "--in-place", help="Search the prebuilt index pyserini:NAME itself, and make no index of its documents."
        ),
    ] = False,
    segments: Annotated[
        Path | None,
        typer.Option(
            help="A file, folder or archive, or pyserini:NAME, with the MS MARCO V2.1 segments of the corpus."
        ),
    ] = None,
    windows: Annotated[
        bool,
        typer.Option(
            "--windows",
            help="Cut MS MARCO V2.1 documents into windows. Tracks reject them.",
        ),
    ] = False,
    dense: Annotated[
        Dense,
        typer.Option(
            help="The texts to embed. all: each document by its beginning. passages: each segment of each document. "
            "auto: passages if most documents are long, else all. pool, pool-passages: only those of the documents "
            "that BM25 finds, during a run. none: no text."
        ),
    ] = "auto",
    no_dense: Annotated[bool, typer.Option("--no-dense", help="The same as --dense none.")] = False,
    embedding: Annotated[
        str,
        typer.Option(
            help="The embedding model: the default one, all-MiniLM-L6-v2-int8 for the same in integers, the folder of "
            "a checkpoint, or a name of the hub."
        ),
    ] = "all-MiniLM-L6-v2",
    dimensions: Annotated[
        int | None,
        typer.Option(min=1, help="The first numbers of each vector to keep, if the model was trained for it."),
    ] = None,
    vectors: Annotated[
        list[str] | None,
        typer.Option(
            help="One more set of vectors: NAME=MODEL, NAME=MODEL@URL, or NAME={model: M, url: U, query_prefix: P, "
            "...}. Can be given several times; see the page on indexes."
        ),
    ] = None,
    impacts: Annotated[
        list[str] | None,
        typer.Option(
            help="A set of impacts by a learned sparse encoder, such as a SPLADE: NAME=MODEL. Can be given several "
            "times; see the page on indexes."
        ),
    ] = None,
    plaid: Annotated[
        list[str] | None,
        typer.Option(
            help="A PLAID index by a checkpoint of late interaction, such as a ColBERT: NAME=MODEL. Needs the extra "
            "plaid. Can be given several times."
        ),
    ] = None,
    embedding_url: Annotated[
        str | None, typer.Option(help="The OpenAI-compatible endpoint of the model, such as http://localhost:8000/v1.")
    ] = None,
    embedding_backend: Annotated[
        Literal["vllm"] | None,
        typer.Option(
            help="What runs the model on this machine: vllm, the engine of vLLM.",
            show_default="ONNX Runtime or PyTorch",
        ),
    ] = None,
    embedding_window: Annotated[
        int | None,
        typer.Option(min=1, help="The most tokens of a text for the model.", show_default="as the model says"),
    ] = None,
    embedding_key_env: Annotated[
        str | None,
        typer.Option(help="The environment variable with the key of the endpoint.", show_default="OPENAI_API_KEY"),
    ] = None,
    rest_key_env: Annotated[
        str | None,
        typer.Option(
            help="The environment variable with the key of a server at rest:URL/NAME, sent by http, too.",
            show_default="PYSERINI_API_KEY, by https",
        ),
    ] = None,
    rest_max_rate: Annotated[
        float | None,
        typer.Option(
            min=0.001, help="The most requests a second to a server at rest:URL/NAME.", show_default="no limit"
        ),
    ] = None,
    query_prefix: Annotated[
        str | None, typer.Option(help="Text before each query.", show_default="as the files of the model say")
    ] = None,
    passage_prefix: Annotated[
        str | None, typer.Option(help="Text before each passage.", show_default="as the files of the model say")
    ] = None,
    faiss: Annotated[
        str | None,
        typer.Option(
            help="The kind of FAISS index: Flat, SQ8, HNSW32, 'IVF256,Flat', ...",
            show_default="Flat, or with --recall the smallest that reaches it",
        ),
    ] = None,
    recall: Annotated[
        float | None,
        typer.Option(
            help="The share of the exact 10 nearest vectors that searches should find, such as .99: chooses the search "
            "parameters, and the smallest kind of FAISS index if --faiss names none.",
            show_default="measured, not chosen",
        ),
    ] = None,
    faiss_shard: Annotated[
        int | None,
        typer.Option(
            min=1, help="Split vectors into memory-mapped files of this many vectors.", show_default="one file"
        ),
    ] = None,
    engine: Annotated[
        Engine,
        typer.Option(
            help="Read and embed on this machine, or with Ray on the cluster at RAY_ADDRESS (else a local one)."
        ),
    ] = "local",
    opensearch: Annotated[
        str | None,
        typer.Option(help="Load the index into an OpenSearch cluster, to URL[,URL...]/NAME: see the page on indexes."),
    ] = None,
    shards: Annotated[int, typer.Option(min=1, help="Primary shards of the index in OpenSearch.")] = 1,
    replicas: Annotated[
        int, typer.Option(min=0, help="Copies of each shard in OpenSearch. They are made at the end.")
    ] = 0,
    structures: Annotated[
        str,
        typer.Option(
            help="Structures of all documents to build ahead, such as sections,discourse,facts. Otherwise a reader "
            "builds those that it needs."
        ),
    ] = "",
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at the first record that is no valid document.")
    ] = False,
    json: Json = False,
    threads: Threads = CORES,
    quiet: Quiet = False,
) -> None:
    """Index a corpus: make its document store, BM25 index and embeddings. Or update an index, or its parts.

    If the command is interrupted, the same command continues.

    It skips invalid records, and reports them with file and line.

    Example: keystone index corpus.jsonl.gz --out index

    Example: keystone index --update new.jsonl --delete old-ids.txt --out index

    Example: keystone index --update notes --watch --out index

    Example: keystone index --add --vectors bge=BAAI/bge-small-en-v1.5 --out index
    """
    from keystone.indexing.builds.changes import Changes, Reading
    from keystone.indexing.builds.index import build_index
    from keystone.indexing.builds.settings import BuildSettings
    from keystone.indexing.builds.update import update_index
    from keystone.indexing.embedder import Forecast
    from keystone.indexing.index import SMALLEST
    from keystone.indexing.types import LOCAL_INT8, MINILM, Embedding
    from keystone.runs.cli import make_index
    from keystone.runs.report.terminal import progress_bars, show_forecast

    updates, changes_parts = bool(update or delete), bool(add or drop)
    if watch and not update:
        raise typer.BadParameter("expected with --update CORPUS", param_hint="'--watch'")
    if add and not (vectors or impacts or plaid):
        expected = "expected with --vectors NAME=MODEL, --impacts NAME=MODEL or --plaid NAME=MODEL"
        raise typer.BadParameter(expected, param_hint="'--add'")
    if updates:
        why = "an update keeps the models and kinds of the index, and names its corpora by --update"
        _refuse_settings(context, _OF_UPDATES, "--update or --delete", why)
    elif changes_parts:
        _refuse_settings(context, _OF_PARTS, "--add or --drop", "all other parts of the index stay as they are")
    elif corpus is None:
        expected = "CORPUS, --update CORPUS, --delete FILE, --add or --drop NAME"
        raise typer.BadParameter(f"missing; expected {expected}", param_hint="'[CORPUS]'")
    source = str(corpus or out)
    check_outputs([corpus, segments, *(update or ()), delete], {"--out": out})
    chosen = make_index.list_kinds(structures)
    searched_in_place = in_place or (corpus is not None and make_index.is_attached(corpus))

    def warn(message: str) -> None:
        say(message, err=True)

    given = Embedding(
        embedding, embedding_url, embedding_window, query_prefix or "", passage_prefix or "", embedding_key_env,
        dimensions, backend=embedding_backend,
    )  # fmt: skip
    has_dense = not (updates or changes_parts or no_dense or dense == "none")
    prefixes = {"query_prefix": query_prefix, "passage_prefix": passage_prefix}
    model = given
    if has_dense:
        from keystone.indexing.vectors.embed import settle_embedding

        model = settle_embedding(given, [name for name, text in prefixes.items() if text is not None], warn)
    numbers = itertools.count(1)
    told_before, told = set[str](), set[str]()
    """The bad records that the last update and this one reported. A record that stays bad is reported once."""
    shown: Mapping[str, int] = {}
    """The records that were left out when the last update was shown."""

    def tell(error: BadRecord) -> None:
        if strict:
            raise error
        if str(error) in told_before:
            told.add(str(error))
        elif (number := next(numbers)) <= REPORTED_RECORDS:
            told.add(str(error))
            say(f"left out: {error}{'; further ones are counted' if number == REPORTED_RECORDS else ''}", err=True)

    for option, value in (("--rest-key-env", rest_key_env), ("--rest-max-rate", rest_max_rate)):
        if value is not None and not source.startswith(("rest:", "routir:")):
            raise UserError(f"{option}: found with {source}, expected with rest:URL/NAME or routir:URL/NAME?PIPELINE")
    kind = faiss if faiss is not None else "Flat" if recall is None else SMALLEST
    holds_passages = not (searched_in_place or (opensearch and kind != "Flat"))
    chooses = dense == "auto" and holds_passages and not no_dense
    settings = BuildSettings(
        format=format,
        extract=extract,
        language=check_language(language),
        segments=segments,
        windows=windows,
        embedding=model if has_dense else None,
        faiss=None if dense in ("pool", "pool-passages") else kind,
        recall=recall,
        passages=None if chooses else dense in ("passages", "pool-passages") and not no_dense,
        faiss_shard=faiss_shard,
        opensearch=make_index.target_of(opensearch, shards, replicas),
        vectors=make_index.parse_vectors(vectors or [], given, warn),
        impacts=make_index.parse_sets("--impacts", impacts or [], "keystone.indexing.impacts:settle_impacts"),
        plaid=make_index.parse_sets("--plaid", plaid or [], "keystone.indexing.plaid:settle_plaid"),
        engine=engine,
        threads=threads,
    )
    if settings.opensearch and settings.faiss_shard and not searched_in_place:
        raise UserError("found --faiss-shard with --opensearch, which has --shards; expected one of them")
    foretold = set[str]()
    """The steps whose time a message has foretold."""
    in_integers = f", --embedding {LOCAL_INT8} (on the processor)" if model == MINILM else ""
    hints = iter([QUICKER + in_integers] if settings.embedding and settings.faiss else [])

    def foretell(forecast: Forecast) -> None:
        hint = next(hints, "")
        if line := show_forecast(forecast):
            say(f"{line}{hint}", err=True)
            if forecast.seconds is not None:
                foretold.add(forecast.step)

    def perform(since: Reading | None = None) -> Changes:
        """Make or update the index, and say so. `since` is what updates have read of a corpus that is watched."""
        nonlocal told, told_before, numbers, shown
        told_before, told, numbers = told, set(), itertools.count(1)
        said = None if quiet else foretell
        changes, first = Changes(), since is None or since.left_out is None
        with progress_bars(quiet, foretold) as progress:
            if updates:
                gone = delete if first else None
                made, changes = update_index(out, update or [], gone, settings, progress, tell, since)
                built = bool(changes)
            elif changes_parts:
                from keystone.indexing.builds.changes import change_parts

                made, built = change_parts(out, settings, drop or [], progress, said), True
            elif searched_in_place:
                made, built = make_index.attach_index(source, out, settings, progress, rest_key_env, rest_max_rate)
            else:
                made, built = build_index(Path(source), out, settings, progress, tell, said)
            if chosen:
                make_index.make_structures(made, chosen, threads, progress)
        if first or changes or changes.left_out != shown:
            shown, news = changes.left_out, changes if updates else None
            _show(made, built, news, source=source, structures=chosen, windows=windows, strict=strict, json=json)
        return changes

    if watch:
        make_index.keep_updated(update or [], lambda since: perform(since).reading or since, quiet)
    else:
        perform()


def _show(
    made: "Index",
    built: bool,
    changes: "Changes | None",
    *,
    source: str,
    structures: list[str],
    windows: bool,
    strict: bool,
    json: bool,
) -> None:
    """Say what a build or an update has made. `changes` are those of an update."""
    if made.cut:
        texts = "passages" if made.passages else "documents"
        summary = f"{made.folder}: {texts} longer than the model's window, embedded by their beginning: {made.cut}"
        say(summary, err=True)
    if left_out := made.left_out if changes is None else changes.left_out:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(left_out.items()))
        summary = f"{made.folder}: records left out of the corpus: {sum(left_out.values())} ({kinds})"
        if strict:
            raise UserError(f"{summary}; --strict expects none")
        say(summary, err=True)
    if made.segments.get("official") or (windows and made.segments):
        official, cut = made.segments["official"], made.segments["windows"]
        say(f"{made.folder}: segments: {official:,} official, {plural(cut, 'window')}", err=True)
    if made.languages:
        counted = ", ".join(f"{LANGUAGES[code]} {count:,}" for code, count in made.languages.items())
        say(f"{made.folder}: languages: {counted}", err=True)
    if blank := made.segments.get("blank"):
        whose = (
            "document without text is found by its title"
            if blank == 1
            else "documents without text are found by their titles"
        )
        say(f"{made.folder}: {blank:,} {whose} and never cited", err=True)
    measured = list(_list_recalls(made))
    for _, line in measured:
        say(f"{made.folder}: {line}", err=True)
    if json:
        told = {"out": made.folder, "documents": made.documents, "new": built, "structures": structures}
        numbers = () if changes is None else ("added", "replaced", "removed")
        changed = {name: getattr(changes, name) for name in numbers}
        described: dict[str, Any] = {"recall": [known for known, _ in measured]} if measured else {}
        described |= {"languages": made.languages} if made.languages else {}
        say_result("index", source, {**told, "left_out": left_out, "cut": made.cut, **described, **changed})
        return
    ahead = f", structures: {', '.join(structures)}" if structures else ""
    news = "" if built else ", already indexed"
    if changes is not None:
        news = f": {changes.added:,} added, {changes.replaced:,} replaced, {changes.removed:,} removed"
    say(f"{made.folder}: {count_documents(made.documents)}{news}{ahead}")


def _list_recalls(made: "Index") -> Iterator[tuple[dict[str, Any], str]]:
    """List what is known of the recall of each set of vectors, and a line that says it."""
    for name in (None, *made.vectors):
        own = made.with_vectors(name)
        if (one := own.recall) is None:
            continue
        whose = f"vectors of {name}" if name else "vectors"
        how = f" with {one.parameters}" if one.parameters else ""
        by = f", as the mean over {plural(one.queries, 'sampled vector')}" if one.queries else ""
        found = f"recall {one.at_10:.4f} at 10 and {one.at_100:.4f} at 100{by}"
        known = {"vectors": name, "faiss": own.faiss, **asdict(one)}
        yield known, f"{whose} as {own.faiss}{how}: {one.bytes:,.0f} bytes a vector, {found}"


def _refuse_settings(context: typer.Context, taken: set[str], option: str, why: str) -> None:
    """Raise `UserError` for a parameter on the command line that is not among those that a change of an index takes."""
    for parameter in context.command.params:
        name = str(parameter.name)
        source = context.get_parameter_source(name)
        if name not in taken and source is not None and source.name == "COMMANDLINE":
            found = parameter.opts[0] if name != "corpus" else "CORPUS"
            raise UserError(f"found {found} with {option}, expected only one of them: {why}")
