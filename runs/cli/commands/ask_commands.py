"""The commands `keystone search`, `ask` and `show`, for one request to an index."""

from pathlib import Path
from typing import Annotated

import typer

from keystone.indexing.errors import UserError
from keystone.runs.cli.options import CORES, Json, Overrides, Preset, Quiet
from keystone.runs.report.say import say

TOPIC_ID = "1"
"""The id of the only topic of a request."""
PRINTED_DOCUMENTS = 10
"""How many documents a search prints if the user gives no number."""

IndexFolder = Annotated[Path, typer.Argument(metavar="INDEX", help="A folder made by `keystone index`.")]


def search(
    folder: IndexFolder,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text to search for, as one query.")],
    top: Annotated[
        int | None, typer.Option("--top", "-k", min=1, help="The most documents to print; 10 if you give none.")
    ] = None,
    set: Overrides = None,
    json: Json = False,
    _quiet: Quiet = False,
) -> None:
    """Search an index by BM25 and embeddings. Print the best documents with their closest passages.

    Example: keystone search index "how bees find flowers"
    """
    from keystone.indexing.index import open_index
    from keystone.retrieval.types import Topic
    from keystone.runs.config.read import make_config
    from keystone.runs.pipeline.job import make_job
    from keystone.runs.pipeline.one_search import rank_narratives
    from keystone.runs.report.passages import Result, choose_passage, format_json, format_result

    _check_text("TEXT", text)
    settings = make_config(None, set or [], None, Path("-"), folder).deepen(top or 1)
    job = make_job(settings, open_index(folder), [Topic(TOPIC_ID, text)], CORES)
    ranking = rank_narratives(job).top(top or PRINTED_DOCUMENTS)
    documents = job.store.get(ranking.docs)
    passages = (
        choose_passage(document, text, score)
        for document, score in zip(documents, ranking.scores.tolist(), strict=True)
    )
    result = Result("search", str(folder), text, tuple(passages))
    for line in [format_json(result)] if json else format_result(result):
        say(line)
    if not len(ranking.docs):
        say("no document was found", err=True)


def ask(
    folder: IndexFolder,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="The question, or a whole narrative.")],
    config: Annotated[
        Path | None, typer.Option(help="A YAML file, as for run. The command ignores its index and topics.")
    ] = None,
    preset: Preset = None,
    set: Overrides = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Answer one question as `keystone answer` does, and print the answer and its cited passages by number.

    Example: keystone ask index "How do bees find flowers?"
    """
    import sys

    from rich.console import Console

    from keystone.generation.rules.answer import NOTHING
    from keystone.generation.rules.support import DOUBT, is_doubtful
    from keystone.retrieval.backends import open_store
    from keystone.retrieval.types import Topic
    from keystone.runs.config.read import DEFAULT_RUN_ID, make_config
    from keystone.runs.python import steps
    from keystone.runs.report.asked import list_quotes, print_answer, print_doubt
    from keystone.runs.report.passages import Result, format_json, format_result, number_citations

    _check_text("QUESTION", question)
    settings = make_config(config, [f"run_id={DEFAULT_RUN_ID}", *(set or [])], preset, Path("-"), folder)
    index = steps.open_index(folder)
    (answer,) = steps.answer(index, [Topic(TOPIC_ID, question)], settings)
    store = open_store(index)
    sentences, passages = number_citations(answer, store)
    result = Result("ask", str(folder), question, passages, sentences, answer.fallbacks)
    texts = answer.list_texts()
    by_rules = settings.answer.method == "rules" and texts != [NOTHING]
    doubtful = by_rules and is_doubtful(question, texts, index.compares_by)
    if sentences and sys.stdout.isatty() and not json:
        console = Console(highlight=False)
        if doubtful:
            print_doubt(console, result)
        else:
            print_answer(console, result, list_quotes(answer, result, store))
    else:
        for line in [format_json(result)] if json else format_result(result):
            say(line)
        if doubtful:
            say(DOUBT, err=True)
    for fallback in answer.fallbacks if not quiet else ():
        say(f"{fallback.step}: {fallback.reason}", err=True)
    if answer.missing and len(texts) == len(sentences):
        say(answer.missing, err=True)
    if not sentences:
        say("no answer was found", err=True)


def show(
    folder: IndexFolder,
    document: Annotated[str, typer.Argument(metavar="DOC", help="The id of a document, or of a segment.")],
    json: Json = False,
    _quiet: Quiet = False,
) -> None:
    """Print the title and the text of a document or a segment.

    Example: keystone show index d42
    """
    from keystone.indexing.index import open_index
    from keystone.retrieval.backends import open_store
    from keystone.runs.report.passages import Result, format_json, format_passage, read_passage

    passage = read_passage(open_store(open_index(folder)), document)
    for line in [format_json(Result("show", str(folder), document, (passage,)))] if json else format_passage(passage):
        say(line)


def _check_text(name: str, text: str) -> None:
    """Raise `UserError` if the text of a request is empty or not UTF-8."""
    from keystone.indexing.types import has_lone_surrogate

    if not text.strip():
        raise UserError(f"{name}: found none, expected words")
    if has_lone_surrogate(text):
        raise UserError(f"{name}: found {text!r}, expected UTF-8")
