"""JSON out of a model's reply. Time and nesting have limits, and the shape of the value is checked."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NoReturn

import orjson

from keystone.generation.types import Reply
from keystone.indexing.errors import OverNested, Unusable
from keystone.indexing.io.json_values import check_nesting, check_nesting_from

MOST_OPENINGS = 1_000
"""How many brackets in a reply's prose may begin no JSON before the reply is refused."""
MOST_PASSES = 20
"""How many characters the search for JSON may read, as a multiple of the reply's length."""

_FENCED = re.compile(r"```[a-z]*\n(.*?)```", re.DOTALL)
_OPENING = re.compile(r"\[(?=\s*+[\[{\"\]\-\dtfn])|\{(?=\s*+[\"}])")
_THOUGHT = re.compile(r"\A\s*<think>.*?(</think>|\Z)", re.DOTALL)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _refuse_repeated_keys(members: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(members)) < len(members):
        raise ValueError("a key is repeated")
    return dict(members)


_DECODER = json.JSONDecoder(strict=False, parse_constant=_refuse_constant, object_pairs_hook=_refuse_repeated_keys)


def read_json(reply: Reply) -> Any:
    """Read the JSON value of a reply. `Unusable` if the reply has none, or was cut.

    The value is the whole reply, or the content of its code fence, or the first value within its prose. Thoughts before
    the reply are skipped. Control characters within strings are allowed.

    orjson can write the value again. A value that repeats a key or nests too deeply is refused. So is a value with NaN,
    with half of a surrogate pair, or with a number beyond 64 bits.
    """
    if reply.finish == "length":
        raise Unusable("it was cut before its end")
    try:
        value = _find_first_value(strip_thought(reply.text))
        orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise Unusable(f"its JSON holds what cannot be kept: {error}") from None
    return value


def read_list(reply: Reply, key: str, wanted: str | None = None) -> list[Any]:
    """Read the list under `key`, or the reply itself if it is a list. `Unusable` says `wanted` for any other shape."""
    value = read_json(reply)
    found = value.get(key) if isinstance(value, dict) else value
    if not isinstance(found, list):
        raise Unusable(wanted or f'it holds no list "{key}"')
    return found


def read_objects(reply: Reply, key: str) -> list[dict[str, Any]]:
    """Read the objects in the list under `key`, or in the reply if it is a list. `Unusable` for any other shape."""
    found = read_list(reply, key)
    if not all(isinstance(item, dict) for item in found):
        raise Unusable(f'the items of "{key}" are not all objects')
    return found


def read_strings(reply: Reply, key: str) -> list[str]:
    """Read the strings in the list under `key`, or in the reply if it is a list. `Unusable` for any other shape."""
    wanted = f'it is no JSON object with a list of strings under "{key}"'
    found = read_list(reply, key, wanted)
    if not all(isinstance(text, str) for text in found):
        raise Unusable(wanted)
    return found


def read_string(reply: Reply, key: str) -> str:
    """Read the string under `key` of the reply's object. If the reply's JSON has another shape, the string is empty."""
    value = read_json(reply)
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def find_objects(reply: Reply) -> list[dict[str, Any]]:
    """Find all JSON objects of a reply, those in its lists included.

    `Unusable` if the reply was cut, unless the part that came is whole JSON.
    """
    text = strip_thought(reply.text)
    if reply.finish == "length" and not _is_json(text):
        raise Unusable("it was cut before its end")
    values = [each for value in find_values(text) for each in (value if isinstance(value, list) else [value])]
    return [value for value in values if isinstance(value, dict)]


def strip_thought(text: str) -> str:
    """Remove the thoughts that some servers leave before the text of a reply."""
    return _THOUGHT.sub("", text)


def _find_first_value(text: str) -> Any:
    for whole in (text, *_FENCED.findall(text)):
        with suppress(ValueError):
            return _decode(whole.lstrip("\ufeff"))
    for value in find_values(text):
        return value
    raise Unusable("it holds no JSON")


def find_values(text: str) -> Iterator[Any]:
    """Find the JSON objects and lists within a text, one after another.

    `Unusable` if anything is nested too deeply, if an object is broken or repeats a key, or if too many lists are
    broken. The work grows with the length of the text, not with its square.
    """
    at = tries = read = 0
    while opening := _OPENING.search(text, at):
        seen = start = opening.start()
        try:
            seen = check_nesting_from(text, start)
            value, at = _DECODER.raw_decode(text, start)
        except OverNested:
            raise Unusable("its JSON is nested too deeply") from None
        except ValueError as error:
            tries, read = tries + 1, read + max(getattr(error, "pos", len(text)), seen) - start
            if text[start] == "{" or tries > MOST_OPENINGS or read > MOST_PASSES * len(text):
                raise Unusable("its JSON is broken or repeats a key") from None
            at = start + 1
        else:
            yield value


def _is_json(text: str) -> bool:
    """Whether a text as a whole is JSON."""
    try:
        _decode(text)
    except ValueError:
        return False
    return True


def _decode(text: str) -> Any:
    check_nesting(text)
    return _DECODER.decode(text)
