"""The schemas that are sent keep their bytes: replies are kept under keys of their requests, schemas included."""

import hashlib
from typing import Any

import orjson
import pytest

from keystone.generation.prompts import answers, evaluation, grading, queries, readers
from keystone.generation.types import Prompt

CONSTANT = {
    f"{module.__name__.removeprefix('keystone.generation.prompts.')}.{name}": prompt.schema
    for module in (answers, evaluation, grading, queries, readers)
    for name, prompt in vars(module).items()
    if isinstance(prompt, Prompt) and prompt.schema
}
MADE = {
    "labels": evaluation.make_label_schema(["vital", "okay"], 3),
    "use": evaluation.make_use_schema(2, 3, with_references=False),
    "use with references": evaluation.make_use_schema(2, 3, with_references=True),
    "rank": grading.make_rank_schema(4),
    "umbrela": grading.make_grade_schema(["1", "2"]),
    "expand": queries.make_variants_schema(10),
}
GOLDEN: dict[str, str] = {
    "answers.ANSWER": "12c7bfdcb9182043",
    "answers.SUB_ANSWER": "12c7bfdcb9182043",
    "answers.CHECK_EVIDENCE": "137ed4ac836f84d7",
    "answers.CHECK_SUPPORT": "50b65f3015a0389e",
    "answers.CITE": "abf8c3e5fafcde5d",
    "answers.CLAIMS": "c4512af78f619e9b",
    "answers.RESYNTHESISE": "1e53c2a74cbdee69",
    "answers.SHORTEN": "0e8d5d6583744aa8",
    "answers.EDIT": "0e8d5d6583744aa8",
    "answers.MEND": "0e8d5d6583744aa8",
    "answers.WHOLE": "193745d77db46b80",
    "answers.WRITE_CLAIMS": "250e283fc2e9a7ae",
    "evaluation.BATTLE": "d98f870acde32ff5",
    "evaluation.COMPARE_ANSWERS": "a1f63018bb80e5c4",
    "evaluation.CREATE_CRITERIA": "8a80d487dd86f10c",
    "evaluation.CREATE_NUGGETS": "7dfea1364697bffd",
    "evaluation.RATE_CITATION": "4572a16a7e81e660",
    "grading.GROUND": "ba99b63e478360bb",
    "queries.CONTRACT": "176be5c62e2b3ed7",
    "queries.DECOMPOSE": "afba7a896c21cd36",
    "queries.SEARCH_AGAIN": "5fd0b43557329dde",
    "queries.TOPIC": "2e22658f09f82ff7",
    "readers.AGENT": "17089380edf84398",
    "readers.AGENT_JUDGE": "a7d45dce9c9d09a0",
    "readers.CHECK_COVERAGE": "1f38051c2ced6791",
    "labels": "26f2c1c50b34f3be",
    "use": "d8c3617ee1c5f042",
    "use with references": "f9de06d9d3283c59",
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
