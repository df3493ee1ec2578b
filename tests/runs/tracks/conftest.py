"""What the organisers' programs need to be imported."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def stop_words(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """NLTK's list of English stop words, which autojudge-base wants, and for which three words do."""
    nltk_data = pytest.importorskip("nltk").data
    folder = tmp_path_factory.mktemp("nltk")
    (folder / "tokenizers/punkt").mkdir(parents=True)
    (folder / "corpora/stopwords").mkdir(parents=True)
    (folder / "corpora/stopwords/english").write_text("a\nthe\nof\n")
    nltk_data.path.insert(0, str(folder))
    yield
    nltk_data.path.remove(str(folder))
