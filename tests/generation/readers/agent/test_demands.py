"""What search texts demand of documents: as tables, and beside Lucene's own query parser."""

from itertools import product
from random import Random

import pytest

from keystone.generation.readers.agent.tools import Demands, choose_rows, read_demands
from keystone.indexing.errors import Unusable
from keystone.indexing.lucene.java import java_class, java_instance
from keystone.indexing.types import Document

PHRASE = ("never", "too", "loud")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("danko jones 2008", None, id="plain words"),
        pytest.param("COVID-19 e-mail C++ -", None, id="signs within words"),
        pytest.param("cats OR dogs", None, id="either word ranks anyway"),
        pytest.param('who sang "Never Too Loud"', Demands("who sang Never Too Loud", (PHRASE,)), id="a phrase"),
        pytest.param("who sang \u201cNever Too Loud\u201d", Demands("who sang Never Too Loud", (PHRASE,)), id="curly"),
        pytest.param("+Toronto castle", Demands("Toronto castle", (("toronto",),)), id="a demanded word"),
        pytest.param("castle -Paris", Demands("castle", (), (("paris",),)), id="an excluded word"),
        pytest.param('castle -"Casa Loma"', Demands("castle", (), (("casa", "loma"),)), id="an excluded phrase"),
        pytest.param("cats AND dogs", Demands("cats dogs", (("cats",), ("dogs",))), id="both"),
        pytest.param("cats NOT dogs", Demands("cats", (), (("dogs",),)), id="not"),
        pytest.param("cats AND NOT dogs", Demands("cats", (("cats",),), (("dogs",),)), id="and not"),
        pytest.param("+e-mail x", Demands("e-mail x", (("e", "mail"),)), id="two words joined"),
        pytest.param('"" castle', None, id="an empty phrase"),
    ],
)
def test_a_text_has_its_demands(text: str, expected: Demands | None) -> None:
    assert read_demands(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('who sang "Never', "a quotation mark without its partner"),
        ('"cats" OR "dogs"', "OR beside words that are demanded"),
        ("-cats", "no word to search for, only words to exclude"),
    ],
)
def test_a_syntax_that_cannot_be_read_is_named(text: str, reason: str) -> None:
    with pytest.raises(Unusable, match=reason):
        read_demands(text)


@pytest.mark.parametrize(
    ("text", "document", "expected"),
    [
        ('"danko jones"', "Sung by DANKO\n Jones.", True),
        ('"danko jones"', "Jones and Danko", False),
        ('"danko jones"', "Danko Joneses", False),
        ("+2008 album", "In 20081", False),
        ("+\uff12\uff10\uff10\uff18 album", "In 2008.", True),
        ("+\u8336 tea", "\u559d\u8336\u6587\u5316", True),
        ("tea -green", "Greenery", True),
        ("tea -green", "A green one", False),
    ],
)
def test_a_document_meets_demands_word_for_word(text: str, document: str, expected: bool) -> None:
    demands = read_demands(text)
    assert demands
    assert demands.meets(Document("d", document)) is expected


@pytest.mark.slow
def test_lucene_s_parser_chooses_the_same_documents() -> None:
    """The demands as Lucene writes them: unsigned phrases get a `+`, because here they are demanded."""
    words, chance = ("red", "blue", "tall", "small", "old"), Random(0)
    documents = [Document(str(n), " ".join(chance.choices(words, k=4))) for n in range(200)]
    search, parse = open_lucene([document.text for document in documents])
    for first, second, third in product(words, repeat=3):
        for text in (f'+"{first} {second}" {third}', f"+{first} -{second} {third}", f'{first} -"{second} {third}"'):
            demands = read_demands(text)
            assert demands
            rows = [row for row, one in enumerate(documents) if set(one.text.split()) & set(demands.words.split())]
            chosen = choose_rows(demands, rows, [documents[row] for row in rows])
            hits = search.search(parse.parse(text), len(documents)).scoreDocs
            assert chosen == tuple(sorted(hit.doc for hit in hits)), text


def open_lucene(texts: list[str]):  # type: ignore[no-untyped-def]
    """Open a search over texts with positions, in memory, and Lucene's parser for it."""
    analyzer = java_class("org.apache.lucene.analysis.standard.StandardAnalyzer")()
    folder = java_class("org.apache.lucene.store.ByteBuffersDirectory")()
    writer = java_class("org.apache.lucene.index.IndexWriter")(
        folder, java_class("org.apache.lucene.index.IndexWriterConfig")(analyzer)
    )
    keep = java_class("org.apache.lucene.document.Field$Store").NO
    for text in texts:
        document = java_class("org.apache.lucene.document.Document")()
        document.add(java_class("org.apache.lucene.document.TextField")("text", text, keep))
        writer.addDocument(document)
    writer.close()
    opened = java_class("org.apache.lucene.index.DirectoryReader").open(folder)
    reader = java_instance("org.apache.lucene.index.IndexReader", opened)
    parser = java_class("org.apache.lucene.queryparser.classic.QueryParser")("text", analyzer)
    return java_class("org.apache.lucene.search.IndexSearcher")(reader), parser
