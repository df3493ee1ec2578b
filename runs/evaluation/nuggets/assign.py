"""Assignment of nuggets to answers by a model."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from keystone.generation.ask import run_together
from keystone.generation.grading.nuggets import assign_nuggets
from keystone.generation.llm.model import Model
from keystone.indexing.errors import UserError
from keystone.runs.evaluation.answers.files import Submission, read_submission
from keystone.runs.evaluation.cautions import caution_about_topics
from keystone.runs.evaluation.nuggets.read import read_nuggets
from keystone.runs.evaluation.nuggets.types import NuggetBank
from keystone.runs.pipeline.model_runner import RunWithModel


def assign_to_files(
    paths: Sequence[Path], nuggets_path: Path, run_with_model: RunWithModel
) -> tuple[list[NuggetBank], list[str]]:
    """Assign the nuggets of each topic to the answers of files or run directories; also cautions about topics.

    A missing answer states no nugget, and the model is not asked. `UserError` without a model, for two files of one
    run, and for a file without a topic of the nuggets.
    """
    return assign_banks(paths, read_nuggets(nuggets_path), str(nuggets_path), run_with_model)


def assign_banks(
    paths: Sequence[Path], banks: Sequence[NuggetBank], name: str, run_with_model: RunWithModel
) -> tuple[list[NuggetBank], list[str]]:
    """Assign nuggets to the answers of files or run directories, as `assign_to_files` does.

    `name` is the name of the nuggets in messages.
    """
    submissions = read_submissions(paths)
    topics, cautions = [bank.topic_id for bank in banks], list[str]()
    for topic_id, count in Counter(topics).items():
        if count > 1:
            raise UserError(f"{name}: topic {topic_id!r} occurs more than once, expected nuggets without runs")
    for one in submissions:
        if not one.answers.keys() & set(topics):
            own = next(iter(one.answers))
            ids = f"its topics look like {own!r}, those of the nuggets like {topics[0]!r}"
            raise UserError(f"{one.name}: none of its topics has nuggets: {ids}")
        cautions += caution_about_topics(one.name, list(one.answers), topics, "an answer", "nugget")

    async def assign(model: Model | None) -> list[NuggetBank]:
        if model is None:
            raise UserError("nuggets: needs a language model; expected one under the key model (--set)")
        return await run_together([partial(_assign_bank, model, one, bank) for one in submissions for bank in banks])

    return run_with_model(assign), cautions


def read_submissions(paths: Sequence[Path]) -> list[Submission]:
    """Read answer files or run directories. `UserError` as from `read_submission`, and for two files of one run."""
    found = [read_submission(path) for path in paths]
    names = [one.run_id for one in found]
    if repeated := next((one for one in found if names.count(one.run_id) > 1), None):
        raise UserError(f"{repeated.name}: found run {repeated.run_id!r} in another file too, expected different runs")
    return found


async def _assign_bank(model: Model, submission: Submission, bank: NuggetBank) -> NuggetBank:
    text = submission.get_text(bank.topic_id)
    labels = await assign_nuggets(model, bank.query, text, [nugget.describe() for nugget in bank.nuggets])
    nuggets = tuple(replace(one, assignment=label) for one, label in zip(bank.nuggets, labels, strict=True))
    return replace(bank, nuggets=nuggets, run_id=submission.run_id, answer_text=text)
