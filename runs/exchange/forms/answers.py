"""Cited answers in the forms of the tracks, of ragnarok, of auto-judge and of RAGDoll: one reader for all of them.

Sources: the tracks of `keystone.runs.track_rules`; castorini/ragnarok at 7233fa7; trec-auto-judge/auto-judge-base;
RAGDoll at 1f06719; hltcoe/rag-run-validator at 81c8565.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from keystone.runs.evaluation.nuggets.cited import Citation, CitedAnswer, CitedText
from keystone.runs.exchange.records import drop_repeated, drop_taken, has, list_keys, read_form, write_each
from keystone.runs.exchange.types import Form, Handover, get_text
from keystone.runs.parts import Id, Listed, Name, Part, first_of, text_as
from keystone.runs.track_rules import DEFAULT_TEAM, TRACKS, KeyContent, Track
from keystone.runs.tracks.answer_files import NUMBER, is_integer, is_score, map_citations, resolve_citation
from keystone.runs.tracks.violations import shorten_value, tell_expected

TOPIC_KEYS = ("topic_id", "narrative_id", "qid", "request_id", "qa_id")
SENTENCE_KEYS = ("responses", "answer", "response")
BY_ID = ("responses",)
"""The keys of sentences in whose form no track has positions, so that an integer is an id."""
UNRESOLVED = "citations by position without references"
FURTHER: Mapping[KeyContent, str] = {"narrative": "narrative", "type": "type", "description": "run_desc"}
"""Further keys of the metadata of a track that does not ask for them."""
DEFAULT_RUN = "unnamed"
"""The run of answers that name none."""


class _Metadata(Part):
    """The metadata of an answer, under the names that `CitedAnswer` has for them."""

    topic_id: Name = first_of(*TOPIC_KEYS, default=...)
    query: str = first_of("narrative", "topic", "query", "question")
    run_id: Id = ""
    team_id: str = ""
    type: str = ""
    description: str = first_of("run_desc", "description")


class _Sentence(Part):
    text: str = ""
    citations: Any = None


_ONE_TEXT = BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
Texts = dict[str, Annotated[dict[str, Any], text_as("text")]]


class _Answer(Part):
    metadata: dict[str, Any] = Field({})
    sentences: Annotated[Listed[Annotated[_Sentence, text_as("text")]], _ONE_TEXT] = first_of(
        *SENTENCE_KEYS, default=...
    )
    references: Listed[Id] = ()
    documents: Texts = Field({})
    segments: Texts = Field({})
    response_length: Any = None
    answer_text: Any = None


def read(path: Path) -> Handover:
    """Read the answer to a topic from each object, in the form of any track or tool.

    Metadata are in `metadata` or in the object itself. Sentences are in `responses`, `answer` or `response`, and
    citations are positions, ids, or an object from id to confidence. The texts of documents are in `documents` or
    `segments`. An id that is cited need not be a reference. `UserError` with file and line for another object.
    """
    lost = Counter[str]()
    answers, unread = read_form(
        path, _Answer, partial(_make_answer, lost=lost), lambda record, made: drop_taken(record, _list_taken(made))
    )
    return Handover(answers=tuple(answers), unread=unread + lost)


def _list_taken(made: CitedAnswer | _Metadata) -> dict[str, str]:
    return {key: getattr(made, name) for key, name in list_keys(_Metadata).items()}


def _make_answer(own: _Answer, place: str, record: dict[str, Any], lost: Counter[str]) -> CitedAnswer:
    """Make an answer. `lost` counts repeated citations, and positions without references."""
    key = next(key for key in SENTENCE_KEYS if record.get(key) is not None)
    both = {name: value for name, value in (record | own.metadata).items() if value != ""}
    if key == "answer" and both.get("narrative_id") is not None:  # TREC RAG names a topic by its narrative
        both["topic_id"] = both["narrative_id"]
    metadata = _Metadata.read(both)
    names = map_citations(own.references, ("ids", "positions") if key in BY_ID else ("positions", "ids"))
    sentences = (
        CitedText(one.text, _parse_citations(one.citations, names, f"{key}[{number}].citations", key in BY_ID, lost))
        for number, one in enumerate(own.sentences)
    )
    documents = (own.documents | own.segments).items()
    return CitedAnswer(
        sentences=tuple(sentences),
        references=own.references,
        documents={name: {part: one for part, one in parts.items() if part != "id"} for name, parts in documents},
        extra=drop_taken(own.metadata, _list_taken(metadata)),
        place=place,
        **metadata.model_dump(),
    )


def _parse_citations(
    value: Any, names: Mapping[str | int, str], where: str, by_id: bool, lost: Counter[str]
) -> tuple[Citation, ...]:
    if value is None:
        return ()
    if isinstance(value, dict):
        for name, score in value.items():
            if not is_score(score):
                raise ValueError(f"{where}: expected a number for {name!r}, found {shorten_value(score)}")
        return tuple(Citation(name, float(score)) for name, score in value.items())
    if not isinstance(value, list):
        raise ValueError(tell_expected(where, "a list or an object", value))
    found = []
    for one in value:
        is_name = isinstance(one, str) or (by_id and is_integer(one) and bool(NUMBER.fullmatch(str(one))))
        name = resolve_citation(one, names) or (str(one) if is_name else None)
        if name is not None:
            found.append(Citation(name))
        elif is_integer(one) and not names:
            lost[UNRESOLVED] += 1
        else:
            raise ValueError(f"{where}: {shorten_value(one)} names no reference")
    return drop_repeated(found, lost)


def _encode_for_track(one: CitedAnswer, track: Track, with_documents: bool = False) -> dict[str, Any]:
    """Encode an answer by the rules of a track. Of the values that it lacks, only team and run have a default."""
    values: dict[KeyContent, Any] = {
        "kit": one.extra.get("use_starter_kit", 0),
        "team": one.team_id or DEFAULT_TEAM,
        "run": one.run_id or DEFAULT_RUN,
        "topic": one.topic_id,
        "narrative": one.query,
        "type": one.type,
        "description": one.description,
    }
    own = {key.name: values[key.holds] for key in track.keys if values[key.holds] not in ("", None)}
    held = {key.holds for key in track.keys}
    further = {name: values[holds] for holds, name in FURTHER.items() if holds not in held and values[holds]}
    documents = {name: {"id": name, **parts, "text": get_text(parts)} for name, parts in one.documents.items()}
    length = sum(track.length.measure([sentence.text for sentence in one.sentences]))
    return {
        **(own if track.metadata is None else {track.metadata: {**one.extra, **further, **own}}),
        "references": one.list_references(),
        **({track.length_key: length} if track.length_key else {}),
        track.sentences: _encode_sentences(one, track.citations[0] == "positions", "scores" in track.citations),
        **({"documents": documents} if with_documents else {}),
    }


def _encode_sentences(one: CitedAnswer, by_position: bool, with_scores: bool = False) -> list[dict[str, Any]]:
    position = {name: number for number, name in enumerate(one.list_references())}
    found = []
    all_scores = [cited.score for sentence in one.sentences for cited in sentence.citations]
    is_scored = with_scores and bool(all_scores) and None not in all_scores
    for sentence in one.sentences:
        ids = list(dict.fromkeys(cited.doc_id for cited in sentence.citations))
        scores = {cited.doc_id: cited.score for cited in sentence.citations}
        scored = is_scored or (with_scores and bool(scores) and None not in scores.values())
        citations = scores if scored else [position[name] if by_position else name for name in ids]
        found.append({"text": sentence.text, "citations": citations})
    return found


def _encode_for(track: str, with_documents: bool = False) -> Callable[[CitedAnswer], dict[str, Any]]:
    """Encode answers in a track's form. Nothing is cut: `keystone validate` says what a track refuses."""
    return partial(_encode_for_track, track=TRACKS[track], with_documents=with_documents)


def _encode_resolved(one: CitedAnswer) -> dict[str, Any]:
    """Encode an answer with the texts of its references, as RAGDoll's `support resolve-references` has it."""
    return {
        **_encode_for_track(one, TRACKS["rag25"]),
        "topic_id": one.topic_id,
        "run_id": one.run_id or DEFAULT_RUN,
        "segments": {name: get_text(parts) for name, parts in one.documents.items()},
    }


def _encode_normalised(one: CitedAnswer) -> dict[str, Any]:
    """Encode an answer in RAGDoll's normalised form, which has no references, with the ids of cited documents."""
    text = " ".join(sentence.text for sentence in one.sentences).strip()
    return {
        "run_id": one.run_id or DEFAULT_RUN,
        "qid": one.topic_id,
        "topic_id": one.topic_id,
        "query": one.query,
        "topic": one.query,
        "response_length": len(text.split()),
        "answer_text": text,
        "answer": _encode_sentences(one, by_position=False),
    }


def _has_metadata(sentences: str, key: str) -> Callable[[dict[str, Any]], bool]:
    return lambda record: sentences in record and isinstance(record.get("metadata"), dict) and key in record["metadata"]


FORMS = tuple(
    Form(name, "answers", used_by, read, write_each("answers", encode), fits)
    for name, used_by, encode, fits in (
        ("rag24", "TREC RAG 2024, ragnarok", _encode_for("rag24"), has("answer", "topic_id")),
        ("rag25", "TREC RAG 2025", _encode_for("rag25"), has("answer", any_of=("metadata", "narrative_id"))),
        ("rag26", "TREC RAG 2026", _encode_for("rag26"), _has_metadata("answer", "run_desc")),
        ("responses", "RAGTIME, BioGen 2025 task B", _encode_for("responses"), has("responses")),
        ("dragun25", "DRAGUN 2025 task 2", _encode_for("dragun25"), _has_metadata("responses", "use_starter_kit")),
        (
            "auto-judge",
            "auto-judge's reports with documents",
            _encode_for("responses", with_documents=True),
            has("responses", "documents"),
        ),
        ("ragdoll-answers", "RAGDoll's normalised answers", _encode_normalised, has("answer", "answer_text")),
        ("ragdoll-resolved", "RAGDoll's answers with texts", _encode_resolved, has("answer", "segments")),
    )
)
