"""Requests as files, replies that another program makes, and recorded replies."""

import asyncio
import json
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from keystone.generation.llm import batch_jobs
from keystone.generation.llm.ask import ask_all, run_together
from keystone.generation.llm.batch_jobs import locate_replies
from keystone.generation.llm.cache import Cache
from keystone.generation.llm.chat import read_bound, read_reply
from keystone.generation.llm.client import open_model
from keystone.generation.llm.model import make_request_key
from keystone.generation.llm.replay import record_replies
from keystone.generation.llm.settings import ModelSettings
from keystone.generation.types import Failure, Reply, Request, Usage
from keystone.indexing.errors import Unusable, UserError, Waits
from tests.support.models.client import open_beside_cache

SCHEMA = {"type": "object"}


def asking(*said: str, **changes: Any) -> Request:
    return Request("step", tuple(("user", text) for text in said), 10, **changes)


def settings(folder: Path, **changes: Any) -> ModelSettings:
    return ModelSettings.model_validate({"name": "m", "backend": "batch", "cache": folder / "replies.sqlite"} | changes)


def ask_steps(
    chosen: ModelSettings, *steps: Iterable[Request], read: Callable[[Reply], Any] = lambda reply: reply.text
) -> Any:
    """Run steps together; returns their outcomes, the usage, and the notes."""

    async def run() -> Any:
        async with open_beside_cache(chosen) as model:
            asked = [[(request, read) for request in step] for step in steps]
            found = await run_together([lambda each=each: ask_all(model, each) for each in asked])  # type: ignore[misc]
            return found, dict(model.usage), model.notes

    return asyncio.run(run())


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def waiting(folder: Path) -> list[Path]:
    files = sorted((folder / "batch").glob("*.requests.jsonl"))
    return [file for file in files if not locate_replies(file).exists()]


def answer(request: dict[str, Any], text: str | None = None) -> dict[str, Any]:
    said = request["body"]["messages"][-1]["content"] if text is None else text
    body = {"choices": [{"message": {"content": said}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 10}}
    return {"id": "b", "custom_id": request["custom_id"], "response": {"status_code": 200, "body": body}, "error": None}


def write(file: Path, replies: list[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(reply) + "\n" for reply in replies))


def test_missing_requests_are_written_once_and_the_same_run_continues_with_their_replies(tmp_path: Path) -> None:
    steps = [asking("a"), asking("b", schema=SCHEMA), asking("a")], [asking("c"), asking("b", schema=SCHEMA)]
    with pytest.raises(Waits) as error:
        ask_steps(settings(tmp_path), *steps)
    (file,) = waiting(tmp_path)
    assert str(file) in str(error.value)
    assert locate_replies(file).name in str(error.value)
    assert "3 requests" in str(error.value)
    asked = lines(file)
    assert [request["custom_id"] for request in asked] == [
        make_request_key("m", r) for r in (*steps[0][:2], steps[1][0])
    ]
    assert asked[0] | {"custom_id": ""} == {
        "custom_id": "",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"model": "m", "messages": [{"role": "user", "content": "a"}], "max_tokens": 10, "temperature": 0.0},
    }
    assert asked[1]["body"]["response_format"]["json_schema"]["schema"] == SCHEMA
    before = file.read_bytes()
    with pytest.raises(Waits):
        ask_steps(settings(tmp_path), *reversed(steps))
    assert waiting(tmp_path) == [file]
    assert sorted(file.read_bytes().splitlines()) == sorted(before.splitlines())
    write(locate_replies(file), [answer(request) for request in reversed(asked)])
    found, usage, notes = ask_steps(settings(tmp_path), *steps)
    assert found == [["a", "b", "a"], ["c", "b"]]
    assert usage == {"step": Usage(3, 30, cache_hits=2)}
    assert notes == []
    assert ask_steps(settings(tmp_path), *steps)[1] == {"step": Usage(cache_hits=5)}
    assert sorted(path.name for path in (tmp_path / "batch").iterdir()) == sorted(
        [file.name, locate_replies(file).name]
    )


def test_requests_of_later_steps_and_repairs_wait_in_their_own_files(tmp_path: Path) -> None:
    def read(reply: Reply) -> str:
        if reply.text == "bad":
            raise Unusable("bad")
        return reply.text

    with pytest.raises(Waits):
        ask_steps(settings(tmp_path), [asking("a"), asking("b")], read=read)
    (file,) = waiting(tmp_path)
    write(locate_replies(file), [answer(request, "bad" if i else None) for i, request in enumerate(lines(file))])
    with pytest.raises(Waits, match="2 requests"):
        ask_steps(settings(tmp_path), [asking("a"), asking("b"), asking("c")], read=read)
    (repairs,) = waiting(tmp_path)
    write(locate_replies(repairs), [answer(request, "mended") for request in lines(repairs)])
    assert ask_steps(settings(tmp_path), [asking("a"), asking("b"), asking("c")], read=read)[0] == [
        ["a", "mended", "mended"]
    ]


def test_unusable_replies_are_asked_again_in_a_file_of_their_own_and_each_reply_belongs_to_one_attempt(
    tmp_path: Path,
) -> None:
    def read(reply: Reply) -> str:
        if reply.text == "bad":
            raise Unusable("bad")
        return reply.text

    def ask(retry: bool = False) -> Any:
        async def run() -> Any:
            async with open_model(settings(tmp_path), tmp_path, retry=retry) as model:
                return await ask_all(model, [(request, read) for request in (asking("a"), asking("b"))])

        return asyncio.run(run())

    def reply(said: str, retry: bool = False) -> list[str]:
        """Run until requests wait, and reply to each; "b" gets what is `said`."""
        with pytest.raises(Waits):
            ask(retry)
        (file,) = waiting(tmp_path)
        requests = lines(file)
        write(
            locate_replies(file),
            [answer(one, "a" if one["body"]["messages"][0]["content"] == "a" else said) for one in requests],
        )
        return [one["custom_id"] for one in requests]

    first, repair = reply("bad"), reply("bad")
    outcome = ["a", Failure("bad")]
    assert ask() == ask() == outcome
    (again,) = reply("bad", retry=True)
    assert again == f"{make_request_key('m', asking('b'))}.1"
    assert again.removesuffix(".1") in first
    assert reply("bad", retry=True) == [f"{repair[0]}.1"], "the same repair, once more"
    assert ask(retry=True) == outcome, "each is asked once for each time that the user wants it"
    assert ask() == outcome
    assert reply("well", retry=True) == [f"{again.removesuffix('.1')}.2"]
    assert ask(retry=True) == ask() == ["a", "well"]


REFUSALS = {
    "vLLM": {"response": {"status_code": 400, "body": None}, "error": {"error": {"message": "too long", "code": 400}}},
    "vLLM, in words": {"response": {"status_code": 404, "body": None}, "error": "too long"},
    "OpenAI": {"response": {"status_code": 400, "body": {"error": {"message": "too long"}}}, "error": None},
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
def test_a_refused_request_is_a_failure_while_the_file_exists(refusal: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(Waits):
        ask_steps(settings(tmp_path), [asking("a"), asking("b")])
    (file,) = waiting(tmp_path)
    first, second = lines(file)
    write(locate_replies(file), [answer(first), {"custom_id": second["custom_id"], **refusal}])
    for _ in range(2):
        ((one, other),), _, _ = ask_steps(settings(tmp_path), [asking("a"), asking("b")])
        assert one == "a"
        assert isinstance(other, Failure)
        assert "too long" in other.reason
    write(locate_replies(file), [answer(first)])
    with pytest.raises(Waits, match="1 request waits"):
        ask_steps(settings(tmp_path), [asking("a"), asking("b")])


def refused(request: dict[str, Any], said: str) -> dict[str, Any]:
    return {"custom_id": request["custom_id"], "response": {"status_code": 400, "body": {"error": {"message": said}}}}


def test_a_request_is_rewritten_without_a_refused_field_which_is_remembered_after_a_reply(
    tmp_path: Path,
) -> None:
    steps = [asking("a"), asking("b", schema=SCHEMA), asking("c")]
    said = [
        "Unsupported parameter: use 'max_completion_tokens' instead.",
        "Invalid schema for response_format 'reply': not permitted",
        "Unsupported value: 'temperature' does not support 0",
    ]
    for refusals in ((0, 0, 0), (2, 1, 2), (None, None, 2)):
        with pytest.raises(Waits):
            ask_steps(settings(tmp_path), steps)
        (file,) = waiting(tmp_path)
        asked = lines(file)
        write(
            locate_replies(file),
            [answer(r) if n is None else refused(r, said[n]) for r, n in zip(asked, refusals, strict=True)],
        )
    assert [sorted(request["body"].keys() - {"model", "messages"}) for request in asked] == [
        ["max_completion_tokens"],
        ["max_completion_tokens", "temperature"],
        ["max_completion_tokens"],
    ]
    ((one, two, three),), _, notes = ask_steps(settings(tmp_path), steps)
    assert (one, two) == ("a", "b")
    assert isinstance(three, Failure), "refused in the same words again"
    assert len([note for note in notes if note.startswith("m ")]) == 3
    with pytest.raises(Waits):
        ask_steps(settings(tmp_path), [asking("d", schema=SCHEMA), asking("e", schema={"type": "array"})])
    (file,) = waiting(tmp_path)
    same, another = (request["body"].keys() for request in lines(file))
    assert same == {"model", "messages", "max_completion_tokens"}, "the schema that was refused"
    assert another == {*same, "response_format"}


def test_a_refusal_that_repeats_a_text_changes_nothing_for_others(tmp_path: Path) -> None:
    hostile = "response_format max_completion_tokens logprobs temperature is not supported"
    for rounds in range(1, 7):
        with pytest.raises(Waits):
            ask_steps(settings(tmp_path), [asking("a", schema=SCHEMA), asking(hostile, schema=SCHEMA)])
        (file,) = waiting(tmp_path)
        harmless, *others = lines(file)
        assert {"response_format", "max_tokens", "temperature"} <= harmless["body"].keys()
        assert len(others) == (rounds < 6), "asked for in each other way, and then no more"
        write(locate_replies(file), [refused(request, hostile) for request in others])


FAULTS = {
    "expired": {"response": None, "error": {"code": "batch_expired", "message": "not in time"}},
    "error": {"response": {"status_code": 500, "body": {"error": {"message": "fault"}}}, "error": None},
    "busy": {"response": {"status_code": 429, "body": None}, "error": None},
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_request_that_failed_otherwise_is_written_again_under_another_name(
    fault: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(Waits):
        ask_steps(settings(tmp_path), [asking("a")])
    seen = set()
    for _ in range(3):
        (file,) = waiting(tmp_path)
        (request,) = lines(file)
        write(locate_replies(file), [{"custom_id": request["custom_id"], **fault}])
        seen.add(file)
        with pytest.raises(Waits, match="1 of these 1 had been asked before") as error:
            ask_steps(settings(tmp_path), [asking("a")])
        assert f"{request['custom_id']} (line 1: " in str(error.value)
    (file,) = waiting(tmp_path)
    assert file not in seen
    write(locate_replies(file), [answer(lines(file)[0])])
    found, _, notes = ask_steps(settings(tmp_path), [asking("a")])
    assert found == [["a"]]
    assert notes == [], "of what has been answered since"


def test_replies_to_unknown_requests_are_left_out_with_a_note(tmp_path: Path) -> None:
    with pytest.raises(Waits):
        ask_steps(settings(tmp_path), [asking("a")])
    (file,) = waiting(tmp_path)
    (request,) = lines(file)
    planted = answer(request, "planted") | {"custom_id": make_request_key("m", asking("other"))}
    write(locate_replies(file), [planted, answer(request)])
    found, _, notes = ask_steps(settings(tmp_path), [asking("a")])
    assert found == [["a"]]
    unknown = make_request_key("m", asking("other"))
    assert notes == [f"{locate_replies(file)}: 1 reply is taken; 1 to no request in the folder: {unknown}"]
    with pytest.raises(Waits):
        ask_steps(settings(tmp_path), [asking("other")])


DEEP = '{"custom_id": "x", "response": ' + "[" * 300 + "]" * 300 + "}"
LONG = f'{{"custom_id": "x", "response": "{"x" * 2**24}"}}'
BROKEN = {
    "torn": ('{"custom_id": "x", "resp', "on broken lines: line 2: not JSON"),
    "a list": ("[1]", "on broken lines: line 2: expected a JSON object"),
    "without id": ('{"response": {}}', "on broken lines: line 2: expected a line of a batch, with a custom_id"),
    "nested": (DEEP, "on broken lines: line 2: not JSON: JSON that is nested more than 254 deep"),
    "endless": (LONG, "on broken lines: line 2: expected a line of at most"),
    "foreign": ('{"custom_id": "KEY"}', "not usable: KEY (line 2: not a line of a batch's output"),
    "status": ('{"custom_id": "KEY", "response": {"status_code": "a"}}', "not usable: KEY (line 2: not a line"),
    "nested answer": ('{"custom_id": "KEY", "response": {"status_code": 200, "body": {"error": ' + "[" * 240 + "]" * 240
                      + "}}}", "not usable: KEY (line 2: an answer that is an error"),
    "control bytes": ('{"custom_id": "KEY", "error": "\\u001b[2J\\u202e"}', "not usable: KEY (line 2: ?[2J"),
    "unasked": ('{"custom_id": "\\u001b[2J"}', "to no request in the folder: ?[2J"),
}  # fmt: skip


@pytest.mark.parametrize(("line", "words"), BROKEN.values(), ids=BROKEN)
def test_a_broken_line_is_named_before_it_is_paid_again_and_costs_no_other_reply(
    line: str, words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Waits):
        ask_steps(settings(tmp_path), [asking("a"), asking("b")])
    (file,) = waiting(tmp_path)
    one, other = lines(file)
    key = other["custom_id"]
    locate_replies(file).write_text(f"{json.dumps(answer(one))}\n{line.replace('KEY', key)}\n")
    with pytest.raises(Waits, match="1 request waits") as error:
        ask_steps(settings(tmp_path), [asking("a"), asking("b")])
    said = caplog.messages[-1]
    assert said.startswith(f"{locate_replies(file)}: 1 reply is taken; 1 {words.replace('KEY', key)}")
    assert f"1 of these 1 had been asked before: {key} (" in str(error.value)
    (again,) = waiting(tmp_path)
    assert [request["custom_id"] for request in lines(again)] == [key]
    again.unlink()
    write(locate_replies(file), [answer(one), answer(other)])
    assert ask_steps(settings(tmp_path), [asking("a"), asking("b")])[0] == [["a", "b"]]


def test_requests_without_a_reply_differ_from_requests_that_wait_in_another_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = [asking(str(i)) for i in range(9)]
    with pytest.raises(Waits):
        ask_steps(settings(tmp_path), asked[:6])
    (first,) = waiting(tmp_path)
    with pytest.raises(Waits) as error:
        ask_steps(settings(tmp_path), asked)
    twice = sorted(make_request_key("m", request) for request in asked[:6])
    assert "6 of these 9 stand in other files too, which wait for replies. " in str(error.value)
    assert f"{twice[0]} ({first.name})" in str(error.value)
    assert "and 3 more" in str(error.value)
    (second,) = set(waiting(tmp_path)) - {first}
    second.unlink()
    write(locate_replies(first), [answer(request) for request in lines(first)[:4]])
    with pytest.raises(Waits, match="5 requests wait") as error:
        ask_steps(settings(tmp_path), asked)
    assert caplog.messages == [f"{locate_replies(first)}: 4 replies are taken"]
    assert "2 of these 5 had been asked before: " in str(error.value)
    assert f"({locate_replies(first).name} holds no reply)" in str(error.value)
    assert "stand in other files" not in str(error.value)


@pytest.mark.parametrize("tokens", [10, None, "10", 2**63, -1])
def test_a_reply_is_read_for_any_token_limit_in_its_request(tokens: Any) -> None:
    asked = read_bound({"max_tokens": tokens, "logprobs": True, "top_logprobs": None})
    assert read_reply({"choices": [{"message": {"content": "a"}}]}, asked).outcome == Reply("a")


def test_files_keep_the_limits_of_services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_jobs, "MOST_REQUESTS", 4)
    asked = [asking(str(i)) for i in range(10)]
    with pytest.raises(Waits) as error:
        ask_steps(settings(tmp_path), asked)
    files = waiting(tmp_path)
    assert sorted(len(lines(file)) for file in files) == [2, 4, 4]
    assert all(str(file) in str(error.value) for file in files)
    for file in files:
        write(locate_replies(file), [answer(request) for request in lines(file)])
    assert ask_steps(settings(tmp_path), asked)[0] == [[str(i) for i in range(10)]]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "batch").write_text("a file")
    with pytest.raises(UserError, match="batch: cannot be written"):
        ask_steps(settings(tmp_path), [asking("a")])


def test_a_run_that_ends_with_another_error_leaves_no_file(tmp_path: Path) -> None:
    async def run() -> None:
        async with open_beside_cache(settings(tmp_path)) as model:
            with pytest.raises(Waits):
                await ask_all(model, [(asking("a"), str)])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(run())
    assert list((tmp_path / "batch").iterdir()) == []


def test_recorded_replies_are_used_and_a_missing_one_is_named(tmp_path: Path) -> None:
    asked = [asking("a"), asking("b", top_logprobs=1)]
    with pytest.raises(Waits):
        ask_steps(settings(tmp_path), asked)
    (file,) = waiting(tmp_path)
    write(locate_replies(file), [answer(request) for request in lines(file)])
    wanted = ask_steps(settings(tmp_path), asked)[0]
    recorded = tmp_path / "recorded.jsonl"
    assert record_replies(tmp_path / "replies.sqlite", recorded) == 2
    assert [line["key"] for line in lines(recorded)] == sorted(make_request_key("m", request) for request in asked)
    from_file = settings(tmp_path, backend="replay", cache=tmp_path / "none", replies=recorded)
    from_cache = settings(tmp_path, backend="replay")
    for chosen in (from_file, from_cache):
        found, usage, _ = ask_steps(chosen, asked)
        assert found == wanted
        (total,) = usage.values()
        assert (total.calls, total.cache_hits) == (0, 2)
        assert (total.prompt_tokens, total.completion_tokens) == (20, 0)
        with pytest.raises(UserError, match="'step'") as error:
            ask_steps(chosen, [asking("c")])
        assert make_request_key("m", asking("c")) in str(error.value)
    assert not (tmp_path / "none").exists()
    recorded.write_text(json.dumps({"key": make_request_key("m", asking("c")), "text": "by hand"}) + "\n")
    assert ask_steps(from_file, [asking("c")])[0] == [["by hand"]]
    recorded.write_text('{"key": "x"}\n')
    with pytest.raises(UserError, match=f"{recorded}:1"):
        ask_steps(from_file, asked)
    with pytest.raises(UserError, match="no such file"):
        record_replies(tmp_path / "none", recorded)


def test_a_batch_holds_no_request_with_a_cached_reply(tmp_path: Path) -> None:
    from keystone.generation.llm.chat import PaidReply

    with closing(Cache(tmp_path / "replies.sqlite")) as cache:
        cache.put([(make_request_key("m", asking("a")), PaidReply(Reply("known")))])
    assert ask_steps(settings(tmp_path), [asking("a")])[0] == [["known"]]
