"""The rules of a track, as data: file names and limits (TREC RAG 2025 guidelines, v2.0)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Track:
    """What a submission may hold."""

    name: str
    retrieval_file: str
    rag_file: str
    rows: int
    """Rows a topic of a retrieval run."""
    references: int
    """References of an answer."""
    words: int
    """Words of an answer: `len(NFKC(text).split())` over its sentences."""


TRACKS = {
    "rag25": Track("rag25", "r_output_trec_rag_2025.tsv", "rag_output_trec_rag_2025.jsonl", 100, 100, 400),
}
"""The tracks by name."""
