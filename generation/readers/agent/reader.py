"""The reader `agent`: rounds of searching and reading for the open questions of a narrative, until notes answer them.

In a round, an agent works on each open question, all side by side. Each has an equal share of the calls and tokens, and
one share is the judge's. Then the judge rates each question by the notes. The next round works on what is open, from
the searches that the judge proposes. The last step of the trace says why the research ended: `covered` (all questions
are answered), `budget` (the judge could not be asked, or an agent spent its share and no note came), `repeats` (a round
brought no note, and each of its agents repeated itself to the end), `nothing new` (a round brought no note) or `limit`
(the last round is over).

Without a model, rules do the same: they search for the question, read the best segments of its hits, and note the
closest sentence. The next round searches for the question together with that sentence, as IRCoT does
(arXiv 2212.10509, section 3).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from keystone.generation.answers.quotes import find_quoted_segments
from keystone.generation.answers.sentences import tidy
from keystone.generation.context.texts import clip, count_tokens, neutralise
from keystone.generation.llm.ask import run_together
from keystone.generation.llm.model import Model
from keystone.generation.prompts import readers as prompts
from keystone.generation.queries.compose import is_narrative_query
from keystone.generation.readers.agent.judge import (
    Judging,
    Judgment,
    judge_by_notes,
    judge_by_rules,
    read_judgment,
    request_judgment,
    walk_by_rules,
)
from keystone.generation.readers.agent.tools import TOOLS, Desk, NoteTaken, State, World, search_text, take_notes
from keystone.generation.readers.loop import DONE_BEFORE, Allowance, Asked, Taken, Walk, ask_within, walk
from keystone.generation.readers.reader import Hits, Task, Tools
from keystone.generation.readers.settings import AgentSettings
from keystone.generation.readers.structure_reader import WritesFromEvidence, is_citable, order_by_text, score_by_place
from keystone.generation.readers.write import NOTED, cut_to_tokens
from keystone.generation.replies import read_part
from keystone.generation.types import (
    Evidence,
    EvidenceSet,
    Failure,
    Message,
    Note,
    QuestionCheck,
    Reply,
    Request,
    Step,
    Stop,
)
from keystone.indexing.errors import Unusable
from keystone.indexing.types import Span
from keystone.retrieval.types import Query

REPLY_TOKENS = 800
"""The most tokens of a step's reply."""
STOPS: dict[str, Stop] = {
    "covered": "done",
    "budget": "budget",
    "repeats": "stalled",
    "nothing new": "stalled",
    "limit": "max_steps",
}
"""The reasons for which research ends, and the reader's stop for each."""


@dataclass(slots=True)
class Research:
    """What is known of a narrative so far: the notes, how far each question is answered, and the trace."""

    notes: list[NoteTaken] = field(default_factory=list)
    judged: dict[int, Judgment] = field(default_factory=dict)
    searched: list[str] = field(default_factory=list)
    seen: dict[Span, tuple[int, int]] = field(default_factory=dict)
    """Each stretch that was shown, with the row of its document and the place of its agent's question."""
    read: dict[Span, int] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)

    def list_open(self) -> list[int]:
        """List the places of the questions that are not answered."""
        return [place for place, one in self.judged.items() if one.found != "answered"]

    def add(self, state: State, steps: Sequence[Step], world: World) -> None:
        """Add what an agent saw and kept."""
        by_id = {world.desk.documents[row].id: row for row in state.rows}
        own = {span: by_id[span.doc_id] for span in state.spans}
        self.seen |= {span: (row, world.place) for span, row in own.items() if span not in self.seen}
        self.read |= {span: row for span, row in own.items() if row in state.read}
        self.searched += [text for text in state.searched if text not in self.searched]
        self.notes += [note for note in state.notes if note not in self.notes]
        self.steps += steps


@dataclass(frozen=True, slots=True)
class Agent(WritesFromEvidence):
    """The reader; see the module."""

    tools: Tools

    async def gather(self, task: Task, hits: Hits) -> EvidenceSet:
        """See `keystone.generation.readers.reader.Reader`."""
        settings = self.tools.reader
        assert isinstance(settings, AgentSettings)
        desk = Desk(self.tools, task, hits)
        research = Research(judged=dict.fromkeys(list_asked_places(task.context.queries), Judgment("not")))
        allowance = Allowance(settings.calls, settings.tokens)
        why, number = "", 0
        while not why:
            before = len(research.steps)
            await self._work_through_round(desk, research, allowance, number)
            number += 1
            why = find_stop(research, research.steps[before:], allowance, number >= settings.rounds)
        research.steps.append(Step("", "", number, 0, "agent", "", "", f"end: {why}", "", (), 0, 0, STOPS[why]))
        self.tools.tell(research.steps[-1])
        return await asyncio.to_thread(self._make_evidence, desk, research, STOPS[why])

    async def _work_through_round(self, desk: Desk, research: Research, allowance: Allowance, number: int) -> None:
        """Let an agent work on each open question, then judge by the notes of all."""
        settings, model, queries = self.tools.reader, self.tools.asks, desk.task.context.queries
        assert isinstance(settings, AgentSettings)
        places = research.list_open()
        shares = allowance.split(len(places) + 1)
        worlds = [
            World(desk, queries[place], place, settings.hits, settings.observation_tokens, tuple(research.notes))
            for place in places
        ]
        begins = [research.judged[place].searches or (queries[place].question,) for place in places]
        work = [
            partial(explore, model, settings, world, begin, share) if model else partial(walk_by_rules, world, begin)
            for world, begin, share in zip(worlds, begins, shares, strict=False)
        ]
        for world, done in zip(worlds, await run_together(work), strict=True):
            own = (replace(step, agent=len(queries) * number + world.place) for step in done.steps)
            research.add(done.state, tuple(own), world)
        judging = Judging(desk.task.topic.narrative, queries, places, research.notes, research.searched)
        if model is None:
            research.judged |= await judge_by_rules(desk, judging, settings.least_cosine)
        else:
            read = partial(read_judgment, judging=judging)
            asked = await ask_within(model, request_judgment(judging), read, shares[-1])
            research.judged |= judge_by_notes(judging) if isinstance(asked.found, Failure) else asked.found
            research.steps.append(_make_judge_step(research, queries, places, asked, number))
            self.tools.tell(research.steps[-1])
        allowance.calls = allowance.tokens = 0
        allowance.give_back(shares)

    def _make_evidence(self, desk: Desk, research: Research, stop: Stop) -> EvidenceSet:
        """Make evidence of the segments that hold the notes' quotes; without notes, of all that was shown."""
        queries = desk.task.context.queries
        ordered = put_best_first(research)
        items = make_items(desk, research, ordered, queries)
        by_query = self.tools.settings.is_by_query
        groups = [[one for one in items if one.query_id == query.id] for query in queries] if by_query else [items]
        order = list(dict.fromkeys([*(note.row for note in ordered), *(row for row, _ in research.seen.values())]))
        documents = [desk.documents[row] for row in order]
        kept = [
            item
            for own in groups
            for item in order_by_text(score_by_place(cut_to_tokens(own, self.tools.evidence_tokens)), documents)
        ]
        known = {document.id for document in desk.task.context.documents.values()}
        cited = dict.fromkeys(item.span.doc_id for item in kept)
        notes = tuple(
            Note(note.claim, (note.quote,), NOTED, step, queries[note.place].id) for step, note in enumerate(ordered)
        )
        found = desk.list_found(research.searched)
        kinds = (("read", [*research.read]), ("seen", [*research.seen]), ("found", found))
        seen = (Note("", tuple(spans), kind) for kind, spans in kinds if spans)
        return EvidenceSet(
            tuple(kept),
            (*notes, *seen),
            stop if kept else "empty",
            self.tools.reader.name,
            self.tools.asks.name if self.tools.asks else "rules",
            tuple(replace(step, number=place) for place, step in enumerate(research.steps)),
            make_checks(research, queries),
            tuple(doc_id for doc_id in cited if doc_id not in known),
        )


def _make_judge_step(
    research: Research, queries: Sequence[Query], places: Sequence[int], asked: Asked[dict[int, Judgment]], number: int
) -> Step:
    said = "; ".join(f"{queries[place].id}: {research.judged[place].found}" for place in places)
    shown = "\n".join(f"[{at}] {note.claim}" for at, note in enumerate(research.notes))
    return Step(
        "", "", len(queries) * number, 0, "agent_judge", shown, asked.reply, said, asked.reason, (),
        asked.prompt_tokens, asked.reply_tokens, asked.stop,
    )  # fmt: skip


def list_asked_places(queries: Sequence[Query]) -> list[int]:
    """List the places of the queries that ask a question; that of the narrative if there is no other query."""
    asked = [place for place, query in enumerate(queries) if not is_narrative_query(query)]
    return asked or list(range(len(queries)))


def find_stop(research: Research, steps: Sequence[Step], allowance: Allowance, last: bool) -> str:
    """Find the reason why research ends after a round of these steps; empty if it goes on.

    It goes on if an agent has spent its share and there are new notes: the next round shares what the others left.
    """
    if not research.list_open():
        return "covered"
    spent, noted = {step.purpose for step in steps if step.stop == "budget"}, any(step.added for step in steps)
    if allowance.calls < 2 or "agent_judge" in spent or (spent and not noted):
        return "budget"
    if not noted:
        ends = [step.observation for step in steps if step.purpose == "agent" and step.stop]
        return "repeats" if ends and all(end.startswith(DONE_BEFORE) for end in ends) else "nothing new"
    return "limit" if last else ""


def put_best_first(research: Research) -> list[NoteTaken]:
    """Put the notes first that answer each question, the best one first, so that a short answer says what matters."""
    best = [at for _, judged in sorted(research.judged.items()) for at in judged.notes]
    return [research.notes[at] for at in dict.fromkeys([*best, *range(len(research.notes))])]


def make_items(desk: Desk, research: Research, notes: Sequence[NoteTaken], queries: Sequence[Query]) -> list[Evidence]:
    """Make evidence in the order of the notes: the segments that hold each quote, each segment once for a query.

    Without notes, the evidence is what was shown and can be cited, in that order, for the query whose agent saw it
    first.
    """
    found: dict[tuple[str, Span], Evidence] = {}
    for note in notes:
        document = desk.documents[note.row]
        for span in [one.span for one in find_quoted_segments(document, note.quote)] or [note.quote]:
            text = document.text[span.start : span.end]
            item = Evidence(span, text, 0.0, queries[note.place].id, why=f"noted: {note.claim}")
            found.setdefault((item.query_id, span), item)
    if not notes:
        for span, (row, place) in research.seen.items():
            if is_citable(desk.documents[row], span):
                text = desk.documents[row].text[span.start : span.end]
                found["", span] = Evidence(span, text, 0.0, queries[place].id, why="shown to the agent")
    return list(found.values())


def make_checks(research: Research, queries: Sequence[Query]) -> tuple[QuestionCheck, ...]:
    """Make the check of each question, with the quote of its best note."""
    checks = []
    for place, judged in sorted(research.judged.items()):
        own = judged.notes or tuple(at for at, note in enumerate(research.notes) if note.place == place)
        quote = research.notes[own[0]].quote if own else None
        checks.append(QuestionCheck(queries[place].id, judged.found, quote, judged.searches))
    return tuple(checks)


async def explore(
    model: Model, settings: AgentSettings, world: World, begin: Sequence[str], allowance: Allowance
) -> Walk[State]:
    """Let an agent work on its question, at most `settings.steps` steps. It begins with searches that cost no call."""
    state, shown = State(), list[str]()
    for text in begin:
        state, observation = await search_text(world, state, text)
        shown.append(observation)
    beginning = "\n\n".join(shown)
    request = partial(make_request, settings, world, beginning)

    async def decide(state: State, steps: Sequence[Step]) -> Asked[prompts.Action]:
        return await ask_within(model, request(state, steps), read_action, allowance)

    found = await walk(state, settings.steps, decide, partial(take_action, world), world.desk.tools.tell, request)
    return replace(found, steps=(replace(found.steps[0], shown=beginning), *found.steps[1:]))


def read_action(reply: Reply) -> prompts.Action:
    """Read the notes and the tool of a step. `Unusable` if the reply names no tool."""
    return read_part(reply, prompts.Action, lambda one: "tool" in one)


async def take_action(world: World, state: State, action: prompts.Action | Failure) -> Taken[State]:
    """Take an action's notes, and then use its tool. If the tool fails, it says why, and the notes stay.

    If an action is repeated, its notes count, but what its tool would show stays hidden. After a repeated search, the
    tool `more` goes on with that search.
    """
    if isinstance(action, Failure):
        return Taken(state, _make_step(world, state, state, "", f"Error: {action.reason}."), valid=False, news=False)
    noted, refused = take_notes(world, state, action.notes)
    document = "" if action.document is None or action.tool not in ("read", "find") else str(action.document)
    said = neutralise(" ".join(filter(None, [action.tool, document, tidy(action.text or "")])))
    if action.tool == "done":
        return Taken(noted, _make_step(world, state, noted, said, refused), done=True)
    try:
        after, observation = await TOOLS[action.tool](world, noted, action)
    except Unusable as error:
        observation = "\n".join(filter(None, [f"Error: {error}.", refused]))
        return Taken(noted, _make_step(world, state, noted, said, observation), valid=False, news=False)
    step = _make_step(world, state, after, said, "\n".join(filter(None, [observation, refused])))
    news = (after.spans, after.notes) != (state.spans, state.notes)
    part = {"read": action.page, "plan": len(noted.notes)}.get(action.tool, "")
    key = "" if action.tool == "more" else f"{said} {part}"
    kept = replace(noted, searched=after.searched, demands=after.demands, at=0) if action.tool == "search" else noted
    return Taken(after, step, key=key, news=news, kept=kept, remark=refused)


def _make_step(world: World, before: State, after: State, said: str, observation: str) -> Step:
    added = tuple(note.quote for note in after.notes[len(before.notes) :])
    return Step(world.query.id, "", 0, 0, "agent", "", "", said, observation, added)


def make_request(settings: AgentSettings, world: World, beginning: str, state: State, steps: Sequence[Step]) -> Request:
    """Make the request for the next step: the question, its first hits, and the steps so far in turns."""
    own = [note for note in (*world.taken, *state.notes) if note.place == world.place]
    left = settings.steps - len(steps)
    status = prompts.AGENT_STATUS.format(
        noted=clip("; ".join(note.claim for note in own), REPLY_TOKENS) or "nothing",
        searched=neutralise("; ".join(state.searched)),
        left=left,
    )
    status += prompts.AGENT_LAST_STEP if left == 1 else ""
    narrative, question = world.desk.task.topic.narrative, world.query.question
    request = prompts.AGENT.request(REPLY_TOKENS, narrative=narrative, question=question, begin=beginning)
    turns = [*request.messages, *make_turns(steps, settings.window - count_tokens(status))]
    role, last = turns.pop()
    return replace(request, messages=(*turns, (role, last + status)), functions=prompts.AGENT_FUNCTIONS)


def make_turns(steps: Sequence[Step], window: int) -> list[Message]:
    """Make turns of the steps. The last observations that fit into `window` tokens stay whole; others become a line."""
    turns, left = list[list[Message]](), window
    for step in reversed(steps):
        left -= count_tokens(step.observation)
        observation = step.observation if left >= 0 or not turns else step.observation.partition("\n")[0]
        said = clip(step.reply, REPLY_TOKENS) or "..."
        turns.append([("assistant", said), ("user", observation or "Noted.")])
    return [message for own in reversed(turns) for message in own]
