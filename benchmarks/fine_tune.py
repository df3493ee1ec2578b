"""A cross-encoder made here: `python -m benchmarks.fine_tune DATA WORK [PAIRS TOPICS]` prints what it gains on SciFact.

The layers are MiniLM's. It learns from the train topics of DATA/scifact, in PyTorch. A relevant abstract of each claim
should score above one that BM25 ranks high and nobody judged relevant. `rerank.method: model` then ranks the best
documents again that BM25 and embeddings have found for the test topics. To save time, PAIRS and TOPICS limit the number
of both, which are then drawn at random. Training runs in the environment `.venv-vllm`.
"""

import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.collections import keystone
from benchmarks.encoders import write_cross_encoder
from keystone.indexing.index import open_index
from keystone.retrieval.backends import open_store
from keystone.runs.trec.run_files import read_qrels, read_run
from keystone.runs.trec.topics import read_topics
from tests.support.servers.vllm import PYTHON

RERANKED = 10
EPOCHS = 4
"""How often each relevant abstract is learned from, each time beside one that is not relevant."""
FIRST_NEGATIVE, LAST_NEGATIVE = 3, 30
"""Documents at these ranks of BM25 count as not relevant. Those above may be relevant, though nobody judged them."""
MOST_TOKENS = 256


def main(data: Path, work: Path, most_pairs: int, most_topics: int) -> None:
    """Train, rerank and print the measures of both rankings."""
    folder = data / "scifact"
    work.mkdir(parents=True, exist_ok=True)
    keystone("index", folder / "corpus.jsonl.gz", "--out", work / "index", "--quiet")
    first = run(work, "train", folder / "topics.train.jsonl", ["--set", "retrieval.systems=[bm25]"])
    model = train(folder, first / "narrative.trec", work, most_pairs)
    topics = work / "topics.jsonl"
    lines = (folder / "topics.jsonl").read_text().splitlines(keepends=True)
    topics.write_text("".join(random.Random(5).sample(lines, min(most_topics, len(lines)))))
    reranker = ["--set", f"rerank={{method: model, model: {model}, depth: {RERANKED}}}"]
    hybrid = run(work, "hybrid", topics, [])
    start = time.monotonic()
    reranked = run(work, "reranked", topics, reranker)
    print(f"seconds of the run that reranks {RERANKED} documents a topic: {time.monotonic() - start:.0f}")
    files = [hybrid / "narrative.trec", reranked / "reranked.trec"]
    judged = {json.loads(line)["id"] for line in topics.read_text().splitlines()}
    qrels = [line for line in (folder / "qrels.txt").read_text().splitlines() if line.split()[0] in judged]
    (work / "qrels.txt").write_text("\n".join(qrels) + "\n")
    measures = ["-m", "nDCG@10", "-m", "RR@10"]
    command = [sys.executable, "-m", "keystone.runs.cli.main", "evaluate"]
    subprocess.run([*command, *files, "--qrels", work / "qrels.txt", *measures], check=True)


def run(work: Path, name: str, topics: Path, settings: list[str]) -> Path:
    """Rank documents for whole narratives; returns the run directory."""
    config = work / f"{name}.yaml"
    config.write_text(f"run_id: {name}\nindex: {work / 'index'}\ntopics: {topics}\nout: {work / 'runs'}\ntrack: none\n")
    keystone("run", config, "--set", "queries.method=narrative", *settings, "--quiet")
    return work / "runs" / name


def train(folder: Path, ranking: Path, work: Path, most_pairs: int) -> Path:
    """Write the pairs to learn from, and train the checkpoint; returns its folder."""
    pairs = draw_pairs(folder, ranking, work / "index")[:most_pairs]
    (work / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    model, beside = work / "cross-encoder", work / "cross-encoder.partial"
    if not model.is_dir():
        shutil.rmtree(beside, ignore_errors=True)
        write_cross_encoder(beside)
        trainer = Path(__file__).with_name("train_cross_encoder.py")
        subprocess.run([PYTHON, "-P", trainer, work / "pairs.jsonl", beside, str(MOST_TOKENS)], check=True)
        beside.rename(model)
    return model


def draw_pairs(folder: Path, ranking: Path, place: Path) -> list[tuple[str, str, str]]:
    """Draw claims with a relevant abstract and another one: all relevant ones in each epoch, in random order."""
    index, topics = open_index(place), read_topics(folder / "topics.train.jsonl")
    documents = {one.id: one.contents for one in open_store(index).get(range(index.documents or 0))}
    judged, ranked = read_qrels(folder / "qrels.train.txt"), read_run(ranking)
    choose, pairs = random.Random(4), []
    for _ in range(EPOCHS):
        own = []
        for topic in topics:
            relevant = judged[topic.id]
            found = [name for name, _ in ranked[topic.id][FIRST_NEGATIVE - 1 : LAST_NEGATIVE] if name not in relevant]
            own += [(topic.narrative, documents[name], documents[choose.choice(found)]) for name in relevant if found]
        choose.shuffle(own)
        pairs += own
    return pairs


if __name__ == "__main__":
    if len(sys.argv) not in (3, 5):
        sys.exit("usage: python -m benchmarks.fine_tune DATA WORK [PAIRS TOPICS] (see docs/methods.md)")
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:] or ("1000000", "1000000")))
