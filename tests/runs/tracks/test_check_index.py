"""The ids of a submission are looked up in an index of the track's corpus."""

import json
from pathlib import Path

import pytest

from keystone.indexing.index import Index, open_index
from keystone.indexing.store import open_store
from keystone.indexing.types import Store
from keystone.retrieval.backends import BACKENDS, Backend
from keystone.runs.track_rules import TRACKS
from keystone.runs.tracks.validate import check_index
from tests.support.indexes.small_corpus import write_index_file
from tests.support.runs.answer_files import make_line, make_sentences
from tests.support.runs.command_line import keystone_here


@pytest.mark.parametrize("track", ["biogen", "responses"])
def test_a_cited_id_that_the_index_lacks_is_told_once_at_its_first_line(
    track: str, index: Index, tmp_path: Path
) -> None:
    store = open_store(index)
    (known,) = store.ids([0])
    path = tmp_path / "responses.jsonl"
    lines = (make_sentences(citations=[known, f"{known}#3"]), make_sentences(citations=["7", known, "9"]))
    path.write_text(
        "".join(
            make_line(track, references=list(sentences[0]["citations"]), responses=sentences) + "\n"
            for sentences in lines
        )
    )
    found = [(one.line, one.message.split(":")[0]) for one in check_index(path, TRACKS[track], store)]
    assert found == [(2, "'7'"), (2, "'9'")]


def test_ids_that_ground_a_sentence_are_looked_up(index: Index, tmp_path: Path) -> None:
    store = open_store(index)
    path = tmp_path / "task_a.jsonl"
    sentence = {"text": "A.", "supported_citations": [*store.ids([0]), 7], "contradicted_citations": ["nowhere"]}
    path.write_text(json.dumps({"metadata": {"qa_id": "1"}, "answer": [sentence, {"text": "B."}]}))
    found = [one.message.split(":")[0] for one in check_index(path, TRACKS["biogen-a"], store)]
    assert found == ["'7'", "'nowhere'"]


def test_a_ranked_id_that_the_index_lacks_is_told(index: Index, tmp_path: Path) -> None:
    store = open_store(index)
    path = tmp_path / "run.tsv"
    path.write_text(f"1 Q0 {store.ids([0])[0]} 1 2 r\n1 Q0 nowhere 2 1 r\n")
    assert [one.line for one in check_index(path, TRACKS["biogen"], store)] == [2]


def open_elsewhere(index: Index) -> Store:
    return open_store(open_index(Path(index.at["documents"])))


def test_an_index_whose_documents_are_elsewhere_is_looked_up_unless_it_lists_none(
    index: Index, topics: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = {"backend": "rest", "url": "http://127.0.0.1:9", "name": "i", "api": "v1", "documents": str(index.folder)}
    write_index_file(Index(tmp_path / "remote", "k", None, None, {}, 0, None, place))
    (tmp_path / "run.tsv").write_text("1 Q0 bees 1 2 r\n1 Q0 nowhere 2 1 r\n")
    command = ("validate", "run.tsv", "--topics", topics, "--track", "rag25", "--index", "remote")
    shown = keystone_here(*command, cwd=tmp_path)
    assert shown.stderr == (
        "error: --index remote: found a server, which does not list its ids; expected an index that does\n"
    )
    monkeypatch.setitem(BACKENDS, "rest", Backend(f"{__name__}:open_elsewhere", ""))
    shown = keystone_here(*command, cwd=tmp_path)
    assert "'nowhere': no document of the index" in shown.stdout
    assert "'bees': no document of the index" not in shown.stdout
