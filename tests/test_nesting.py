"""Text of 100,000 levels, with Java running in the same process: an error or a value from every reader, never the end.

Java once kept most of the main thread's stack from Python, and Python 3.12 and newer recurse in C up to a fixed count.
"""

import json
import sys
from http.client import HTTPConnection
from pathlib import Path

import pytest

from keystone.indexing.index import Index
from tests.support import programs
from tests.support.places import ROOT
from tests.support.servers.keystone_server import keystone_server

pytestmark = pytest.mark.slow

LEVELS = 100_000
HOSTILE = {
    "lists": "[" * LEVELS,
    "whole lists": "[" * LEVELS + "]" * LEVELS,
    "objects": '{"a":' * LEVELS,
    "whole objects": '{"a":' * LEVELS + "1" + "}" * LEVELS,
    "an id and lists": '{"id": "1", "text": ' + "[" * LEVELS + "]" * LEVELS + "}",
    "lists after a quotation mark": 'He said "' + '["a",' * LEVELS,
    "YAML sequences": "- " * LEVELS,
    "YAML mappings": "{a: " * LEVELS,
    "elements": "<div>" * LEVELS + "text",
    "whole elements": "<div>" * LEVELS + "text" + "</div>" * LEVELS,
    "list items": "<ul><li>" * LEVELS + "text",
    "quotations": "> " * LEVELS + "text",
}
READERS = """
import json, sys
from dataclasses import replace
from pathlib import Path
from keystone.generation.replies import find_objects, read_json, read_string
from keystone.generation.types import Reply
from keystone.indexing.corpora.corpus import FORMATS, guess_format, read_corpus
from keystone.indexing.errors import UserError
from keystone.indexing.io.error_text import describe_error
from keystone.indexing.io.json_values import parse_json
from keystone.indexing.lucene.java import java_class
from keystone.indexing.structures.markup import read_html
from keystone.indexing.structures.markup import read_markdown
from keystone.generation.llm.replay import read_recorded
from keystone.runs.config.read import parse_value, read_config
from keystone.runs.exchange.records import read_records
from keystone.runs.serving.agents.replay import read_calls
from keystone.runs.serving.rest.calls import ENCODERS
from keystone.runs.track_rules import TRACKS
from keystone.runs.tracks.validate import detect_track, validate
from keystone.runs.trec.topics import read_topics

java_class("java.lang.Object")
folder = Path(sys.argv[1])

def of_file(read, *suffixes):
    def use(_text):
        for suffix in suffixes:
            file = folder / f"hostile{suffix}"
            file.write_text(text)
            try:
                read(file)
            except UserError as error:
                assert len(str(error)) < 3000, len(str(error))
    return use

def of_corpus(file):
    guess_format(file)
    for format in FORMATS:
        if format not in ("ir_datasets", "pyserini", "arrow", "parquet"):
            try:
                list(read_corpus(file, format, report=lambda _error: None))
            except UserError:
                pass

readers = [
    *(lambda text, read=read: read(Reply(text)) for read in (read_json, find_objects, lambda r: read_string(r, "a"))),
    lambda text: parse_json(text), lambda text: parse_json(text.encode()), lambda text: describe_error(text.encode()),
    parse_value, read_html, read_markdown, *ENCODERS.values(),
    of_file(of_corpus, ".jsonl", ".html", ".md", ".txt", ".trec"),
    of_file(read_config, ".yaml"),
    of_file(read_recorded, ".jsonl"),
    of_file(lambda file: list(read_records(file)), ".jsonl", ".json"),
    of_file(read_calls, ".jsonl"),
    of_file(detect_track, ".jsonl"),
    of_file(lambda file: [validate(file, track, []) for track in TRACKS.values()], ".jsonl"),
    of_file(read_topics, ".jsonl", ".tsv", ".txt"),
]
for name, text in json.load(sys.stdin).items():
    print(name, flush=True)
    for number, read in enumerate(readers):
        try:
            read(text)
        except (ValueError, UserError) as error:
            assert len(str(error)) < 3000, len(str(error))
        except Exception as error:
            raise AssertionError(f"reader {number}") from error
"""


def test_nested_text_is_an_error_or_a_value(tmp_path: Path) -> None:
    """All texts go to one process, which names each before reading it: it would end with the first that is too deep."""
    command: list[programs.Argument] = [sys.executable, "-c", READERS, tmp_path]
    done = programs.run(command, input=json.dumps(HOSTILE), cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr, done.stdout.splitlines()) == (0, "", [*HOSTILE])


def test_nested_requests_leave_a_server_alive(index: Index, tmp_path: Path) -> None:
    with keystone_server(index.folder, tmp_path) as served:
        connection = HTTPConnection("127.0.0.1", served.port, timeout=60)
        search = f"/v1/{index.folder.name}/search?query=honey"
        for text in HOSTILE.values():
            call = '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": ' + text[:200_000]
            for target in ("/v1/answers", "/mcp", f"/v1/indexes/{index.folder.name}/search"):
                for body in (text, call):
                    connection.request("POST", target, body, {"Content-Type": "application/json"})
                    reply = connection.getresponse()
                    assert len(reply.read()) < 3000
                    assert 400 <= reply.status < 500
            connection.request("GET", search)
            reply = connection.getresponse()
            assert (reply.status, reply.read()[:1]) == (200, b"{")
