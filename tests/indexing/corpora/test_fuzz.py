"""Damaged files of every form: no error but a report, and no document that is neither read nor counted.

`KEYSTONE_FUZZ=10000` sets the number of damaged files; there are a few hundred without it.
"""

import bz2
import gzip
import io
import json
import lzma
import random
import re
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from keystone.indexing.corpora.corpus import read_corpus
from keystone.indexing.corpora.segments import cut_segments
from keystone.indexing.errors import BadRecord, UserError
from keystone.indexing.structures.sections import FORMATS, section_tree
from tests.support.mutation import FUZZ_CASES

CASES = FUZZ_CASES or 400

HTML = b"""<!DOCTYPE html><html><head><title>T &amp; U</title><script>a('<!--');</script><style>p {}</style></head>
<body><nav><ul><li>Home<li>Up</ul></nav><main><h1>One <i>x</i></h1><p title="a > b">Text &lt; caf\xc3\xa9 &#8212;<br>m
<table><tr><td>1<td>2</table><!-- no --><select><option>a<option>b</select><textarea><b></textarea><svg><path/></svg>
<![CDATA[ data ]]><h2>Two</h2><pre>code</pre></main><footer>end</footer></body></html>"""
MARKDOWN = b"# Title\n\nText *x*.\n\n- a\n  - b\n\n```\n# code\n```\n\n## Two\n\n<!-- c -->\n> q \xe2\x80\x94\n"
XML = b"".join(
    b'<DOC id="i%d">\n<DOCNO> T%d </DOCNO>\n<HEAD>H</HEAD>\n<TEXT><P>a &amp; b</P><![CDATA[c]]></TEXT>\n</DOC>\n'
    % (n, n)
    for n in range(5)
)
WEB = XML + b"<DOC><DOCNO>W</DOCNO><DOCHDR>\nhttp://x\n</DOCHDR>\n" + HTML + b"\n</DOC>\n"
TSV = b"".join(b"%d\ttext of %d\n" % (n, n) for n in range(9))
JSONL = b"".join(json.dumps({"id": f"d{n}", "title": "\u00e9", "text": "x"}).encode() + b"\n" for n in range(9))


def parquet() -> bytes:
    out = io.BytesIO()
    table = pa.table({"id": [f"d{n}" for n in range(9)], "text": ["text"] * 9})
    pq.write_table(table, out, row_group_size=4, write_page_checksum=True)
    return out.getvalue()


def archive(kind: str) -> bytes:
    out = io.BytesIO()
    files = {"a.html": HTML, "b.md": MARKDOWN, "c.xml": XML, "d.jsonl": JSONL, "e.bin": b"\0"}
    if kind == "zip":
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
            for name, raw in files.items():
                packed.writestr(name, raw)
    else:
        with tarfile.open(fileobj=out, mode=kind) as tar:  # type: ignore[call-overload]
            for name, raw in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(raw)
                tar.addfile(member, io.BytesIO(raw))
    return out.getvalue()


def count_docs(raw: bytes) -> int:
    return sum(len(re.findall(rb"<doc(?:\s[^<>]*)?>", line, re.IGNORECASE)) for line in raw.splitlines(True))


def count_lines(raw: bytes) -> int:
    return sum(1 for line in raw.split(b"\n") if line.decode("latin-1").strip(" \t\r\x0b\x0c"))


SEEDS: dict[str, tuple[bytes, Callable[[bytes], int] | None]] = {
    "a.html": (HTML, lambda _raw: 1),
    "a.htm.gz": (gzip.compress(HTML), lambda _raw: 1),
    "a.md": (MARKDOWN, lambda _raw: 1),
    "a.trec": (XML, count_docs),
    "w.trec": (WEB, count_docs),
    "a.tsv": (TSV, count_lines),
    "a.jsonl": (JSONL, None),
    "a.jsonl.xz": (lzma.compress(JSONL), None),
    "a.jsonl.bz2": (bz2.compress(JSONL), None),
    "a.jsonl.zst": (zstandard.ZstdCompressor(write_checksum=True).compress(JSONL), None),
    "a.parquet": (parquet(), None),
    "a.tar": (archive("w"), None),
    "a.tar.gz": (archive("w:gz"), None),
    "a.zip": (archive("zip"), None),
}
"""A file of each form, and how many documents a damaged copy of it holds at least, if that can be told."""

PIECES = (
    b"<",
    b">",
    b'"',
    b"<!--",
    b"-->",
    b"</",
    b"&",
    b"\0",
    b"\xff",
    b"\n",
    b"<script>",
    b"]]>",
    b"{",
    b"[",
    b"<DOC>",
)


def damage(raw: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(raw) + 1)
        end = min(len(raw), at + chance.choice((0, 1, 1, 7, 60)))
        piece = chance.choice((b"", bytes([chance.randrange(256)]), chance.choice(PIECES), raw[at:end] * 2))
        raw = raw[:at] if chance.random() < 0.05 else raw[:at] + piece + raw[end:]
    return raw


@pytest.mark.parametrize("part", range(8))
def test_a_damaged_file_gives_documents_and_reports(tmp_path: Path, part: int) -> None:
    for case in range(part, CASES, 8):
        chance = random.Random(case)
        name = list(SEEDS)[case // 8 % len(SEEDS)]
        whole, count = SEEDS[name]
        raw = damage(whole, chance)
        file = tmp_path / name
        file.write_bytes(raw)
        errors: list[BadRecord] = []
        form = "trec" if name.endswith(".trec") else "jsonl" if name.endswith(".tsv") else None
        try:
            documents = list(read_corpus(file, form, report=errors.append, extract=chance.choice(("main", "all"))))
        except UserError as error:
            assert str(error) == f"{file}: holds no document", case  # noqa: PT017
            documents = []
        assert len(documents) + len(errors) >= (count(raw) if count else bool(raw)), (case, name)
        if raw and not count and not errors and whole != raw:
            expected = sum(1 for _ in read_corpus(write(tmp_path / f"whole-{name}", whole), report=errors.append))
            assert len(documents) >= expected or name.endswith((".jsonl", ".tar")), (case, name)
        for document in documents:
            cut_segments(document)
            section_tree(document)
        if name.endswith((".html", ".md")) and documents:
            text = documents[0]
            source = type(text)(text.id, raw.decode("utf-8", "replace"))
            for kind in FORMATS:
                tree = section_tree(source, kind)
                assert all(0 <= node.start <= node.end <= len(source.text) for node in tree.nodes), (case, kind)


def write(file: Path, raw: bytes) -> Path:
    file.write_bytes(raw)
    return file
