"""A prompt that a server never answers fails alone; a server that answers nobody ends the run."""

from pathlib import Path

import pytest

from keystone.generation.types import Failure, Reply, Request
from keystone.indexing.errors import UserError
from tests.support.models.client import complete, make_settings
from tests.support.servers.chat import Exchange, Fault, changed, hangs_up, says, serving, status

pytestmark = pytest.mark.usefixtures("short_pauses")

FAULTS = {
    "error": status(500),
    "gateway": status(502),
    "busy": status(503),
    "too many": status(429),
    "forbidden by moderation": status(403, {"error": {"message": "your input was flagged"}}),
    "broken connection": hangs_up,
    "too long": changed(message={"content": "a" * 100_000}),
    "lone surrogate": says(b'{"choices": [{"message": {"content": "\\ud800"}, "finish_reason": "stop"}]}'),
    "no choices": says({"choices": []}),
    "no JSON": says(b"<html>"),
}


def ask(*said: str) -> list[Request]:
    return [Request("step", (("user", text),), 10) for text in said]


def spoils(fault: Fault, *said: str) -> Fault:
    """The fault for the prompts `said`, and the right answer for others."""

    async def only_those(exchange: Exchange) -> bool:
        return exchange.body["messages"][0]["content"] in said and await fault(exchange)

    return only_those


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_prompts_that_a_server_never_answers_fail_alone_also_when_no_others_are_left(
    fault: Fault, tmp_path: Path
) -> None:
    asked = ask(*map(str, range(20)), "bad", "worse")
    with serving(always=spoils(fault, "bad", "worse")) as server:
        chosen = make_settings(tmp_path, server.url, patience_seconds=0.02)
        outcomes, usage, _ = complete(chosen, asked)
        answered = len(server.answered)
        again, _, _ = complete(chosen, asked)
    assert outcomes.keys() == again.keys() == set(range(22))
    for found in (outcomes, again):
        failures = {number: outcome for number, outcome in found.items() if isinstance(outcome, Failure)}
        assert failures.keys() == {20, 21}
        assert all(server.url in failure.reason for failure in failures.values())
        assert all(found[number] == Reply(str(number)) for number in range(20))
    assert usage["step"].calls == answered + len(failures), "a short request that tells them apart is counted, too"


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_server_that_stops_answering_ends_the_run(fault: Fault, tmp_path: Path) -> None:
    answers = iter(range(10))

    async def stops(exchange: Exchange) -> bool:
        return next(answers, None) is None and await fault(exchange)

    with serving(always=stops) as server:
        with pytest.raises(UserError, match=r"no endpoint has answered|flagged"):
            complete(make_settings(tmp_path, server.url, patience_seconds=0.02), ask(*map(str, range(200))))
        assert len(server.answered) == 10


def test_a_living_endpoint_is_found_beside_a_dead_one(tmp_path: Path) -> None:
    with serving() as dead, serving(always=spoils(status(500), "bad")) as living:
        dead.stop()
        chosen = make_settings(tmp_path, dead.url, living.url, patience_seconds=0.02)
        outcomes, _, _ = complete(chosen, ask("good", "bad"))
    assert outcomes[0] == Reply("good")
    assert isinstance(outcomes[1], Failure)
