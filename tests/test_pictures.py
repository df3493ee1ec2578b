"""The pictures of README are those that the script draws, and small."""

import io
import re
from random import Random

import pytest
from PIL import Image

from docs.draw_pictures import LIMIT_BYTES, OUT, shrink
from tests.support.places import ROOT


def make_png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def test_readme_shows_every_picture_with_a_text_for_those_who_do_not_see_it() -> None:
    shown = re.findall(r"!\[(.{30,})\]\(docs/pictures/(\w+\.png)\)", (ROOT / "README.md").read_text())
    assert {name for _, name in shown} == {path.name for path in OUT.iterdir()} == {"page.png", "report.png"}


def test_pictures_are_small() -> None:
    assert [path.name for path in OUT.iterdir() if path.stat().st_size >= LIMIT_BYTES] == []


def test_a_picture_of_few_colours_keeps_them() -> None:
    image = Image.new("RGB", (300, 200), (253, 253, 251))
    image.paste((10, 90, 180), (20, 20, 120, 60))
    small = Image.open(io.BytesIO(shrink(make_png(image))))
    assert small.mode == "P"
    assert small.convert("RGB").tobytes() == image.tobytes()


@pytest.mark.slow
def test_a_picture_that_no_palette_makes_small_enough_is_an_error() -> None:
    noise = Image.frombytes("RGB", (800, 600), Random(1).randbytes(800 * 600 * 3))
    with pytest.raises(ValueError, match="expected 100000"):
        shrink(make_png(noise))
