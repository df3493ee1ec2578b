"""Searches with partial, late or missing answers are sent again until they succeed, or an error names them."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from keystone.indexing.errors import UserError
from keystone.indexing.opensearch.cluster import Place, connect
from keystone.indexing.opensearch.search import Cluster, search_each, search_of
from tests.support.servers.json_server import JsonHandler, serve_json

pytestmark = pytest.mark.slow

Item = dict[str, Any]
WHOLE: Item = {"status": 200, "timed_out": False, "_shards": {"failed": 0}}
BUSY = {"type": "rejected_execution_exception", "reason": "queue is full"}
FAULTS: dict[str, Item] = {
    "turned away": {"status": 429, "error": BUSY},
    "no shard": {"status": 503, "error": {"type": "no_shard_available_action_exception", "reason": "no copy"}},
    "too late": {**WHOLE, "timed_out": True},
    "in part": {**WHOLE, "_shards": {"failed": 1, "failures": [{"reason": {"type": "node_left", "reason": "gone"}}]}},
}


class Handler(JsonHandler):
    def do_GET(self) -> None:  # noqa: N802
        self.reply({"version": {"number": "3.5.0"}})

    def do_POST(self) -> None:  # noqa: N802
        answer, whole = self.state
        lines = self.rfile.read(int(self.headers["Content-Length"])).splitlines()
        assert all(json.loads(line)["allow_partial_search_results"] is False for line in lines[::2])
        if not whole(self):
            self.reply({"responses": [answer(json.loads(line)["query"]) for line in lines[1::2]]})


@contextmanager
def serving(answer: Callable[[int], Item], whole: Callable[[Handler], bool] = lambda _: False) -> Iterator[Cluster]:
    """A server with two functions: one answers the search for a number, the other one a whole request."""
    with serve_json(Handler, (answer, whole)) as url:
        yield Cluster(connect([url], 4), Place((url,), "scripted"), (3, 5, 0), 1, 10_000)


def hits(number: int) -> Item:
    return {**WHOLE, "hits": {"hits": [{"sort": [float(number), number]}]}}


def row(answer: Any) -> int:
    return int(answer["hits"]["hits"][0]["sort"][1])


@pytest.mark.parametrize("fault", [*FAULTS, "any"])
def test_a_failed_search_is_sent_again_alone(fault: str) -> None:
    """A third of all answers are faults; no ranking is lost or repeated."""
    random, asked = Random(1), [0] * 300
    ticks: list[int] = []

    def answer(number: int) -> Item:
        asked[number] += 1
        chosen = random.choice(list(FAULTS)) if fault == "any" else fault
        return FAULTS[chosen] if random.random() < 1 / 3 else hits(number)

    with serving(answer) as cluster:
        searches = [search_of(number, 1, f"query {number}") for number in range(len(asked))]
        assert search_each(cluster, searches, row, tick=ticks.append) == list(range(len(asked)))
    assert sum(ticks) == len(asked)
    assert min(asked) == 1 < max(asked), "what was answered is not asked again"


def test_requests_that_fail_as_a_whole_are_sent_again() -> None:
    random = Random(2)

    def whole(handler: Handler) -> bool:
        fault = random.choice(["busy", "gone", "cut", "broken", "", "", ""])
        if fault == "busy":
            handler.reply({"error": BUSY, "status": 429}, 429)
        elif fault == "gone":
            handler.close_connection = True
        elif fault == "cut":
            handler.send_half({"responses": [hits(0)]})
        elif fault == "broken":
            handler.reply("not JSON of OpenSearch", 503)
        return bool(fault)

    with serving(hits, whole) as cluster:
        searches = [search_of(number, 1, f"query {number}") for number in range(1000)]
        assert search_each(cluster, searches, row) == list(range(1000))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_search_that_is_never_answered_is_named_with_the_reason(fault: str) -> None:
    words = {
        "turned away": "queue is full",
        "no shard": "no copy",
        "too late": "not answered in time",
        "in part": "gone",
    }
    with serving(lambda number: FAULTS[fault] if number == 7 else hits(number)) as cluster:
        searches = [search_of(number, 1, f"query {number}") for number in range(9)]
        began = time.monotonic()
        with pytest.raises(UserError, match=f"query 7: .*{words[fault]}.*nothing has succeeded for 0.5 s"):
            search_each(replace(cluster, patience=0.5), searches, row)
        assert time.monotonic() - began < 30


def test_a_search_that_cannot_be_answered_is_named_at_once() -> None:
    wrong = {"status": 400, "error": {"type": "parsing_exception", "reason": "no such query"}}
    with serving(lambda number: wrong if number == 3 else hits(number)) as cluster:
        searches = [search_of(number, 1, f"query {number}") for number in range(9)]
        with pytest.raises(UserError, match="query 3: refused with status 400: parsing_exception: no such query"):
            search_each(cluster, searches, row)
