"""The containers name the versions and files of the project, and the services of `compose.yaml` fit together."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.support.pages import find_words, parse
from tests.support.places import ROOT
from tests.support.servers.opensearch import MAIN_VERSION

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MAKEFILE = (ROOT / "Makefile").read_text()
CPU = (ROOT / "Containerfile").read_text()
GPU = (ROOT / "Containerfile.gpu").read_text()
SERVICES = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]


def test_the_image_is_set_up_as_a_checkout_is_and_loads_an_index_into_opensearch() -> None:
    assert "RUN make setup" in CPU
    assert re.search(r"^setup: ", MAKEFILE, re.MULTILINE)
    (extra,) = re.findall(r"pip install .* --constraint requirements-dev\.lock --editable '\.\[(\w+)\]'", CPU)
    assert extra in PROJECT["project"]["optional-dependencies"]
    assert "--opensearch" in (ROOT / "compose.yaml").read_text()


def test_the_image_has_what_set_up_reads_and_nothing_that_is_missing() -> None:
    sent = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert [name for name in sent if not (ROOT / name).exists()] == []
    project = PROJECT["project"]
    rooms = [path.resolve().name for path in (ROOT / "keystone").iterdir() if path.is_symlink()]
    needed = {"Makefile", "pyproject.toml", "requirements.lock", project["readme"], *project["license-files"], *rooms}
    assert needed <= {*sent}


def test_the_image_is_of_the_debian_that_ci_tries() -> None:
    (suite,) = re.findall(r"^suite=\$\{1:-(\w+)\}$", (ROOT / ".ci" / "debian").read_text(), re.MULTILINE)
    assert set(re.findall(r"^FROM (\S+/debian:\S+)", CPU, re.MULTILINE)) == {f"docker.io/library/debian:{suite}-slim"}


def test_the_image_runs_the_program_without_the_rights_of_root() -> None:
    for text in (CPU, GPU):
        users = re.findall(r"^USER (\w+)$", text, re.MULTILINE)
        assert users[-1] == "keystone"
    (entry,) = re.findall(r'^ENTRYPOINT \["(\w+)"\]$', CPU, re.MULTILINE)
    assert entry in PROJECT["project"]["scripts"]


def test_the_image_for_gpus_has_the_faiss_of_the_makefile() -> None:
    (wanted,) = re.findall(r"'(faiss-gpu[^']+)'", MAKEFILE)
    assert re.findall(r"'(faiss-gpu[^']+)'", GPU) == [wanted]
    (tag,) = re.findall(r"podman build --tag (\S+) \.", CPU)
    assert re.findall(r"^FROM (\S+)$", GPU, re.MULTILINE) == [f"localhost/{tag}"]


def test_the_cluster_has_the_version_of_the_tests() -> None:
    assert SERVICES["opensearch"]["image"] == f"docker.io/opensearchproject/opensearch:{MAIN_VERSION}"


def test_each_service_waits_for_a_service_that_tells_its_health() -> None:
    names = {name for service in SERVICES.values() for name in service.get("depends_on", {})}
    assert names == {"opensearch"}
    assert all("healthcheck" in SERVICES[name] for name in names)


def test_no_service_can_be_reached_from_other_machines() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_service_builds_the_image_and_its_command_is_one_of_the_program() -> None:
    service = SERVICES["keystone"]
    assert (ROOT / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    parse(service["command"])
    assert "--host" not in service["command"]
    port = re.search(r"localhost:(\d+)/health", service["healthcheck"]["test"])
    assert port
    parse([*service["command"], "--port", port[1]])


@pytest.mark.parametrize("name", ["Containerfile", "Containerfile.gpu", "compose.yaml"])
def test_the_commands_in_comments_are_commands_of_the_program(name: str) -> None:
    lines = re.findall(r"^# +(?:docker compose run --rm )?(keystone .*)$", Path(ROOT, name).read_text(), re.MULTILINE)
    for line in lines:
        parse(find_words(line))
    assert bool(lines) == (name == "compose.yaml")
