"""The project's clients against real vLLM servers on this machine's CPU."""

import pydoc_data.topics

import numpy as np
import pytest

from indexing.embed import Embedding, Vectors, embedder
from indexing.embedding_endpoint import Endpoint
from indexing.minilm import MiniLM
from tests.conftest import CORPUS
from tests.vllm_server import Server

pytestmark = pytest.mark.slow

PAGES = list(pydoc_data.topics.topics.values())


def cosines(a: Vectors, b: Vectors) -> Vectors:
    found: Vectors = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    return found


def test_vllm_embeds_as_the_local_model_does(minilm: Server) -> None:
    texts = ["", *(text for _, text in CORPUS.values()), *(page[: 20 * i] for i, page in enumerate(PAGES[:25], 1))]
    served = embedder(Embedding("minilm", minilm.url))
    cut: list[int] = []
    found = served.embed(texts, cut=cut.append)
    assert not cut
    assert not found[0].any()  # servers refuse a blank text: it is not asked for
    assert cosines(found[1:], MiniLM().embed(texts)[1:]).min() > 1 - 1e-3
    again = served.embed(texts[::-1])[::-1]
    assert again.tobytes() == found.tobytes()


def test_a_text_that_is_too_long_for_vllm_is_cut_and_said_and_harms_no_other(minilm: Server) -> None:
    server = Endpoint("minilm", minilm.url)
    assert server.window == 256
    long = {7: max(PAGES, key=len), 20: "1 2 3 4 5 6 7 8 9 " * 50}  # more characters than a window; more tokens only
    texts = [long.get(place, f"{place} bees and {PAGES[place][:300]}") for place in range(32)]
    cut, cut_here = set[int](), set[int]()
    found, local = server.embed(texts, cut=cut.add), MiniLM().embed(texts, cut=cut_here.add)
    assert cut == cut_here == set(long)
    same = cosines(found, local)
    assert np.delete(same, list(long)).min() > 1 - 1e-3
    assert same.min() > 0.9
