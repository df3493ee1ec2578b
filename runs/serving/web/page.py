"""The page at `/`: one HTML file with its style and its script, which asks only the server that it came from."""

from functools import cache

from starlette.responses import HTMLResponse

from keystone.runs.report.html.markup import make_policy, read_parts

PACKAGE = "keystone.runs.serving.web"
REPORT = "keystone.runs.report.html"
"""The package of the report, from which the page has its colours, its table, and the tips of its cells."""
ABOUT = {
    True: "Keystone makes queries from a narrative, ranks documents, and lets a language model write a cited answer.",
    False: "Keystone makes queries from a narrative, and ranks documents. This server asks no language model: rules "
    "choose sentences from the documents, and nothing is graded.",
}
"""The page's words about its answers, with a language model and without one."""
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
