"""Real text that every installation has: the words in the source files and notes of the installed packages."""

import re
import sysconfig
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

PASSAGE_WORDS = 120
"""The length of a passage."""

_SUFFIXES = (".py", ".pyi", ".md", ".rst", ".txt", ".h")
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]+")


def read_passages(count: int) -> list[str]:
    """The first `count` passages of 120 words in the packages' files, in the order of their paths."""
    return list(islice(iterate_passages(), count))


def draw_questions(texts: list[str], count: int, seed: int = 7) -> list[str]:
    """Draw `count` sequences of 6 to 14 words, each from a random passage."""
    random = np.random.default_rng(seed)
    found = []
    for text in random.choice(np.array(texts, dtype=object), count):
        words, length = text.split(), int(random.integers(6, 15))
        start = int(random.integers(0, PASSAGE_WORDS - length))
        found.append(" ".join(words[start : start + length]))
    return found


def iterate_passages() -> Iterator[str]:
    """The passages of 120 words in the packages' files, in the order of their paths."""
    for file in sorted(Path(sysconfig.get_paths()["purelib"]).rglob("*")):
        if file.suffix in _SUFFIXES and file.is_file():
            words = _WORD.findall(file.read_text(encoding="utf-8", errors="ignore"))
            for start in range(0, len(words) - PASSAGE_WORDS + 1, PASSAGE_WORDS):
                yield " ".join(words[start : start + PASSAGE_WORDS])
