"""The schemas that are sent keep their bytes: replies are kept under keys of their requests, schemas included."""

import hashlib
import pkgutil
from importlib import import_module
from typing import Any

import orjson
import pytest

from keystone.generation import prompts
from keystone.generation.prompts.evaluation import label_nuggets, rate_use
from keystone.generation.prompts.grading import rank, umbrela
from keystone.generation.prompts.queries import expand

CONSTANT = {
    module.name.removeprefix("keystone.generation.prompts."): found
    for module in pkgutil.walk_packages(prompts.__path__, "keystone.generation.prompts.")
    if (found := getattr(import_module(module.name), "SCHEMA", None))
}
MADE = {
    "label_nuggets": label_nuggets.schema(["vital", "okay"], 3),
    "rate_use": rate_use.schema(2, 3, with_references=False),
    "rate_use with references": rate_use.schema(2, 3, with_references=True),
    "rank": rank.schema(4),
    "umbrela": umbrela.schema(["1", "2"]),
    "expand": expand.schema(10),
}
GOLDEN: dict[str, str] = {
    "answers.answer": "12c7bfdcb9182043",
    "answers.check_evidence": "137ed4ac836f84d7",
    "answers.check_support": "50b65f3015a0389e",
    "answers.cite": "abf8c3e5fafcde5d",
    "answers.claims": "c4512af78f619e9b",
    "answers.resynthesise": "1e53c2a74cbdee69",
    "answers.shorten": "0e8d5d6583744aa8",
    "answers.whole": "193745d77db46b80",
    "answers.write_claims": "250e283fc2e9a7ae",
    "evaluation.battle": "d98f870acde32ff5",
    "evaluation.compare_answers": "a1f63018bb80e5c4",
    "evaluation.create_criteria": "8a80d487dd86f10c",
    "evaluation.create_nuggets": "7dfea1364697bffd",
    "evaluation.rate_citation": "4572a16a7e81e660",
    "grading.ground": "ba99b63e478360bb",
    "queries.contract": "176be5c62e2b3ed7",
    "queries.decompose": "afba7a896c21cd36",
    "queries.search_again": "5fd0b43557329dde",
    "queries.topic": "2e22658f09f82ff7",
    "readers.agent": "17089380edf84398",
    "readers.check_coverage": "1f38051c2ced6791",
    "label_nuggets": "26f2c1c50b34f3be",
    "rate_use": "d8c3617ee1c5f042",
    "rate_use with references": "f9de06d9d3283c59",
    "rank": "e2a450a074fad5ac",
    "umbrela": "8fb40bc9d7417cb1",
    "expand": "4978d47e5b37187e",
}
"""The first digits of the SHA-256 of each schema's bytes."""


def hash_bytes(schema: Any) -> str:
    return hashlib.sha256(orjson.dumps(schema)).hexdigest()[:16]


def test_every_schema_has_a_golden_value() -> None:
    assert GOLDEN.keys() == CONSTANT.keys() | MADE.keys()


@pytest.mark.parametrize("name", GOLDEN)
def test_a_schema_keeps_its_bytes(name: str) -> None:
    assert hash_bytes((CONSTANT | MADE)[name]) == GOLDEN[name]
