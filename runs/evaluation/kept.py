"""What an output says already, and a person may have corrected: a command that would lose or change it is refused."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from keystone.indexing.errors import UserError
from keystone.runs.wording import plural

Item = tuple[tuple[str, str, str], Any]
"""The run, the topic and the text of an item, each empty if it has none, and its value. None: the value may change."""


def keep_items(
    out: Path,
    nouns: tuple[str, str],
    read: Callable[[Path], Iterable[Item]],
    made: Iterable[Item],
) -> None:
    """Raise `UserError` if the file `out` has an item that `made` lacks or changes. The error names the first one.

    `read` reads the items of a file, and `nouns` name one item and several.
    """
    if not out.is_file() or not out.stat().st_size:
        return
    new = dict(made)
    lost = [key for key, value in read(out) if key not in new or value not in (None, new[key])]
    if lost:
        run, topic, text = lost[0]
        owner = f"run {run!r} and topic {topic!r}" if run else f"topic {topic!r}"
        of = f"{owner}: {text!r:.60}" if text else owner
        raise UserError(
            f"{out}: {plural(len(lost), *nouns)} would be lost or changed, such as that of {of}; "
            "name another file with --out, or remove this one"
        )
