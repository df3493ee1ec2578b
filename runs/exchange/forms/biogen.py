"""Answers of TREC BioGen: the document of 2024, and the grounded sentences of 2025's task A.

Task B of 2025 has the form that several tracks share. Sources: the submission formats of the track's own pages for 2024
and 2025, and the validator of task A.
"""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from keystone.indexing.corpora.segments import split_sentences
from keystone.indexing.io.writing import write_json_lines, write_whole
from keystone.runs.evaluation.nuggets.cited import Citation, CitedAnswer, CitedText
from keystone.runs.exchange.forms.answers import DEFAULT_RUN
from keystone.runs.exchange.records import drop_repeated, fill, has, read_form
from keystone.runs.exchange.types import Form, Handover
from keystone.runs.parts import REQUIRED, Id, Listed, Name, Part, first_of
from keystone.runs.track_rules import CONTRADICTED, DEFAULT_TEAM, EXISTING, SUPPORTED

BRACKETS = re.compile(r"\s*\[([^\[\]]*)\]")
"""What may be a list of PMIDs in the text of an answer of 2024."""
_PMID = re.compile(r"\APMIDs?:?", re.IGNORECASE)
"""What stands before PMIDs in some lists."""
STOPS = ".!?:"
OUTSIDE = "citations outside of sentences"


class _Result(Part):
    topic_id: Name = REQUIRED
    answer: str = ""
    references: Listed[Id] = ()


class _Submission(Part):
    team_id: Id = ""
    run_id: Id = first_of("run_name", "run_id")
    contact_email: Any = None
    results: Listed[_Result] = REQUIRED


class _Metadata(Part, extra="allow"):
    topic_id: Name = first_of("qa_id", "topic_id", default=...)
    query: str = first_of("question")
    run_id: Id = ""
    team_id: Id = ""


class _Sentence(Part):
    text: str = ""
    supported_citations: Listed[Id] = ()
    contradicted_citations: Listed[Id] | None = None
    existing_supported_citations: Listed[Id] | None = None


class _Grounded(Part):
    metadata: _Metadata = first_of("metadata", "meta_data", default=...)
    answer: Listed[_Sentence] = ()


def read_2024(path: Path) -> Handover:
    """Read the submission of a team: `team_id`, `run_name`, and `results` with `topic_id`, `answer`, `references`.

    The PMIDs in brackets within a sentence become its citations. The track discards those between sentences, and so
    does this reader, which counts them as not kept. `UserError` for another object.
    """
    lost = Counter[str]()

    def make(own: _Submission, place: str, _: object) -> list[CitedAnswer]:
        about = {**own.model_dump(include={"team_id", "run_id"}), "extra": fill(contact_email=own.contact_email)}
        return [
            CitedAnswer(
                one.topic_id, _split_answer(one.answer, one.references, lost), one.references, place=place, **about
            )
            for one in own.results
        ]

    found, unread = read_form(path, _Submission, make)
    return Handover(answers=tuple(answer for own in found for answer in own), unread=unread + lost)


def _split_answer(text: str, references: Sequence[str], lost: Counter[str]) -> tuple[CitedText, ...]:
    """Split an answer into sentences with their citations: lists of whole numbers or of references in brackets.

    `lost` counts repeated ones, and lists between sentences.
    """
    known = frozenset(references)

    def list_ids(match: re.Match[str]) -> list[str] | None:
        parts = re.split(r"[,;\s]+", match[1])
        names = [name for part in parts if (name := part if part in known else _PMID.sub("", part))]
        return names if all(name.isdecimal() or name in known for name in names) else None

    found = []
    for start, end in split_sentences(text):
        while (between := BRACKETS.match(text, start, end)) and list_ids(between) is not None:
            start = between.end()
            lost[OUTSIDE] += 1
        if not text[start:end].strip():
            continue
        ids = [name for match in BRACKETS.finditer(text, start, end) for name in list_ids(match) or ()]
        citations = drop_repeated(map(Citation, ids), lost)
        bare = BRACKETS.sub(lambda match: match[0] if list_ids(match) is None else "", text[start:end])
        found.append(CitedText(bare.strip(), citations))
    return tuple(found)


def write_2024(path: Path, content: Handover) -> None:
    """Write one JSON document. The citations of a sentence stand in brackets before its last punctuation mark."""
    first = next(iter(content.answers))
    document = {
        "team_id": first.team_id or DEFAULT_TEAM,
        "run_name": first.run_id or DEFAULT_RUN,
        "contact_email": str(first.extra.get("contact_email", "")),
        "results": [
            {
                "topic_id": one.topic_id,
                "answer": " ".join(map(_join_citations, one.sentences)),
                "references": one.list_references(),
            }
            for one in content.answers
        ],
    }
    with write_whole(path) as out:
        out.write(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")


def _join_citations(sentence: CitedText) -> str:
    text = sentence.text.strip()
    cited = ",".join(dict.fromkeys(one.doc_id for one in sentence.citations))
    if not cited:
        return text
    stop = text[-1:] if text[-1:] in STOPS else ""
    return f"{text.removesuffix(stop)} [{cited}]{stop}"


def read_grounded(path: Path) -> Handover:
    """Read answers of task A: `metadata` with `qa_id`, and `answer` with the citations that support or contradict.

    `UserError` with file and line for another object.
    """
    lost = Counter[str]()

    def make(own: _Grounded, place: str, _: object) -> CitedAnswer:
        about = own.metadata.model_dump(include=set(_Metadata.model_fields))
        extra = own.metadata.model_extra or {}
        return CitedAnswer(sentences=tuple(map(make_sentence, own.answer)), extra=extra, place=place, **about)

    def make_sentence(one: _Sentence) -> CitedText:
        supported = drop_repeated(map(Citation, one.supported_citations), lost)
        return CitedText(one.text, supported, one.contradicted_citations, one.existing_supported_citations)

    answers, unread = read_form(path, _Grounded, make)
    return Handover(answers=tuple(answers), unread=unread + lost)


def write_grounded(path: Path, content: Handover) -> None:
    """Write an answer a line with the citations that support and contradict each sentence."""
    write_json_lines(path, map(_encode_grounded, content.answers))


def _encode_grounded(one: CitedAnswer) -> dict[str, Any]:
    own = {"team_id": one.team_id or DEFAULT_TEAM, "run_id": one.run_id or DEFAULT_RUN, "qa_id": one.topic_id}
    sentences = [
        {
            "text": sentence.text,
            **({} if sentence.existing is None else {EXISTING: sentence.existing}),
            SUPPORTED: list(dict.fromkeys(cited.doc_id for cited in sentence.citations)),
            CONTRADICTED: list(sentence.contradicted or ()),
        }
        for sentence in one.sentences
    ]
    return {"metadata": {**one.extra, **own, **fill(question=one.query)}, "answer": sentences}


def _is_grounded(record: dict[str, Any]) -> bool:
    """Whether the first sentence of an answer has citations that support it."""
    value = record.get("answer")
    first = value[0] if isinstance(value, list) and value else None
    return isinstance(first, dict) and not first.keys().isdisjoint((SUPPORTED, EXISTING))


FORMS = (
    Form("biogen24", "answers", "BioGen 2024", read_2024, write_2024, has("results", "team_id")),
    Form("biogen-grounded", "answers", "BioGen 2025 task A", read_grounded, write_grounded, _is_grounded),
)
