"""A server with Pyserini's, Anserini's or RoutIR's interface: searches and documents by HTTP, as many as it can take.

The interface of the first two has two forms. That of TREC RAG 2026 (`GET /v1/INDEX/search`) is also Anserini's.
Pyserini had the other one before (`POST /v1/indexes/INDEX/search`). RoutIR searches by a pipeline (`POST /pipeline`),
and gives documents one by one (`POST /content`). `keystone.indexing.io.retry` says which requests are repeated.
Keystone sends the key in the variable that the user names as a bearer token. Otherwise it sends the one in
`PYSERINI_API_KEY` or `ROUTIR_API_KEY`, or in a variable with another tool's name for it, by https alone.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from threading import Event
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import numpy as np
import orjson

from keystone.indexing.errors import Refused, TooDeep, UserError
from keystone.indexing.io.api_keys import choose_key
from keystone.indexing.io.error_text import show_value
from keystone.indexing.io.http import HttpRequest
from keystone.indexing.io.retry import REFUSED_CONTENT_STATUSES
from keystone.indexing.io.server import Asker
from keystone.indexing.languages import DEFAULT_LANGUAGE, LANGUAGES, has_languages
from keystone.indexing.types import describe_id, is_id

PREFIX, ROUTIR_PREFIX = "rest:", "routir:"
KEY, ROUTIR_KEY = "PYSERINI_API_KEY", "ROUTIR_API_KEY"
ROUTIR = "routir"
MOST_REQUESTS = 8
REPLY_TIMEOUT_S = 60.0
DOCUMENT_LIMIT_BYTES, HIT_LIMIT_BYTES = 2**26, 2**16
"""Bytes of a reply: for its longest document, and for each further hit."""

LARGEST_SCORE = float(np.finfo(np.float32).max)

_DEPTH = re.compile(r"hits|depth|limit|most|maximum|top.?k", re.IGNORECASE)
"""Words by which a server refuses a number of hits."""

Parameters = Mapping[str, float | str]
"""The parameters of a search that a server is sent beyond its own: none, or `k1` and `b` of BM25, or `language`."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A hit. `payload` is the part of the document that came with it, None if nothing came."""

    id: str
    score: float
    payload: Any


@dataclass(frozen=True, slots=True)
class Form:
    """One form of the interface: the paths of its requests, and whether a search is posted."""

    search: str
    document: str
    posted: bool

    def search_request(self, name: str, query: str, hits: int, parameters: Parameters) -> HttpRequest:
        """The request of a search; if the form allows it, documents come as they are stored."""
        target, limit = self.search.format(quote(name, "")), DOCUMENT_LIMIT_BYTES + hits * HIT_LIMIT_BYTES
        asked = {"query": query, "hits": hits, **parameters}
        if self.posted:
            return HttpRequest("POST", target, orjson.dumps(asked), limit)
        return HttpRequest("GET", f"{target}?{urlencode(asked | {'parse': 'false'})}", None, limit)

    def document_request(self, name: str, doc_id: str) -> HttpRequest:
        """The request for a document."""
        target = self.document.format(quote(name, ""), quote(doc_id, ""))
        return HttpRequest("GET", target if self.posted else f"{target}?parse=false", None, DOCUMENT_LIMIT_BYTES)


@dataclass(frozen=True, slots=True)
class RoutirForm:
    """RoutIR's interface, whose name is `COLLECTION?PIPELINE`. The pipeline says how many hits there are."""

    def search_request(self, name: str, query: str, hits: int, parameters: Parameters) -> HttpRequest:
        """The request of a search, which gives ids and scores alone. `UserError` for parameters of BM25."""
        if parameters:
            found = ", ".join(f"{key}={value}" for key, value in parameters.items())
            raise UserError(f"retrieval: found {found} with a pipeline of RoutIR, which has its own; expected neither")
        collection, _, pipeline = name.partition("?")
        asked = {"pipeline": pipeline, "collection": collection, "query": query}
        return HttpRequest("POST", "/pipeline", orjson.dumps(asked), DOCUMENT_LIMIT_BYTES + hits * HIT_LIMIT_BYTES)

    def document_request(self, name: str, doc_id: str) -> HttpRequest:
        """The request for a document."""
        asked = {"collection": name.partition("?")[0], "id": doc_id}
        return HttpRequest("POST", "/content", orjson.dumps(asked), DOCUMENT_LIMIT_BYTES)


FORMS = {
    "v1": Form("/v1/{}/search", "/v1/{}/doc/{}", posted=False),
    "v1/indexes": Form("/v1/indexes/{}/search", "/v1/indexes/{}/documents/{}", posted=True),
}
"""The forms of the interface by name, the newer one first."""
READ_BY = (*FORMS, ROUTIR)
"""The names of all interfaces. A server of Pyserini's or Anserini's is asked which of its two it speaks."""


def address(corpus: Path) -> tuple[str, str] | None:
    """Read URL and index name of `rest:http://HOST:PORT/INDEX`, or of `routir:http://HOST:PORT/COLLECTION?PIPELINE`.

    None for any other corpus. The name of RoutIR's index is all after the URL.

    `UserError` if host or index is missing. A `Path` joins two slashes into one, which this function undoes.
    """
    name = os.fspath(corpus)
    if name.startswith(ROUTIR_PREFIX):
        form = r"(https?):/+([^/@?#\s]+(?:/[^/?#\s]+)*)/([^/?#\s]+\?\s*\S.*)"
        served = re.fullmatch(form, name.removeprefix(ROUTIR_PREFIX))
        if not served:
            raise UserError(f"{name}: expected routir:http://HOST:PORT/COLLECTION?PIPELINE, such as ...?bm25%100")
        return f"{served[1]}://{served[2]}", served[3]
    if not name.startswith(PREFIX):
        return None
    found = re.fullmatch(r"(https?):/+([^/@?#\s]+)((?:/[^/?#\s]+)*)/([^/?#\s]+)/?", name.removeprefix(PREFIX))
    if not found:
        raise UserError(f"{name}: expected rest:http://HOST:PORT/INDEX, without user, password and query")
    scheme, host, path, index = found.groups()
    return f"{scheme}://{host}{path.removesuffix('/v1')}", index


def form_of(
    url: str, name: str, key_env: str | None = None, max_rate: float | None = None
) -> tuple[str, dict[str, Any]]:
    """The form that a server speaks for an index, and its `languages`. `UserError` if it has no such index."""
    refusals = []
    for form in FORMS:
        try:
            return form, Server(url, name, form, key_env, max_rate).languages()
        except Refused as refusal:
            refusals.append(str(refusal))
            if refusal.status not in (404, 405):
                raise
    raise UserError("; ".join(refusals))


class Server:
    """An index on a server, in the form of the interface with this name.

    `key_env` is the environment variable with the key for this server, `max_rate` the most requests a second that it
    is sent. `UserError` for an unknown form, and if the
    variable holds no key.
    """

    def __init__(
        self, url: str, name: str, form: str, key_env: str | None = None, max_rate: float | None = None
    ) -> None:
        if form not in READ_BY:
            raise UserError(f"{url}: found the interface {form!r}, expected one of {', '.join(READ_BY)}")
        self.url, self.name, self.form, self._key_env = url, name, form, key_env
        self._form: Form | RoutirForm = RoutirForm() if form == ROUTIR else FORMS[form]
        self._key = ROUTIR_KEY if form == ROUTIR else KEY
        key = choose_key(url, self._key, key_env, by_https=True).secret
        self._asker = Asker(url, name, key, MOST_REQUESTS, REPLY_TIMEOUT_S, max_rate)

    def search(self, queries: Sequence[str], hits: int) -> list[list[Candidate]]:
        """The candidates of each query, best first, at most `hits`; holds all of them in memory."""
        found = dict(self.searches(enumerate(queries), hits))
        return [found[place] for place in range(len(queries))]

    def languages(self) -> dict[str, Any]:
        """Language and documents by language, as Keystone's server tells them.

        Empty for English alone and for other servers.
        """
        request = self._form.search_request(self.name, "document", 1, {})
        return self._ask(request, languages_of, Event())

    def searches(
        self, queries: Iterable[tuple[T, str]], hits: int, parameters: Parameters = MappingProxyType({})
    ) -> Iterator[tuple[T, list[Candidate]]]:
        """The candidates of each query, best first, at most `hits`, in the order in which replies arrive."""

        def find(asked: tuple[T, str], stopped: Event) -> tuple[T, list[Candidate]]:
            place, query = asked
            try:
                request = self._form.search_request(self.name, query, hits, parameters)
                return place, self._ask(request, candidates_of, stopped)[:hits]
            except Refused as refusal:
                if refusal.status == 414:
                    raise UserError(f"{refusal}: a query of {len(query)} characters is too long for it") from refusal
                if refusal.status in REFUSED_CONTENT_STATUSES and _DEPTH.search(str(refusal)):
                    raise TooDeep(f"{refusal}: {hits} hits were asked for: lower retrieval.depth") from refusal
                raise

        return _each(find, queries)

    def documents(self, doc_ids: Iterable[str]) -> Iterator[tuple[str, Any]]:
        """Id and payload of each document, in the order in which replies arrive."""

        def fetch(doc_id: str, stopped: Event) -> tuple[str, Any]:
            return doc_id, self._ask(self._form.document_request(self.name, doc_id), payload_of, stopped)

        return _each(fetch, doc_ids)

    def _ask(self, request: HttpRequest, read: Callable[[Any], R], stopped: Event) -> R:
        """The value of a reply. If the server asks for another key, `UserError` names the variable of the key."""
        try:
            return self._asker.ask(request, read, stopped)
        except Refused as refusal:
            if refusal.status not in (401, 403):
                raise
            named = self._key_env or f"{self._key} by https, or --rest-key-env NAME, also for http"
            raise UserError(f"{refusal}: expected the server's key in the environment: {named}") from refusal


def _each(work: Callable[[T, Event], R], items: Iterable[T]) -> Iterator[R]:
    """Yield the results of `work` as they come, with few calls at a time. Its event is set once nobody waits."""
    source, stopped = iter(items), Event()
    pool = ThreadPoolExecutor(MOST_REQUESTS)
    pending: set[Future[R]] = set()
    try:
        while True:
            while len(pending) < 2 * MOST_REQUESTS:
                try:
                    pending.add(pool.submit(work, next(source), stopped))
                except StopIteration:
                    break
            if not pending:
                return
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            while done:
                yield done.pop().result()
    finally:
        stopped.set()
        pool.shutdown(wait=False, cancel_futures=True)


def candidates_of(reply: Any) -> list[Candidate]:
    """Read the candidates, best first. `ValueError` for impossible or repeated ones, and ascending scores."""
    if isinstance(reply, dict) and isinstance(scores := reply.get("scores"), dict):  # RoutIR's
        items = [{"docid": name, "score": score} for name, score in scores.items()]
        hits = [Candidate(_id(item), _score(item), None) for item in items]
        return sorted(hits, key=lambda hit: (-hit.score, hit.id))
    found = reply.get("candidates") if isinstance(reply, dict) else None
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise ValueError("found no list of candidates")
    hits = [Candidate(_id(item), _score(item), item.get("doc", item.get("document_txt"))) for item in found]
    if len({hit.id for hit in hits}) < len(hits):
        raise ValueError("found a document twice")
    if any(first.score < second.score for first, second in pairwise(hits)):
        raise ValueError("found candidates whose scores ascend")
    return hits


def languages_of(reply: Any) -> dict[str, Any]:
    """Read what the reply to a search says of the languages of the index. `ValueError` for any other reply."""
    candidates_of(reply)
    language, languages = reply.get("language", DEFAULT_LANGUAGE), reply.get("languages")
    if isinstance(languages, dict) and isinstance(language, str) and has_languages(language):
        counts = {code: count for code, count in languages.items() if code in LANGUAGES and type(count) is int}
        if counts == languages != {}:
            return {"language": language, "languages": counts}
    return {"language": language} if language in LANGUAGES and language != DEFAULT_LANGUAGE else {}


def payload_of(reply: Any) -> Any:
    """Return the payload of a reply that holds one document: the value under `doc`, or the reply itself."""
    return reply["doc"] if isinstance(reply, dict) and "doc" in reply else reply


def _id(item: dict[str, Any]) -> str:
    found = item.get("docid")
    if not isinstance(found, str) or not is_id(found):
        raise ValueError(f"found the docid {show_value(found)}, expected {describe_id(found)}")
    return found


def _score(item: dict[str, Any]) -> float:
    found = item.get("score")
    if isinstance(found, bool) or not isinstance(found, int | float) or not abs(found) <= LARGEST_SCORE:
        raise ValueError(f"found the score {show_value(found)}, expected a finite number of single precision")
    return float(found)
