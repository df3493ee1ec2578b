"""The errors: all public classes are in one file, and each has the attribute `retryable`."""

import ast
from pathlib import Path

import pytest

from keystone.indexing import errors
from keystone.indexing.errors import GaveUp, Refused, TooLarge, Unreached, Unusable, UserError, WrongReply

ROOMS = ("indexing", "retrieval", "fusion", "generation", "runs")
NAMES = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}


def errors_elsewhere(root: Path) -> list[str]:
    """The public classes in other files that are errors of the tree, or have the name of one."""
    found = []
    for file in (file for room in ROOMS for file in (root / room).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                bases = {ast.unparse(base) for base in node.bases}
                if bases & {*NAMES, "Exception", "ValueError"} and file != Path(str(errors.__file__)):
                    found.append(f"{file}: {node.name}")
    return found


def test_every_public_error_class_is_in_the_file_of_errors() -> None:
    assert errors_elsewhere(Path(str(errors.__file__)).parent.parent) == []


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        pytest.param(UserError("a"), False, id="of a user"),
        pytest.param(Unreached("a"), True, id="no reply"),
        pytest.param(WrongReply("a"), True, id="a wrong reply"),
        pytest.param(Unusable("a"), True, id="a reply that no step can read"),
        pytest.param(TooLarge("a"), False, id="a reply that is too large"),
        pytest.param(GaveUp("a"), False, id="no patience left"),
        pytest.param(Refused("a", 404), False, id="refused"),
        pytest.param(Refused("a", 503, retryable=True), True, id="refused for now"),
    ],
)
def test_an_error_states_whether_a_new_try_may_succeed(error: UserError | Unusable, retryable: bool) -> None:
    assert error.retryable is retryable
