"""What a model does with nuggets and citations: it creates nuggets, assigns them to answers, and rates citations."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from keystone.generation.grading.nuggets import assign_nuggets, create_nuggets, rate_importance
from keystone.generation.grading.rate_sentences import Citation as AskedCitation
from keystone.generation.grading.rate_sentences import rate_citations
from keystone.generation.llm.ask import run_together
from keystone.generation.llm.model import Model
from keystone.generation.rules.support import rate_support
from keystone.generation.rules.words import find_terms, make_weigher
from keystone.generation.types import Failure, Support
from keystone.indexing.errors import NoCitedTexts, UserError
from keystone.indexing.index import open_index
from keystone.indexing.types import Store, document_id
from keystone.retrieval.backends import open_store
from keystone.retrieval.types import Topic
from keystone.runs.config.run_config import RunConfig
from keystone.runs.evaluation.answers.files import NamedRun, Submission, name_apart, read_submission
from keystone.runs.evaluation.cautions import caution_about_topics
from keystone.runs.evaluation.nuggets.cited import Citation, CitedAnswer, CitedText
from keystone.runs.evaluation.nuggets.files import Nugget, NuggetBank, Source, read_texts
from keystone.runs.pipeline.job import describe_settings
from keystone.runs.pipeline.model_runner import RunWithModel, ask_model
from keystone.runs.trec.run_files import read_qrels, read_run
from keystone.runs.trec.topics import read_topics
from keystone.runs.trec.types import Qrels
from keystone.runs.wording import plural


@dataclass(frozen=True, slots=True)
class Judgments:
    """Judgments by the name of their file, and the grade from which a document or segment gives nuggets."""

    name: str
    qrels: Qrels
    relevant_from: int = 2


def create_banks(
    config: RunConfig, qrels_path: Path, relevant_from: int, run_with_model: RunWithModel
) -> tuple[list[NuggetBank], list[str]]:
    """Create the nuggets of the topics of a run; also cautions about parts that are missing.

    The passages of a topic are the documents or segments with at least the grade `relevant_from`, best first.
    `UserError` without a model, and if the index has no relevant document of a topic.
    """
    topics, store = read_topics(config.topics), open_store(open_index(config.index))
    judged = Judgments(str(qrels_path), read_qrels(qrels_path), relevant_from)
    return create_banks_for(topics, store, judged, config, run_with_model)


def create_banks_from_run(
    config: RunConfig, run: Path, run_with_model: RunWithModel
) -> tuple[list[NuggetBank], list[str]]:
    """Create nuggets as `create_banks` does, but from the first documents of each topic in a run, without judgments.

    `run` is a run file, or a run directory, whose last ranking counts. `answer.documents` is the number of documents.
    The banks carry the names of the team and the run, and its description. `UserError` as from `create_banks`.
    """
    from keystone.runs.pipeline.table import find_ranking  # which loads all stages

    window = _require_window(config)
    topics, store = read_topics(config.topics), open_store(open_index(config.index))
    ranked, name = read_run(find_ranking(run)).list_hits(), str(run)
    ids = {one.id: [doc for doc, _ in ranked.get(one.id, ())][: config.answer.documents] for one in topics}
    texts = read_texts(store, [doc for own in ids.values() for doc in own])
    passages = {topic: {doc: texts[doc] for doc in own if doc in texts} for topic, own in ids.items()}
    missing = sorted({doc for own in ids.values() for doc in own} - texts.keys())
    lost = [f"{name}: {plural(len(missing), 'document')} not in the index, such as {missing[0]}"] if missing else []
    banks, cautions = _create_all(topics, (passages, lost), f"{name}: ranks no document", window, run_with_model)
    run_id, team_id, description = config.run_id, config.team_id, config.run_desc or describe_settings(config)
    return [replace(one, run_id=run_id, team_id=team_id, description=description) for one in banks], cautions


def create_banks_for(
    topics: Sequence[Topic], store: Store, judged: Judgments, config: RunConfig, run_with_model: RunWithModel
) -> tuple[list[NuggetBank], list[str]]:
    """Create the nuggets of these topics, as `create_banks` does. The configuration names the model."""
    window = _require_window(config)
    nothing = f"{judged.name}: names no document of grade {judged.relevant_from} or more"
    return _create_all(topics, read_passages(store, topics, judged), nothing, window, run_with_model)


def _require_window(config: RunConfig) -> int:
    """Return the window of the model in tokens. `UserError` without a model, before any document is read."""
    return config.require_model("nuggets: needs a language model; expected one under the key model").window


def _create_all(
    topics: Sequence[Topic],
    read: tuple[Mapping[str, dict[str, str]], list[str]],
    nothing: str,
    window: int,
    run_with_model: RunWithModel,
) -> tuple[list[NuggetBank], list[str]]:
    """Create the nuggets of topics from their passages by id, which come with cautions.

    `nothing` begins the error if there are no passages.
    """
    passages, cautions = read
    asked = [topic for topic in topics if passages.get(topic.id)]
    if not asked:
        raise UserError(f"{nothing} that the index has, for any of {plural(len(topics), 'topic')}")
    found = ask_model(
        run_with_model,
        lambda model: run_together(partial(_create_bank, model, one, passages[one.id], window) for one in asked),
    )
    if left := len(topics) - len(asked):
        cautions.append(f"{plural(left, 'topic')} without a relevant document, which get no nuggets")
    return [bank for bank, _ in found], [*cautions, *(caution for _, own in found for caution in own)]


def read_passages(
    store: Store, topics: Sequence[Topic], judged: Judgments
) -> tuple[Mapping[str, dict[str, str]], list[str]]:
    """Read the texts of the relevant documents of each topic by id, best first, and caution about missing ones."""
    rows = judged.qrels.select([topic.id for topic in topics]).list_rows(judged.relevant_from)
    relevant = [(topic_id, name) for topic_id, name, _ in rows]
    ids = {name for _, name in relevant}
    texts = read_texts(store, ids)
    found: dict[str, dict[str, str]] = {}
    for topic_id, name in relevant:
        if name in texts:
            found.setdefault(topic_id, {})[name] = texts[name]
    missing = sorted(ids - texts.keys())
    if not missing:
        return found, []
    return found, [f"{judged.name}: {plural(len(missing), 'relevant document')} not in the index, such as {missing[0]}"]


async def _create_bank(
    model: Model, topic: Topic, passages: Mapping[str, str], window: int
) -> tuple[NuggetBank, list[str]]:
    texts, failures = await create_nuggets(model, topic.narrative, list(passages.values()), window)
    labels = await rate_importance(model, topic.narrative, texts)
    sources = find_sources(texts, passages)
    nuggets = tuple(Nugget(text, label, sources=own) for text, label, own in zip(texts, labels, sources, strict=True))
    cautions = [f"{topic.id}: the model gave no nuggets of some passages: {one.reason}" for one in failures]
    if failed := labels.count("failed"):
        cautions.append(f"{topic.id}: the model gave no importance of {plural(failed, 'nugget')}")
    return NuggetBank(topic.id, nuggets, topic.narrative), cautions


def find_sources(texts: Sequence[str], passages: Mapping[str, str]) -> list[tuple[Source, ...]]:
    """Find for each nugget the documents that say it, by the words of these passages: see `rate_support`.

    `passages` has texts by the ids of documents or segments. If no passage supports a nugget in full, its documents are
    those whose passages support it in part.
    """
    weigh = make_weigher([find_terms(text) for text in passages.values()])
    found = []
    for nugget in texts:
        levels = {name: rate_support(nugget, text, weigh) for name, text in passages.items()}
        best = "full" if "full" in levels.values() else "partial"
        ids = dict.fromkeys(document_id(name) for name, level in levels.items() if level == best)
        found.append(tuple(map(Source, ids)))
    return found


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
    shown = [AskedCitation(text, texts[cited]) for text, cited in asked]
    rated = ask_model(run_with_model, lambda model: rate_citations(model, shown, window))
    ratings = dict(zip(asked, rated, strict=True))
    support = {pair: one for pair, one in ratings.items() if not isinstance(one, Failure)}
    found = [
        CitedAnswer(
            answer.topic_id,
            tuple(
                CitedText(s.text, tuple(Citation(name, support=support.get((s.text, name))) for name in s.citations))
                for s in answer.sentences
            ),
            run_id=run_id,
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


def assign_banks(
    paths: Sequence[Path], banks: Sequence[NuggetBank], name: str, run_with_model: RunWithModel
) -> tuple[list[NuggetBank], list[str]]:
    """Assign the nuggets of each topic to the answers of files or run directories; also cautions about topics.

    A missing answer states no nugget, and the model is not asked. `name` is the name of the nuggets in messages.
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
    """Caution about topics without an answer. `UserError` if no topic, or no topic of a file, `has` a `noun`."""
    if not topics:
        raise UserError(f"{noun}s: found none, expected at least one")
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
