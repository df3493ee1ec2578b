"""Ratings of the citations of answers, and nuggets assigned to answers: by a model, and in files of RAGDoll's form.

Source: castorini/RAGDoll, the toolkit of the 2026 track, at 1f06719.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from keystone.generation.ask import run_together
from keystone.generation.grading.citations import Citation, rate_citations
from keystone.generation.grading.nuggets import assign_nuggets
from keystone.generation.llm.model import Model
from keystone.generation.types import Failure, Support
from keystone.indexing.errors import NoCitedTexts, UserError
from keystone.indexing.index import open_index
from keystone.indexing.io.writing import write_json_lines
from keystone.retrieval.backends import open_store
from keystone.runs.config.run_config import RunConfig
from keystone.runs.evaluation.answers.files import NamedRun, Submission, name_apart, read_submission
from keystone.runs.evaluation.cautions import caution_about_topics
from keystone.runs.evaluation.nuggets.files import TOPIC_KEYS, NuggetBank, get_id, list_objects, read_texts
from keystone.runs.pipeline.model_runner import RunWithModel, ask_model
from keystone.runs.tracks.violations import parse_lines, tell_expected
from keystone.runs.wording import plural

CODES: Mapping[str, Support | None] = {"2": "full", "1": "partial", "0": "none", "-1": None}
"""The support of a citation by its code in a file. None: nobody rated it."""


@dataclass(frozen=True, slots=True)
class CitedSentence:
    """A sentence of an answer, with the id and the support of each of its citations, in their order."""

    text: str
    citations: tuple[tuple[str, Support | None], ...]


@dataclass(frozen=True, slots=True)
class CitedAnswer:
    """The sentences of a run's answer to a topic, with rated citations."""

    topic_id: str
    run_id: str
    sentences: tuple[CitedSentence, ...]
    place: str = field(default="", compare=False, repr=False)
    """The `file:line` that holds the answer."""


def rate_files(
    paths: Sequence[Path], config: RunConfig, run_with_model: RunWithModel
) -> tuple[list[CitedAnswer], list[str]]:
    """Rate each citation of answer files or run directories; also cautions about citations without a rating.

    The index of the configuration has the texts of the cited documents or segments. `UserError` without a model, and
    `NoCitedTexts` if the index has none of them.
    """
    submissions = read_submissions(paths)
    window = config.require_model("support: needs a language model; expected one under the key model").window
    answers = [(one.run_id, answer) for one in submissions for answer in one.answers.values()]
    pairs = [(s.text, cited) for _, answer in answers for s in answer.sentences for cited in s.citations]
    texts = read_texts(open_store(open_index(config.index)), [cited for _, cited in pairs])
    if pairs and not texts:
        raise NoCitedTexts(f"{config.index}: has no cited document or segment, such as {pairs[0][1]!r}")
    asked = [pair for pair in dict.fromkeys(pairs) if pair[1] in texts]
    citations = [Citation(text, texts[cited]) for text, cited in asked]
    rated = ask_model(run_with_model, lambda model: rate_citations(model, citations, window))
    ratings = dict(zip(asked, rated, strict=True))
    support = {pair: one for pair, one in ratings.items() if not isinstance(one, Failure)}
    found = [
        CitedAnswer(
            answer.topic_id,
            run_id,
            tuple(
                CitedSentence(s.text, tuple((cited, support.get((s.text, cited))) for cited in s.citations))
                for s in answer.sentences
            ),
        )
        for run_id, answer in answers
    ]
    return found, _caution(pairs, texts, ratings)


def _caution(
    pairs: Sequence[tuple[str, str]], texts: Mapping[str, str], ratings: Mapping[tuple[str, str], Support | Failure]
) -> list[str]:
    cautions = []
    if missing := [cited for _, cited in pairs if cited not in texts]:
        number = plural(len(missing), "citation")
        cautions.append(f"{number} not in the index, such as {missing[0]}; they get no rating")
    if failed := [one.reason for one in ratings.values() if isinstance(one, Failure)]:
        cautions.append(f"{plural(len(failed), 'citation')} without a rating by the model: {failed[0]}")
    return cautions


def write_cited_answers(path: Path, answers: Iterable[CitedAnswer]) -> None:
    """Write one answer a line in RAGDoll's form. The file appears when it is whole."""
    codes = {support: code for code, support in CODES.items()}
    write_json_lines(
        path,
        (
            {
                "topic_id": one.topic_id,
                "narrative_id": one.topic_id,
                "run_id": one.run_id,
                "sentences": [
                    {
                        "sentenceID": place,
                        "text": sentence.text,
                        "citations": [
                            {"citationID": number, "reference": cited, "support": codes[support]}
                            for number, (cited, support) in enumerate(sentence.citations)
                        ],
                    }
                    for place, sentence in enumerate(one.sentences)
                ],
            }
            for one in answers
        ),
    )


def read_cited_answers(path: Path) -> list[CitedAnswer]:
    """Read the answers of a file in RAGDoll's form. `UserError` with file, line and key for a bad one."""
    found, seen = list[CitedAnswer](), set[tuple[str, str]]()
    for place, one in parse_lines(path, _parse_answer):
        if (one.topic_id, one.run_id) in seen:
            raise UserError(f"{place}: topic {one.topic_id!r} of run {one.run_id!r} occurs more than once")
        seen.add((one.topic_id, one.run_id))
        found.append(replace(one, place=place))
    return found


def _parse_answer(record: dict[str, Any]) -> CitedAnswer:
    if "sentences" not in record:
        raise ValueError(f"sentences: expected a list, found the keys {', '.join(record) or 'none'}")
    sentences = []
    for where, one in list_objects(record, "sentences"):
        cited = [
            (str(citation.get("reference", "")), _parse_code(citation.get("support"), inner))
            for inner, citation in list_objects(one, "citations", where)
        ]
        sentences.append(CitedSentence(str(one.get("text", "")), tuple(cited)))
    return CitedAnswer(get_id(record, TOPIC_KEYS), get_id(record, ("run_id",)), tuple(sentences))


def _parse_code(code: Any, where: str) -> Support | None:
    if not isinstance(code, str | int) or str(code) not in CODES:
        raise ValueError(tell_expected(f"{where}support", f"one of {', '.join(CODES)}", code))
    return CODES[str(code)]


def assign_banks(
    paths: Sequence[Path], banks: Sequence[NuggetBank], name: str, run_with_model: RunWithModel
) -> tuple[list[NuggetBank], list[str]]:
    """Assign the nuggets of each topic to the answers of files or run directories; also cautions about topics.

    A missing answer states no nugget, and the model is not asked. `name` is that of the nuggets in messages.
    `UserError` without a model, for two files of one run, and for a file without a topic of the nuggets.
    """
    submissions, topics = read_submissions(paths), [bank.topic_id for bank in banks]
    for topic_id, count in Counter(topics).items():
        if count > 1:
            raise UserError(f"{name}: topic {topic_id!r} occurs more than once, expected nuggets without runs")
    cautions = check_topics(submissions, topics, "nuggets", "nugget")
    assigned = ask_model(
        run_with_model,
        lambda model: run_together(partial(_assign_bank, model, one, bank) for one in submissions for bank in banks),
        "nuggets: needs a language model; expected one under the key model (--set)",
    )
    return assigned, cautions


def read_submissions(paths: Sequence[Path]) -> list[Submission]:
    """Read answer files or run directories. Runs of several teams, or files, with one id get names of their own.

    `UserError` as from `read_submission` and `name_apart`.
    """
    found = [read_submission(path) for path in paths]
    names = name_apart([NamedRun(one.run_id, one.team_id, one.name) for one in found])
    return [replace(one, run_id=name) for one, name in zip(found, names, strict=True)]


def check_topics(submissions: Sequence[Submission], topics: Sequence[str], has: str, noun: str) -> list[str]:
    """Caution about topics without an answer. `UserError` for a file none of whose topics `has` a `noun`."""
    cautions = list[str]()
    for one in submissions:
        if not one.answers.keys() & set(topics):
            ids = f"its topics look like {next(iter(one.answers))!r}, those of the {noun}s like {topics[0]!r}"
            raise UserError(f"{one.name}: none of its topics has {has}: {ids}")
        cautions += caution_about_topics(one.name, list(one.answers), topics, "an answer", noun)
    return cautions


async def _assign_bank(model: Model, submission: Submission, bank: NuggetBank) -> NuggetBank:
    text = submission.get_text(bank.topic_id)
    labels = await assign_nuggets(model, bank.query, text, [nugget.describe() for nugget in bank.nuggets])
    nuggets = tuple(replace(one, assignment=label) for one, label in zip(bank.nuggets, labels, strict=True))
    return replace(bank, nuggets=nuggets, run_id=submission.run_id, answer_text=text)
