"""The class of Keystone's transformers, made from PyTerrier's. Importing this module imports PyTerrier, but no Java."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pandas as pd
import pyterrier as pt


class KeystoneTransformer(pt.Transformer):  # type: ignore[misc]
    """A step from one data frame to another, which PyTerrier shows by its `name`.

    `columns` are those that the step needs of its input. `load` adds the named fields of the documents to a frame, so
    that `pt.text.get_text` takes any of these transformers.
    """

    def __init__(
        self, name: str, columns: Sequence[str], step: Callable[[pd.DataFrame], pd.DataFrame], load: Callable[..., Any]
    ) -> None:
        self.name, self.columns, self.step, self.load = name, list(columns), step, load

    def text_loader(self, fields: list[str] | str = "*", *, verbose: bool = False) -> "KeystoneTransformer":  # noqa: ARG002
        """Make the transformer that adds `text`, `title` or `url` of each document to a ranking; `*` adds them all."""
        return KeystoneTransformer("keystone.text", ["docno"], partial(self.load, fields), self.load)

    def __repr__(self) -> str:
        return self.name

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Do the step. PyTerrier's `InputValidationError` names the columns that the input lacks."""
        pt.validate.columns(inp, includes=self.columns, context=self)
        return self.step(inp)
