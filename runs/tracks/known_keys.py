"""Keys that no track asks for, but that the organisers' program reads: it refuses an answer with another value there.

Source: `autojudge_base.report` of autojudge-base 1.0.0. Any other key may have any value.
"""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from keystone.runs.tracks.rules import Track
from keystone.runs.tracks.violations import Violation, make_error, shorten_value

SENTENCE_KEYS = ("answer", "responses")
Object = dict[str, Any]


class _Metadata(BaseModel):
    topic_id: str = ""
    narrative_id: str | int | None = None
    narrative: str | None = None
    collection_ids: list[str] | None = None
    task: Literal["multilingual", "english", "rag"] | None = None
    description: str | None = None
    run_desc: str | None = None
    creator: Object = {}
    extra: Object = {}
    use_starter_kit: int | None = None
    type: str | None = None
    request_id: str | None = None
    limit: int | None = None
    evaldata: Object | None = None


class _Sentence(BaseModel):
    metadata: Object | None = None
    evaldata: Object | None = None


class _Document(BaseModel):
    id: str
    text: str
    title: str | None = None
    url: str | None = None
    metadata: Object | None = None
    created: str | None = None
    cc_file: str | None = None
    time: str | None = None
    lang: str | None = None


class _Ranked(BaseModel):
    doc_id: str
    rank: int
    doc: _Document | None = None
    score: float | None = None


class _Retrieved(BaseModel):
    query_id: str
    test_collection: str
    run_id: str | None = None
    metadata: Object | None = None
    ranked_docs: list[_Ranked] = []


class _Answer(BaseModel):
    metadata: _Metadata
    answer: list[_Sentence] | None = None
    responses: list[_Sentence] | None = None
    is_ragtime: bool = True
    path: str | None = None
    evaldata: Object | None = None
    ranking: list[_Retrieved] | list[_Ranked] | None = None
    documents: dict[str, _Document] | None = None


def check_known_keys(number: int, record: dict[str, Any], track: Track, topic: str) -> Iterator[Violation]:
    """Find values that the organisers' program cannot read. Values that other checks refuse may be among them."""
    own = {key.name for key in track.keys}
    try:
        _Answer.model_validate(record)
    except ValidationError as error:
        for one in error.errors(include_url=False):
            where = ".".join(map(str, one["loc"]))
            if not (one["loc"][:1] == ("metadata",) and one["loc"][1:2] and one["loc"][1] in own):
                message = f"{where}: found {shorten_value(one['input'])}; the organisers' program expects: {one['msg']}"
                yield make_error(number, "key of another type", message)
    if all(record.get(key) is not None for key in SENTENCE_KEYS):
        message = f"found both {' and '.join(SENTENCE_KEYS)}: the organisers' program reads {SENTENCE_KEYS[1]}"
        yield make_error(number, "second answer", message)
    metadata = record.get("metadata")
    for key in ("topic_id", "narrative_id"):
        other = metadata.get(key) if isinstance(metadata, dict) else None
        if topic and other is not None and str(other) != topic:
            message = f"metadata.{key}: expected {shorten_value(topic)} as elsewhere, found {shorten_value(other)}"
            yield make_error(number, "second topic", message)
