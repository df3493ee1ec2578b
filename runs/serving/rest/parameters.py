"""The parameters of REST requests: from the texts of a query string, or the JSON of a body, to arguments of a call."""

from collections.abc import Mapping, Sequence
from typing import Any

from keystone.indexing.errors import UserError
from keystone.retrieval.bm25 import METHODS
from keystone.runs.serving.service import MOST_HITS

LARGEST_K1 = 3.4e38
"""Lucene holds k1 as a float of 32 bits."""
LARGEST_CUT = 2**31 - 1
"""The largest `max_doc_length`. No document is longer."""


def parse_search(found: Mapping[str, str], index: str, methods: Sequence[str] = ("bm25",)) -> dict[str, Any]:
    """Parse the parameters of a search of Pyserini 2, and `feedback`, `language` and `method`, one of `methods`.

    `UserError` as its server refuses them.
    """
    query = found.get("query", "")
    if not query.strip():
        raise UserError("Parameter 'query' is required")
    hits = _parse_positive(found, "hits", MOST_HITS)
    k1, b = _parse_number(found, "k1"), _parse_number(found, "b")
    if (k1 is None) != (b is None):
        raise UserError("BM25 parameters k1 and b must be set together")
    if k1 is not None and not 0 <= k1 <= LARGEST_K1:
        raise UserError(f"BM25 parameter k1 must be a non-negative number of at most {LARGEST_K1:g}")
    if b is not None and not 0 <= b <= 1:
        raise UserError("BM25 parameter b must be between 0 and 1")
    method = found.get("method") or "bm25"
    if method not in methods:
        raise UserError(f"Parameter 'method' must be one of {', '.join(methods)}")
    if k1 is not None and method != "bm25":
        raise UserError("BM25 parameters k1 and b need method=bm25")
    feedback = found.get("feedback", "").strip() or None
    if feedback is not None and feedback not in METHODS:
        raise UserError(f"Parameter 'feedback' must be one of {', '.join(METHODS)}")
    if feedback is not None and method != "bm25":
        raise UserError("Parameter 'feedback' needs method=bm25")
    own: dict[str, Any] = {"hits": hits or 10, "method": method, "k1": k1, "b": b, "feedback": feedback}
    if language := found.get("language", "").strip():
        if method != "bm25":
            raise UserError("Parameter 'language' needs method=bm25")
        own["language"] = language
    return {"index": index, "query": query, **own, **_parse_form(found)}


def parse_first_search(found: Mapping[str, str], index: str) -> dict[str, Any]:
    """Parse the parameters of a search of Anserini's first server. `UserError` as from `parse_search`."""
    asked = parse_search({key: found[key] for key in ("query", "hits") if key in found}, index)
    return {"index": index, "query": asked["query"], "hits": asked["hits"], "qid": found.get("qid", "")}


def parse_document(found: Mapping[str, str], index: str, doc_id: str) -> dict[str, Any]:
    """Parse the parameters of a request for a document of Pyserini 2. `UserError` as its server refuses them."""
    if not doc_id.strip():
        raise UserError("Path parameter 'docid' is required")
    return {"index": index, "docid": doc_id, **_parse_form(found)}


def parse_search_body(found: Any, index: str) -> dict[str, Any]:
    """Parse the body of a search of Pyserini 1. `UserError` for another type, and for what Lucene alone has not."""
    if not isinstance(found, dict):
        raise UserError("body: expected an object")
    query = found.get("query")
    if isinstance(query, dict):
        query = query.get("query_txt")
    hits, qid = found.get("hits", 10), found.get("qid", "")
    if not isinstance(query, str):
        raise UserError("query: expected a string, or an object with the string query_txt")
    if isinstance(hits, str) and hits.isdecimal() and len(hits) <= len(str(MOST_HITS)):
        hits = int(hits)
    if type(hits) is not int or not 1 <= hits <= MOST_HITS:
        raise UserError(f"hits: expected an integer from 1 to {MOST_HITS}")
    if not isinstance(qid, str):
        raise UserError("qid: expected a string")
    if str(found.get("query_generator") or "BagOfWords").lower() not in ("bagofwords", "bag_of_words"):
        raise UserError("query_generator: expected BagOfWords, the only one of this server")
    return {"index": index, "query": query, "hits": hits, "qid": qid}


def _parse_form(found: Mapping[str, str]) -> dict[str, Any]:
    parse = found.get("parse", "true").strip().lower()
    if parse not in ("true", "false"):
        raise UserError("Parameter 'parse' must be 'true' or 'false'")
    most = _parse_positive(found, "max_doc_length", LARGEST_CUT)
    if most is not None and parse == "false":
        raise UserError("Parameter 'max_doc_length' requires parse=true")
    return {"parse": parse == "true", "max_doc_length": most}


def _parse_number(found: Mapping[str, str], name: str) -> float | None:
    if not (text := found.get(name, "").strip()):
        return None
    try:
        return float(text)
    except ValueError:
        raise UserError(f"Parameter '{name}' must be a number") from None


def _parse_positive(found: Mapping[str, str], name: str, most: int) -> int | None:
    if not (text := found.get(name, "").strip()):
        return None
    try:
        value = int(text)
    except ValueError:
        raise UserError(f"Parameter '{name}' must be an integer") from None
    if value <= 0:
        raise UserError(f"Parameter '{name}' must be positive")
    if value > most:
        raise UserError(f"Parameter '{name}' must be at most {most}")
    return value
