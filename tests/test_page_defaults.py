"""The pages state the defaults, the limits and the numbers that the program has. docs/config.md is made from them.

A statement has a form that a parser knows, or `PHRASES` makes it from the program. Each further one is an error, unless
`OTHERS` says why not.
"""

import re
from inspect import signature
from typing import Any

import pytest
import yaml
from typer.main import get_command

from keystone.generation.answers.cite import LEAST_GAIN_SHARE
from keystone.generation.llm.endpoints import MOST_LATE_TRIES
from keystone.generation.llm.settings import ModelSettings
from keystone.generation.prompts.evaluation import MOST_NUGGETS
from keystone.generation.readers.settings import GraphReaderSettings, RhetoricalSettings
from keystone.generation.rules.support import LEAST_COSINE
from keystone.indexing.attached.rest_server import DOCUMENT_LIMIT_BYTES, HIT_LIMIT_BYTES
from keystone.indexing.attached.rest_server import REPLY_TIMEOUT_S as SEARCH_S
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.corpora.archives import LONGEST_MEMBER_BYTES
from keystone.indexing.corpora.locate import MOST_COVERAGE_RATIO
from keystone.indexing.corpora.segments import STRIDE_SENTENCES, WINDOW_SENTENCES
from keystone.indexing.io.http import REPLY_LIMIT_BYTES
from keystone.indexing.io.json_values import MOST_LEVELS
from keystone.indexing.io.reading import HELD_LIMIT_BYTES, LONGEST_LINE_BYTES
from keystone.indexing.io.retry import MOST_TRIES, PATIENCE_S
from keystone.indexing.languages import DEFAULT_LANGUAGE
from keystone.indexing.opensearch.store import DOCUMENTS_LIMIT_BYTES
from keystone.indexing.settings import StrictSettings
from keystone.indexing.types import LONGEST_DOCUMENT_ID, LONGEST_ID
from keystone.indexing.vectors.endpoint import REPLY_LIMIT_BYTES as EMBEDDINGS_BYTES
from keystone.indexing.vectors.endpoint import REPLY_TIMEOUT_S, WINDOW_TOKENS
from keystone.indexing.vectors.recall import DEPTHS, MOST_QUERIES
from keystone.runs.cli.commands.serve_command import LOG_FILE
from keystone.runs.cli.main import app
from keystone.runs.config.read import DEFAULT_RUN_ID, read_config
from keystone.runs.config.reference import find_models
from keystone.runs.config.run_config import RunConfig
from keystone.runs.doctor.cluster import MIN_HEAP_GIB
from keystone.runs.evaluation.arena.fit import RIDGE
from keystone.runs.evaluation.judging.redraw import DRAWS
from keystone.runs.evaluation.measures import LEAST_AP
from keystone.runs.evaluation.reproduce_track import MOST_DIFFERENCE
from keystone.runs.evaluation.resample import RESAMPLES
from keystone.runs.evaluation.weights import LEAST_GAIN
from keystone.runs.exchange.bundle.reproduce import MOST_GB
from keystone.runs.serving.agents.tools import (
    DEEPEST_RANK,
    DEFAULT_REPLY_TOKENS,
    LEAST_REPLY_TOKENS,
    MOST_REPLY_TOKENS,
    MOST_RESULTS,
    Fetch,
    Narrative,
    Search,
)
from keystone.runs.serving.server.guard import Guard
from keystone.runs.serving.server.listen import HEAD_BYTES, HEAD_S, MOST_CONNECTIONS, READ_S, STOP_S
from keystone.runs.serving.service import MOST_CHARACTERS, MOST_HITS
from keystone.runs.track_rules import TRACKS
from keystone.runs.tracks.violations import SUBMISSION_LIMIT_BYTES
from tests.support.pages import PAGES

TEXTS = {
    page.stem: " ".join(re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE).split())
    for page in PAGES
    if page.parent.name == "docs" and page.name not in ("README.md", "config.md")
}
"""The text of each page without its blocks. The table of readers on docs/papers.md is made from the program."""
TEXTS["papers"] = TEXTS["papers"].partition("## The settings of `reader`")[0]
KEY = r"`([a-z_]+(?:\.[a-z0-9_]+)*)`"
STATED = re.compile(
    r"`([a-z_]+(?:\.[a-z_]+)*): ([^`]+)`(?:, | \()the default"
    r"|by default \(`([a-z_]+(?:\.[a-z_]+)*): ([^`]+)`\)"
    rf"|{KEY} is `([^`]+)` by default"
    rf"|{KEY} \(([\d.]+)\)"
    rf"|{KEY}, ([\d.]+),",
    re.IGNORECASE,
)
"""The forms: `K: V`, the default; by default (`K: V`); `K` is `V` by default; `K` (V); `K`, V, ..."""
OPTION = re.compile(r"`(--[a-z-]+)` \(([\d.]+)\)")
"""`--OPTION` (VALUE)."""
NAMES = "no one two three four five six seven eight nine ten".split()


def find_default(key: str) -> Any:
    """The default of a key of a run's configuration."""
    model: Any = RunConfig
    *above, last = key.split(".")
    for name in above:
        model = find_models(model.model_fields[name].annotation)[0]
    return model.model_fields[last].default


def write_bytes(number: int) -> str:
    unit, power = next((unit, power) for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)) if number >= 2**power)
    return f"{number >> power} {unit}"


def find_argument(model: type[StrictSettings], name: str) -> Any:
    """The default of an argument of a tool, or of a setting."""
    return model.model_fields[name].default


def list_commands(command: Any) -> list[Any]:
    below = [one for inner in getattr(command, "commands", {}).values() for one in list_commands(inner)]
    return [command, *below]


PARAMETERS = [param for command in list_commands(get_command(app)) for param in command.params]


def find_option(command: str, option: str) -> Any:
    """The default of an option of a command."""
    parameters = get_command(app).commands[command].params  # type: ignore[attr-defined]
    return next(param.default for param in parameters if option in param.opts)


GUARD = Guard()
DEFAULT_RUN = read_config(None, ["run_id=a", "index=index", "topics=topics.jsonl"], None)
PATHS = find_argument(GraphReaderSettings, "nodes") * find_argument(GraphReaderSettings, "functions")
assert DOCUMENT_LIMIT_BYTES == REPLY_LIMIT_BYTES
PHRASES = {
    "corpora": [
        f"`{DEFAULT_LANGUAGE}` (the default)",
        f"windows of {WINDOW_SENTENCES} sentences, one every {STRIDE_SENTENCES} sentences",
        f"more than {LONGEST_DOCUMENT_ID} characters (a segment: {LONGEST_ID:,})",
        f"one of more than {write_bytes(LONGEST_LINE_BYTES)}",
        f"that repeat their document {MOST_COVERAGE_RATIO} times",
    ],
    "evaluate": [
        f"({RESAMPLES:,} bootstrap samples of topics)",
        f"at least {LEAST_AP:.5f}".replace("0.", "."),
        f"differs by more than {MOST_DIFFERENCE:g}".replace("0.", "."),
    ],
    "exchange": [f"more than {MOST_GB:g} GB is refused"],
    "improve": [f"a gain of more than {LEAST_GAIN:g}".replace("0.", ".")],
    "index": [
        f"| `{signature(BuildSettings).parameters['faiss'].default}` | exact, the default |",
        f"else to {WINDOW_TOKENS:,} tokens",
        f"the exact {DEPTHS[0]} and {DEPTHS[1]} nearest vectors",
        f"at most {MOST_QUERIES:,} of the index's own vectors",
        f"nothing succeeds for {NAMES[round(PATIENCE_S / 60)]} minutes",
    ],
    "judge": [
        f"Each of {DRAWS} draws",
        f"a ridge of {RIDGE:g} keeps",
        f"makes up to {MOST_NUGGETS} nuggets a topic",
    ],
    "methods": [
        f"By default the first stage adds the {DEFAULT_RUN.first_stage} of",
        f"cover at least {LEAST_GAIN_SHARE:.0%} anew".replace("%", " %"),
    ],
    "models": [
        f"**{find_argument(ModelSettings, 'backend')}** (the default)",
        f"A call that times out {NAMES[MOST_LATE_TRIES]} times",
    ],
    "papers": [
        f"The number of chunks ({find_argument(RhetoricalSettings, 'chunks')})",
        f"at most {PATHS} for paths",
    ],
    "engineer": [
        f"By default the server listens on {find_option('serve', '--host')} without",
        f"`--log FILE`, by default `{LOG_FILE}` in the run directory, which is `out/{DEFAULT_RUN_ID}/`",
        f"the first character ({find_argument(Fetch, 'start')})",
        f"the number of the first query ({find_argument(Narrative, 'start')})",
        f"the number of the first sentence ({find_argument(Narrative, 'start')})",
        f"a cosine below {LEAST_COSINE:g} with the question",
        f"at most {MOST_CHARACTERS:,} characters",
        f"the number of documents, at most {MOST_HITS:,}",
        f"| body of a request | {write_bytes(GUARD.body_bytes)}, {GUARD.body_s:g} seconds |",
        f"| levels of JSON | {MOST_LEVELS} |",
        f"| first line and headers | {write_bytes(HEAD_BYTES)}, {HEAD_S:g} seconds |",
        f"| requests under way | {GUARD.requests} |",
        f"| connections | {MOST_CONNECTIONS:,} |",
        f"| questions of a narrative | {find_default('queries.questions')}, ",
        f"| beginning of a reply | {GUARD.reply_s:g} seconds, ",
        f"| a client that reads nothing of its reply | {READ_S:g} seconds |",
        f"for up to {STOP_S} seconds",
        f"the most results ({find_argument(Search, 'k')}, at most {MOST_RESULTS})",
        f"the rank of the first ({find_argument(Search, 'start')}, at most {DEEPEST_RANK:,})",
        f"`budget_tokens` ({DEFAULT_REPLY_TOKENS:,}; from {LEAST_REPLY_TOKENS} to {MOST_REPLY_TOKENS:,})",
    ],
    "participant": [
        f"`{find_default('track')}` (the default)",
        f"`run_id` (at most {TRACKS['rag26'].run_id_length} characters)",
        f"there are at most {TRACKS['biogen'].runs}.",
        f"up to {find_default('retrieval.depth'):,} for each query",
    ],
    "troubleshooting": [
        f"less than {MIN_HEAP_GIB:g} GiB refuses",
        f"up to {NAMES[MOST_TRIES]} times",
        f"Late means {NAMES[round(REPLY_TIMEOUT_S / 60)]} minutes for embeddings, {SEARCH_S:g} seconds for a search",
        f"where {NAMES[MOST_LATE_TRIES]} late replies are a failure",
        f"| {write_bytes(LONGEST_LINE_BYTES)}; a file in an archive {write_bytes(LONGEST_MEMBER_BYTES)} |",
        f"| ids | {LONGEST_DOCUMENT_ID} characters, of segments {LONGEST_ID:,} |",
        f"decompressed | {write_bytes(SUBMISSION_LIMIT_BYTES)}; {write_bytes(HELD_LIMIT_BYTES)} |",
        f"| {write_bytes(EMBEDDINGS_BYTES)}, and {MOST_LEVELS} levels of JSON |",
        f"of a REST server | {write_bytes(DOCUMENT_LIMIT_BYTES)}, and {write_bytes(HIT_LIMIT_BYTES)} for each hit |",
        f"| {write_bytes(REPLY_LIMIT_BYTES)}, with documents {write_bytes(DOCUMENTS_LIMIT_BYTES)} |",
        f"| a bundle, unpacked | {MOST_GB:g} GB",
    ],
}
OTHERS = {
    r"of the default rose|the default's nDCG|the default is \.030": "figures of measurements, from benchmarks/LOG.md",
    r"at most \.549|up to \.027": "figures of measurements, from benchmarks/LOG.md",
    r"#the-default-on": "the anchor of a link",
    r"add up to 3|tokens, seconds": "no limit: a sum of grades, and a list of what is counted",
    r"exactly 10 variants|\([23]\.\d(?:\.\d)?\)|\(equation 4\)": "what the paper says, with its sections",
    r"search \| default \| value": "the head of a table",
    r"at most 8 digits": "the form of PMIDs: tests/runs/tracks/test_page.py",
    r"\| (?:run ids|length|length of our answers, [^|]+) \|(?:[^|]+\|){9}": "rows of: tests/runs/tracks/test_page.py",
}
"""What looks like a statement about the program and is none, or is checked elsewhere, with the reason."""
MENTIONED = re.compile(
    r"\bdefault\b|\b[\d,.]+ (?:KiB|MiB|GiB|seconds|characters|levels)\b|\b(?:at most|up to) [\d,.]+\b|\(\d[\d.]*\)",
    re.IGNORECASE,
)
"""What looks like a default or a limit."""


def list_statements() -> list[tuple[str, str, str]]:
    """List each page, key and value."""
    return [(page, *filter(None, found.groups())) for page, text in TEXTS.items() for found in STATED.finditer(text)]


@pytest.mark.parametrize(("page", "key", "value"), list_statements())
def test_the_default_of_a_page_is_that_of_the_configuration(page: str, key: str, value: str) -> None:
    assert find_default(key) == yaml.safe_load(value), page


def list_options() -> list[tuple[str, str, str]]:
    """List each page, option and value."""
    return [(page, found[1], found[2]) for page, text in TEXTS.items() for found in OPTION.finditer(text)]


@pytest.mark.parametrize(("page", "option", "value"), list_options())
def test_the_default_of_an_option_is_that_of_a_command(page: str, option: str, value: str) -> None:
    assert float(value) in [param.default for param in PARAMETERS if option in param.opts], page


@pytest.mark.parametrize(("page", "phrase"), [(page, phrase) for page, many in PHRASES.items() for phrase in many])
def test_the_page_says_what_the_program_does(page: str, phrase: str) -> None:
    assert phrase in TEXTS[page]


@pytest.mark.parametrize("page", TEXTS)
def test_no_other_statement_is_unchecked(page: str) -> None:
    text = TEXTS[page]
    for phrase in PHRASES.get(page, []):
        text = text.replace(phrase, "*")
    text = re.sub("|".join(OTHERS), "*", OPTION.sub("*", STATED.sub("*", text)))
    assert [text[max(0, found.start() - 60) : found.end() + 40] for found in MENTIONED.finditer(text)] == []


def test_pages_state_defaults() -> None:
    """So that the tests above cannot pass by finding nothing, and no exemption outlives its sentence."""
    whole = " ".join(TEXTS.values())
    assert [
        one for pattern in OTHERS for one in pattern.split("|") if "\\|" not in pattern and not re.search(one, whole)
    ] == []
    assert len(list_statements()) > 5
