"""The page at `/`: one HTML file with its style and its script, which asks only the server that it came from.

Before the first question, the page shows the name and the size of the index, and narratives to begin with.
"""

from functools import cache
from typing import Any

from starlette.responses import HTMLResponse

from keystone.generation.rules.narratives import READ_CHARACTERS, make_narratives
from keystone.indexing.corpora.languages import guess_languages
from keystone.indexing.store import sample_documents
from keystone.runs.report.html.markup import make_policy, read_parts
from keystone.runs.serving.service import Service

PACKAGE = "keystone.runs.serving.web"
REPORT = "keystone.runs.report.html"
"""The package of the report, from which the page has its colours, its table, and the tips of its cells."""
ABOUT = {
    True: "Keystone makes queries from a narrative, ranks documents, and lets a language model write a cited answer.",
    False: "Keystone makes queries from a narrative, and ranks documents. This server asks no language model: rules "
    "choose sentences from the documents, and nothing is graded.",
}
"""The page's words about its answers, with a language model and without one."""
SAMPLED_DOCUMENTS = 120
"""The most documents, evenly spread over the index, by which its languages and its narratives are found."""
NARRATIVES = 3
SCRIPTS = ("events.js", "documents.js", "answer.js", "start.js", "page.js")


@cache
def render_page(has_model: bool) -> tuple[str, str]:
    """Render the page; returns it with the Content-Security-Policy under which a browser has to show it."""
    style = read_parts(REPORT, ["base.css"]) + read_parts(PACKAGE, ["page.css"])
    script = read_parts(REPORT, ["elements.js"]) + read_parts(PACKAGE, SCRIPTS)
    page = read_parts(PACKAGE, ["page.html"])
    page = page.replace('id="about">', f'id="about">{ABOUT[has_model]}')
    page = page.replace("<style></style>", f"<style>{style}</style>")
    page = page.replace("<script></script>", f"<script>{script}</script>")
    return page, f"{make_policy(style, script)}; connect-src 'self'; img-src data:; frame-ancestors 'none'"


def show_page(has_model: bool) -> HTMLResponse:
    """Reply with the page of a server with a language model, or without one."""
    page, policy = render_page(has_model)
    headers = {
        "Content-Security-Policy": policy,
        "Cache-Control": "no-cache",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
    return HTMLResponse(page, headers=headers)


def describe_index(service: Service) -> dict[str, Any]:
    """Describe the index of a service, as the JSON object of `/page/index`.

    An index whose documents are on another server may have no languages and no narratives, because nobody knows the ids
    of its documents.
    """
    documents = sample_documents(service.store, SAMPLED_DOCUMENTS)
    languages = guess_languages(document.text[:READ_CHARACTERS] for document in documents)
    model = service.config.model
    return {
        "name": service.name,
        "documents": service.index.documents,
        "languages": languages,
        "model": model and model.name,
        "answers": service.answers,
        "narratives": make_narratives(documents, NARRATIVES, not languages or languages[0] == "English"),
    }
