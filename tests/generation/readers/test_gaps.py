"""Further searches for what the first documents leave open."""

import asyncio
from collections.abc import Sequence

import orjson
import pytest
from pydantic import TypeAdapter

from keystone.generation.context.topic import Sources, TopicContext, read_context
from keystone.generation.readers.plain import Plain, find_documents, list_searches
from keystone.generation.readers.reader import AnswerSettings, Task, Tools
from keystone.generation.readers.settings import ReaderSettings
from keystone.generation.types import QuestionCheck
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.index import Index
from keystone.retrieval.backends import open_store
from keystone.retrieval.types import Query, Topic
from tests.support.models.scripted import Scripted

SETTINGS: TypeAdapter[ReaderSettings] = TypeAdapter(ReaderSettings)
TEXTS = ("Bees dance.", " ", "Bees sleep.", "", "Bees fly.")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("gaps")
    lines = [orjson.dumps({"id": f"d{n}", "title": "Bees", "text": text}) for n, text in enumerate(TEXTS)]
    (folder / "corpus.jsonl").write_bytes(b"\n".join(lines))
    return build_index(folder / "corpus.jsonl", folder / "index", BuildSettings(embedding=None))[0]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param("not", ["d0", "d2"], id="nothing answers it"),
        pytest.param("partly", ["d0"], id="a part is open"),
        pytest.param("answered", [], id="nothing is open"),
    ],
)
def test_an_open_question_gets_the_first_documents_that_have_a_text(
    index: Index, found: str, expected: list[str]
) -> None:
    store = open_store(index)
    rows = [store.ids(range(5)).index(f"d{n}") for n in (1, 0, 3, 2, 4)]

    async def search(queries: Sequence[Query]) -> list[list[int]]:
        return [rows for _ in queries]

    tools = Tools(Sources(index, store), None, AnswerSettings(method="whole"), search=search)
    query = Query("1#1", "1", "Do bees dance?", "bees dance", "bees dance")
    check = QuestionCheck("1#1", found)  # type: ignore[arg-type]
    assert store.ids(asyncio.run(find_documents(tools, [], [(query, check)]))) == expected


def test_of_further_documents_an_answer_may_cite_as_few_segments(index: Index) -> None:
    narrowed = list[str]()

    def narrow(context: TopicContext) -> TopicContext:
        narrowed.extend(document.id for document in context.documents.values())
        return context

    async def search(queries: Sequence[Query]) -> list[list[int]]:
        return [store.rows(["d0", "d2"]).tolist() for _ in queries]

    store = open_store(index)
    sources, (row,) = Sources(index, store), store.rows(["d4"]).tolist()
    model = Scripted(lambda _: '{"questions": [{"id": 0, "found": "not", "searches": ["waggle run"]}]}')
    tools = Tools(sources, model, AnswerSettings("whole", rounds=1, window=4096), search=search)
    query = Query("1", "1#1", "Do bees dance?", "bees dance", "bees dance")
    task = Task(Topic("1", "Bees?"), read_context(sources, [row], [query]), 60, list, narrow=narrow)
    found = asyncio.run(Plain(tools).gather(task, ((row,),)))
    assert found.added == tuple(narrowed) == ("d0", "d2")


def test_a_document_without_room_in_the_second_round_was_not_added(index: Index) -> None:
    store = open_store(index)
    found = [store.rows([name]).tolist() for name in ("d0", "d2")]

    async def search(_queries: Sequence[Query]) -> list[list[int]]:
        return [found.pop(0)]

    sources, (row,) = Sources(index, store), store.rows(["d4"]).tolist()
    model = Scripted(lambda _: '{"questions": [{"id": 0, "found": "not", "searches": ["waggle run"]}]}')
    room = SETTINGS.validate_python({"name": "plain", "evidence_tokens": 70})
    tools = Tools(sources, model, AnswerSettings("whole", rounds=2, window=4096), room, search)
    query = Query("1", "1#1", "Do bees dance?", "bees dance", "bees dance")
    task = Task(Topic("1", "Bees?"), read_context(sources, [row], [query]), 60, list)
    evidence = asyncio.run(Plain(tools).gather(task, ((row,),)))
    assert [item.span.doc_id for item in evidence.items] == ["d4", "d2"]
    assert evidence.added == ("d2",)


def test_a_further_search_has_no_translation_of_its_question() -> None:
    told = (("es", "\u00bfBailan las abejas?"),)
    query = Query("1", "1#1", "Do bees dance?", "bees dance", "bees dance", "They do.", None, told)
    ((again, _),) = list_searches([query], [QuestionCheck("1#1", "not", searches=("waggle run",))])
    assert again == Query("1", "1#1+1", "Do bees dance?", "waggle run", "waggle run")
