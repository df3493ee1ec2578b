"""Requests of the steps: readers, the one repair, values in order, hostile replies, and work done together."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.llm.ask import ask, ask_all, request_repair, run_together
from keystone.generation.llm.model import make_request_key
from keystone.generation.replies import read_json
from keystone.generation.types import Failure, Reply, Request
from keystone.indexing.errors import Unusable, UserError, Waits

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
STRUCTURED = JSON.filter(lambda value: isinstance(value, dict | list))


def asking(*said: str, **changes: Any) -> Request:
    return Request("step", tuple(("user", text) for text in said), 10, **changes)


class Scripted:
    """A model that answers by a function, last request first."""

    name = "scripted"

    def __init__(self, answer: Callable[[Request], Reply | Failure]) -> None:
        self.answer, self.asked = answer, list[Request]()

    async def complete(self, requests: Iterable[Request]) -> AsyncIterator[tuple[int, Reply | Failure]]:
        for number, request in reversed(list(enumerate(requests))):
            self.asked.append(request)
            yield number, self.answer(request)


@given(JSON)
def test_a_reply_that_is_json_is_read_as_that_value(value: Any) -> None:
    assert read_json(Reply(json.dumps(value))) == value


@given(
    STRUCTURED, st.sampled_from(["", "Sure! ", "Here it is:\n", "I think so.\n\n"]), st.sampled_from(["", "\nDone."])
)
def test_json_is_found_in_prose_and_fences(value: Any, before: str, after: str) -> None:
    written = json.dumps(value)
    assert read_json(Reply(f"{before}{written}{after}")) == value
    assert read_json(Reply(f"{before}\n```json\n{written}\n```{after}")) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": "one\x00two\ttabs\nlines"}', {"a": "one\x00two\ttabs\nlines"}),
        ('```\n{"a": 1}\n```', {"a": 1}),
        ('```JSON\r\n{"a": 1}\r\n```', {"a": 1}),
        ('```json {"a": 1}```', {"a": 1}),
        ('<think>Perhaps {"grade": 3}? Or [1]?</think>\n{"grade": 0}', {"grade": 0}),
        ('<think>Perhaps ```json\n{"grade": 3}\n```?</think>{"grade": 0}', {"grade": 0}),
        ('\ufeff{"a": 1}', {"a": 1}),
        ('{"a": 1} and {"a": 2}', {"a": 2}),
        ("Set {1, 2} is no JSON, [1, 2] is", [1, 2]),
        ('{"quoted": "```json\\n{\\"grade\\": 3}\\n```"}', {"quoted": '```json\n{"grade": 3}\n```'}),
        ('It says ```text\nno JSON\n``` but {"a": 1}', {"a": 1}),
    ],
)
def test_text_around_json_is_skipped(text: str, value: Any) -> None:
    assert read_json(Reply(text)) == value


@pytest.mark.parametrize(
    "text", ["", " ", "no", "{", '{"a": 1', "[1, 2", "{'a': 1}", "<think>[1]</think>", "<think>[1]", "[" * 100_000,
             '{"a":' * 100_000, "9" * 10_000, '{"a": NaN}', "[Infinity]", '{"a": "\\ud800"}']
)  # fmt: skip
def test_a_reply_without_json_is_unusable(text: str) -> None:
    with pytest.raises(Unusable):
        read_json(Reply(text))


def test_a_cut_reply_is_unusable_even_if_it_is_json() -> None:
    with pytest.raises(Unusable, match="cut"):
        read_json(Reply("[1]", "length"))


@given(st.text())
def test_any_text_is_json_or_unusable(text: str) -> None:
    with suppress(Unusable):
        json.dumps(read_json(Reply(text)), allow_nan=False).encode()


def test_the_repair_of_a_cut_reply_has_twice_the_tokens_and_that_of_another_names_the_fault() -> None:
    request = asking("grade this", schema={"type": "object"})
    assert request_repair(request, Reply("[1", "length"), "it was cut") == asking(
        "grade this", schema={"type": "object"}
    ).__class__("step", request.messages, 20, request.schema)
    mended = request_repair(request, Reply("three"), "it holds no JSON")
    assert mended.messages[:2] == (("user", "grade this"), ("assistant", "three"))
    assert mended.messages[2][0] == "user"
    assert "it holds no JSON" in mended.messages[2][1]
    assert (mended.max_tokens, mended.schema) == (10, request.schema)


@pytest.mark.parametrize(
    ("text", "shown"),
    [("three\n", "three\n"), ("<think>Is it 4?</think>three", "three"), ("<think>Hm.</think>", "(no text)"),
     (" \n", "(no text)"), ("", "(no text)")],
)  # fmt: skip
def test_a_repair_shows_no_thoughts_and_no_empty_message(text: str, shown: str) -> None:
    mended = request_repair(asking("grade this"), Reply(text), "it holds no JSON")
    assert mended.messages[1] == ("assistant", shown)


@given(st.lists(st.sampled_from(["good", "mended", "bad", "failed"])))
def test_every_request_has_its_value_or_failure_in_order_after_at_most_one_repair(kinds: list[str]) -> None:
    def answer(request: Request) -> Reply | Failure:
        kind = request.messages[0][1].split()[0]
        if kind == "failed":
            return Failure("no reply")
        good = kind == "good" or (kind == "mended" and len(request.messages) > 1)
        return Reply(request.messages[0][1].split()[1] if good else "nothing")

    def read(reply: Reply) -> int:
        if not reply.text.isdecimal():
            raise Unusable("no number")
        return int(reply.text)

    model = Scripted(answer)
    found = asyncio.run(ask_all(model, [(asking(f"{kind} {i}"), read) for i, kind in enumerate(kinds)]))
    wanted = {"bad": Failure("no number"), "failed": Failure("no reply")}
    assert found == [wanted.get(kind, i) for i, kind in enumerate(kinds)]
    assert len(model.asked) == len(kinds) + sum(kind in ("mended", "bad") for kind in kinds)


def test_requests_are_drawn_lazily() -> None:
    drawn = 0

    class First(Scripted):
        async def complete(self, requests: Iterable[Request]) -> AsyncIterator[tuple[int, Reply | Failure]]:
            for number, request in enumerate(requests):
                assert drawn <= number + 1
                yield number, self.answer(request)

    def asked() -> Iterable[tuple[Request, Callable[[Reply], str]]]:
        nonlocal drawn
        for number in range(100):
            drawn += 1
            yield asking(str(number)), lambda reply: reply.text

    async def collect() -> list[tuple[int, Any]]:
        return [found async for found in ask(First(lambda request: Reply(request.messages[0][1])), asked())]

    assert asyncio.run(collect()) == [(number, str(number)) for number in range(100)]


def test_a_fault_of_a_reader_is_no_failure_of_the_model() -> None:
    with pytest.raises(ZeroDivisionError):
        asyncio.run(ask_all(Scripted(lambda _: Reply("0")), [(asking("x"), lambda reply: 1 // int(reply.text))]))


def test_the_key_depends_on_the_content_not_on_the_purpose() -> None:
    request = asking("a")
    others = [
        asking("b"),
        asking("a", "a"),
        asking("a", temperature=1.0),
        asking("a", top_logprobs=2),
        asking("a", schema={}),
        Request("step", (("system", "a"),), 10),
        Request("step", request.messages, 11),
    ]
    assert make_request_key("m", request) == make_request_key("m", Request("other", request.messages, 10))
    assert (
        len({make_request_key("m", r) for r in [request, *others]} | {make_request_key("n", request)})
        == len(others) + 2
    )


def test_results_of_work_together_are_in_order_and_its_number_is_bounded() -> None:
    running = most = 0

    async def one(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return number

    found = asyncio.run(run_together([lambda i=i: one(i) for i in range(50)], at_once=7))  # type: ignore[misc]
    assert (found, most) == (list(range(50)), 7)


def test_the_first_error_ends_work_together_but_waits_is_raised_last() -> None:
    done: list[int] = []

    async def one(number: int, error: Exception | None) -> None:
        await asyncio.sleep(0.001 * number)
        done.append(number)
        if error:
            raise error

    with pytest.raises(Waits, match="file"):
        asyncio.run(run_together([lambda i=i: one(i, Waits("file") if i == 0 else None) for i in range(5)]))  # type: ignore[misc]
    assert sorted(done) == [0, 1, 2, 3, 4]
    done.clear()
    with pytest.raises(UserError, match="key"):
        asyncio.run(run_together([lambda i=i: one(i, UserError("key") if i == 1 else None) for i in range(300)]))  # type: ignore[misc]
    assert len(done) < 300
