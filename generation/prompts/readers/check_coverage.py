"""The check before an escalation: which queries do the cited passages of a draft answer?"""

from keystone.generation.context.delimit import DATA_RULE

SYSTEM = f"""You check whether passages answer questions. You never answer the questions yourself.
{DATA_RULE}
Judge by the passages alone. Knowledge of your own does not count."""

USER = """Passages:
{documents}

Questions, each with its number as id:
{queries}

Say for each question how far the passages answer it:
- "full": a reader of the passages could answer every part of the question.
- "partial": the passages answer a part, or only touch on it.
- "none": the passages answer nothing of it.

Reply with JSON: {{"queries": [{{"id": 0, "support": "full"}}, {{"id": 1, "support": "none"}}]}}"""

SCHEMA = {
    "type": "object",
    "properties": {
        "queries": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "integer"},
                    "support": {"type": "string", "enum": ["full", "partial", "none"]},
                },
                "required": ["id", "support"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["queries"],
    "additionalProperties": False,
}
