"""The example of GraphReader (Figures 20 to 24) as a whole: three hops over three of thirteen documents."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from keystone.generation.context.topic import Sources, read_context
from keystone.generation.readers.reader import AnswerSettings, Task, Tools, open_reader
from keystone.generation.readers.settings import GraphReaderSettings
from keystone.generation.types import Request
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.retrieval.backends import open_store
from keystone.retrieval.types import Query, Topic
from tests.support.models.scripted import Said, Scripted

pytestmark = pytest.mark.slow

QUESTION = "What is the castle called in the city where the performer of Never Too Loud was formed?"
FACTS = {
    6: "Danko Jones, a Canadian hard rock band, made the studio album Never Too Loud as their fourth.",
    9: "The hard rock trio Danko Jones, all of them Canadian, was founded in Toronto.",
    13: "Toronto in Canada has Casa Loma, a castle-style mansion of the Gothic Revival.",
}
KEYS = {
    6: "Never Too Loud | studio album | Canadian | hard rock band | Danko Jones",
    9: "Danko Jones | Canadian | hard rock trio | Toronto",
    13: "Casa Loma | Gothic Revival | castle-style mansion | Toronto | Canada",
}
NOTES = {
    6: "Danko Jones made Never Too Loud.",
    9: "Danko Jones made Never Too Loud. The trio was founded in Toronto.",
    13: "Danko Jones made Never Too Loud. The trio was founded in Toronto. Casa Loma is a mansion in Toronto.",
}
WALK = [
    ("", "read_chunk(C6)"),
    (NOTES[6], "search_more()"),
    ("", "read_neighbor_node(Danko Jones)"),
    (NOTES[6], "read_chunk(C9)"),
    (NOTES[9], "search_more()"),
    ("", "read_neighbor_node(Toronto)"),
    (NOTES[9], "read_chunk(C13)"),
    (NOTES[13], "termination()"),
]


def write_documents(path: Path) -> Path:
    """Write thirteen documents of one chunk each; ten of them are about other things."""
    texts = [FACTS.get(number, f"Lighthouse {number} guides ships at night.") for number in range(1, 14)]
    records = [{"id": f"d{number:02}", "text": text} for number, text in enumerate(texts, 1)]
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


def script() -> Scripted:
    """Replies as the paper's agent does, with its slip `Never Too Lou`."""
    steps = iter(WALK)

    def say(request: Request) -> Said:
        match request.purpose:
            case "graph_facts":
                named = next((n for n, fact in FACTS.items() if fact in request.messages[1][1]), None)
                return (
                    "1. Ships follow the lighthouse. | ships" if named is None else f"1. {FACTS[named]} | {KEYS[named]}"
                )
            case "graph_plan":
                return "Find the performer, then the city where it was formed, then a castle in that city."
            case "graph_nodes":
                return "Node: Never Too Lou, Score: 100\nNode: Toronto, Score: 40"
            case "graph_step":
                notebook, call = next(steps)
                return f"*Updated Notebook*: {notebook}\n*Rationale for Next Action*: next.\n*Chosen Action*: {call}"
            case _:
                return json.dumps({"answer": [{"text": "The castle in Toronto is Casa Loma.", "citations": [2]}]})

    return Scripted(say)


def test_the_castle_is_found_in_eight_function_calls(tmp_path: Path) -> None:
    index, _ = build_index(write_documents(tmp_path / "corpus.jsonl"), tmp_path / "index", BuildSettings(threads=2))
    sources, model = Sources(index, open_store(index)), script()
    settings = GraphReaderSettings(name="graphreader", nodes=1)
    reader = open_reader(Tools(sources, model, AnswerSettings("retrieval", window=8000), settings))
    rows = list(range(13))
    query = Query("1", "1#0", QUESTION, QUESTION, QUESTION)
    task = Task(Topic("1", QUESTION), read_context(sources, rows, [query]), 60, list)

    found = asyncio.run(reader.gather(task, (tuple(rows),)))
    walk = [step for step in found.steps if step.agent == 1]
    assert [step.action for step in walk] == [call for _, call in WALK]
    assert found.stop == walk[-1].stop == "done"
    shown = [set(re.findall(r'^<document id="(\w+)', step.shown, re.MULTILINE)) for step in walk]
    assert shown == [{"C6"}, {"C6"}, {"neighbours"}, {"C6", "C9"}, {"C9"}, {"neighbours"}, {"C9", "C13"}, {"C13"}]
    assert walk[2].shown.split("\n")[1:-1] == ["Canada", "Danko Jones", "hard rock band", "studio album"]
    assert [item.span.doc_id for item in found.items] == ["d06", "d09", "d13"]
    assert [item.text for item in found.items] == list(FACTS.values())
    assert found.notes[0].text.endswith(NOTES[13])

    answer = asyncio.run(reader.answer(task, found))
    assert "Casa Loma" in str(answer)
    assert [sentence.citations for sentence in answer.sentences] == [("d13#w0_0",)]
    assert len([request for request in model.requests if request.purpose != "graph_facts"]) == 11
