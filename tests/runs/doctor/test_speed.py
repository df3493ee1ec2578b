"""The speeds that the doctor measures, and what it makes of them."""

import re

import pytest

from keystone.runs.doctor.machine import _estimate, measure_speeds


@pytest.mark.slow
def test_the_doctor_measures_texts_and_vectors_a_second() -> None:
    found = list(measure_speeds())
    assert [(one.state, one.subject) for one in found] == [("ok", "speed of BM25"), ("ok", "speed of embeddings")]
    rates = [float(re.split(r"\s", one.message)[0].replace(",", "")) for one in found]
    assert rates[0] > rates[1] > 0


@pytest.mark.parametrize(
    ("rate", "taken"), [(1000.0, "17 minutes"), (10_000.0, "2 minutes"), (50.0, "5.6 hours"), (0.5, "555.6 hours")]
)
def test_a_million_documents_take_their_number_by_the_rate(rate: float, taken: str) -> None:
    assert _estimate(rate) == f": 1,000,000 such documents take {taken}"
