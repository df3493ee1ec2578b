"""The ranking after an agent's research: what it noted, then read, then saw, fused with the narrative's ranking."""

from keystone.fusion.fuse import fuse_reciprocal_ranks
from keystone.generation.readers.settings import AgentSettings
from keystone.generation.readers.write import NOTED
from keystone.generation.types import EvidenceSet
from keystone.indexing.types import Store
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline import file_names
from keystone.runs.pipeline.evidence_files import EVIDENCE_FILE
from keystone.runs.pipeline.ranking.search import rank_by_place
from keystone.runs.pipeline.stage import StageKind, Work
from keystone.runs.pipeline.stages.narrative import describe_fusion
from keystone.runs.pipeline.values import rank_topics_in

RESEARCHED_FILE = rank_topics_in(file_names.RESEARCHED)
KINDS = (NOTED, "read", "seen")
"""The kinds of an agent's notes, in the order in which their documents are ranked."""


def has_research(config: RunConfig) -> bool:
    """Whether an agent reads, so that its research ranks documents."""
    return config.has_answers and isinstance(config.reader, AgentSettings)


def rank_researched(work: Work) -> None:
    """Fuse each narrative's ranking with the documents that an agent noted, read and saw, by reciprocal ranks.

    Documents of equal scores stay in the order of the narrative's ranking.
    """
    job, ranking = work.job, work.values.get(work.before.narrative_ranking)
    gathered: list[EvidenceSet] = work.values.get(EVIDENCE_FILE)
    rows = []
    for place, (topic, evidence) in enumerate(zip(job.topics, gathered, strict=True)):
        lists = [ranking.of(place).tolist(), list_researched(evidence, job.store)]
        fused = fuse_reciprocal_ranks(lists, job.config.fusion.k)
        rows.append([row for row, _ in fused[: job.config.fusion.get_depth(topic.id)]])
    work.values.put(RESEARCHED_FILE, rank_by_place(ranking.query_ids, rows))


def list_researched(evidence: EvidenceSet, store: Store) -> list[int]:
    """List the rows of the documents that an agent noted, then those that it read, then those that it saw."""
    ids = [span.doc_id for kind in KINDS for note in evidence.notes if note.kind == kind for span in note.sources]
    return [int(row) for row in store.rows(list(dict.fromkeys(ids)))]


STAGE = StageKind(
    name="research",
    wanted=has_research,
    makes=lambda _: (RESEARCHED_FILE,),
    reads=lambda before: (EVIDENCE_FILE, before.narrative_ranking),
    key=lambda job, _: [job.identity, describe_fusion(job.config)],
    work=rank_researched,
    ranks_narratives=lambda _: RESEARCHED_FILE,
    describe=lambda before: [
        {"name": RESEARCHED_FILE.stem, "method": "agent", "reranks": before.narrative_ranking.stem}
    ],
)
