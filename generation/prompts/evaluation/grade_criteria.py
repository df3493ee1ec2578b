"""Verdicts on numbered criteria of a rubric. The reply has the form of labels: see `label_nuggets`."""

from keystone.generation.context.delimit import DATA_RULE
from keystone.generation.prompts.evaluation import label_nuggets

SYSTEM = (
    "You mark an answer to a narrative by criteria. The label of a criterion is satisfied if what it says is true of "
    "the answer, partially_satisfied if it is true in part, and otherwise not_satisfied. A criterion may name a fault: "
    "it is satisfied if the answer has the fault. Judge by the answer alone, not by knowledge of your own.\n"
    + DATA_RULE
    + '\nReply with nothing but a JSON object that gives each number its label, in order: {"labels": ["satisfied", '
    '"not_satisfied", ...]}'
)
CRITERIA = label_nuggets.NUGGETS.replace("Nuggets", "Criteria")
