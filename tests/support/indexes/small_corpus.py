"""A corpus of nine documents, two narratives that it can answer, and the files of both and of an index."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from keystone.indexing.index import FORMAT, Index

TRIAL_WARNINGS = {"default team", "id of another corpus"}
"""The kinds of warnings of a run with default settings over a corpus that is not the track's."""

CORPUS = {
    "bees": (
        "Bees",
        "Honey bees live in colonies of many thousand workers. A colony has one queen. Workers collect "
        "nectar and pollen from flowers. They tell each other where flowers are by dancing.",
    ),
    "beekeeping": (
        "Beekeeping",
        "Beekeepers keep colonies of honey bees in wooden hives. They harvest the honey in "
        "summer. In winter they feed the bees with sugar. Mites are the worst enemy of a colony.",
    ),
    "flowers": (
        "Flowers",
        "Flowers attract insects with colour, scent and nectar. Insects carry pollen from one "
        "flower to another. Without insects many plants would bear no fruit.",
    ),
    "wasps": (
        "Wasps",
        "Wasps hunt other insects to feed their young. Some wasps live in colonies and build nests of "
        "paper. Most wasps live alone.",
    ),
    "volcano": (
        "Volcanoes",
        "A volcano is an opening in the crust of the earth. Lava, ash and gases escape from it. "
        "Eruptions can change the weather of the whole planet.",
    ),
    "glacier": (
        "Glaciers",
        "A glacier is a body of ice that moves slowly under its own weight. Glaciers form where "
        "more snow falls than melts. Meltwater of glaciers feeds many rivers.",
    ),
    "weather": (
        "Weather",
        "Weather is the state of the air at a place and time. Ash of an eruption can cool the "
        "weather for years. Warm air rises and cold air sinks.",
    ),
    "twin-a": ("Twin", "Both twins say the very same words about sugar and honey in the kitchen."),
    "twin-b": ("Twin", "Both twins say the very same words about sugar and honey in the kitchen."),
}

NARRATIVES = {
    "1": "I want to know how honey bees live together and how they find flowers. How do people keep bees, and what "
    "harms a colony?",
    "2": "Please explain what comes out of a volcano; also how an eruption changes the weather on the planet.",
}


def write_corpus(path: Path) -> Path:
    path.write_text(
        "".join(
            json.dumps({"_id": name, "title": title, "text": text}) + "\n" for name, (title, text) in CORPUS.items()
        )
    )
    return path


def write_long_corpus(path: Path) -> Path:
    """Write the corpus and one more document, of four segments."""
    text = " ".join(f"Bees of hive {n} carry pollen to the {n} flowers of field {n}." for n in range(23))
    with write_corpus(path).open("a") as file:
        file.write(json.dumps({"_id": "hives", "title": "Hives", "text": text}) + "\n")
    return path


def write_topics(path: Path) -> Path:
    path.write_text("".join(json.dumps({"id": i, "title": text}) + "\n" for i, text in NARRATIVES.items()))
    return path


def write_index_file(index: Index) -> Index:
    """Write the `index.json` of an index that a test has made without a command; returns the index."""
    index.folder.mkdir(exist_ok=True)
    members = {**asdict(index), "format": FORMAT}
    (index.folder / "index.json").write_text(json.dumps(members, default=str))
    return index


SAME_BYTES_NAMES = ("store", "postings", "dense.faiss", "passages.npy", "index.json")
"""The files of equal indexes that have equal bytes. Lucene's files hold random names, so tests compare its rankings."""


def read_contents(folder: Path, names: Sequence[str] = SAME_BYTES_NAMES) -> dict[str, bytes]:
    files = [file for name in names for file in [folder / name, *sorted((folder / name).glob("*"))] if file.is_file()]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}
