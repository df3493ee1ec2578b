"""JSON out of a model's reply, and the types of replies.

Time and nesting have limits, and the shape of a value is checked. A class declares the schema that a model is sent, the
check of what it replies, and the defaults. A schema is strict, while models without it are not, so a check may allow
more than its schema: see `Number`, `Maybe`, `Several` and `ANY_CASE`. An `Asked` bound is part of the schema alone.
"""

import json
import re
from bisect import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, GetCoreSchemaHandler, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from keystone.generation.types import Reply, Request
from keystone.indexing.errors import OverNested, Unusable
from keystone.indexing.io.json_values import check_nesting, check_nesting_from, read_whole_number

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


P = TypeVar("P", bound="Part")
Bound = int | str | Sequence[int | str]


class Part(BaseModel):
    """An object of a reply. Keys that nobody asked for are left out."""

    model_config = ConfigDict(strict=True, frozen=True)


@dataclass(frozen=True, slots=True, eq=False)
class _Default:
    """Replaces a missing or wrong value by a default one."""

    value: Any

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_default_schema(handler(source), default=self.value, on_error="default")


class _Omit:
    """Leaves a wrong item out of its list."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_default_schema(handler(source), on_error="omit")


class _AnyCase:
    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        words = {word.casefold(): word for word in get_args(source)}

        def fold(value: Any) -> Any:
            return words.get(value.strip().casefold(), value) if isinstance(value, str) else value

        return core_schema.no_info_before_validator_function(fold, handler(source))


class Asked(dict[str, Bound]):
    """Keywords of a schema, in their order. A text is the name of a value that `make_schema` is given."""


Number = Annotated[int, BeforeValidator(read_whole_number)]
"""A whole number in any form that models write: `2`, `2.0` or `"2"`."""
Maybe = Annotated[T | None, _Default(None)]
"""A value; None if it is missing or wrong."""
Usable = list[Annotated[T, _Omit()]]
"""A list without its wrong items."""
Several = Annotated[Usable[T], _Default([])]
"""A list without its wrong items; empty if there is no list."""
ANY_CASE = _AnyCase()
"""One of several words, in any case of letters and with space around it."""
FILLED = Asked(minItems=1)
"""A list with one item or more."""


def at_most(most: Bound, least: Bound | None = None) -> Asked:
    """Ask for a list of so many items."""
    return Asked(items="", **({} if least is None else {"minItems": least}), maxItems=most)


def make_schema(of: type[Part] | Mapping[str, Any], **values: int) -> dict[str, Any]:
    """Make the JSON schema of an object by its type, or by its keys. `values` are those that `Asked` bounds name."""
    hints = of if isinstance(of, Mapping) else list_hints(of)
    properties = {name: _describe(hint, {}, values) for name, hint in hints.items()}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


@cache
def list_hints(of: type[Part]) -> dict[str, Any]:
    """List the keys of a type with their types."""
    return {name: hint for name, hint in get_type_hints(of, include_extras=True).items() if name in of.model_fields}


_TYPE_NAMES = {str: "string", int: "integer", bool: "boolean"}
_BOUNDS = {"ge": "minimum", "le": "maximum"}


def _describe(hint: Any, asked: Mapping[str, Any], values: Mapping[str, int]) -> dict[str, Any]:
    kind, inner = get_origin(hint), get_args(hint)
    if kind is Annotated:
        for one in hint.__metadata__:
            if isinstance(one, Asked):
                asked = one
            for limit in one.metadata if isinstance(one, FieldInfo) else ():
                asked = {**asked, **{word: getattr(limit, key) for key, word in _BOUNDS.items() if hasattr(limit, key)}}
        return _describe(inner[0], asked, values)
    if kind in (Union, UnionType):
        return _describe(inner[0], asked, values)
    if kind is Literal:
        return {"type": "string", "enum": list(inner)}
    if isinstance(hint, type) and issubclass(hint, Part):
        return make_schema(hint, **values)
    bounds = {name: values.get(one, one) if isinstance(one, str) else one for name, one in asked.items()}
    if kind is list:
        return {"type": "array"} | bounds | {"items": _describe(inner[0], {}, values)}
    return {"type": _TYPE_NAMES[hint]} | bounds


def read_parts(reply: Reply, key: str, of: type[P]) -> list[P]:
    """Read the objects in the list under `key`, or in the reply if it is a list. `Unusable` for any other shape."""
    return [check(item, of) for item in read_objects(reply, key)]


def check(value: Any, of: type[P], **values: int) -> P:
    """Check an object. `Unusable` names the first wrong key and what was expected, by the `values` of `make_schema`."""
    try:
        return of.model_validate(value)
    except ValidationError as error:
        key = str(error.errors(include_url=False, include_input=False)[0]["loc"][0])
    expected = _describe(list_hints(of)[key], {}, values)
    words = list(map(str, expected.get("enum", ["true", "false"] if expected["type"] == "boolean" else ())))
    said = f" that is {', '.join(words[:-1])} or {words[-1]}" if words else ""
    if "minimum" in expected:
        said = f" from {expected['minimum']} to {expected['maximum']}"
    raise Unusable(f'it holds no "{key}"{said}')


def read_part(reply: Reply, of: type[P], form: Callable[[dict[str, Any]], bool]) -> P:
    """Read a reply's object, by `check`. If the reply holds several, one of the form that is asked for counts."""
    value = read_json(reply, lambda one: isinstance(one, dict) and form(one))
    return check(value if isinstance(value, dict) else {}, of)
