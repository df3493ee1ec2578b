"""Answer files of the 2025 track: one JSON object a topic, citations as positions in its references."""

import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from generation.types import Answer, Sentence
from indexing.files import written
from retrieval.types import Topic
from runs.tracks import Track


def word_count(text: str) -> int:
    """Words as the track counts them: NFKC, split at white space."""
    return len(unicodedata.normalize("NFKC", text).split())


def within_limits(sentences: Sequence[Sentence], track: Track) -> list[Sentence]:
    """What the track takes of an answer: sentences with text up to the word limit, references up to theirs.

    Whole sentences are cut from the end; a citation beyond the last allowed reference is dropped.
    """
    kept: list[Sentence] = []
    allowed: set[str] = set()
    words = 0
    for sentence in sentences:
        words += word_count(sentence.text)
        if words > track.words:
            break
        if not sentence.text.strip():
            continue
        citations = []
        for citation in dict.fromkeys(sentence.citations):
            if citation in allowed or len(allowed) < track.references:
                allowed.add(citation)
                citations.append(citation)
        kept.append(Sentence(sentence.text, tuple(citations)))
    return kept


def rag_record(topic: Topic, answer: Answer, track: Track, team_id: str, run_id: str) -> dict[str, Any]:
    """One topic's object; references in the order of their first citation."""
    sentences = within_limits(answer.sentences, track)
    references = list(dict.fromkeys(c for sentence in sentences for c in sentence.citations))
    position = {reference: number for number, reference in enumerate(references)}
    return {
        "metadata": {
            "team_id": team_id,
            "run_id": run_id,
            "type": "automatic",
            "narrative_id": topic.id,
            "narrative": topic.narrative,
        },
        "references": references,
        "answer": [{"text": s.text, "citations": [position[c] for c in s.citations]} for s in sentences],
    }


def write_rag(
    path: Path, topics: Sequence[Topic], answers: dict[str, Answer], track: Track, team_id: str, run_id: str
) -> None:
    """Write the answer file: one object for every topic, in the order of the topics; all of it or nothing."""
    with written(path) as out:
        for topic in topics:
            record = rag_record(topic, answers.get(topic.id, Answer(topic.id, ())), track, team_id, run_id)
            out.write(orjson.dumps(record) + b"\n")
