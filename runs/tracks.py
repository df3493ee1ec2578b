"""The rules of a track, as data: file names and limits (TREC RAG 2025 guidelines, v2.0)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Track:
    """What a submission may hold."""

    name: str
    retrieval_file: str
    rag_file: str
    segment_id: str
    """The form of the corpus's segment ids, as a regular expression."""
    rows: int
    """Rows a topic of a retrieval run."""
    references: int
    """References of an answer."""
    words: int
    """Words of an answer: `len(NFKC(text).split())` over its sentences."""


TRACKS = {
    "rag25": Track(
        name="rag25",
        retrieval_file="r_output_trec_rag_2025.tsv",
        rag_file="rag_output_trec_rag_2025.jsonl",
        segment_id=r"msmarco_v2\.1_doc_\d+_\d+#\d+_\d+",
        rows=100,
        references=100,
        words=400,
    ),
}
"""The tracks by name."""
