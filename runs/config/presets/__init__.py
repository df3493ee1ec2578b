"""Presets: our own configurations in this folder, and the runs of the paper in the folder `paper`.

A preset is laid over the one that its key `preset` names.
"""

from importlib.resources import files
from importlib.resources.abc import Traversable


def find_presets() -> dict[str, Traversable]:
    """Find the YAML file of each preset, by the preset's name, in the order of the names."""
    folder = files(__name__)
    places = (folder, folder / "paper", folder / "recipes")
    found = [path for place in places for path in place.iterdir() if path.name.endswith(".yaml")]
    return {path.name.removesuffix(".yaml"): path for path in sorted(found, key=lambda path: path.name)}
