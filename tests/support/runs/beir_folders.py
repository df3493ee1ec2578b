"""A folder of BEIR: two narratives for the small corpus, one judged in each of two splits."""

import json
from pathlib import Path

from tests.support.indexes.small_corpus import NARRATIVES, write_corpus

HEADER = "query-id\tcorpus-id\tscore\n"
SPLITS = {"test": "1\tbees\t2\n1\twasps\t0\n", "dev": "2\tvolcano\t1\n"}


def write_folder(folder: Path) -> Path:
    (folder / "qrels").mkdir(parents=True)
    write_corpus(folder / "corpus.jsonl")
    queries = [{"_id": name, "text": text, "metadata": {}} for name, text in NARRATIVES.items()]
    (folder / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in queries))
    for split, rows in SPLITS.items():
        (folder / "qrels" / f"{split}.tsv").write_text(HEADER + rows)
    return folder
