"""The further sets of vectors and of impacts that a build is asked for: their names and their models."""

import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from keystone.indexing.errors import UserError
from keystone.indexing.types import EMBEDDED, Embedding
from keystone.indexing.vectors.embed import settle_embedding

SET_NAME = re.compile(r"[a-z][a-z0-9_-]{0,49}")
"""The name of a set, and of its folder."""


def check_set_name(name: Any, others: Collection[str], where: str) -> None:
    """Check the name of a set beside those of `others`. `UserError` begins with `where`, the place of the name."""
    if not isinstance(name, str) or not SET_NAME.fullmatch(name) or name in others:
        raise UserError(f"{where}: found the name {name!r}, expected a new one of lower-case letters, digits, _ and -")


def settle_vectors(value: Any, url: str | None, note: Callable[[str], None], where: str) -> Embedding:
    """Settle the model of a set of vectors from a mapping with keys of `Embedding`.

    A model without a URL is the embedded one, a folder, one with a backend, at `url`, or else one of the hub. `note` is
    that of `settle_embedding`. `UserError` for anything else begins with `where`, the place of the value.
    """
    if not isinstance(value, dict) or not value.get("model"):
        raise UserError(f"{where}: expected a model, as in {{model: M, url: U, ...}}")
    types = {**dict.fromkeys(Embedding.__dataclass_fields__, str), "window": int, "dimensions": int}
    del types["weights"]
    for key, one in value.items():
        if type(one) is not types.get(key):
            raise UserError(f"{where}: found {key}: {one!r}, expected {', '.join(types)} with their values")
    is_here = value["model"] in EMBEDDED or "backend" in value or Path(value["model"]).is_dir()
    has_prefixes = bool({"query_prefix", "passage_prefix"} & value.keys())
    return settle_embedding(Embedding(**{"url": None if is_here else url, **value}), has_prefixes, note)
