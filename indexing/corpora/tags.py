"""The tags of HTML and SGML with their places in the source. Any source can be read, in time linear in its length.

HTML is cut as its standard says (WHATWG HTML, section 13.2.5): quotes of attributes hold any character, and nothing is
a tag within scripts, style sheets, text areas and titles. The parser of `keystone.indexing.corpora.markup` cuts in the
same way, but gives no places. Unlike a browser, this module takes a CDATA section for text, as XML does.

SGML has no such elements but scripts and style sheets. A `<` that opens no whole tag or comment is text there.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

CDATA = "<![CDATA["
CDATA_END = "]]>"

_SPACE = r"[ \t\n\r\f]"
_HTML_TAG = rf"""<(/?)([a-z][^ \t\n\r\f/>]*+)
    (?: [ \t\n\r\f/]++
      | [^ \t\n\r\f/>][^ \t\n\r\f/>=]*+
        (?: {_SPACE}*+ = {_SPACE}*+ (?: "[^"]*+"?+ | '[^']*+'?+ | [^ \t\n\r\f>"'][^ \t\n\r\f>]*+ )?+ )?+
    )*+ (?:>|\Z)"""
_SGML_TAG = r"""<(/?)([a-z][^\s<>/]*+)        # no scan goes beyond the next "<": many unclosed tags stay linear
    (?: (?:[^<>"']++ | "[^"<]*+" | '[^'<]*+')*+ >   # attributes, quoted ones with ">" too
      | [^<>]*+ > )                                 # attributes with a stray quote"""
_OTHERS = r"(?P<cdata><!\[CDATA\[)|(?P<comment><!--)"
_FLAGS = re.IGNORECASE | re.VERBOSE
_HTML = re.compile(rf"{_OTHERS}|(?:<[!?]|</(?=[^a-z]))[^>]*+(?:>|\Z)|{_HTML_TAG}", _FLAGS)
_SGML = re.compile(rf"{_OTHERS}|<[!?][^<>]*+>|{_SGML_TAG}", _FLAGS)

_COMMENT_END = re.compile(r"--!?>")
_SCRIPT_PART = re.compile(r"<!--|-->|<(/?)script(?=[ \t\n\r\f/>])", re.IGNORECASE)
RAW_ELEMENTS = frozenset("title textarea style xmp iframe noembed noframes script plaintext".split())
"""Elements of HTML whose content holds no tags. If such an element has no end, it lasts to the end of the source."""

_RAW_IN_SGML = frozenset(("script", "style"))
_RAW_ENDS = {name: re.compile(rf"</{name}(?=[ \t\n\r\f/>])", re.IGNORECASE) for name in RAW_ELEMENTS - {"plaintext"}}


class Tag(NamedTuple):
    """`source[start:end]`: a tag by its name, CDATA by `CDATA`; comments and declarations have an empty name.

    The text of CDATA is `source[start + 9 : end - 3]`. Other names are in lower case.
    """

    start: int
    end: int
    name: str
    closes: bool = False


def find_tags(source: str, sgml: bool = False) -> Iterator[Tag]:
    """The tags, comments, declarations and CDATA sections of a source, in its order."""
    pattern, raw = (_SGML, _RAW_IN_SGML) if sgml else (_HTML, RAW_ELEMENTS)
    at, last_end = 0, max(source.rfind("-->"), source.rfind("--!>")) if sgml else len(source)
    while found := pattern.search(source, at):
        start, at = found.span()
        if found["comment"]:
            if start > last_end:
                continue
            at = _end_of_comment(source, start)
            yield Tag(start, at, "")
        elif found["cdata"]:
            end = source.find(CDATA_END, at)
            at = end + len(CDATA_END) if end >= 0 else len(source)
            yield Tag(start, at, "CDATA")
        else:
            name = (found[4] or "").lower()
            yield Tag(start, at, name, bool(found[3]))
            if name in raw and not found[3] and not (sgml and source[at - 2] == "/"):
                at = _end_of_raw(source, name, at)


def _end_of_comment(source: str, start: int) -> int:
    for short in ("<!-->", "<!--->"):
        if source.startswith(short, start):
            return start + len(short)
    end = _COMMENT_END.search(source, start + 4)
    return end.end() if end else len(source)


def _end_of_raw(source: str, name: str, at: int) -> int:
    """The start of the end tag of an element that holds no tags; the end of the source if there is none."""
    if name == "script":
        return _end_of_script(source, at)
    end = _RAW_ENDS[name].search(source, at) if name in _RAW_ENDS else None
    return end.start() if end else len(source)


def _end_of_script(source: str, at: int) -> int:
    """The start of the end tag of a script. Within `<!--`, a nested script hides one end tag."""
    escaped = nested = False
    while part := _SCRIPT_PART.search(source, at):
        at = part.end()
        if part[0] == "<!--":
            escaped, at = True, at - 2
        elif part[0] == "-->":
            escaped = nested = False
        elif not part[1]:
            nested = escaped
        elif not nested:
            return part.start()
        else:
            nested = False
    return len(source)
