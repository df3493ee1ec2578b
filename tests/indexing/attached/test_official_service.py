"""The command line over a stand-in of TREC RAG 2026's service: plain http, a mandatory token, a rate, broken replies.

The service's rate is above that of the command, so that each 429 is one too many.
"""

import json
import time
from pathlib import Path

import pytest

from tests.support.runs.command_line import keystone
from tests.support.servers.rest import Fault, Handler, Scripted, scripted_server

pytestmark = pytest.mark.slow

TOKEN = "the-teams-token"
PAYLOADS = {name: {"text": f"{name} text"} for name in "cabde"}
NARRATIVES = 119
LEAST_PAUSE_S = 0.01
"""The pause between two requests that the service demands."""


def apply_rules(state: Scripted, refused: list[int], broken: list[str]) -> Fault:
    """The rules of the service; the statuses of its refusals are noted, and the requests that it breaks off."""
    times = [0.0]

    def answer(handler: Handler) -> bool:
        if handler.headers["Authorization"] != f"Bearer {TOKEN}":
            refused.append(401)
            handler.reply({"error": "a token is mandatory"}, 401)
            return True
        with state.lock:
            pause, times[0] = time.monotonic() - times[0], time.monotonic()
        if pause < LEAST_PAUSE_S:
            refused.append(429)
            handler.reply({"error": "too fast"}, 429, {"Retry-After": "1"})
            return True
        if len(state.requests) % 7 == 0:
            broken.append(handler.path)
            handler.close_connection = True
            handler.connection.close()
            return True
        return False

    return answer


def test_a_run_of_all_narratives_pays_each_search_once_and_is_repeated_offline(tmp_path: Path) -> None:
    topics = tmp_path / "topics.jsonl"
    topics.write_text("".join(json.dumps({"id": str(n), "title": f"bees {n}"}) + "\n" for n in range(NARRATIVES)))
    run: list[str | Path] = ["run", "--preset", "bm25", "--index", tmp_path / "index", "--topics", topics]
    run += ["--set", "retrieval.max_rate=20", "--set"]
    refused, broken = list[int](), list[str]()
    with scripted_server(payloads=PAYLOADS) as server:
        server.always = apply_rules(server, refused, broken)
        index: list[str | Path] = ["index", f"rest:{server.url}/climbmix-400b", "--out", tmp_path / "index"]
        without = keystone(*index)
        assert without.returncode == 1
        assert "a token is mandatory" in without.stderr
        assert "--rest-key-env NAME" in without.stderr
        made = keystone(*index, "--rest-key-env", "TEAM_TOKEN", cwd=None, code="", TEAM_TOKEN=TOKEN)
        assert made.returncode == 0, made.stderr
        assert set(refused) == {401}
        server.requests.clear()
        refused.clear()
        broken.clear()
        first = keystone(*run, f"out={tmp_path / 'first'}", cwd=None, code="", TEAM_TOKEN=TOKEN)
        assert first.returncode == 0, first.stderr
        assert len(broken) > NARRATIVES // 10
        assert len(server.requests) - len(broken) - len(refused) == len(set(server.requests)) == NARRATIVES
        assert len(refused) < NARRATIVES // 4
    second = keystone(*run, f"out={tmp_path / 'second'}", cwd=None, code="", TEAM_TOKEN=TOKEN)
    assert second.returncode == 0, second.stderr
    ranked = [(tmp_path / name / "bm25/narrative.trec").read_bytes() for name in ("first", "second")]
    assert ranked[0] == ranked[1]
    assert ranked[0].count(b"\n") == NARRATIVES * len(PAYLOADS)
    assert not any(TOKEN.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
