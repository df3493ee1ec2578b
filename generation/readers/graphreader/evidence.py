"""The evidence of all paths: the stretches that notebooks rest on, or those closest to the question; and the notes."""

from collections import Counter
from collections.abc import Sequence

from keystone.generation.context.topic import Sources, embed_spans
from keystone.generation.readers.graphreader.material import Material
from keystone.generation.readers.graphreader.walk import State
from keystone.generation.types import Evidence, Note
from keystone.indexing.types import Span

MOST_EMBEDDED = 256
"""The most stretches that are compared with the question by their vectors."""


def gather_notebooks(material: Material, paths: Sequence[State]) -> list[Evidence]:
    """Gather the stretches that notebooks rest on: those of the most paths first, then in the order of reading."""
    rank = _rank_documents(material)
    uses = Counter(span for path in paths for span in path.rests)
    first = {span: min(path.rests[span] for path in paths if span in path.rests) for span in uses}
    order = sorted(uses, key=lambda span: (-uses[span], first[span], rank[span.doc_id], span.start, span.end))
    return _make_items(material, [(span, float(uses[span]), f"in {uses[span]} notebooks") for span in order])


def choose_closest(sources: Sources, material: Material, paths: Sequence[State]) -> list[Evidence]:
    """Choose the stretches closest to the question among those that the paths were shown; without paths among all."""
    rank = _rank_documents(material)
    closeness = dict(zip((fact.span for fact in material.facts), material.closeness.tolist(), strict=True))
    seen = list(dict.fromkeys(span for path in paths for span in path.seen)) or list(closeness)
    place = {span: (rank[span.doc_id], span.start, span.end) for span in seen}
    likely = sorted(seen, key=lambda span: (-closeness.get(span, 0.0), place[span]))[:MOST_EMBEDDED]
    if not likely:
        return []
    cosines = embed_spans(sources, material.question.context, likely) @ material.question.vector
    order = sorted(range(len(likely)), key=lambda at: (-float(cosines[at]), place[likely[at]]))
    return _make_items(material, [(likely[at], float(cosines[at]), "close to the question") for at in order])


def make_notes(material: Material, paths: Sequence[State]) -> tuple[Note, ...]:
    """Make a note of each path's notebook, with all stretches that the path was shown as its sources."""
    kept = [path for path in paths if path.notebook]
    return tuple(
        Note(
            f"Notebook of search {number} of {len(kept)}: {path.notebook}",
            path.seen,
            "notebook",
            len(path.calls),
            material.question.query_id,
        )
        for number, path in enumerate(kept, 1)
    )


def _rank_documents(material: Material) -> dict[str, int]:
    return {document.id: rank for rank, document in enumerate(material.question.documents)}


def _make_items(material: Material, found: Sequence[tuple[Span, float, str]]) -> list[Evidence]:
    """Make evidence of stretches, each with its score and reason. A text that repeats is taken once."""
    texts = {document.id: document.text for document in material.question.documents}
    items: dict[str, Evidence] = {}
    for span, score, why in found:
        text = texts[span.doc_id][span.start : span.end]
        items.setdefault(" ".join(text.split()), Evidence(span, text, score, material.question.query_id, "", why))
    return list(items.values())
