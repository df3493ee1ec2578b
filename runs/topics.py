"""Reading topics: JSONL with an id and a narrative, under any of the keys that the tracks have used."""

from pathlib import Path

from indexing.errors import UserError
from indexing.files import json_lines
from indexing.types import is_id
from retrieval.types import Topic

ID_KEYS = ("id", "_id", "qid", "topic_id", "narrative_id")
NARRATIVE_KEYS = ("narrative", "title", "text", "query")


def read_topics(path: Path) -> list[Topic]:
    """The topics of a file in its order; ids are text, whatever JSON type they have."""
    topics: dict[str, Topic] = {}
    for number, record in json_lines(path):
        where = f"{path}:{number}"
        id_key = next((key for key in ID_KEYS if key in record), None)
        text_key = next((key for key in NARRATIVE_KEYS if key in record), None)
        if id_key is None or text_key is None:
            raise UserError(
                f"{where}: expected an id ({', '.join(ID_KEYS)}) and a narrative ({', '.join(NARRATIVE_KEYS)}), "
                f"found the keys {', '.join(record) or 'none'}"
            )
        topic_id, narrative = record[id_key], record[text_key]
        topic_id = str(topic_id) if isinstance(topic_id, int) and not isinstance(topic_id, bool) else topic_id
        if not isinstance(topic_id, str) or not is_id(topic_id):
            raise UserError(f"{where}: {id_key}: expected an id without space, found {topic_id!r}")
        if not isinstance(narrative, str) or not narrative.strip():
            raise UserError(f"{where}: {text_key}: expected a narrative, found {narrative!r}")
        if topic_id in topics:
            raise UserError(f"{where}: topic {topic_id!r} occurs more than once")
        topics[topic_id] = Topic(topic_id, narrative)
    if not topics:
        raise UserError(f"{path}: holds no topic")
    return list(topics.values())
