"""JSON out of a model's reply. Time and nesting have limits, and the shape of the value is checked."""

import json
import re
from bisect import bisect
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

import orjson

from keystone.generation.types import Reply, Request
from keystone.indexing.errors import OverNested, Unusable
from keystone.indexing.io.json_values import check_nesting, check_nesting_from

T = TypeVar("T")

MOST_OPENINGS = 1_000
"""How many brackets in a reply's prose may begin no JSON before the reply is refused."""
MOST_PASSES = 20
"""How many characters the search for JSON may read, as a multiple of the reply's length."""

_NAMES = r"(?:[a-z]{1,9}:)?(?:think(?:ing)?|thoughts?|reasoning|reflection|scratchpad|analysis)"
THOUGHT_MARKS = (
    (rf"<{_NAMES}>", rf"</{_NAMES}>"),
    (r"\[think\]", r"\[/think\]"),
    ("\u25c1think\u25b7", "\u25c1/think\u25b7"),
    (r"<\|(?:start_thinking|begin_of_thought)\|>", r"<\|end_(?:thinking|of_thought)\|>"),
    (
        r"<\|channel\|>\s?(?:analysis|commentary)\b",
        r"<\|channel\|>\s?final\b[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>",
    ),
    (r"<\|channel>\s?thought\b", r"<channel\|>"),
    (r"<\|inner_prefix\|>", r"<\|inner_suffix\|>"),
    (r"<unused94>(?:thought\b)?", "<unused95>"),
    (r"here(?: i|')s my thought process:", r"here(?: i|')s my response:"),
    (r"\AThinking\.\.\.\n", r"\n\.\.\.done thinking\.\n"),
)
"""The marks before and after the thoughts of a model, by family of models, in any case of letters."""

_BEGINS, _ENDS = ("|".join(marks) for marks in zip(*THOUGHT_MARKS, strict=True))
_MARK = re.compile(f"(?P<begin>{_BEGINS})|(?P<end>{_ENDS})", re.IGNORECASE)
_SPOKEN = re.compile(r"\s*analysis(?=\S).*assistantfinal", re.DOTALL)
"""Thoughts whose marks a server has left out, with the words that stood in them."""
_AFTER = re.compile(
    r"<\|(?:return|end|call|im_end|eot_id|eom_id|endoftext|end_of_text|end_response|end_of_solution)\|>"
    r"|<end_of_turn>|</answer>\s*\Z|</s>\s*\Z",
    re.IGNORECASE,
)
_BEFORE = re.compile(
    r"\s*(?:<\|im_start\|>assistant\n|<\|(?:start_response|begin_of_solution|assistant)\|>|<answer>)", re.IGNORECASE
)
"""The marks of a template around a reply, some of which servers leave in its text."""
_FENCE = re.compile(r"```[a-z]*\n")
_OPENING = re.compile(r"\[(?=\s*+[\[{\"\]\-\dtfn])|\{(?=\s*+[\"}])")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _refuse_repeated_keys(members: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(members)) < len(members):
        raise ValueError("a key is repeated")
    return dict(members)


_DECODER = json.JSONDecoder(strict=False, parse_constant=_refuse_constant, object_pairs_hook=_refuse_repeated_keys)


Form = Callable[[Any], bool]
"""Whether a value has the form that was asked for."""


def read_json(reply: Reply, *forms: Form) -> Any:
    """Read the JSON value of a reply. `Unusable` if the reply has none, or was cut.

    The value is the whole reply, or a value within its prose and code fences. A reply may hold drafts before its final
    value: the last value of the first form that any value has is the one that counts, else the last value. Thoughts are
    skipped. Control characters within strings are allowed.

    orjson can write the value again. A value that repeats a key or nests too deeply is refused. So is a value with NaN,
    with half of a surrogate pair, or with a number beyond 64 bits.
    """
    if reply.finish == "length":
        raise Unusable("it was cut before its end")
    values = _list_values(strip_thought(reply.text))
    if not values:
        raise Unusable("it holds no JSON")
    value = next((fitting[-1] for form in forms if (fitting := list(filter(form, values)))), values[-1])
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise Unusable(f"its JSON holds what cannot be kept: {error}") from None
    return value


def read_list(reply: Reply, key: str, wanted: str | None = None, item: type = object) -> list[Any]:
    """Read the list under `key`, or the reply itself if it is a list. `Unusable` says `wanted` for any other shape.

    If a reply holds several lists, one whose items are all of the type `item` counts.
    """

    def is_list(value: Any) -> bool:
        return isinstance(value, list) and all(isinstance(one, item) for one in value)

    value = read_json(reply, lambda one: isinstance(one, dict) and is_list(one.get(key)), is_list)
    found = value.get(key) if isinstance(value, dict) else value
    if not isinstance(found, list):
        raise Unusable(wanted or f'it holds no list "{key}"')
    return found


def read_objects(reply: Reply, key: str) -> list[dict[str, Any]]:
    """Read the objects in the list under `key`, or in the reply if it is a list. `Unusable` for any other shape."""
    found = read_list(reply, key, item=dict)
    if not all(isinstance(item, dict) for item in found):
        raise Unusable(f'the items of "{key}" are not all objects')
    return found


def read_strings(reply: Reply, key: str) -> list[str]:
    """Read the strings in the list under `key`, or in the reply if it is a list. `Unusable` for any other shape."""
    wanted = f'it is no JSON object with a list of strings under "{key}"'
    found = read_list(reply, key, wanted, item=str)
    if not all(isinstance(text, str) for text in found):
        raise Unusable(wanted)
    return found


def read_string(reply: Reply, key: str) -> str:
    """Read the string under `key` of the reply's object. If the reply's JSON has another shape, the string is empty."""
    value = read_json(reply, lambda one: isinstance(one, dict) and isinstance(one.get(key), str))
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def note_drafts(request: Request, read: Callable[[Reply], T]) -> Callable[[Reply], tuple[T, bool]]:
    """Make a reader that also returns whether a reply holds objects with the request's keys that differ."""
    wanted = set(request.schema["required"] if request.schema else ())

    def read_and_note(reply: Reply) -> tuple[T, bool]:
        found = read(reply)
        values = [value for value in _list_values(strip_thought(reply.text)) if isinstance(value, dict)]
        fitting = [value for value in values if value.keys() >= wanted]
        return found, any(value != fitting[0] for value in fitting)

    return read_and_note


HELD_DRAFTS = "its reply holds several versions that differ: the last one counts"
"""The reason of a fallback if `note_drafts` finds drafts."""


def find_objects(reply: Reply) -> list[dict[str, Any]]:
    """Find all JSON objects of a reply, also in its lists. `Unusable` if it was cut and is no whole JSON."""
    text = strip_thought(reply.text)
    if reply.finish == "length" and not _is_json(text):
        raise Unusable("it was cut before its end")
    values = [each for value in find_values(text) for each in (value if isinstance(value, list) else [value])]
    return [value for value in values if isinstance(value, dict)]


def strip_thought(text: str) -> str:
    """Take away the thoughts that some servers leave in the text of a reply."""
    return text[slice(*locate_reply(text))]


def locate_reply(text: str) -> tuple[int, int]:
    """Locate the reply in a text that may hold thoughts; returns its start and end.

    Text before the last end mark of a thought counts as thought, even if the mark at its beginning is missing. A mark
    within a string of JSON is no mark. If nothing stands after the thought, the reply is what stands before it. A reply
    ends at a mark of its template that its server has left in the text.
    """
    spoken = _SPOKEN.match(text)
    start, end = spoken.end() if spoken else 0, len(text)
    marks = list(_MARK.finditer(text, start))
    if not marks and not _BEFORE.match(text, start) and not _AFTER.search(text, start):
        return start, end
    values = _locate_values(text)

    def is_mark(mark: re.Match[str]) -> bool:
        place = bisect(values, (mark.start(), end))
        return not place or values[place - 1][1] <= mark.start()

    marks = list(filter(is_mark, marks))
    begins = [mark.start() for mark in marks if mark.lastgroup == "begin"]
    if ends := [mark.end() for mark in marks if mark.lastgroup == "end"]:
        start = ends[-1]
        if begins and not text[start:].strip():
            return 0, begins[0]
    unended = next((begin for begin in begins if begin >= start), end)
    if unended < end and not text[start:unended].strip():
        return unended, unended
    if before := _BEFORE.match(text, start):
        start = before.end()
    after = next(filter(is_mark, _AFTER.finditer(text, start)), None)
    return start, after.start() if after and (ends or text[start : after.start()].strip()) else end


def _locate_values(text: str) -> list[tuple[int, int]]:
    places = list[tuple[int, int]]()
    with suppress(Unusable):  # what precedes a broken value counts
        places.extend((start, end) for start, end, _ in _scan(text))
    return places


def _list_values(text: str) -> list[Any]:
    """List the value that a text is as a whole, or those within it."""
    with suppress(ValueError):
        return [_decode(text.lstrip("\ufeff"))]
    return list(find_values(text))


def find_values(text: str) -> Iterator[Any]:
    """Find the JSON objects and lists within a text, one after another.

    `Unusable` if anything is nested too deeply, if the last object is broken or repeats a key, or if too many lists are
    broken. After a broken object, the search goes on at the next code fence. The work grows with the length of the
    text, not with its square.
    """
    return (value for _, _, value in _scan(text))


def _scan(text: str) -> Iterator[tuple[int, int, Any]]:
    at = tries = read = 0
    broken = False
    while opening := _OPENING.search(text, at):
        seen = start = opening.start()
        try:
            seen = check_nesting_from(text, start)
            value, at = _DECODER.raw_decode(text, start)
        except OverNested:
            raise Unusable("its JSON is nested too deeply") from None
        except ValueError as error:
            tries, read = tries + 1, read + max(getattr(error, "pos", len(text)), seen) - start
            fence = _FENCE.search(text, start) if text[start] == "{" else None
            broken = broken or text[start] == "{"
            if (text[start] == "{" and not fence) or tries > MOST_OPENINGS or read > MOST_PASSES * len(text):
                break
            at = fence.end() if fence else start + 1
        else:
            broken = False
            yield start, at, value
    if broken or opening:
        raise Unusable("its JSON is broken or repeats a key")


def _is_json(text: str) -> bool:
    try:
        _decode(text)
    except ValueError:
        return False
    return True


def _decode(text: str) -> Any:
    check_nesting(text)
    return _DECODER.decode(text)
