"""Hostile servers: their replies are bounded and stay readable, and no unusable reply is kept."""

import json
import logging
import time
import tracemalloc
from contextlib import closing
from pathlib import Path

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keystone.generation.answers.sentences import MOST_SENTENCES, make_sentences
from keystone.generation.grading.umbrela import read_grades
from keystone.generation.llm.cache import Cache
from keystone.generation.llm.chat import REPLY_LIMIT_BYTES, ReplyBound, read_reply
from keystone.generation.llm.settings import REPLIES_FILE
from keystone.generation.queries.understand import MOST_QUESTIONS, read_questions, read_topic
from keystone.generation.replies import read_json
from keystone.generation.types import Failure, Reply, Request
from keystone.indexing.errors import Unusable, UserError, WrongReply
from keystone.indexing.index import Index
from keystone.indexing.io import retry
from keystone.indexing.io.api_keys import remove_key
from keystone.indexing.io.error_text import LINE_CHARACTERS, describe_error
from keystone.indexing.io.json_values import MOST_LEVELS, parse_json
from keystone.runs.config.read import read_config
from keystone.runs.pipeline.run import run
from keystone.runs.tracks.validate import detect_track, validate
from keystone.runs.trec.topics import read_topics
from tests.support.indexes.small_corpus import TRIAL_WARNINGS, write_topics
from tests.support.models.client import complete, make_settings
from tests.support.models.hostile_bodies import ESCAPES, HOSTILE_BODIES
from tests.support.models.plain_model import say
from tests.support.runs.model_runs import list_submissions
from tests.support.servers.chat import HOSTILE, Fault, bomb, in_turn, says, serving, status

SECRET = "sk-0123456789/secret"


pytestmark = pytest.mark.usefixtures("short_pauses")


def kept(path: Path) -> str:
    """Return the content of a cache, after reading and writing each of its replies."""
    with closing(Cache(path)) as cache:
        found = "".join(f"{key} {answered!r}" for key, answered in cache.items())
    assert SECRET not in found
    assert len(found) < 10**6
    return found


@pytest.mark.parametrize("fault", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_reply_costs_little_and_the_next_one_is_taken(
    fault: Fault, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "generation")
    asked = [Request("step", (("user", "hello"),), 1_024, top_logprobs=1)]
    with serving(faults=[fault]) as server:
        chosen = make_settings(tmp_path, server.url, call_seconds=20, patience_seconds=0.5)
        tracemalloc.start()
        try:
            outcomes, usage, _ = complete(chosen, asked)
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert server.sent <= 2 * REPLY_LIMIT_BYTES, "the rest is not read"
    assert peak < 8 * REPLY_LIMIT_BYTES
    outcome = outcomes[0]
    shown = outcome.reason if isinstance(outcome, Failure) else ""
    assert (shown + "".join(caplog.messages)).isprintable()
    if isinstance(outcome, Reply):
        assert SECRET not in outcome.text
    assert 0 <= usage["step"].prompt_tokens <= 1_000
    orjson.dumps(usage["step"])
    kept(chosen.replies_in(tmp_path))


IN_A_RUN = HOSTILE | {
    name: says(HOSTILE_BODIES[name].body)
    for name in (
        "a text beyond what was asked for",
        "a text nested 300 deep",
        "log-probabilities that are no numbers",
        "usage near 2^64",
        "usage below nothing",
        "a flood of braces",
        "a flood of fences",
    )
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, id=name, marks=[] if place % 4 == 0 else pytest.mark.nightly)
        for place, (name, fault) in enumerate(IN_A_RUN.items())
    ],
)
def test_a_run_with_a_hostile_server_ends_in_valid_files(fault: Fault, index: Index, tmp_path: Path) -> None:
    topics = write_topics(tmp_path / "topics.jsonl")
    with serving(model=say, always=in_turn(fault, None, None, None)) as server:
        model = f"{{name: plain, urls: ['{server.url}'], window: 4096, patience_seconds: 2, call_seconds: 20}}"
        where = [f"index={index.folder}", f"topics={topics}", f"out={tmp_path / 'out'}", f"model={model}"]
        directory = run(read_config(None, where, "uema21lab_B4"), threads=2)
    for path in list_submissions(directory):
        assert {v.kind for v in validate(path, detect_track(path), read_topics(topics))} <= TRIAL_WARNINGS
    for path in directory.iterdir():
        content = path.read_bytes()
        assert SECRET.encode() not in content
        assert b"\x1b" not in content
    kept(tmp_path / "out" / REPLIES_FILE)


@pytest.mark.slow
def test_a_server_that_sends_bombs_alone_ends_in_a_clear_failure(tmp_path: Path) -> None:
    with serving(always=bomb()) as server:
        outcomes, _, _ = complete(make_settings(tmp_path, server.url), [Request("step", (("user", "a"),), 10)])
    failure = outcomes[0]
    assert isinstance(failure, Failure)
    assert "a reply of more than 16,777,216 bytes, expected fewer, 8 times" in failure.reason
    assert kept(tmp_path / "replies.sqlite") == ""


@pytest.mark.slow
def test_the_client_waits_for_a_busy_server_with_any_body(tmp_path: Path) -> None:
    with serving(faults=[bomb(503)] * 3) as server:
        outcomes, _, _ = complete(make_settings(tmp_path, server.url), [Request("step", (("user", "a"),), 10)])
    assert outcomes == {0: Reply("a")}


@pytest.mark.parametrize("code", [400, 401, 500])
def test_control_bytes_of_a_server_are_in_no_message(
    code: int, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "MOST_TRIES", 2)
    with serving(always=status(code, {"error": {"message": ESCAPES}})) as server:
        try:
            shown = str(complete(make_settings(tmp_path, server.url), [Request("step", (("user", "a"),), 10)])[0][0])
        except UserError as error:
            shown = str(error)
    assert "owned" in shown
    assert (shown + "".join(caplog.messages)).isprintable()


@pytest.mark.slow
@given(st.text() | st.binary())
def test_any_text_of_a_server_can_be_shown(said: str | bytes) -> None:
    assert describe_error(said).isprintable()
    assert len(describe_error(said)) <= LINE_CHARACTERS


def test_a_request_is_tried_again_after_a_long_pause_before_waiting_ends(tmp_path: Path) -> None:
    with serving(faults=[status(429, None, Retry_After="86400")]) as server:
        chosen = make_settings(tmp_path, server.url, patience_seconds=0.5)
        outcomes, _, _ = complete(chosen, [Request("step", (("user", "a"),), 10)])
    assert outcomes == {0: Reply("a")}


FLOODS = [
    "{ {",
    "[0,",
    "[",
    '{"a":',
    '["a",',
    "[0] ",
    '[{"a"',
    '"[',
    "[note] ",
    "```a\n",
    "[[],",
    '{"',
    "<think>",
    "[ ",
]


@pytest.mark.slow
@pytest.mark.parametrize("unit", FLOODS)
@pytest.mark.parametrize("tail", ["", "0," * 250_000, "]" * 10_000])
def test_the_search_for_json_takes_linear_time(unit: str, tail: str) -> None:
    reply = Reply((unit * 10**6)[: 10**6 - len(tail)] + tail)
    began = time.process_time()
    for read in (read_json, lambda reply: read_grades(reply, ["grade"])):
        try:
            read(reply)
        except Unusable:
            continue
    assert time.process_time() - began < 30, "it took minutes"


@given(st.text(st.sampled_from('[]{}",:0a \\n`<')))
def test_any_flood_is_json_that_can_be_written_or_unusable(unit: str) -> None:
    for text in (unit, unit * 300):
        try:
            orjson.dumps(read_json(Reply(text)))
        except Unusable:
            continue


@pytest.mark.parametrize(("opening", "closing"), ["[]", ('{"a":', "}")], ids=["lists", "objects"])
@pytest.mark.parametrize("depth", [1, MOST_LEVELS, MOST_LEVELS + 1, 1_000, 1_100])
def test_json_is_read_to_the_depth_that_can_be_written(depth: int, opening: str, closing: str) -> None:
    text = opening * depth + "1" + closing * depth
    if depth <= MOST_LEVELS:
        assert orjson.dumps(parse_json(text)) == text.encode()
        assert read_json(Reply(text)) == json.loads(text)
        return
    with pytest.raises(ValueError, match=r"deep|depth"):
        parse_json(text)
    with pytest.raises(Unusable):
        read_json(Reply(text))


def test_lists_of_replies_are_bounded() -> None:
    many = [f"How is number {number}?" for number in range(MOST_QUESTIONS + 1)]
    assert len(read_questions(Reply(json.dumps({"questions": many[:-1]})))) == MOST_QUESTIONS
    with pytest.raises(Unusable, match="101 questions"):
        read_questions(Reply(json.dumps({"questions": many})))
    with pytest.raises(Unusable, match="257 sentences"):
        make_sentences(((f"Sentence {number}.", ()) for number in range(MOST_SENTENCES + 1)), Reply(""))
    with pytest.raises(Unusable, match="more than 8 words"):
        read_topic(Reply(json.dumps({"topic": "bees " * 10**5})), "I ask about bees.")


@pytest.mark.parametrize(
    ("bound", "choice"),
    [
        pytest.param(ReplyBound(10), {"message": {"content": "x" * 10_000}}, id="text"),
        pytest.param(
            ReplyBound(10, 1),
            {"message": {"content": "x"}, "logprobs": {"content": [{"top_logprobs": []}] * 1_000}},
            id="tokens",
        ),
        pytest.param(
            ReplyBound(10, 1),
            {
                "message": {"content": "x"},
                "logprobs": {"content": [{"top_logprobs": [{"token": str(n), "logprob": -n} for n in range(999)]}]},
            },
            id="alternatives",
        ),
    ],
)
def test_the_request_bounds_the_size_of_a_kept_reply(bound: ReplyBound, choice: dict[str, object]) -> None:
    with pytest.raises(WrongReply, match="10 tokens were asked for"):
        read_reply({"choices": [choice]}, bound)


def test_control_characters_of_replies_reach_no_query() -> None:
    text = "How\x1b[2J\x00 do bees\u0085dance?\x07"
    assert read_questions(Reply(json.dumps([text]))) == ("How [2J do bees dance?",)
    assert read_topic(Reply(json.dumps({"topic": "\x1bbees\x07"})), "How do bees dance?") == ("bees", "")


@st.composite
def written(draw: st.DrawFn) -> tuple[str, str]:
    """A key, and the same as some depth of JSON strings writes it."""
    key = text = draw(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=20))
    if draw(st.booleans()):
        text = "".join(f"\\u{ord(one):04x}" if draw(st.booleans()) else json.dumps(one)[1:-1] for one in text)
    for _ in range(draw(st.integers(0, 3))):
        text = json.dumps(text)[1:-1]
        if draw(st.booleans()):
            text = text.replace("/", "\\/")
    return key, text


@given(written(), st.text(st.characters(codec="ascii")))
@example(("00000\\\\0", "00000\\\\\\\\0"), "")
def test_a_key_is_removed_at_any_depth_of_json_escapes(case: tuple[str, str], before: str) -> None:
    key, text = case
    body = f'{{"text": {json.dumps(before)}, "key": "{text}"}}'.encode()
    found = remove_key(body, key)
    assert b"[key]" in found
    for _ in range(6):
        assert key.encode() not in found
        found = found.replace(b"\\\\", b"\\").replace(b'\\"', b'"').replace(b"\\/", b"/")
