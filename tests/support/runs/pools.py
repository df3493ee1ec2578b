"""A run over a pool of vectors beside a run over all of them."""

from pathlib import Path

from tests.support.indexes.small_corpus import write_corpus, write_topics
from tests.support.runs.command_line import keystone


def check_pool_restricts(folder: Path, whole: str, pool: str) -> None:
    """Run the small corpus with both kinds of `--dense`. The pool ranks as the whole does, among BM25's documents."""
    corpus, topics = write_corpus(folder / "corpus.jsonl"), write_topics(folder / "topics.jsonl")
    for which in (whole, pool):
        made = keystone("index", corpus, "--out", folder / which, "--dense", which, "-q")
        assert made.returncode == 0, made.stderr
        config = folder / f"{which}.yaml"
        config.write_text(
            f"run_id: a\nindex: {folder / which}\ntopics: {topics}\nout: {folder / 'out' / which}\ntrack: none\n"
        )
        done = keystone("run", config, "-q")
        assert done.returncode == 0, done.stderr
    bm25, every, some = (
        [line.split() for line in (folder / f"out/{name}.trec").read_text().splitlines()]
        for name in (f"{whole}/a/bm25", f"{whole}/a/dense", f"{pool}/a/dense")
    )
    found = {row[2] for row in bm25}
    assert [(row[0], row[2]) for row in some] == [(row[0], row[2]) for row in every if row[2] in found]
    assert 0 < len(found) < len({row[2] for row in every})
