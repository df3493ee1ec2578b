"""A cluster that demands AWS's signatures: load, update, search and doctor sign each request, and errors say why."""

import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from keystone.indexing.errors import MissingPackage, UserError
from keystone.indexing.opensearch.cluster import KEY, REGION, connect
from tests.support import programs
from tests.support.indexes.small_corpus import write_corpus
from tests.support.runs.command_line import keystone
from tests.support.servers.aws import Account, compute_signature, demand_signatures
from tests.support.servers.opensearch import Cluster
from tests.support.servers.shared import make_once


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of packages with botocore, which is installed for these tests if the environment lacks it."""
    paths = [os.environ.get("PYTHONPATH", "")]
    if importlib.util.find_spec("botocore") is None:

        def install(folder: Path) -> None:
            command = "-m pip install --quiet --no-deps botocore>=1.35,<2 jmespath --target".split()
            done = programs.run([sys.executable, *command, folder], capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"botocore cannot be installed: {done.stderr[-300:]}")

        paths.insert(0, str(make_once(tmp_path_factory, "botocore", install)))
    return os.pathsep.join(filter(None, paths))


@pytest.fixture
def account(opensearch: Cluster) -> Iterator[tuple[Account, str]]:
    found = Account("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "token/of+it==", "eu-west-1/es", "")
    found.behind = opensearch.url
    with demand_signatures(found) as url:
        yield found, url


def call(packages: str, account: Account, *arguments: str | Path, **changes: str) -> "CompletedProcess[str]":
    environment = {
        "PYTHONPATH": packages,
        "AWS_ACCESS_KEY_ID": account.key,
        "AWS_SECRET_ACCESS_KEY": account.secret,
        "AWS_SESSION_TOKEN": account.token,
        "AWS_EC2_METADATA_DISABLED": "true",
        REGION: "eu-west-1",
    }
    return keystone(*arguments, cwd=None, code="", **{**environment, **changes})


def test_the_stand_in_computes_the_signature_that_aws_publishes() -> None:
    """The case `get-vanilla` of AWS's test suite of Signature Version 4."""
    headers = {"host": "example.amazonaws.com", "x-amz-date": "20150830T123600Z"}
    scope, secret = "20150830/us-east-1/service/aws4_request", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
    found = compute_signature(secret, scope, "GET", "/", headers, sha256(b"").hexdigest())
    assert found == "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"


@pytest.mark.slow
def test_each_request_of_a_load_a_search_an_update_and_the_doctor_is_signed(
    packages: str, account: tuple[Account, str], tmp_path: Path
) -> None:
    aws, url = account
    corpus, place, out = write_corpus(tmp_path / "corpus.jsonl"), f"{url}/signed-ä", tmp_path / "index"
    (tmp_path / "more.jsonl").write_text('{"id": "new", "contents": "A new document about hexagons."}\n')
    for arguments in (
        ["index", corpus, "--out", out, "--opensearch", place, "--dense", "pool"],
        ["index", "--update", tmp_path / "more.jsonl", "--out", out],
        ["search", out, "hexagons", "--set", "retrieval.systems=[bm25]"],
        ["doctor", "--opensearch", place],
    ):
        done = call(packages, aws, *arguments)
        assert done.returncode == 0, (done.stdout, done.stderr)
    assert aws.refused == []
    sent = {re.sub(r"\?.*", "", one).rpartition("/")[2] for one in aws.admitted}
    assert sent >= {"", "_bulk", "_msearch", "_mget", "_aliases", "_forcemerge", "_analyze"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "other"}, "refused with status 403: The request signature we calculated"),
        ({REGION: "us-east-1"}, "Credential should be scoped to eu-west-1/es"),
        (
            {REGION: ""},
            f"refused with status 403: Missing Authentication Token; expected in the environment .*{REGION}",
        ),
        ({KEY: "abc"}, f"found {KEY} and {REGION} in the environment, expected one of them"),
        ({"AWS_PROFILE": "none-such"}, f"{REGION}: AWS's credentials cannot be read: .*none-such"),
        (dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), ""), f"{REGION}: found no credentials of AWS"),
    ],
)
def test_a_refusal_or_a_lack_of_credentials_is_one_error(
    packages: str, account: tuple[Account, str], tmp_path: Path, changes: dict[str, str], said: str
) -> None:
    aws, url = account
    home = {"HOME": str(tmp_path)}  # without credentials of the user who runs the tests
    done = call(packages, aws, "index", f"opensearch:{url}/x", "--out", tmp_path / "index", **home, **changes)
    assert done.returncode == 1
    assert re.search(said, done.stderr), done.stderr
    assert "Traceback" not in done.stderr
    assert aws.secret not in done.stderr


def test_signed_requests_do_not_go_to_other_machines_in_the_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REGION, "eu-west-1")
    monkeypatch.setattr("keystone.indexing.opensearch.cluster.make_signer", lambda _: lambda *_: {})
    with pytest.raises(UserError, match="by https or within this machine only"):
        connect(["http://192.0.2.1:9200"], 1)


def test_a_region_without_botocore_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REGION, "eu-west-1")
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    monkeypatch.setitem(sys.modules, "botocore.exceptions", None)
    with pytest.raises(MissingPackage, match=r"pip install 'keystone-rag\[aws\]'"):
        connect(["http://127.0.0.1:1"], 1)
