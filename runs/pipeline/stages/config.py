"""The configuration of the run, as it was resolved."""

from pathlib import Path
from typing import Any

import yaml

from keystone.indexing.io.writing import write_whole
from keystone.runs.config.read import read_config
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline import file_names
from keystone.runs.pipeline.stage import StageKind
from keystone.runs.pipeline.values import Artifact


def write_config(path: Path, config: RunConfig) -> None:
    """Write a configuration as a YAML file, with all defaults but that of `model.key_env`.

    A key that the user names goes to any server. In the file, the default would count as such a name. Systems leave out
    what `retrieval` gives them.
    """
    plain = config.model_dump(mode="json")
    if isinstance(config.retrieval.systems, dict):
        plain["retrieval"]["systems"] = config.retrieval.list_own_settings()
    if config.model and config.model.named_key is None:
        del plain["model"]["key_env"]
    with write_whole(path) as out:
        out.write(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True).encode())


CONFIG_FILE = Artifact(
    file_names.CONFIG, lambda path, _: read_config(path), lambda path, config, _: write_config(path, config)
)


def describe_config(config: RunConfig) -> Any:
    """Describe a configuration: its settings, and the variable of the key if the user names it."""
    plain = config.model_dump(mode="json")
    named = config.model.named_key if config.model else None
    return plain if named is None else [plain, named]


STAGE = StageKind(
    name="config",
    makes=lambda _: (CONFIG_FILE,),
    key=lambda job, _: describe_config(job.config),
    notes=lambda _: (CONFIG_FILE,),
    work=lambda work: work.values.put(CONFIG_FILE, work.job.config),
    answers_need=lambda _: False,
    why_kept=lambda config: (
        "names its calibration" if config.fusion.choice and config.fusion.choice.calibration else ""
    ),
)
