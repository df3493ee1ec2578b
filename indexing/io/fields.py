"""Finding the fields of foreign records by their names: one rule for JSON, tables, files with columns and data frames.

The first name of a list that has a value counts. `ID`, `doc-id` and `Doc Id` are the same names as `id` and `doc_id`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import isnan
from typing import Any

_ID_NAME = re.compile(
    r"[A-Za-z]\w*?[ _-](?i:u?id|no|nr|num|number)|[A-Za-z]\w*?[a-z](Id|ID|No|Nr|Num|Number)"
    r"|(?i:topic|query|question|doc|document|passage|paper|article)(?i:id|no|nr|num|number)"
)


LONGEST_KEPT_NAME = 100
"""The characters of the longest name whose folded form is kept. Every record of a corpus has the same names."""


def fold_name(name: str) -> str:
    """The form in which equal names agree: without case, spaces and punctuation."""
    return _fold_short(name) if len(name) <= LONGEST_KEPT_NAME else _fold(name)


def _fold(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).casefold()


_fold_short = lru_cache(1 << 12)(_fold)


def reads_as_id(name: str) -> bool:
    """Whether a name that no reader knows is one of ids, such as `topic_number`, `Doc No` or `paperId`."""
    return _ID_NAME.fullmatch(name) is not None


def is_missing(value: Any) -> bool:
    """Whether a value counts as missing: null, blank text, or the NaN of data frames."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, float) and isnan(value))


def find_field(record: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """The key of the first name with a value, else of the first that is there, or None; equal keys go first."""
    for name in names:
        if name in record and not is_missing(record[name]):
            return name
    keys = [*(name for name in names if name in record), *find_names(record, names)]
    return next((key for key in keys if not is_missing(record[key])), keys[0] if keys else None)


def find_names(found: Iterable[str], names: Sequence[str]) -> list[str]:
    """Those of the found keys or columns that agree with one of the names, in the order of the names."""
    wanted = list(dict.fromkeys(map(fold_name, names)))
    folded = [(wanted.index(own), key) for key in found if (own := fold_name(str(key))) in wanted]
    return [key for _, key in sorted(folded, key=lambda one: one[0])]
