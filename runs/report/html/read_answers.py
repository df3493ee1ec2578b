"""Reading of an answer file of any team for the report: its answers, and the documents or segments that they cite."""

from pathlib import Path

from keystone.indexing.errors import UserError
from keystone.indexing.io.reading import read_json_lines
from keystone.runs.report.html.types import AnswerView, CitedText, PlacedDocument, RunView, TopicView
from keystone.runs.tracks.answer_files import SubmittedAnswer, get_metadata, read_answer_file
from keystone.runs.tracks.rules import Track
from keystone.runs.tracks.validate import detect_track, holds_answers
from keystone.runs.tracks.violations import read_lines


def read_answer_view(path: Path, label: str) -> RunView:
    """Read an answer file of any track, plain or compressed. The references of an answer stand for its ranking.

    `UserError` for a file that is no answer file.
    """
    if not holds_answers(path, read_lines(path)):
        raise UserError(
            f"{path}: holds no answers, expected a run directory or an answer file. Run files are for keystone evaluate"
        )
    track = detect_track(path)
    submitted = read_answer_file(path, track)
    narratives = _read_narratives(path, track)
    topics = {one.answer.topic_id: _make_view(one, narratives.get(one.answer.topic_id, "")) for one in submitted}
    runs = ", ".join(dict.fromkeys(one.run_id for one in submitted))
    remark = f"an answer file of {track.name}, run {runs}: it has no queries, rankings, grades and cited texts"
    return RunView(label, None, {}, {}, {}, (remark,), topics)


def _read_narratives(path: Path, track: Track) -> dict[str, str]:
    key_of = {key.holds: key.name for key in track.keys}
    found = [get_metadata(record, track) for _, record in read_json_lines(path)]
    return {str(one[key_of["topic"]]): str(one.get(key_of.get("narrative", ""), "")) for one in found}


def _make_view(submitted: SubmittedAnswer, narrative: str) -> TopicView:
    answer = submitted.answer
    cited = list(dict.fromkeys(citation for sentence in answer.sentences for citation in sentence.citations))
    ids = list(dict.fromkeys([*submitted.references, *cited]))
    sentences = tuple((one.text, tuple(map(cited.index, one.citations))) for one in answer.sentences)
    return TopicView(
        answer.topic_id,
        narrative,
        "",
        (),
        tuple(PlacedDocument(name, "", rank, rank, 0, ()) for rank, name in enumerate(ids, 1)),
        AnswerView(sentences, tuple(CitedText(name, "", "") for name in cited)),
        (),
    )
