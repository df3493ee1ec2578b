"""All that a form can hold comes back equal, and a conversion into the same form loses nothing."""

import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keystone.runs.exchange.convert import Losses, compare
from keystone.runs.exchange.table import FORMS
from tests.runs.exchange.contents import CONTENTS


def test_every_form_has_contents() -> None:
    assert CONTENTS.keys() == FORMS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTENTS)
def test_what_a_form_can_hold_comes_back_equal(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    path = tmp_path / "file"

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.data())
    def check(data: st.DataObject) -> None:
        content = data.draw(CONTENTS[name])
        FORMS[name].write(path, content)
        kept = FORMS[name].read(path)
        assert kept == content
        assert compare(content, kept, Counter()) == Losses({}, {}, {})

    check()
