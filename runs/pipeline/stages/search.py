"""The ranking of each query by each system, in one batch: by search, and by the runs of other systems."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from keystone.generation.context.texts import CHARACTERS_PER_TOKEN
from keystone.generation.prompts.queries import MOST_TEXTS
from keystone.generation.summarise import LONG_DOCUMENT_TOKENS, request_summary, summarise
from keystone.generation.types import Fallback
from keystone.indexing.types import Document
from keystone.indexing.vectors.of_documents import TextsOf, join_title_and_text
from keystone.retrieval.types import Rankings
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline import file_names
from keystone.runs.pipeline.foresight import Ask, Asked, AskedTopic
from keystone.runs.pipeline.job import Job
from keystone.runs.pipeline.model_runner import RunWithModel, ask_model, describe_model
from keystone.runs.pipeline.stage import Before, StageKind, Work
from keystone.runs.pipeline.stages.queries import QUERIES_FILE, get_queries, rank_queries_in
from keystone.runs.pipeline.values import Artifact, make_records_artifact

ASKS = ("retrieval.summarise",)


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary that is embedded in place of a long document, and the model's failures to write it."""

    doc_id: str
    summary: str
    fallbacks: tuple[Fallback, ...] = ()


SUMMARIES_FILE = make_records_artifact(file_names.SUMMARIES, Summary)


def list_system_files(config: RunConfig) -> list[Artifact[Rankings]]:
    """List the files with the ranking of each query by each system, in the order of the systems."""
    return [rank_queries_in(file_names.name_system_file(system)) for system in config.list_systems()]


def rank_by_systems(work: Work) -> None:
    """Rank documents for every query by each system, in one batch. Summaries come with it, if the run has any."""
    job, values = work.job, work.values
    made: list[Summary] = []
    found = work.means.search(job, get_queries(values), choose_texts(job, work.run_with_model, made.append))
    for file, rankings in zip(list_system_files(job.config), found.values(), strict=True):
        values.put(file, rankings)
    if job.config.retrieval.summarise:
        values.put(SUMMARIES_FILE, made)


def choose_texts(
    job: Job, run_with_model: RunWithModel, keep: Callable[[Summary], None] = lambda _summary: None
) -> TextsOf:
    """Choose the texts that are embedded for candidates: their contents, or summaries (paper, section 2.2).

    `keep` receives each summary.
    """
    if not job.config.retrieval.summarise:
        return join_title_and_text
    window = job.config.require_model().window

    def summarise_long(documents: Sequence[Document]) -> list[str]:
        summaries, missed = ask_model(run_with_model, lambda model: summarise(model, documents, window))
        for doc_id, text in summaries.items():
            keep(Summary(doc_id, text, tuple(one for one in missed if one.topic_id == doc_id)))
        return [summaries.get(document.id, document.contents) for document in documents]

    return summarise_long


def describe_retrieval(job: Job) -> dict[str, Any]:
    """Describe the settings of a search for the key of a stage."""
    unused = {"runs", "max_rate"} | (set() if job.index.passages else {"first_passage_weight"})
    given: dict[str, Any] = {"runs": [one.sha256 for one in job.given]} if job.given else {}
    settings = job.config.retrieval.model_dump(mode="json")
    if isinstance(settings["systems"], dict):  # a weight changes no search
        settings["systems"] = {name: {**own, "weight": None} for name, own in settings["systems"].items()}
    identities = {name: one.identify() for name, one in job.config.make_systems().items()}
    if named := {name: identity for name, identity in identities.items() if identity}:
        given["models"] = named
    return {key: value for key, value in settings.items() if key not in unused} | given


def _make_key(job: Job, _: Before) -> Any:
    systems = job.config.list_systems()
    return [job.identity, describe_retrieval(job), systems, describe_model(job.config, ASKS)]


def _list_files(before: Before) -> tuple[Artifact[Any], ...]:
    summaries = (SUMMARIES_FILE,) if before.config.retrieval.summarise else ()
    return (*list_system_files(before.config), *summaries)


def _foresee(asked: Asked, one: AskedTopic) -> Iterator[Ask]:
    """Foresee a summary of each candidate of any topic, of half the window at most. The first topic pays for all."""
    config, model = asked.job.config, asked.model
    if config.retrieval.summarise and asked.job.ranks_candidates and one is asked.topics[0]:
        texts = 1 + config.grading.rounds * MOST_TEXTS
        candidates = sum(1 + topic.queries * texts for topic in asked.topics) * config.retrieval.depth
        number, limit = min(asked.documents, candidates), min(model.window // 4, LONG_DOCUMENT_TOKENS - 1)
        shown = number * CHARACTERS_PER_TOKEN * (model.window // 2)
        yield Ask("search", number, request_summary("", "", limit), shown)


def _describe(before: Before) -> Iterator[dict[str, Any]]:
    for name, system in before.config.make_systems().items():
        yield {"name": name, **system.describe(), "depth": system.depth}
    for name in before.config.list_given_systems():
        yield {"name": name, "method": "run of another system", "depth": before.config.retrieval.depth}


STAGE = StageKind(
    name="search",
    makes=_list_files,
    reads=lambda _: (QUERIES_FILE,),
    key=_make_key,
    work=rank_by_systems,
    asks=ASKS,
    foresee=_foresee,
    notes=lambda _: (SUMMARIES_FILE,),
    records=lambda before: (SUMMARIES_FILE,) if before.config.retrieval.summarise else (),
    why_kept=lambda _: "searches the index",
    describe=_describe,
)
