"""What MkDocs cannot know of this repository: the order of its pages, its public functions, and files that pages name.

* The navigation follows `docs/README.md`: a group for each of its headings, with the pages that the group names first.
* A reference of Python is made from the docstrings of all that `keystone/public.py` exports.
* A notebook becomes a page. It keeps no outputs, so its texts and its code are all of it.
* A page outside of `docs/` that a page links to is part of the site, in the last group. Other files are copied.
"""

import ast
import json
import re
import sys
from pathlib import Path
from posixpath import dirname, join, normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.superfences import fence_code_format

ROOT = Path(__file__).parents[1]
INDEX = "README.md"
REFERENCE = "reference.md"
REPOSITORY = "repository/"
"""The folder of the site for what is outside of `docs/`."""
RENAMED = {"docs/index.md": "indexes.md"}
"""Pages by another name on the site, where `index.html` is the index of pages."""
MERMAID = Path(sys.prefix, "mermaid.min.js")
"""The script that draws diagrams, if set-up could load it. Material would ask another host for it."""
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Take the navigation from the index of pages, and the names of anchors from GitHub."""
    groups: list[dict[str, list[str]]] = []
    listed: set[str] = set()
    for part in re.split(r"^## ", (ROOT / "docs" / INDEX).read_text(), flags=re.MULTILINE)[1:]:
        heading, _, text = part.partition("\n")
        named = dict.fromkeys(_find_place(f"docs/{name}") for name in _LINK.findall(text) if "/" not in name)
        groups.append({heading: [name for name in named if name not in listed]})
        listed |= named.keys()
    outside = [_find_place(path) for path in _list_outside() if path.endswith(".md")]
    config.nav = [INDEX, *groups, {"Python functions": REFERENCE}, {"Repository": outside}]
    config.mdx_configs["toc"]["slugify"] = _name_anchor
    if MERMAID.exists():
        fence = {"name": "mermaid", "class": "mermaid", "format": fence_code_format}
        config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [fence]}
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the reference, the pages that notebooks are, and the files outside of `docs/`."""
    files.append(File.generated(config, REFERENCE, content=_write_reference()))
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        files.append(File.generated(config, _find_place(f"docs/{file.src_uri}"), content=_read_notebook(file)))
    for path in [*RENAMED, *_list_outside()]:
        files.append(File.generated(config, _find_place(path), abs_src_path=str(ROOT / path)))
    if MERMAID.exists():
        files.append(File.generated(config, MERMAID.name, abs_src_path=str(MERMAID)))
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, **_: object) -> str:
    """Let the links of a page lead to the places that files have on the site."""
    here = page.file.src_uri
    source = here.removeprefix(REPOSITORY) if here.startswith(REPOSITORY) else f"docs/{here}"

    def replace(link: re.Match[str]) -> str:
        target = _find_place(normpath(join(dirname(source), link[1])))
        return relpath(target, dirname(here) or ".") if target in files.src_uris else link[1]

    text = _LINK.sub(replace, markdown)
    if "```mermaid" in text and MERMAID.exists():
        text += f'\n\n<script src="{relpath(MERMAID.name, dirname(here) or ".")}"></script>\n'
    return text


def _find_place(path: str) -> str:
    """Find the place on the site of a file of the repository."""
    if path in RENAMED:
        return RENAMED[path]
    if not path.startswith("docs/"):
        return REPOSITORY + path
    return re.sub(r"\.ipynb$", ".md", path.removeprefix("docs/"))


def _list_outside() -> list[str]:
    """List the files outside of `docs/` that pages of the site link to, in the order in which they are found."""
    pages = [f"docs/{INDEX}", *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/*.md"))]
    found: dict[str, None] = {}
    for page in pages:
        for link in _LINK.findall((ROOT / page).read_text()):
            path = normpath(join(dirname(page), link))
            if not path.startswith(("docs/", "..")) and path not in found and (ROOT / path).is_file():
                found[path] = None
                if path.endswith(".md"):
                    pages.append(path)
    return list(found)


def _write_reference() -> str:
    """Write the page of all public names, functions first."""
    tree = ast.parse((ROOT / "keystone" / "public.py").read_text())
    (names,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    shown = "What `import keystone` gives. [For data scientists](data-scientist.md) shows the functions at work."
    lines = ["# Python functions", shown]
    for title, kind in (("Functions", str.islower), ("Types", str.istitle)):
        lines += [f"## {title}", *(f"::: keystone.public.{name}" for name in names if kind(name[0]))]
    return "\n\n".join(lines)


def _read_notebook(file: File) -> str:
    """Read the texts and the code of a notebook as Markdown."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(file.content_string)["cells"]]
    return "\n\n".join(f"```python\n{text}\n```" if kind == "code" else text for kind, text in cells)


def _name_anchor(heading: str, separator: str) -> str:
    """Name the anchor of a heading as GitHub does."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", separator)
