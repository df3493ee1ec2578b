"""The bytes of judgments in TREC form, from a file of TREC or BEIR, a folder of BEIR, or a data set of ir_datasets."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from keystone.runs.trec.collections.beir import find_folder, find_qrels
from keystone.runs.trec.collections.ir_datasets import is_data_set, render_qrels
from keystone.runs.trec.collections.named_rows import read_judgment_bytes


def find_qrels_file(path: Path) -> Path:
    """Find the file of judgments that an argument names: `qrels/SPLIT.tsv` for a folder of BEIR, else the argument."""
    folder = find_folder(path)
    return find_qrels(*folder) if folder else path


def read_qrels_bytes(path: Path) -> NDArray[np.uint8]:
    """Read judgments as rows in TREC form: uint8[bytes]. Each row of a file keeps the number of its line.

    `UserError` if they cannot be read.
    """
    return render_qrels(path) if is_data_set(path) else read_judgment_bytes(path)
