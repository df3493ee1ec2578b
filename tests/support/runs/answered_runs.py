"""Small run directories with narratives, questions and answers, and a model that judges them by rules."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

NARRATIVES = {"1": "Why and how do bees dance?", "2": "How do ants walk?"}
QUESTIONS: dict[str, list[Any]] = {
    "1": ["Why do bees dance?", {"question": "How do bees dance?", "form": "steps", "weight": 2}],
    "2": [],
}
_DOCUMENT = re.compile(r'<document id="([^"]*)">\n(.*?)\n</document>', re.DOTALL)


def write_lines(path: Path, records: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


def write_answers(path: Path, run_id: str, answers: Mapping[str, Sequence[str]]) -> Path:
    """Write an answer file whose sentences cite nothing."""
    return write_lines(
        path,
        [
            {
                "metadata": {"team_id": "t", "run_id": run_id, "narrative_id": topic},
                "references": [],
                "answer": [{"text": text, "citations": []} for text in texts],
            }
            for topic, texts in answers.items()
        ],
    )


def write_answered_run(folder: Path, answers: Mapping[str, Sequence[str]]) -> Path:
    """Write the directory of a run with `NARRATIVES`, `QUESTIONS` and these answers."""
    folder.mkdir(parents=True)
    topics = write_lines(
        folder.parent / "topics.jsonl", [{"id": name, "narrative": text} for name, text in NARRATIVES.items()]
    )
    config = {"run_id": folder.name, "index": "index", "topics": str(topics)}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    write_lines(
        folder / "queries.jsonl",
        [{"topic_id": name, "questions": own, "topic": "", "variants": []} for name, own in QUESTIONS.items()],
    )
    write_answers(folder / "rag_output_trec_rag_2025.jsonl", folder.name, answers)
    return folder


def judge(user: str) -> str:
    """Judge by rules: the more sentences of an answer say `dance`, the more use it is, and the better it is."""
    shown = dict(_DOCUMENT.findall(user))
    if "answer" not in shown:
        a, b = (1 + min(4, shown[slot].count("dance")) for slot in "AB")
        return json.dumps({"reason": "By dances.", "a": a, "b": b, "better": "A" if a > b else "B" if b > a else "tie"})
    questions = re.findall(r"^(\d+)\. ", user[: user.index("<document")], re.MULTILINE)
    useful = ["dance" in line for line in shown["answer"].splitlines()]
    agreement = {"agrees": "partly"} if "reference 1" in shown else {}
    return json.dumps(
        {
            "questions": [
                {
                    "number": int(number),
                    "answered": "yes" if sum(useful) >= int(number) else "no",
                    "open": "not say" in shown["answer"],
                    **agreement,
                }
                for number in questions
            ],
            "sentences": [{"number": number, "use": use, "question": int(use)} for number, use in enumerate(useful, 1)],
            "lead": useful[0],
            "mark": 1 + min(4, sum(useful)),
        }
    )
