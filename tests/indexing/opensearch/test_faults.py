"""Loading despite faults of a cluster and its network: in the end, the cluster holds each document exactly once."""

import random
import time
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from keystone.indexing.errors import GaveUp, UserError
from keystone.indexing.io import retry
from keystone.indexing.opensearch import load as opensearch_bulk
from keystone.indexing.opensearch import requests
from keystone.indexing.opensearch.cluster import CA, KEY, PASSWORD, REGION, USER, Reply, Request, connect, place_of
from keystone.indexing.opensearch.index import Target
from keystone.indexing.opensearch.load import Upload, acknowledged, gaps, load
from keystone.indexing.opensearch.requests import Read
from keystone.indexing.store import DocumentStore, build_store
from keystone.indexing.types import Document
from tests.support import programs
from tests.support.servers.opensearch_keeper import (
    Fault,
    Handler,
    State,
    cut,
    dropped,
    lost,
    start_keeper,
    status,
    torn,
)

pytestmark = pytest.mark.slow

DOCUMENTS = 300
META = {"format": 4, "key": "k", "documents": DOCUMENTS, "faiss": None}
TURNED_AWAY = (429, "rejected_execution_exception", "rejected execution of coordinating operation")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches and short pauses."""
    monkeypatch.setattr(opensearch_bulk, "REQUEST_DOCUMENTS", 10)
    monkeypatch.setattr(retry, "LONGEST_PAUSE_S", 0.02)
    for name in (USER, PASSWORD, KEY, CA, REGION):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> DocumentStore:
    folder = tmp_path_factory.mktemp("faults") / "store"
    texts = ["plain", "line\nbreak", "nul\0byte", "separator\u2028", 'quote " and \\', "😀", "\ud7ff\ue000", ""]
    build_store((Document(f"d{n:04}", f"{n} {texts[n % 8]}", f"title {n}") for n in range(DOCUMENTS)), folder)
    return DocumentStore(folder)


def loaded(store: DocumentStore, folder: Path, *urls: str, patience: float = 20.0) -> None:
    target = Target(place_of(f"{','.join(urls)}/name"))
    load(Upload(target, dict(META), store, None, folder / "note", patience))


def is_whole(state: State, store: DocumentStore) -> None:
    """Assert that the finished index holds every document of the store, and that none was created twice."""
    kept = state.indexes["name"]
    assert kept.created == {str(row): 1 for row in range(len(store))}
    assert kept.seen == kept.documents
    assert kept.merged == 1
    assert kept.body["settings"]["index"]["blocks"] == {"write": "true"}
    for row, document in enumerate(store):
        found = kept.documents[str(row)]
        assert (found["docid"], found["row"], found["contents"]) == (document.id, row, document.contents)
        assert (found["document"]["id"], found["document"]["text"]) == (document.id, document.text)


def test_a_load_without_faults_sends_each_document_once(store: DocumentStore, tmp_path: Path) -> None:
    with start_keeper() as (state, url):
        loaded(store, tmp_path, url)
    is_whole(state, store)
    assert sorted(int(name) for names in state.sent for name in names) == list(range(DOCUMENTS))


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(status(429), id="429"),
        pytest.param(status(429, Retry_After="0"), id="429 with Retry-After"),
        pytest.param(status(503, "cluster_block_exception"), id="503"),
        pytest.param(status(502), id="502"),
        pytest.param(cut, id="an answer that is cut"),
        pytest.param(torn, id="half an answer that seems whole"),
        pytest.param(dropped, id="a connection that ends before the work"),
        pytest.param(lost, id="a connection that ends after the work"),
    ],
)
def test_half_of_all_requests_may_fail(store: DocumentStore, tmp_path: Path, fault: Fault) -> None:
    choose = random.Random(7)
    with start_keeper(State(always=lambda handler: choose.random() < 0.5 and fault(handler))) as (state, url):
        loaded(store, tmp_path, url)
    is_whole(state, store)
    assert len(state.sent) > DOCUMENTS / 10


def test_all_faults_together_on_two_nodes(store: DocumentStore, tmp_path: Path) -> None:
    choose, faults = random.Random(8), [status(429), status(503), cut, torn, dropped, lost]
    state = State(
        always=lambda handler: choose.random() < 0.6 and choose.choice(faults)(handler),
        item=lambda _: TURNED_AWAY if choose.random() < 0.4 else None,
    )
    with start_keeper(state) as (_, first), start_keeper(state) as (_, second):
        loaded(store, tmp_path, first, second)
    is_whole(state, store)


def test_documents_that_are_turned_away_are_sent_again_alone(store: DocumentStore, tmp_path: Path) -> None:
    tries: dict[str, int] = {}

    def twice(name: str) -> tuple[int, str, str] | None:
        tries[name] = tries.get(name, 0) + 1
        return TURNED_AWAY if int(name) % 3 == 0 and tries[name] < 3 else None

    with start_keeper(State(item=twice)) as (state, url):
        loaded(store, tmp_path, url)
    is_whole(state, store)
    assert all(count == (3 if int(name) % 3 == 0 else 1) for name, count in tries.items())


def test_retry_after_is_waited_for(store: DocumentStore, tmp_path: Path) -> None:
    with start_keeper(State(faults=[status(429, Retry_After="1")])) as (state, url):
        began = time.monotonic()
        loaded(store, tmp_path, url)
        assert time.monotonic() - began >= 1
    is_whole(state, store)


def test_requests_at_once_fall_in_a_storm_and_rise_after_it() -> None:
    """A server that takes 1 request at once, then 8, and turns more away."""
    capacity, busy = [8], [0]
    seen: list[int] = []

    def held(handler: Handler) -> bool:
        with handler.state.lock:
            now = handler.state.at_once
            seen.append(now)
            busy[0] += now > capacity[0]
        time.sleep(0.004)
        return now > capacity[0] and status(429)(handler)

    def read(part: int, _: Reply) -> Read[int, int]:
        if part in (150, 400):
            capacity[0] = 1 if part == 150 else 8
            seen.append(0)
        return Read(part)

    with start_keeper(State(always=held)) as (_, url):
        nodes = connect([url], 8)
        request = Request("POST", "/x/_bulk", b"")
        done = list(requests.send_parts(nodes, range(900), requests.Dialogue(lambda _: request, read, 8)))
    assert sorted(done) == list(range(900))
    first, second = (i for i, number in enumerate(seen) if number == 0)
    storm = seen[first + 40 : second]
    assert max(seen[:first]) >= 4
    assert sum(number <= 2 for number in storm) > 0.9 * len(storm)
    assert max(seen[second:]) >= 4


def test_a_rejected_document_is_named_with_the_reason(store: DocumentStore, tmp_path: Path) -> None:
    wrong = (400, "mapper_parsing_exception", "failed to parse field")
    with start_keeper(State(item=lambda name: wrong if name == "123" else None)) as (state, url):
        expected = r"name: document 'd0123': rejected with status 400: mapper_parsing_exception: failed to parse field"
        with pytest.raises(UserError, match=expected):
            loaded(store, tmp_path, url)
        state.item = lambda _: None
        loaded(store, tmp_path, url)
    is_whole(state, store)


def test_a_request_that_is_too_large_is_halved(store: DocumentStore, tmp_path: Path) -> None:
    def small(handler: Handler) -> bool:
        return handler.body.count(b"\n") > 6 and status(413)(handler)

    with start_keeper(State(always=small)) as (state, url):
        loaded(store, tmp_path, url)
    is_whole(state, store)


def test_a_document_that_is_too_large_alone_is_named(store: DocumentStore, tmp_path: Path) -> None:
    def hates(handler: Handler) -> bool:
        return b'"d0042"' in handler.body and status(413)(handler)

    with start_keeper(State(always=hates)) as (_, url), pytest.raises(UserError, match=r"'d0042': \d+ bytes, .* 413"):
        loaded(store, tmp_path, url)


def test_a_node_that_is_gone_for_good_leaves_its_work_to_the_other(store: DocumentStore, tmp_path: Path) -> None:
    with ExitStack() as both:
        state, url = both.enter_context(start_keeper())
        other = ExitStack()
        _, gone = other.enter_context(start_keeper(state))

        def falls(_: Handler) -> bool:
            if len(state.sent) == 10:
                other.close()
            return False

        state.always = falls
        loaded(store, tmp_path, gone, url)
    is_whole(state, store)


def test_a_node_that_answers_but_does_no_work_gets_no_more_requests(store: DocumentStore, tmp_path: Path) -> None:
    with start_keeper() as (state, url), start_keeper(state) as (_, idle):
        port, idled = int(idle.rpartition(":")[2]), list[float]()

        def does_nothing(handler: Handler) -> bool:
            if handler.connection.getsockname()[1] != port:
                return False
            idled.append(time.monotonic())
            return status(503)(handler)

        state.always = does_nothing
        loaded(store, tmp_path, idle, url)
    is_whole(state, store)
    assert 0 < len(idled) < 15


def test_a_node_that_comes_back_is_used_again(store: DocumentStore, tmp_path: Path) -> None:
    with ExitStack() as nodes:
        state, url = nodes.enter_context(start_keeper())
        port = int(url.rpartition(":")[2])

        def back() -> None:
            time.sleep(0.5)
            nodes.enter_context(start_keeper(state, port))

        def falls(_: Handler) -> bool:
            if len(state.sent) == 10:
                nodes.close()
                Thread(target=back).start()
            return False

        state.always = falls
        loaded(store, tmp_path, url)
        is_whole(state, store)


def test_a_load_gives_up_after_its_patience_and_the_same_command_continues(
    store: DocumentStore, tmp_path: Path
) -> None:
    always: Fault = lambda handler: len(handler.state.sent) > 10 and status(503)(handler)  # noqa: E731
    with start_keeper(State(always=always)) as (state, url):
        with pytest.raises(GaveUp, match=r"503: .*rejected execution; nothing has succeeded for 0.3 s"):
            loaded(store, tmp_path, url, patience=0.3)
        known = {row for start, stop in acknowledged(tmp_path / "note", uuid_of(state)) for row in range(start, stop)}
        assert known == {int(name) for name in state.indexes["name"].documents}
        assert len(known) >= 80
        state.always = None
        state.sent.clear()
        loaded(store, tmp_path, url)
    is_whole(state, store)
    assert {int(name) for names in state.sent for name in names} == set(range(DOCUMENTS)) - known


def uuid_of(state: State) -> str:
    return state.indexes["name"].uuid


def test_documents_that_the_cluster_lost_are_sent_once_more(store: DocumentStore, tmp_path: Path) -> None:
    def forgets(handler: Handler) -> bool:
        if len(handler.state.sent) == 30:
            kept = handler.state.indexes["name"]
            for row in (0, 7, 8, 299):
                kept.documents.pop(str(row), None)
                kept.created.pop(str(row), None)
        return False

    with start_keeper(State(always=forgets)) as (state, url):
        loaded(store, tmp_path, url)
    is_whole(state, store)


def test_documents_that_the_cluster_loses_twice_are_an_error_with_ids(store: DocumentStore, tmp_path: Path) -> None:
    class Forgetful(dict[str, Any]):
        def __setitem__(self, name: str, document: Any) -> None:
            if name not in ("5", "77"):
                super().__setitem__(name, document)

    def begin(handler: Handler) -> bool:
        kept = handler.state.indexes["name"]
        kept.documents = kept.documents if isinstance(kept.documents, Forgetful) else Forgetful(kept.documents)
        return False

    with (
        start_keeper(State(always=begin)) as (_, url),
        pytest.raises(UserError, match=r"2 documents are missing: 'd0005', 'd0077', although .* twice"),
    ):
        loaded(store, tmp_path, url)


def test_an_index_that_was_removed_is_filled_anew(store: DocumentStore, tmp_path: Path) -> None:
    with start_keeper(State(item=lambda name: (400, "x", "y") if name == "200" else None)) as (state, url):
        with pytest.raises(UserError):
            loaded(store, tmp_path, url)
        del state.indexes["name"]
        state.item = lambda _: None
        loaded(store, tmp_path, url)
    is_whole(state, store)


def test_foreign_documents_in_the_index_are_an_error(store: DocumentStore, tmp_path: Path) -> None:
    def intrudes(handler: Handler) -> bool:
        handler.state.indexes["name"].documents["x"] = {"row": 4711}
        return False

    with (
        start_keeper(State(always=intrudes)) as (_, url),
        pytest.raises(UserError, match="holds 301 documents, expected 300: others write to it"),
    ):
        loaded(store, tmp_path, url)


@pytest.mark.parametrize(
    ("environment", "header"),
    [
        pytest.param({}, None, id="none"),
        pytest.param({USER: "ann", PASSWORD: "p:ä ss"}, "Basic YW5uOnA6w6Qgc3M=", id="user and password"),
        pytest.param({KEY: "abc123"}, "ApiKey abc123", id="an API key"),
    ],
)
def test_credentials_come_from_the_environment(
    store: DocumentStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], header: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with start_keeper() as (state, url):
        loaded(store, tmp_path, url)
    assert {headers.get("authorization") for headers in state.headers} == {header}


@pytest.mark.parametrize("code", [401, 403])
def test_a_refusal_names_the_variables_to_set_and_never_the_key(
    store: DocumentStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    with start_keeper(State(always=status(code, "security_exception"))) as (_, url):
        with pytest.raises(UserError, match=f"refused with status {code}: security_exception.*{USER} and {PASSWORD}"):
            loaded(store, tmp_path, url)
        monkeypatch.setenv(KEY, "abc123")

        def echo(handler: Handler) -> bool:
            handler.reply({"error": f"who is {handler.headers['Authorization']}?"}, code)
            return True

        with start_keeper(State(always=echo)) as (_, other), pytest.raises(UserError, match=r"who is ApiKey \[key\]\?"):
            loaded(store, tmp_path / "..", other)


def test_credentials_do_not_go_to_other_machines_in_the_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "abc123")
    with pytest.raises(UserError, match="by https or within this machine only, expected an https URL") as error:
        connect(["http://192.0.2.1:9200"], 1)
    assert "abc123" not in str(error.value)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({USER: "ann"}, f"{USER} alone"),
        ({PASSWORD: "x"}, f"{PASSWORD} alone"),
        ({USER: "a", PASSWORD: "x", KEY: "k"}, "expected one of them"),
        ({USER: "a:b", PASSWORD: "x"}, "holds a colon"),
        ({KEY: "a b"}, f"{KEY}: not a key"),
        ({CA: "/no/such/file.pem"}, "/no/such/file.pem: no such file"),
    ],
)
def test_an_incomplete_setting_is_an_error(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], said: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=said):
        connect(["http://127.0.0.1:1"], 1)


def test_an_unreachable_server_is_an_error_with_the_url() -> None:
    with pytest.raises(UserError, match=r"http://127.0.0.1:1: cannot be reached: .*Connection refused"):
        connect(["http://127.0.0.1:1", "http://127.0.0.1:2"], 1)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("certificate")
    made, key = folder / "certificate.pem", folder / "key.pem"
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    )
    programs.run([*command.split(), "-keyout", key, "-out", made], check=True, capture_output=True)
    return made, key


def test_a_certificate_is_accepted_only_with_its_authority(
    store: DocumentStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, certificate: tuple[Path, Path]
) -> None:
    monkeypatch.setenv(KEY, "abc123")
    with start_keeper(certificate=certificate) as (state, url):
        with pytest.raises(UserError, match=f"its certificate is not trusted: .*self-signed.*; expected .* in {CA}"):
            loaded(store, tmp_path, url)
        assert not state.requests
        monkeypatch.setenv(CA, str(certificate[0]))
        loaded(store, tmp_path, url)
    is_whole(state, store)


def test_a_certificate_of_another_host_is_refused(
    monkeypatch: pytest.MonkeyPatch, certificate: tuple[Path, Path]
) -> None:
    monkeypatch.setenv(CA, str(certificate[0]))
    with start_keeper(certificate=certificate) as (_, url), pytest.raises(UserError, match="certificate"):
        connect([url.replace("127.0.0.1", "localhost")], 1)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(b"u\n0 10\n10 20\n", [(0, 20)], id="neighbours are one"),
        pytest.param(b"u\n30 40\n0 10\n5 7\n", [(0, 10), (30, 40)], id="in any order"),
        pytest.param(b"u\n0 10\n10 2", [(0, 10)], id="half a line at the end"),
        pytest.param(b"u\n", [], id="nothing yet"),
        pytest.param(b"other\n0 10\n", [], id="of an index that was removed"),
        pytest.param(b"", [], id="empty"),
        pytest.param(None, [], id="no note"),
    ],
)
def test_a_damaged_note_of_a_load_loses_only_its_invalid_lines(
    tmp_path: Path, content: bytes | None, expected: list[tuple[int, int]]
) -> None:
    note = tmp_path / "note"
    if content is not None:
        note.write_bytes(content)
    assert acknowledged(note, "u") == expected
    assert note.read_bytes().startswith(b"u\n")
    assert acknowledged(note, "u") == expected
    rows = {row for start, stop in [*expected, *gaps(expected, 50)] for row in range(start, stop)}
    assert rows == set(range(50))
    assert sum(stop - start for start, stop in gaps(expected, 50)) == 50 - sum(b - a for a, b in expected)
