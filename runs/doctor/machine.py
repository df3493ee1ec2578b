"""Checks of this machine, of the rows of other packages, and of an index, with advice about what is missing."""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from tempfile import TemporaryDirectory
from typing import Literal

from keystone.indexing.corpora.languages import guess_languages
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index, open_index
from keystone.indexing.languages import DEFAULT_LANGUAGE, LANGUAGES
from keystone.indexing.plugins import describe_package, find_entry_points, list_groups
from keystone.indexing.store import sample_documents
from keystone.indexing.types import MINILM, Document
from keystone.retrieval.backends import open_store
from keystone.runs.wording import plural

OWN = "keystone-rag"
"""Keystone's own package."""
FAISS = ("faiss-cpu", "faiss-gpu")
"""The packages of FAISS. Keystone requires the first; the second takes its place."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. A `problem` stops a run; a `note` does not."""

    state: Literal["ok", "note", "problem"]
    subject: str
    message: str


def examine_machine() -> Iterator[Finding]:
    """Check Python, Java, FAISS, the embedding model, evaluation, memory and clashes of packages, in this order."""
    yield Finding("ok", "Python", sys.version.split()[0])
    yield _check_java()
    yield from _check_faiss()
    yield _check_embedding_model()
    yield _check_ranx()
    yield _check_memory()
    yield from _check_clashes()


def _check_java() -> Finding:
    from keystone.indexing.lucene.java import find_anserini_jar, find_java_home

    try:
        return Finding("ok", "Java", f"{find_java_home()}, {find_anserini_jar().name}")
    except UserError as error:
        return Finding("problem", "Java", str(error))


def _check_faiss() -> Iterator[Finding]:
    present = [name for name in FAISS if _find_version(name)]
    if len(present) == 2:
        yield Finding(
            "problem",
            "FAISS",
            "faiss-cpu and faiss-gpu are both installed and overwrite each other: uninstall both, then install one",
        )
        return
    if not present or not importlib.util.find_spec("faiss"):
        yield Finding("problem", "FAISS", "not installed: pip install faiss-cpu, or faiss-gpu")
        return
    import faiss

    gpus = faiss.get_num_gpus() if hasattr(faiss, "get_num_gpus") else 0
    found = f"{present[0]} {_find_version(present[0])}, {plural(gpus, 'GPU')}"
    if not gpus and shutil.which("nvidia-smi"):
        yield Finding(
            "note", "FAISS", f"{found}, though the machine has one: uninstall {present[0]}, then pip install faiss-gpu"
        )
    else:
        yield Finding("ok", "FAISS", found)


def _check_embedding_model() -> Finding:
    from keystone.indexing.io.published import MINILM, find_published

    try:
        return Finding("ok", "embedding model", f"{find_published(MINILM)}, of {MINILM.archive}")
    except UserError as error:
        return Finding("problem", "embedding model", str(error))


def _check_ranx() -> Finding:
    if found := _find_version("ranx"):
        return Finding("ok", "evaluation", f"ranx {found}")
    return Finding("problem", "evaluation", "ranx is not installed: pip install ranx")


def _check_memory() -> Finding:
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    if gigabytes < 4:
        return Finding("note", "memory", f"{gigabytes:.1f} GiB: Java takes a quarter of it; expect slow searches")
    return Finding("ok", "memory", f"{gigabytes:.1f} GiB, {plural(os.cpu_count() or 1, 'core')}")


def _check_clashes() -> Iterator[Finding]:
    """Check for versions that other packages exclude, and for distributions that ship a package of the same name."""
    problems = [*_list_unmet_requirements(), *_list_shadowed_packages()]
    for problem in problems:
        yield Finding("problem", "packages", problem)
    if not problems:
        yield Finding("ok", "packages", "every package accepts the versions of the others")


def _list_unmet_requirements() -> list[str]:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    seen, waiting, unmet = {OWN}, [OWN], []
    while waiting:
        name = waiting.pop()
        for requirement in map(Requirement, importlib.metadata.requires(name) or ()):
            if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
                continue
            found = _find_version(requirement.name)
            if not found and requirement.name in FAISS and any(map(_find_version, FAISS)):
                continue
            if not found:
                unmet.append(f"{name} needs {requirement.name}: pip install {requirement.name!r}")
            elif not requirement.specifier.contains(found, prereleases=True):
                unmet.append(f"{name} needs {requirement}, found {found}: pip install {str(requirement)!r}")
            elif (child := canonicalize_name(requirement.name)) not in seen:
                seen.add(child)
                waiting.append(child)
    return unmet


def _list_shadowed_packages() -> list[str]:
    others = {*importlib.metadata.packages_distributions().get("keystone", ())} - {OWN}
    return [
        f"{owner} also ships a package 'keystone': uninstall it, or install Keystone in another environment"
        for owner in sorted(others)
    ]


def _find_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


TABLES = {
    "keystone.corpora": "keystone.indexing.corpora.forms:FORMATS",
    "keystone.fusion": "keystone.fusion.methods:METHODS",
    "keystone.systems": "keystone.retrieval.search:KINDS",
    "keystone.readers": "keystone.generation.readers.settings:READERS",
    "keystone.measures": "keystone.runs.evaluation.measures:FAMILIES",
    "keystone.forms": "keystone.runs.exchange.table:FORMS",
    "keystone.tracks": "keystone.runs.track_rules:TRACKS",
}
"""The groups of entry points, with the import path of the table that each opens."""


def examine_packages() -> Iterator[Finding]:
    """Load every row that another package adds. A row that cannot be loaded is a problem."""
    for group in list_groups():
        if group not in TABLES:
            found = sorted(
                {describe_package(point) for points in find_entry_points(group).values() for point in points}
            )
            expected = f"found in {', '.join(found)}, expected one of {', '.join(TABLES)}"
            yield Finding("problem", "entry points", f"{group}: {expected}")
            continue
        for name, points in find_entry_points(group).items():
            try:
                resolve_name(TABLES[group])[name]
            except UserError as error:
                yield Finding("problem", "entry points", str(error))
            else:
                yield Finding("ok", group, f"{name}, of {describe_package(points[0])}")


MULTILINGUAL = re.compile(
    r"multilingual|bge-m3|labse|xlm|arctic-embed-[ml]-v2|jina-embeddings-v[3-9]|qwen3-embedding|embeddinggemma"
    r"|text-embedding-3|embed-v4|voyage-[3-9]",
    re.IGNORECASE,
)
"""Names of embedding models for many languages."""
ADVISED = "intfloat/multilingual-e5-small, or BAAI/bge-m3 for long documents"


def examine_index(folder: Path) -> Iterator[Finding]:
    """Check the languages of the documents of an index, and the analyzers and the embedding models for them."""
    try:
        index = open_index(folder)
        told = [LANGUAGES.get(code, "") for code in index.languages or [index.language]]
        guessed = not index.languages and index.language == DEFAULT_LANGUAGE
        languages = [name for name in told if name]
        if guessed:
            languages = guess_languages(document.contents for document in sample_documents(open_store(index)))
    except UserError as error:
        yield Finding("problem", "index", str(error))
        return
    named = ", ".join(languages) or "unknown"
    if guessed and set(languages) - {"English"}:
        advice = "BM25 reads them as English: make the index anew with --language auto, or --language field:NAME"
        yield Finding("note", "languages", f"{named}, guessed; {advice}")
    else:
        yield Finding("ok", "languages", f"{named}, guessed" if guessed else named)
    if others := [name for name in languages if name != "English"]:
        yield from _check_models(index, ", ".join(others))


def _check_models(index: Index, languages: str) -> Iterator[Finding]:
    models = [*([index.embedding] if index.embedding else []), *(one.embedding for one in index.vectors.values())]
    for label in [model.label for model in models] or ["none"]:
        if MULTILINGUAL.search(label):
            yield Finding("ok", "embedding model", label)
        else:
            advice = f"for questions in English about documents in {languages}, --embedding {ADVISED}"
            yield Finding("note", "embedding model", f"{label}, expected a multilingual one: {advice}")


SENTENCE = "The students of the northern valley study wild bees, their 12 species and the flowers that they visit. "
"""A sentence of 18 words, from which the measured texts are made."""
TEXT = SENTENCE * 10
"""A measured text, of 180 words, as many as a passage of a web page."""
BATCH_TEXTS = 16
"""How many texts a call embeds for each core."""
MEASURED_S = 1.0
"""How long embeddings are measured."""
CORPUS_DOCUMENTS = 1_000_000


INDEXED_TEXTS = 4_000
"""How many texts the index that is measured has."""


def measure_speeds() -> Iterator[Finding]:
    """Measure how many texts a second this machine indexes for BM25, and embeds by the default model."""
    for subject, measure in (("speed of BM25", _measure_indexing), ("speed of embeddings", _measure_embedding)):
        try:
            rate, described = measure()
            yield Finding("ok", subject, f"{rate:,.0f} {described}{_estimate(rate)}")
        except UserError as error:
            yield Finding("problem", subject, str(error))


def _measure_indexing() -> tuple[float, str]:
    """Build a Lucene index and its postings twice, once to warm up; returns texts a second and their description."""
    from keystone.indexing.lucene.postings import write_postings
    from keystone.indexing.lucene.write import build_lucene

    documents = [Document(f"{number:04d}", f"{number} {TEXT}") for number in range(INDEXED_TEXTS)]
    spent = 0.0
    with TemporaryDirectory() as folder:
        for name in ("first", "second"):
            place, start = Path(folder, name), time.perf_counter()
            build_lucene(documents, place)
            write_postings(place, Path(folder, f"{name}.postings"))
            spent = time.perf_counter() - start
    return INDEXED_TEXTS / spent, f"texts of {len(TEXT.split())} words indexed a second"


def _measure_embedding() -> tuple[float, str]:
    """Embed texts for a while; returns vectors a second and their description."""
    from keystone.indexing.encoders.dense import open_encoder

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    texts, encoder = [TEXT] * BATCH_TEXTS * cores, open_encoder(MINILM)
    encoder.embed(texts, cores)
    start, done = time.perf_counter(), 0
    while (spent := time.perf_counter() - start) < MEASURED_S:
        encoder.embed(texts, cores)
        done += len(texts)
    where = "a GPU" if encoder.device == "cuda" else plural(cores, "core")
    return done / spent, f"vectors of such texts made a second by {MINILM.label} on {where}"


def _estimate(rate: float) -> str:
    """Say how long a corpus takes at a rate of texts a second."""
    minutes = CORPUS_DOCUMENTS / rate / 60
    taken = f"{minutes:,.0f} minutes" if minutes < 120 else f"{minutes / 60:,.1f} hours"
    return f": {CORPUS_DOCUMENTS:,} such documents take {taken}"
