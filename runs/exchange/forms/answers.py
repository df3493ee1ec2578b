"""Cited answers in the forms of the tracks, of ragnarok, of auto-judge and of RAGDoll: one reader for all of them.

Sources: the tracks of `keystone.runs.track_rules`; castorini/ragnarok at 7233fa7; trec-auto-judge/auto-judge-base;
RAGDoll at 1f06719; hltcoe/rag-run-validator at 81c8565.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from keystone.runs.evaluation.nuggets.cited import Citation, CitedAnswer, CitedText
from keystone.runs.exchange.records import Record, drop_repeated, drop_taken, has, read_form, write_each
from keystone.runs.exchange.types import Form, Handover, get_text
from keystone.runs.track_rules import DEFAULT_TEAM, TRACKS, KeyContent, Track
from keystone.runs.tracks.answer_files import NUMBER, is_integer, is_score, map_citations, resolve_citation
from keystone.runs.tracks.violations import shorten_value

TOPIC_KEYS = ("topic_id", "narrative_id", "qid", "request_id", "qa_id")
TOPIC_KEYS_OF_TREC_RAG = ("narrative_id", *(key for key in TOPIC_KEYS if key != "narrative_id"))
"""The keys of the topic in answers with the sentences of TREC RAG, which names it by its narrative."""
QUERY_KEYS = ("narrative", "topic", "query", "question")
DESCRIPTION_KEYS = ("run_desc", "description")
SENTENCE_KEYS = ("responses", "answer", "response")
BY_ID = ("responses",)
"""The keys of sentences in whose form no track has positions, so that an integer is an id."""
KEPT = (
    *("metadata", "references", "documents", "segments", "response_length", "answer_text"),
    *(f"{key}[].{inner}" for key in SENTENCE_KEYS for inner in ("text", "citations")),
)
UNRESOLVED = "citations by position without references"
FURTHER: Mapping[KeyContent, str] = {"narrative": "narrative", "type": "type", "description": "run_desc"}
"""Further keys of the metadata of a track that does not ask for them."""
DEFAULT_RUN = "unnamed"
"""The run of answers that name none."""


def read(path: Path) -> Handover:
    """Read the answer to a topic from each object, in the form of any track or tool.

    Metadata are in `metadata` or in the object itself. Sentences are in `responses`, `answer` or `response`, and
    citations are positions, ids, or an object from id to confidence. The texts of documents are in `documents` or
    `segments`. An id that is cited need not be a reference. `UserError` with file and line for another object.
    """
    lost = Counter[str]()

    def parse(record: Record, place: str) -> CitedAnswer:
        answer, missing = _parse_answer(record, place)
        lost.update(missing)
        return answer

    answers, unread = read_form(path, parse, KEPT, _drop_kept)
    return Handover(answers=tuple(answers), unread=unread + lost)


def _drop_kept(record: dict[str, Any]) -> dict[str, Any]:
    """Drop metadata that are kept, and sentences that are texts. Sentences under a second key become one value."""
    first, *others = (key for key in SENTENCE_KEYS if record.get(key) is not None)
    objects = [one for one in _list_sentences(record[first], first) if one.keys() != {"text"}]
    rest = drop_taken(record, _take_metadata(Record(record), first))
    return {**rest, first: objects, **{key: str(record[key]) for key in others}}


def _parse_answer(record: Record, place: str) -> tuple[CitedAnswer, Counter[str]]:
    key = next((key for key in SENTENCE_KEYS if record.get(key) is not None), None)
    if key is None:
        expected, found = " or ".join(SENTENCE_KEYS), ", ".join(record) or "none"
        raise ValueError(f"expected sentences under {expected}, found the keys {found}")
    metadata, taken = record.get_object("metadata"), _take_metadata(record, key)
    if not taken["topic_id"]:
        found = ", ".join(record | metadata)
        raise ValueError(f"expected an id under {' or '.join(TOPIC_KEYS)}, found the keys {found}")
    ids, references = record.get_ids("references"), record.get_list("references")
    names = map_citations(references, ("ids", "positions") if key in BY_ID else ("positions", "ids"))
    sentences, missing = [], Counter[str]()
    for one in _list_sentences(record[key], key):
        citations, lost = _parse_citations(one.get("citations"), names, one.where, key in BY_ID)
        missing += lost
        sentences.append(CitedText(one.get_string("text"), citations))
    return CitedAnswer(
        taken["topic_id"],
        tuple(sentences),
        ids,
        taken["narrative"],
        taken["run_id"],
        taken["team_id"],
        taken["type"],
        taken["description"],
        _parse_documents(record),
        drop_taken(metadata, taken),
        place,
    ), missing


def _take_metadata(record: Record, sentences: str) -> dict[str, str]:
    """Take each value of the metadata from the first key that has it. The result has the value taken for each key."""
    both = Record({**record, **record.get_object("metadata")})
    topic_keys = TOPIC_KEYS_OF_TREC_RAG if sentences == "answer" else TOPIC_KEYS
    taken = {key: both.get_name(*keys) for keys in (topic_keys, ("run_id",)) for key in keys}
    text_keys = (QUERY_KEYS, DESCRIPTION_KEYS, ("team_id",), ("type",))
    return taken | {key: _get_first(both, keys) for keys in text_keys for key in keys}


def _list_sentences(value: Any, key: str) -> list[Record]:
    sentences = [value] if isinstance(value, str) else value
    if not isinstance(sentences, list):
        raise ValueError(f"{key}: expected a list of sentences, found {shorten_value(value)}")
    found = [{"text": one} if isinstance(one, str) else one for one in sentences]
    return list(Record({key: found}).get_objects(key))


def _parse_citations(
    value: Any, names: Mapping[str | int, str], where: str, by_id: bool
) -> tuple[tuple[Citation, ...], Counter[str]]:
    """Parse the citations of a sentence, and count the repeated ones, and positions without references."""
    if value is None:
        return (), Counter()
    if isinstance(value, dict):
        for name, score in value.items():
            if not is_score(score):
                raise ValueError(f"{where}citations: expected a number for {name!r}, found {shorten_value(score)}")
        return tuple(Citation(name, float(score)) for name, score in value.items()), Counter()
    if not isinstance(value, list):
        raise ValueError(f"{where}citations: expected a list or an object, found {shorten_value(value)}")
    found, missing = [], 0
    for one in value:
        is_name = isinstance(one, str) or (by_id and is_integer(one) and bool(NUMBER.fullmatch(str(one))))
        name = resolve_citation(one, names) or (str(one) if is_name else None)
        if name is not None:
            found.append(Citation(name))
        elif is_integer(one) and not names:
            missing += 1
        else:
            raise ValueError(f"{where}citations: {shorten_value(one)} names no reference")
    lost = Counter({UNRESOLVED: missing})
    return drop_repeated(found, lost), lost


def _parse_documents(record: Record) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for key in ("documents", "segments"):
        for name, value in record.get_object(key).items():
            parts = {"text": value} if isinstance(value, str) else value
            if not isinstance(parts, dict):
                raise ValueError(f"{key}: expected a text or an object for {name!r}, found {shorten_value(value)}")
            found[name] = {part: one for part, one in parts.items() if part != "id"}
    return found


def _get_first(record: Record, keys: Sequence[str]) -> str:
    return next((text for key in keys if (text := record.get_string(key))), "")


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
