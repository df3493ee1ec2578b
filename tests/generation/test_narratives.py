"""Narratives made from a corpus."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.rules.narratives import make_narratives
from keystone.indexing.types import Document


@pytest.mark.parametrize(
    ("title", "headings", "text", "narrative"),
    [
        pytest.param(
            "The site: How to log a user in",
            "How to log a user in\nSelecting the backend\nlogin(request, user)\nOverview",
            "Selecting the backend is easy.",
            "How do I log a user in? Explain also selecting the backend.",
            id="a title that asks how to",
        ),
        pytest.param("What is a swarm", "", "", "What is a swarm?", id="a title that is a question"),
        pytest.param("What is a swarm?", "", "", "What is a swarm?", id="a title with its mark"),
        pytest.param(
            "Beekeeping",
            "Hives\nSmoke\nDiseases\nHistory of honey",
            "Many like beekeeping.",
            "What should I know about beekeeping? Explain also Hives, Smoke and Diseases.",
            id="headings",
        ),
        pytest.param(
            "Boxer Rebellion", "", "", "What should I know about Boxer Rebellion?", id="a name keeps its capital"
        ),
        pytest.param(
            "Field options",
            "",
            "The field options are many.",
            "What should I know about the field options?",
            id="the article of the text",
        ),
        pytest.param(
            "",
            "",
            "THE COMMON MARKET AND NATO. THE COMMON MARKET GREW. HAROLD WILSON SPOKE. HAROLD WILSON WON.",
            "What should I know about Common Market? Explain also Harold Wilson.",
            id="phrases of a text without a title",
        ),
    ],
)
def test_a_document_becomes_a_narrative(title: str, headings: str, text: str, narrative: str) -> None:
    assert make_narratives([Document("d", text, title=title, headings=headings)], 1) == [narrative]


@pytest.mark.parametrize("title", ["", "Overview", "setup.py", "os.path.join()", "1984", "See also"])
def test_a_title_that_names_no_subject_makes_no_narrative(title: str) -> None:
    assert make_narratives([Document("d", "Nothing.", title=title)], 1) == []


def test_narratives_come_from_different_stretches_and_name_different_subjects() -> None:
    titles = ["Bees", "Bees", "Flowers", "Bees", "Volcano", "Bees"]
    documents = [Document(str(place), "", title=title) for place, title in enumerate(titles)]
    assert make_narratives(documents, 3) == [
        f"What should I know about {one}?" for one in ("Bees", "Flowers", "Volcano")
    ]
    assert make_narratives(documents, 3, english=False) == ["Bees", "Flowers", "Volcano"]
    assert make_narratives([], 3) == []


@given(st.lists(st.builds(Document, st.just("d"), st.text(), title=st.text(), headings=st.text()), max_size=9))
def test_any_documents_make_at_most_three_narratives_of_one_line(documents: list[Document]) -> None:
    found = make_narratives(documents, 3)
    assert len(found) <= min(3, len(documents))
    assert all(one.strip() and "\n" not in one for one in found)
    assert found == make_narratives(documents, 3)
