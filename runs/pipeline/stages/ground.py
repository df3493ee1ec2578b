"""The documents that support or contradict each sentence of given answers, and the file that is submitted.

Source: the guidelines of BioGen 2025, task A. Each topic of such a run is a sentence.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

from keystone.generation.context.texts import CHARACTERS_PER_TOKEN
from keystone.generation.grading.rate_sentences import judge_documents, request_verdict
from keystone.generation.llm.model import Model
from keystone.generation.prompts.grading import GROUND, Verdict
from keystone.generation.types import Failure, Fallback
from keystone.indexing.io.json_values import digest
from keystone.retrieval.types import Topic
from keystone.runs.pipeline import file_names
from keystone.runs.pipeline.foresight import Ask, Asked, AskedTopic
from keystone.runs.pipeline.job import Job
from keystone.runs.pipeline.model_runner import describe_model
from keystone.runs.pipeline.stage import Before, StageKind, Work
from keystone.runs.pipeline.stages.gather import work_on_each_topic
from keystone.runs.pipeline.stages.submission import get_submission_file
from keystone.runs.pipeline.values import make_records_artifact
from keystone.runs.track_rules import EXISTING
from keystone.runs.tracks.grounded import Grounds, make_grounded_records

ASKS = ("track",)


@dataclass(frozen=True, slots=True)
class GroundRecord:
    """The verdict on each judged document of a sentence, best first, and each step without a usable reply."""

    topic_id: str
    verdicts: dict[str, Verdict]
    fallbacks: tuple[Fallback, ...] = ()


GROUNDS_FILE = make_records_artifact(file_names.GROUNDS, GroundRecord)


def ground_sentences(work: Work) -> None:
    """Judge the first documents of each sentence that are not cited yet, and write what is submitted."""
    job, ranking = work.job, work.values.get(work.before.narrative_ranking)
    window = job.config.require_model().window

    async def judge(model: Model | None, topic: Topic, rows: list[int]) -> GroundRecord:
        assert model is not None
        cited = {str(name) for name in topic.record.get(EXISTING) or ()}
        documents = [one for one in job.store.get(rows) if one.id not in cited][: job.config.answer.documents]
        found = await judge_documents(model, topic.narrative, [one.contents for one in documents], window)
        pairs = list(zip(documents, found, strict=True))
        verdicts: dict[str, Verdict] = {one.id: own for one, own in pairs if not isinstance(own, Failure)}
        failed = [Fallback(topic.id, "ground", own.reason) for _, own in pairs if isinstance(own, Failure)]
        return GroundRecord(topic.id, verdicts, tuple(failed))

    topics = [partial(judge, topic=topic, rows=ranking.of(i).tolist()) for i, topic in enumerate(job.topics)]
    records = work_on_each_topic(work, "Judging documents", topics)
    work.values.put(GROUNDS_FILE, records)
    grounds = {one.topic_id: _list_grounds(one.verdicts) for one in records}
    work.values.put(get_submission_file(job.config), make_grounded_records(job.topics, grounds, job.track, job.author))


def _list_grounds(verdicts: dict[str, Verdict]) -> Grounds:
    supporting = [name for name, verdict in verdicts.items() if verdict == "supports"]
    return Grounds(supporting, [name for name, verdict in verdicts.items() if verdict == "contradicts"])


def _make_key(job: Job, _: Before) -> Any:
    cited = [topic.record.get(EXISTING) for topic in job.topics]
    words = digest([GROUND.system, GROUND.user, GROUND.schema])
    author = [job.author.team_id, job.author.run_id]
    settings = [job.config.answer.documents, words, author, describe_model(job.config)]
    return [job.identity, job.plain_topics, cited, job.plain_track, *settings]


def _foresee(asked: Asked, one: AskedTopic) -> list[Ask]:
    documents = min(asked.job.config.answer.documents, asked.documents)
    shown = documents * CHARACTERS_PER_TOKEN * asked.model.window // 2
    return [Ask("ground", documents, request_verdict(one.topic.narrative, "", asked.model.window), shown)]


STAGE = StageKind(
    name="ground",
    wanted=lambda config: config.grounds,
    makes=lambda before: (GROUNDS_FILE, get_submission_file(before.config)),
    reads=lambda before: (before.narrative_ranking,),
    key=_make_key,
    work=ground_sentences,
    answers_need=lambda _: False,
    asks=ASKS,
    foresee=_foresee,
    records=lambda _: (GROUNDS_FILE,),
)
