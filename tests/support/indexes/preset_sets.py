"""The sets of vectors and of impacts that presets name, made by small models."""

from pathlib import Path

from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.impacts import settle_impacts
from keystone.indexing.types import Embedding
from tests.support.models.checkpoints import write_checkpoint


def settle_preset_sets(folder: Path) -> BuildSettings:
    """Write the small models to a new folder; returns the settings of an index that every preset can search."""
    encoder = Embedding(str(write_checkpoint(folder / "encoder", pooling="mean")))
    impacts = {"splade": settle_impacts(str(write_checkpoint(folder / "splade", head="words")))}
    return BuildSettings(threads=2, vectors={"bge": encoder, "qwen3": encoder}, impacts=impacts)
