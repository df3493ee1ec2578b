"""The cited answer to each narrative, written from its evidence."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from keystone.generation.llm.model import Model
from keystone.generation.rules.words import find_terms
from keystone.generation.types import Answer, EvidenceSet, Sentence
from keystone.runs.pipeline import file_names
from keystone.runs.pipeline.evidence_files import EVIDENCE_FILE
from keystone.runs.pipeline.job import Job
from keystone.runs.pipeline.model_runner import describe_model
from keystone.runs.pipeline.stage import Before, StageKind, Work
from keystone.runs.pipeline.stages import gather
from keystone.runs.pipeline.stages.answer_cost import list_answer_asks
from keystone.runs.pipeline.stages.chosen_documents import SearchedTopic, list_chosen, list_chosen_inputs, open_task
from keystone.runs.pipeline.values import leave_out_empty, make_records_artifact


def _encode(answer: Answer) -> dict[str, Any]:
    """Encode an answer, without the keys that only some methods fill."""
    record = leave_out_empty(asdict(answer), "checks", "missing")
    return {**record, "sentences": [leave_out_empty(one, "question") for one in record["sentences"]]}


ANSWERS_FILE = make_records_artifact(file_names.ANSWERS, Answer, _encode)


def answer_narratives(work: Work) -> None:
    """Answer each narrative from its evidence, with citations."""
    job = work.job

    async def answer(model: Model | None, searched: SearchedTopic, selected: Sequence[int], own: EvidenceSet) -> Answer:
        task = None if own.added else work.values.get_held(searched.topic.id)
        if task is None:
            task, _ = await open_task(job, searched, selected, own.added)
        return point_to_evidence(await gather.open_run_reader(job, model).answer(task, own), own)

    evidence = work.values.get(EVIDENCE_FILE)
    topics = [
        partial(answer, searched=searched, selected=selected, own=own)
        for (searched, selected), own in zip(list_chosen(work), evidence, strict=True)
    ]
    work.values.put(ANSWERS_FILE, gather.work_on_each_topic(work, "Answering", topics))


def point_to_evidence(answer: Answer, found: EvidenceSet) -> Answer:
    """Point each sentence to its evidence: for each citation, the item in that segment with most of its terms.

    If several items have the same number of terms, the first one counts. A citation of a segment without evidence adds
    no pointer.
    """
    terms = [find_terms(item.text) for item in found.items]

    def point(sentence: Sentence) -> Sentence:
        own = find_terms(sentence.text)
        places = (
            max(inside, key=lambda place: len(own & terms[place]))
            for citation in sentence.citations
            if (inside := [place for place, item in enumerate(found.items) if citation in item.segments])
        )
        return replace(sentence, evidence=tuple(dict.fromkeys(places)))

    return replace(answer, sentences=tuple(map(point, answer.sentences)))


def _make_key(job: Job, _: Before) -> Any:
    config = job.config
    settings = config.model_dump(mode="json", include={"answer"})["answer"]
    model = describe_model(config, gather.ASKS)
    return [
        config.reader.name, job.index.key, job.plain_topics, job.plain_track, settings, model, *job.segment_settings,
    ]  # fmt: skip


STAGE = StageKind(
    name="answer",
    wanted=lambda config: config.has_answers,
    makes=lambda _: (ANSWERS_FILE,),
    reads=lambda before: (EVIDENCE_FILE, *list_chosen_inputs(before)),
    key=_make_key,
    work=answer_narratives,
    asks=gather.ASKS,
    foresee=lambda asked, one: list_answer_asks(asked.job.config, one, asked.model, "answer"),
    records=lambda _: (ANSWERS_FILE,),
)
