"""A corpus of the documentation that every Python carries, one document a module or language topic.

Run it as a program (`python pages.py OUT.jsonl`), in a process of its own: rendering a page imports the module that it
describes.
"""

import contextlib
import importlib
import importlib.util
import io
import json
import os
import pkgutil
import pydoc
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics as language_topics

# Modules that open a window or a browser, print a poem, hold tests or are private, or leave the standard
# library in 3.12 or 3.13.
SKIPPED = re.compile(
    r"(antigravity|this|idlelib|turtledemo|test|ensurepip|.*\.tests?(\..+)?|.*\.__main__"
    r"|aifc|asynchat|asyncore|audioop|cgi|cgitb|chunk|crypt|distutils|imghdr|imp|lib2to3|mailcap|msilib|nis"
    r"|nntplib|ossaudiodev|pipes|smtpd|sndhdr|spwd|sunau|telnetlib|uu|xdrlib|tkinter\.tix|_.*|.*\._.*)(\..+)?"
)
DROPPED_SECTIONS = {"DATA", "FILE", "VERSION", "AUTHOR", "CREDITS", "DATE", "MODULE REFERENCE", "PACKAGE CONTENTS"}
DROPPED_BLOCK = re.compile(
    r"(Methods|Class methods|Static methods|Data descriptors|Data and other attributes|"
    r"Readonly properties|Method resolution order)\b.*:$"
)
INHERITED = re.compile(r".*\b(inherited from|descriptors|attributes|properties|resolution order)\b")
OF_THIS_MACHINE = re.compile(r" at 0x[0-9a-f]+|(?<=executable=')[^']*")
PAGE_CHARACTERS = 5_000


def modules() -> Iterator[str]:
    """Importable modules of the standard library with their submodules, in sorted order."""
    for name in sorted(sys.stdlib_module_names):
        if SKIPPED.fullmatch(name):
            continue
        yield name
        spec = importlib.util.find_spec(name) if name != "__main__" else None
        if spec and spec.submodule_search_locations:
            for info in pkgutil.walk_packages(spec.submodule_search_locations, f"{name}.", onerror=lambda _: None):
                if not SKIPPED.fullmatch(info.name):
                    yield info.name


def module_page(name: str) -> dict[str, str]:
    """The pydoc page of a module without tables of constants and without what its classes only inherit."""
    module = importlib.import_module(name)
    lines, headings = [], []
    section, dropped = "", False
    for line in pydoc.plain(pydoc.render_doc(module)).splitlines()[2:]:
        if line and not line[0].isspace():
            section, dropped = line.strip(), False
            if section not in DROPPED_SECTIONS:
                headings.append(section.capitalize())
        if section in DROPPED_SECTIONS:
            continue
        bare = re.sub(r"^ +\|(  )?", "", line)
        if line.startswith("    class "):
            headings.append(line.strip().split("(")[0])
            dropped = False
        if DROPPED_BLOCK.fullmatch(bare.strip()) and not bare.startswith(" "):
            dropped = bool(INHERITED.match(bare))
            continue
        if not dropped and not re.fullmatch(r"[-\s|]*", line):
            lines.append(bare.strip())
        elif lines and lines[-1]:
            lines.append("")
    return {"title": name, "text": "\n".join(lines).strip(), "headings": "\n".join(dict.fromkeys(headings))}


def language_page(name: str) -> dict[str, str]:
    """One topic of the language reference, as `help(name)` shows it."""
    text = language_topics[name].strip()
    lines = text.splitlines()
    underlined = [lines[i - 1] for i in range(1, len(lines)) if re.fullmatch(r"([*=\-^\"])\1{3,}", lines[i])]
    title = underlined[0] if underlined else name
    return {"title": title, "text": text, "headings": "\n".join(underlined)}


def pages() -> Iterator[dict[str, str]]:
    """Every page that can be rendered here, cut at `PAGE_CHARACTERS` on a line's end."""
    sources = [("module", name, module_page) for name in modules()]
    sources += [("language", name, language_page) for name in sorted(language_topics)]
    for kind, name, render in sources:
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                page = render(name)
        except (Exception, SystemExit):
            continue  # a module of another platform
        text = OF_THIS_MACHINE.sub("", page["text"])
        if len(text) > PAGE_CHARACTERS:
            text = text[: text.rfind("\n", 0, PAGE_CHARACTERS)]
        yield {"docid": f"{kind}.{name}", **page, "text": text}


def main() -> None:
    """Write the corpus as JSONL to the path given as argument."""
    warnings.simplefilter("ignore")
    os.environ["PYTHON_GIL_WARNING"] = "0"
    with Path(sys.argv[1]).open("w", encoding="utf-8") as out:
        for page in pages():
            out.write(json.dumps(page) + "\n")


if __name__ == "__main__":
    main()
