"""The facts that `keystone doctor --model` found about servers of language models: a JSON line for each server.

The file lies in the folder of runs. The manifest of a run has the facts about the servers of its model.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import orjson

from keystone.indexing.errors import UserError
from keystone.indexing.io.reading import read_json_lines
from keystone.indexing.io.writing import write_whole

SERVERS_FILE = "servers.jsonl"
"""The name of the file."""

PairOrder = Literal["right in both", "right in one", "wrong in both", "none"]
"""In which of the two orders of a known pair a model put the better passage first; none if it gave no ranking."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The facts about one model of a server, found on the day `date`. None: the server did not tell."""

    url: str
    model: str
    date: str
    same_when_warm: bool | None
    """Whether the second reply to a request has the same text as the first."""
    same_in_batch: bool | None
    """Whether a reply has the same text when the server answers other requests at the same time."""
    pair: PairOrder
    schema: bool
    """Whether a reply follows a JSON schema."""
    logprobs: bool
    window: int | None
    """The tokens of a prompt and its reply together."""
    notes: list[str]


def read_facts(folder: Path) -> list[ServerFacts]:
    """Read the facts about all servers from a folder of runs. `UserError` names the line of an invalid record."""
    path = folder / SERVERS_FILE
    names = {field.name for field in fields(ServerFacts)}
    found = []
    for number, record in read_json_lines(path) if path.is_file() else ():
        if record.keys() != names:
            raise UserError(f"{path}:{number}: expected the keys {', '.join(sorted(names))}: remove this line")
        found.append(ServerFacts(**record))
    return found


def keep_facts(folder: Path, facts: ServerFacts) -> Path:
    """Keep facts in a folder of runs, in place of earlier ones about the same model at the same URL."""
    known = {(one.url, one.model): one for one in read_facts(folder)} | {(facts.url, facts.model): facts}
    folder.mkdir(parents=True, exist_ok=True)
    with write_whole(folder / SERVERS_FILE) as out:
        out.write(b"".join(orjson.dumps(asdict(one)) + b"\n" for one in known.values()))
    return folder / SERVERS_FILE


def select_facts(folder: Path, model: str, urls: Sequence[str]) -> list[dict[str, Any]]:
    """Select the facts about a model at some URLs, in the order of the URLs, as values of JSON."""
    known = {one.url: one for one in read_facts(folder) if one.model == model}
    return [asdict(known[url]) for url in map(normalise_url, urls) if url in known]


def normalise_url(url: str) -> str:
    """Write a base URL without a slash at its end, so that both spellings are one server."""
    return url.rstrip("/")
