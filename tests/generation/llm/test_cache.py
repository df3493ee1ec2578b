"""Replies on disk: they are found again, by other processes too. Files of another kind are named."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keystone.generation.llm.cache import Cache, decode_reply, encode_reply
from keystone.generation.llm.chat import MOST_TOKENS, PaidReply
from keystone.generation.types import Reply, Usage
from keystone.indexing.errors import UserError
from tests.support import programs
from tests.support.waiting import LIMIT_S

COUNTS = st.integers(0, MOST_TOKENS)
LOGPROBS = st.lists(st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False)), max_size=3)
ANSWERS = st.builds(
    PaidReply,
    st.builds(Reply, st.text(), st.sampled_from(["stop", "length"]), LOGPROBS.map(tuple)),
    st.builds(Usage, st.just(1), COUNTS, COUNTS, COUNTS),
)


@given(ANSWERS)
def test_a_reply_is_read_as_it_was_kept(answered: PaidReply) -> None:
    assert decode_reply(encode_reply(answered)) == answered
    assert decode_reply(json.loads(encode_reply(answered))) == answered


@settings(max_examples=20)
@given(st.dictionaries(st.text(), ANSWERS, max_size=5), st.dictionaries(st.text(), ANSWERS, max_size=5))
def test_the_first_reply_to_a_request_stays(
    tmp_path_factory: pytest.TempPathFactory, first: dict[str, PaidReply], later: dict[str, PaidReply]
) -> None:
    path = tmp_path_factory.mktemp("cache") / "new" / "replies.sqlite"
    with closing(Cache(path)) as cache:
        assert cache.put(first.items()) == first.keys()
    with closing(Cache(path)) as cache, closing(Cache(path)) as other:
        assert other.put(later.items()) == later.keys() - first.keys()
        assert cache.put(later.items()) == set()
        assert dict(cache.items()) == dict(other.items()) == later | first
        assert [key for key, _ in cache.items()] == sorted(later | first, key=str.encode)
        assert all(other.get(key) == answered for key, answered in first.items())
        assert cache.get("none of them, surely") is None


def read_text(cache: Cache, key: str) -> str | None:
    found = cache.get(key)
    return found.outcome.text if found and isinstance(found.outcome, Reply) else None


def test_unusable_replies_are_found_again_except_by_those_who_ask_for_better_ones(tmp_path: Path) -> None:
    def answer(text: str) -> PaidReply:
        return PaidReply(Reply(text))

    path = tmp_path / "c"
    with closing(Cache(path)) as cache:
        cache.put([("good", answer("good")), ("bad", answer("bad")), ("other", answer("other"))])
        cache.refuse(["bad", "other", "none"])
        assert [read_text(cache, key) for key in ("good", "bad", "other", "none")] == ["good", "bad", "other", None]
        assert cache.put([("bad", answer("from another process"))]) == set()
        assert [key for key, _ in cache.items()] == ["bad", "good", "other"]
        cache.accept(["other", "good"])
        assert [cache.count_unusable(key) for key in ("bad", "other", "good")] == [1, 0, 0]
    with closing(Cache(path, retry=True)) as cache:
        assert [read_text(cache, key) for key in ("good", "bad", "other")] == ["good", None, "other"]
        assert cache.put([("bad", answer("again"))]) == {"bad"}
        cache.refuse(["bad"])
        assert read_text(cache, "bad") == "again", "it is asked once a run"
        assert cache.count_unusable("bad") == 2
    with closing(Cache(path, retry=True)) as cache:
        assert read_text(cache, "bad") is None
        assert cache.put([("bad", answer("well"))]) == {"bad"}
    with closing(Cache(path)) as cache:
        assert dict(cache.items())["bad"].outcome == Reply("well")


def test_a_cache_of_an_older_version_is_read_and_gets_its_record_when_a_reply_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c"
    with closing(Cache(path)) as cache:
        cache.put([("a", PaidReply(Reply("a")))])
    run_sql(path, "DROP TABLE unusable")
    with closing(Cache(path)) as cache:
        assert (read_text(cache, "a"), read_text(cache, "b"), cache.count_unusable("a")) == ("a", None, 0)
        assert cache.put([("b", PaidReply(Reply("b")))]) == {"b"}
        assert [key for key, _ in cache.items()] == ["a", "b"]
        cache.refuse(["a"])
        assert (read_text(cache, "a"), cache.count_unusable("a")) == ("a", 1)


def test_replies_that_are_kept_together_are_kept_all_or_none(tmp_path: Path) -> None:
    answered = PaidReply(Reply("a"))
    with closing(Cache(tmp_path / "c")) as cache:
        with pytest.raises(ZeroDivisionError):
            cache.put((str(1 // (2 - number)), answered) for number in range(5))
        assert list(cache.items()) == []
        assert cache.put([("a", answered)]) == {"a"}


def test_other_and_damaged_files_are_named_and_not_changed(tmp_path: Path) -> None:
    foreign, text, damaged, folder = (tmp_path / name for name in ("foreign", "text", "damaged", "folder"))
    with closing(sqlite3.connect(foreign)) as file:
        file.execute("CREATE TABLE t (x)")
    text.write_text("no database at all, but text of some length\n" * 100)
    with closing(Cache(damaged)) as cache:
        cache.put((str(number), PaidReply(Reply("x" * 1_000))) for number in range(100))
    content = damaged.read_bytes()
    damaged.write_bytes(content[:5_000] + b"\xff" * 20_000 + content[25_000:])
    folder.mkdir()
    for path in (foreign, text, damaged):
        before = path.read_bytes()
        with pytest.raises(UserError, match=str(path)), closing(Cache(path)) as cache:
            list(cache.items())
        assert path.read_bytes() == before
    with pytest.raises(UserError, match=str(folder)):
        Cache(folder)
    with pytest.raises(UserError, match="text"):
        Cache(text / "within")


def build_file(path: Path) -> bytes:
    with closing(Cache(path)) as cache:
        cache.put((str(number), PaidReply(Reply("x" * 1_000))) for number in range(100))
    return path.read_bytes()


def run_sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as file, file:
        for statement in statements:
            file.execute(statement)


DAMAGES: dict[str, Callable[[Path, bytes], object]] = {
    "cut in the first page": lambda path, content: path.write_bytes(content[:1_000]),
    "cut in the middle": lambda path, content: path.write_bytes(content[: len(content) // 2]),
    "garbage": lambda path, content: path.write_bytes(b"\xff" * len(content)),
    "garbage after its head": lambda path, content: path.write_bytes(content[:100] + b"\xff" * (len(content) - 100)),
    "garbage in the middle": lambda path, content: path.write_bytes(
        content[:5_000] + b"\xff" * 20_000 + content[25_000:]
    ),
    "without its table": lambda path, _: run_sql(path, "DROP TABLE replies"),
    "with other columns": lambda path, _: run_sql(path, "ALTER TABLE replies RENAME COLUMN reply TO said"),
    "a view in place of the table": lambda path, _: run_sql(
        path, "ALTER TABLE replies RENAME TO kept", "CREATE VIEW replies AS SELECT key FROM kept"
    ),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_named_with_a_remedy_and_not_changed(
    damage: Callable[[Path, bytes], object], tmp_path: Path
) -> None:
    path = tmp_path / "replies.sqlite"
    damage(path, build_file(path))
    before = path.read_bytes()

    def read_all(cache: Cache) -> None:
        assert [cache.get(str(number)) for number in range(100)].count(None) == 0
        list(cache.items())

    def add(cache: Cache) -> None:
        cache.put([("new", PaidReply(Reply("a")))])
        list(cache.items())

    for use in (read_all, add):
        with pytest.raises(UserError) as error, closing(Cache(path)) as cache:
            use(cache)
        assert str(path) in str(error.value)
        assert "put back a copy" in str(error.value)
        assert use is add or path.read_bytes() == before


def test_kept_log_probabilities_that_are_not_finite_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "c"
    with closing(Cache(path)) as cache:
        cache.put([("k", PaidReply(Reply("a", logprobs=({"a": -0.5, "b": -1.0, "c": -2.0},))))])
    kept = b'{"text": "a", "logprobs": [{"a": -0.5, "b": null, "c": "nan"}], "usage": [18446744073709551615, -1, "x"]}'
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE replies SET reply = ?", (kept,))
    with closing(Cache(path)) as cache:
        assert cache.get("k") == PaidReply(Reply("a", logprobs=({"a": -0.5},)), Usage(1))


def test_a_damaged_reply_is_named(tmp_path: Path) -> None:
    path = tmp_path / "c"
    with closing(Cache(path)) as cache:
        cache.put([("k", PaidReply(Reply("a")))])
    for damage in ("{", "[]", "{}", '{"text": 1}', '{"text": "a", "usage": [1]}', '{"text": "a", "logprobs": [1]}'):
        with closing(sqlite3.connect(path)) as file, file:
            file.execute("UPDATE replies SET reply = ?", (damage.encode(),))
        with closing(Cache(path)) as cache, pytest.raises(UserError, match="reply k is damaged"):
            cache.get("k")


def test_processes_write_and_make_one_file_at_the_same_time(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from keystone.generation.llm.cache import Cache
from keystone.generation.llm.chat import PaidReply
from keystone.generation.types import Reply
cache = Cache(Path(sys.argv[1]))
for number in range(300):
    cache.put([(str(number), PaidReply(Reply(f"{sys.argv[2]} {number}")))])
cache.close()
"""
    path = tmp_path / "c"
    many = [programs.start([sys.executable, "-c", program, path, str(i)], stderr=subprocess.PIPE) for i in range(3)]
    assert [process.communicate(timeout=LIMIT_S)[1] for process in many] == [b""] * 3
    with closing(Cache(path)) as cache:
        assert len(dict(cache.items())) == 300
