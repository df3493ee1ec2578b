"""The key of the settings on which replies depend."""

from keystone.indexing.io.json_values import digest
from keystone.runs.config.run_config import RunConfig


def make_settings_key(config: RunConfig) -> str:
    """Make the key of a configuration: the digest of all its settings but the paths."""
    return digest(config.model_dump(mode="json", exclude={"out", "index", "topics"}))
