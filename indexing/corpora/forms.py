"""The table of corpus formats, how a format is guessed, and which files are read (docs/corpora.md)."""

import codecs
import itertools
import re
import reprlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from os.path import commonpath
from pathlib import Path, PurePath
from typing import NamedTuple, TypeVar

from keystone.indexing.corpora import archives, ir_datasets, jsonl, pyserini, tables, text, trec, wikitext
from keystone.indexing.corpora.folders import (
    find_unfollowed_links,
    is_folder,
    list_files,
    name_documents,
    relative_name,
    strip_compression,
)
from keystone.indexing.errors import UserError
from keystone.indexing.io.fields import find_field
from keystone.indexing.io.json_values import try_json
from keystone.indexing.io.reading import DAMAGE, hash_file, open_binary, read_byte_lines
from keystone.indexing.plugins import OpenTable
from keystone.indexing.types import Document

_Path = TypeVar("_Path", bound=PurePath)


@dataclass(frozen=True, slots=True)
class Format:
    """The reader of one file, and the names of its files in a folder: lower case, without a compression."""

    read: Callable[..., Iterator[Document]]
    """A function of (file, name, report); if the format has fields, also of the name of the one with the language."""
    names: re.Pattern[str]
    has_fields: bool = False


_ANY_NAME = re.compile(".*", re.DOTALL)
_JSONL_NAME = re.compile(r".*\.(jsonl|ndjson|json|jl|jsonlines)")
_TEXT_NAME = re.compile(rf".*({'|'.join(map(re.escape, text.SUFFIXES))})")

FORMATS = OpenTable(
    "keystone.corpora",
    Format,
    {
        "arrow": Format(partial(tables.read_table, "arrow"), re.compile(r"(?!cache-).*\.arrow"), has_fields=True),
        "folder": Format(text.read, _TEXT_NAME),
        "ir_datasets": Format(ir_datasets.read, re.compile("")),
        "jsonl": Format(jsonl.read_documents, _JSONL_NAME, has_fields=True),
        "parquet": Format(partial(tables.read_table, "parquet"), re.compile(r".*\.parquet"), has_fields=True),
        "pyserini": Format(pyserini.read, re.compile("")),
        "segments": Format(jsonl.read_segments, _JSONL_NAME),
        "tsv": Format(tables.read_delimited, re.compile(r".*\.(tsv|csv)")),
        "trec": Format(trec.read, re.compile(r"(?!read|\.).*(?<!\.dtd)")),
        "wikitext": Format(wikitext.read, re.compile(r".*\.(tokens|raw|txt)")),
    },
)
"""The corpus formats by name, those of other packages included.

The folders of TREC's disks hold `readme`, `readchg` and DTDs beside the documents.
The package `datasets` keeps intermediate results in `cache-*.arrow`.
"""

LOCAL_FORMATS = ("ir_datasets", "pyserini")
"""Formats that no file of the user has: their data sets lie in the cache of the machine."""

EXAMINED_FILES = 100

EXAMINED_BYTES = 2**12

EXAMINED_LINES = 100


MAIN, ALL = "main", "all"
"""What is read of a page of HTML: its main part, or all that it shows."""

ARCHIVE = "archive"


class CorpusFile(NamedTuple):
    """A file of a corpus, the name that its documents get if they have no id of their own, and its form.

    `given` is the format that the user named, if any; the files of an archive have no other. `language_field` is the
    name of the field with a document's language, if it is read.
    """

    path: Path
    name: str
    form: str
    given: str | None = None
    language_field: str = ""


def guess_format(path: Path) -> str:
    """The format of a corpus by its first lines, else `folder`. `UserError` if there is no such file or folder."""
    if ir_datasets.dataset_id(path) is not None:
        return "ir_datasets"
    if pyserini.index_name(path) is not None:
        return "pyserini"
    if not is_folder(path):
        name = strip_compression(path)
        seen = _recognise_format(path)
        if FORMATS["tsv"].names.fullmatch(name):
            return seen if seen in ("jsonl", "segments") else "tsv"
        if named := seen or ("folder" if _TEXT_NAME.fullmatch(name) else _find_added_form(name)):
            return named
        if not FORMATS["jsonl"].names.fullmatch(name) and not archives.holds_archive(path):
            _check_objects(path)
        return "jsonl"
    files = list_files(path, _ANY_NAME)
    shards = [file for file in files if _JSONL_NAME.fullmatch(strip_compression(file))]
    for file in shards[:EXAMINED_FILES]:
        if (found := _recognise_format(file)) in ("jsonl", "segments"):
            return found
    if any(".jsonl" in file.name.lower() for file in shards):
        return "jsonl"
    guesses = map(_recognise_format, files[:EXAMINED_FILES])
    if found := next((guess for guess in guesses if guess in ("arrow", "parquet", "trec", "wikitext")), None):
        return found
    names = [name for name in map(strip_compression, files) if not _DESCRIPTION.fullmatch(name)]
    has_rows = any(map(FORMATS["tsv"].names.fullmatch, names)) and not any(map(_TEXT_NAME.fullmatch, names))
    return "tsv" if has_rows else "folder"


def _check_objects(file: Path) -> None:
    """Raise `UserError` if a file's name tells no format, and its first text is not a bracket of JSON."""
    numbered = read_byte_lines(file, lambda _error: None)
    line = next((line for _, line in numbered if line.strip()), b"")
    if line and not line.removeprefix(codecs.BOM_UTF8).lstrip().startswith((b"{", b"[")):
        begins = reprlib.repr(line.decode(errors="replace"))
        names = ", ".join(sorted(FORMATS))
        raise UserError(f"{file}: found {begins}, expected a known format, or --format with one of {names}")


def _recognise_format(file: Path) -> str | None:
    """The format that the name of a table or the first lines of another file show; None if they show none."""
    if table := tables.find_form(file):
        return table
    numbered = read_byte_lines(file, lambda _error: None)
    filled = (line.removeprefix(codecs.BOM_UTF8).strip() for _, line in numbered if line.strip())
    is_marked = False
    for position, line in enumerate(itertools.islice(filled, EXAMINED_LINES)):
        is_marked = is_marked or (position == 0 and line.startswith(b"<"))
        if is_marked and re.match(rb"<doc[\s>]", line, re.IGNORECASE):
            return "trec"
        if position == 0 and wikitext.heading_of(line.decode("utf-8", "replace"))[0] == 1:
            return "wikitext"
        record = try_json(line) if line.startswith(b"{") else None
        if isinstance(record, dict) and find_field(record, jsonl.ID_KEYS):
            return "segments" if "segment" in record else "jsonl"
    return None


def list_corpus_files(path: Path, format: str) -> list[Path]:
    """The files of a corpus by path, without BEIR's queries. `UserError` for an unknown format, or no file."""
    _check_format(format)
    if format in LOCAL_FORMATS or not is_folder(path):
        return [path]
    files = list_files(path, FORMATS[format].names)
    files = _choose_corpus(path, files, format) or files
    if not files:
        names = ", ".join(text.SUFFIXES) if format == "folder" else format
        links = f"; links that are not followed: {len(found)}" if (found := list(find_unfollowed_links(path))) else ""
        raise UserError(f"{path}: holds no {names} file{links}")
    return files


def _check_format(format: str) -> None:
    if format not in FORMATS:
        raise UserError(f"corpus format: found {format!r}, expected one of {', '.join(sorted(FORMATS))}")


def _choose_corpus(folder: PurePath, files: Sequence[_Path], format: str) -> list[_Path]:
    """The files without those beside the documents, if there is a data set that names its parts; else an empty list.

    BEIR has `corpus.jsonl` beside `queries.jsonl`. Its copies on hubs have files `corpus-*.parquet`, or a folder
    `corpus`. Such a data set may be a folder below this one, too; there, only queries and judgments are left out.
    MS MARCO has `collection.tsv` beside its queries.
    """
    if format not in ("arrow", "jsonl", "parquet", "tsv"):
        return []
    own = [file for file in files if FORMATS[format].names.fullmatch(strip_compression(file))]
    parts = {file: set(_list_parts(file, folder)) for file in files}
    homes = [{home for file in own for home, part in parts[file] if part == name} for name in ("corpus", "queries")]
    if sets := homes[0] & homes[1]:
        beside = {(home, part) for home in sets for part in ("queries", "qrels")}
        chosen = [file for file in own if (folder, "corpus") in parts[file]] if folder in sets else files
        return [file for file in chosen if parts[file].isdisjoint(beside)]
    return [file for file in own if re.fullmatch(r"collection\.(tsv|csv)", strip_compression(file))]


def _list_parts(file: PurePath, folder: PurePath) -> Iterator[tuple[PurePath, str]]:
    """The parts of data sets that a file below a folder may be of, by its own name and those of its folders.

    Each comes with the folder of the data set.
    """
    yield file.parent, re.split(r"[-.]", strip_compression(file))[0]
    for above in itertools.takewhile(lambda one: one != folder, file.parents):
        yield above.parent, above.name


def list_forms(path: Path, given: str | None) -> tuple[list[CorpusFile], list[Path]]:
    """The files of a corpus with the form of each, and the files that Keystone cannot read; both sorted by path.

    `given` is the form of all files; if it is None, each file has its own. The second list leaves out hidden files, the
    description of a data set (`README.md`), and the queries and judgments of BEIR. It also leaves out the files beside
    the data in a data set of `datasets` or on TREC's disks.

    `UserError` if `given` is unknown, or if there is nothing to read.
    """
    main = given or guess_format(path)
    _check_format(main)
    if main in LOCAL_FORMATS or not is_folder(path):
        is_archive = archives.is_archive if main in FORMATS.list_added() else archives.holds_archive
        form = ARCHIVE if main not in LOCAL_FORMATS and is_archive(path) else main
        name = "" if form == ARCHIVE else name_documents(path, path)
        return [CorpusFile(file, name, form, given) for file in list_corpus_files(path, main)], []
    files = list_files(path, _ANY_NAME)
    chosen = _choose_corpus(path, files, main)
    found, unread = list[CorpusFile](), list[Path]()
    for file in chosen or files:
        own = ARCHIVE if archives.is_archive(file) else find_form(file, file.relative_to(path), given, main)
        if own:
            found.append(CorpusFile(file, name_documents(file, path), own, given))
        elif own is None:
            unread.append(file)
    if not found:
        list_corpus_files(path, main)  # says what was expected
    return found, unread


def find_form(file: Path, within: PurePath, given: str | None, main: str) -> str | None:
    """The form of a file `within` a corpus of the form `main`: None if unreadable, empty if without a document."""
    if given:
        name = strip_compression(file)
        is_beside = given == "tsv" and _BESIDE_ROWS.match(name)
        form = given if FORMATS[given].names.fullmatch(name) and not is_beside else None
    else:
        form = _find_known_form(file, main) or _find_added_form(strip_compression(file))  # other packages' come last
    described = form == "folder" and main != "folder" and _DESCRIPTION.fullmatch(within.name.lower())
    return "" if described or (form is None and _is_beside(within, main)) else form


def choose_members(paths: Sequence[_Path], given: str | None) -> tuple[list[_Path], str]:
    """Those files of an archive that are read, and the form of its documents: as for a folder, but by names alone."""
    names = [name for name in map(strip_compression, paths) if not _DESCRIPTION.fullmatch(name)]
    forms = (form for form in _NAMED_FORMS if any(map(FORMATS[form].names.fullmatch, names)))
    main = given or next(forms, "folder")
    folder = PurePath(commonpath([path.parent for path in paths])) if paths else PurePath()
    return _choose_corpus(folder, paths, main) or list(paths), main


def _find_added_form(name: str) -> str | None:
    if name.startswith("."):
        return None
    return next((form for form in FORMATS.list_added() if FORMATS[form].names.fullmatch(name)), None)


def _find_known_form(file: Path, main: str) -> str | None:
    name = strip_compression(file)

    def fits(form: str) -> bool:
        return bool(FORMATS[form].names.fullmatch(name))

    for table in ("arrow", "parquet"):
        if name.endswith(f".{table}"):
            return table if fits(table) else None
    if fits("jsonl"):
        beside_arrow = main == "arrow" and name.endswith(".json")
        return None if beside_arrow else _recognise_format(file) or "jsonl"
    if fits("tsv"):
        return "tsv" if main == "tsv" and not _BESIDE_ROWS.match(name) else None
    if main == "trec" and not fits("trec"):
        return None
    seen = None if name.endswith(_SURE_SUFFIXES) or _is_binary(file) else _recognise_format(file)
    if seen == "trec" or (seen == "wikitext" and fits("wikitext")):
        return seen
    if fits("folder"):
        return main if main == "trec" and name.endswith(".txt") else "folder"
    return seen if seen in ("jsonl", "segments") else main if main in ("trec", "wikitext") and fits(main) else None


def _is_binary(file: Path) -> bool:
    """Whether a file begins like a picture or a program, or cannot be read."""
    try:
        with open_binary(file) as source:
            return b"\0" in source.read(EXAMINED_BYTES)
    except (UserError, *DAMAGE):
        return True


_NAMED_FORMS = ("jsonl", "arrow", "parquet", "folder", "tsv")
"""The forms that show in the names of an archive's files; the first one that a file has is that of its documents."""

_SURE_SUFFIXES = tuple(ending for ending in text.SUFFIXES if ending != ".txt")
"""Endings that tell the form of a file by themselves."""


_BESIDE_ROWS = re.compile(r"(queries|topics|qrels|top1000)\b")
"""The beginnings of the names of files that lie beside a corpus in columns."""

_DESCRIPTION = re.compile(r"(readme|licen[cs]e|copying)(\..*)?|_success|_(common_)?metadata|thumbs\.db|desktop\.ini")
"""The names of files that describe a data set, and of those that Spark and Windows leave beside it."""


def _is_beside(within: PurePath, main: str) -> bool:
    """Whether a file that is not read lies beside the documents of its corpus, and is known to hold none."""
    name = within.name.lower()
    if _DESCRIPTION.fullmatch(name):
        return True
    if main == "trec":
        return not FORMATS["trec"].names.fullmatch(name)
    return main == "arrow" and name.endswith((".arrow", ".json"))


def make_corpus_key(path: Path, format: str | None, extract: str = ALL) -> list[list[str]]:
    """Pairs of name and value that change with the corpus: hashes of files, or versions of packages that read it."""
    main = format or guess_format(path)
    if main == "ir_datasets":
        return [[str(path), version("ir_datasets")]]
    if main == "pyserini" or pyserini.index_name(path) is not None:
        folder = pyserini.index_folder(path)
        return [[file.name, hash_file(file)] for file in sorted(folder.glob("segments_*"))]
    files = list_forms(path, format)[0]
    pages = [["extract", extract]] if extract != ALL and any(file.form in ("folder", ARCHIVE) for file in files) else []
    packages = {name: found for file in files for name, found in FORMATS.find_package(file.form).items()}
    hashes = ([_name_in_key(file, path), hash_file(file.path)] for file in files)
    return [*pages, *map(list, packages.items()), *hashes]


def _name_in_key(file: CorpusFile, path: Path) -> str:
    """The name of a corpus file in the key. That of a single file counts only if ids are made from it."""
    if file.path == path and (
        file.form in ("folder", "wikitext")
        or (file.form in ("arrow", "parquet", "tsv") and tables.makes_ids(path, file.form))
    ):
        return file.name
    return relative_name(file.path, path)
