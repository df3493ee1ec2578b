"""Lines of a model's reply, tidied, so that fences, bold type, braces and other dashes make no difference."""

from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from keystone.generation.structured import strip_thought
from keystone.generation.types import Reply

T = TypeVar("T")

_PLAIN = str.maketrans(
    {**dict.fromkeys("*`#{}|"), **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"), "\u2192": "->"}
)


class Found(NamedTuple, Generic[T]):
    """A value that is read from a reply or made by rules, with remarks for the record of the step."""

    value: T
    remarks: list[str]


def tidy_lines(reply: Reply) -> Iterator[str]:
    """Yield the lines of a reply that are not empty, without thoughts, markup and spaces around them."""
    for line in strip_thought(reply.text).translate(_PLAIN).splitlines():
        if tidied := " ".join(line.split()).lstrip("->\u2022 "):
            yield tidied
