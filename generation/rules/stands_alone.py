"""Whether a sentence can be read without the text around it.

The rules are for English web pages, manuals and encyclopaedias. They are strict: a sentence that is refused costs
little, because documents have many, and a sentence that points at nothing spoils an answer.
"""

import re

from keystone.indexing.words import STOP_WORDS, find_stems

VERBS = (
    "accept act add adjust allow append apply ask assign attach bind block build calculate call cancel "
    "catch change check clean clear close collect combine compare compile compute connect construct "
    "contain convert copy count create decode decide define delete denote describe detect determine "
    "disable discard display do draw edit emulate enable encode ensure enumerate escape execute extract "
    "feed fetch fill find flush follow force format freeze generate get give go guess handle help hold "
    "implement include increase indicate initialize insert invoke issue iterate keep let list load lock "
    "log look make manage map mark match merge move need notify obtain open output override parse pass perform "
    "place pop prepare print process produce provide push put quote raise read receive record refer "
    "reformat register release remove rename render repeat replace report represent require reset resolve "
    "resume retrieve return rewind round run save scan search see select send serve set show signal skip "
    "sort specify split start stop store strip support suspend switch take tell test transform try turn "
    "unlock unregister update use wait wake walk wrap write yield"
).split()
THIRD_PERSON = [verb + ("es" if verb.endswith(("ch", "s", "sh", "x", "o")) else "s") for verb in VERBS]
SUBJECTLESS = frozenset(
    [verb for verb in VERBS if verb not in ("ensure", "keep", "process", "record", "test", "use")]
    + THIRD_PERSON
    + "returned raised called used useful usable invoked default defaults equivalent same like subclass alias "
    "implemented inherited taken given based derived intended base abstract optional wrapper convenience internal "
    "functionally identical similar mainly mostly usually normally typically applies copies "
    "modifies specifies may should can could must will would "
    "controls has have had is are was were does only not no if-not".split()
)
"""First words of a remark whose subject is a heading: "Returns the time"."""

_COMMONVERBS = frozenset("become come find give help keep know like make mean need say see seem take use want".split())
FINITE = re.compile(
    r"\b(?:am|applies|are|became|began|behaves|belongs|came|cannot|can|comes|consists|could|deals|depends|did|does|do|"
    r"gave|had|has|have|is|knew|made|may|might|must|shall|should|took|was|went|were|will|won't|would|"
    + "|".join(THIRD_PERSON)
    + r")\b"
    r"|\b\w\w+[^su\W]s\s+(?:an?|the|that|to|all|any|each|its|their|no|one|two|several|many)\b"
    r"|\b\w{2,}s\s+(?:\w+ly\s+)?(?:" + "|".join(VERBS) + r")\b"
    r"|\b\w+[^su\W]s\s+(?!(?:" + "|".join(sorted(STOP_WORDS - _COMMONVERBS)) + r")\b)[a-z]+[a-z ]"
    r"|,\s+(?:" + "|".join(VERBS) + r")\b"
    r"|\b\w{2,}ed\b(?!\s+(?:to|by|for|as|with|from)\b)"
)
"""A word that is probably a verb with a subject. A heading, and a noun with its attributes, have none."""


LEAST_WORDS, MOST_WORDS = 6, 45
"""The fewest and the most words of a sentence."""
PLAIN_SHARE = 0.8
"""The least share of plain words among all words. Others are code, numbers and marks."""
MOST_CAPITALS_SHARE = 0.5
"""The largest share of words with a capital. Menus and headings have more."""

EXPLANATION_SHARE = 0.85
"""The least share of plain words in an explanation."""
EARLY_WORDS = 3
"""A pronoun among this number of first words points back, whatever stands before it."""

_PLAIN = re.compile(r"""[("'\u201c\u2018]*[^\W\d_][^\W_]*(?:['\u2019/-][^\W_]+)*[)"'\u201d\u2019,.;:!?]*""")
_NUMBER = re.compile(r"[(]?\d+(?:[.,]\d+)*[),.;:]*")
_WORD = re.compile(r"[^\W_][\w'\u2019-]*")

_ENDING = re.compile(r"""(?:[^\W_]|\w\(\))[)"'\u201d\u2019\]]*\.[)"'\u201d\u2019]*$""")
"""A full stop after a word or a call. Questions, exclamations and cut sentences end otherwise."""

_DEBRIS = re.compile(
    r"\s#\s|>>>|\.\.\.|\u2026|[|{}<>=~\\^]|->|(?<!\w)\*|\*(?!\w)|[-_*#]{3,}"  # code, tables, rules
    r"|\b[^\W\d_]\w*\([^()\s]*,[^()]*\)"  # a call with arguments
    r"|\n\s*(?:[-*+#\u2022\u00b7]|\d+[.)])\s"  # an item of a list, or a heading
    r"|\S(?:\t|\x20{2,})[^\s.(]|\n\s*\n"  # columns, paragraphs
    r"|\b(?<!['\"(.])[a-z]\.\w+\(|\b[A-Z]{6,}\s+[A-Z]{2,}\b"  # a call of a variable's method, a heading in capitals
    r"|(?<![\w'\u2019\".-])[b-hj-z](?![\w'\u2019\".-])"  # a variable of one letter
    r"|https?://|www\.|@\w|:\s*\.$"
)
_NAME_FIRST = re.compile(r"[a-z]\w*(?:\.\w+|_\w+|\(\))+(?:\(\))?\s")
"""A first word that is a name in small letters, such as `bulk_create()`."""
_FRAGMENT = re.compile(
    r"^(?P<noun>an?|any|the|some|\w+ing)\s(?P<head>.*?)"
    r"(?:,?\s(?:that|which|who|whose|where|when|if|because|it|they|we|you)\b|$)",
    re.IGNORECASE,
)
"""A noun up to the clause that describes it. Without a verb before that clause, the rest is no statement."""
_VERB = re.compile(
    r"\b(?:is|are|was|were|has|have|had|can|could|may|might|must|should|will|would|does|did)\b"
    r"|\b(?<!the\s)(?<!of\s)(?<!or\s)(?<!and\s)(?:" + "|".join(THIRD_PERSON) + r")\s",
    re.IGNORECASE,
)
"""A word that is surely a verb with a subject."""
_LABEL = re.compile(
    r"(?:figure|fig\.|table|listing|photo|image|chart|diagram|source|credit|copyright|example|exercise|step|chapter"
    r"|section|appendix|see|read|click|share|posted|published|updated|note|tip|warning|todo|fixme|changed|new|added"
    r"|deprecated|version)\b\s*(?:[\d:.(-]|in\s+version|also\b|more\b|here\b|by\b|on\b|the\b|that\b)",
    re.IGNORECASE,
)
"""The opening of a caption, of a reference or of a remark on a page."""

_INTRODUCES = re.compile(
    r"(?:there are times|sometimes|a common (?:need|pattern|task)|some (?:kinds|projects|sites)|the goal of)\b",
    re.IGNORECASE,
)
"""The opening of a sentence that leads up to a matter, and says no more."""
_EXCEPTS = re.compile(
    r"\b(?:is|are) ignored\b|\bsame\b[^.]* (?:limitation|restriction)s? as\b|\bexample\.(?:com|net|org)\b"
)
"""Words of a sentence that tells only where something else has no effect, or that belongs to an example."""

_BACKWARD = re.compile(
    r"""(?:accordingly|actually|additionally|afterwards?|again|also|alternatively|and|another|anyway
      |as\ (?:a\ (?:consequence|result|side)|before|such)|at\ (?:this|that)\ point|because\ of\ this|besides
      |both\ (?:are|can|cases|have|is|of|were)|but|by\ (?:contrast|then)|consequently|conversely|each|either|else
      |equivalently|failure\ to\ do\ so|finally|first(?:ly)?|for\ (?:example|instance)|furthermore|hence|hereby|here
      |however
      |as\ you\ (?:can|may|might)\b|by\ way\ of\ example|consider|if\ (?:so|not|you\ d(?:o|id)(?=,))|imagine|say|suppose
      |in\ (?:(?:all|any|both|certain|either|many|most|other|some)\ cases?|addition|contrast|effect|fact|general
        |other\ words|particular|short|such|summary|turn)
      |indeed|instead|last(?:ly)?|later|likewise|meanwhile|moreover|nevertheless|neither|next|nonetheless|nor|now
      |of\ course|on\ (?:error|the\ (?:other|contrary))|or|other(?:s|wise)?|rather|second(?:ly)?|similarly|so
      |some(?:\ of)?\ (?:are|have|these|those)|still|subsequently|such|that\ (?:is|said|way)
      |the\ (?:above|aforementioned|first\ one|following|former|last|latter|next|others?|previous|rest|result|same
        |second|third)
      |then|there(?:after|by|fore|in)|third(?:ly)?|though|thus|to\ (?:do|achieve)\ (?:so|this|that)|too|unlike
      |whereas|which|who|whose|yet)\b""",
    re.IGNORECASE | re.VERBOSE,
)
"""The opening of a sentence that goes on from the sentence before it."""

_PRONOUNS = frozenset("he her here him his it it'd it'll it's its she such that their them they theirs".split())
"""Words that point back, unless a name stands before them in the sentence."""

_DEMONSTRATIVE = re.compile(
    r"\b(?:this(?!\s+(?:computer|machine|platform|system)\b)|these)\b"
    r"|\b(?:those|that)(?=\s+(?:behaviou?r|case|kind|level|one|point|reason|time|way)s?\b)"
    r"|\b(?:above|below|aforementioned|foregoing|hereafter|as\s+(?:follows|previously)|following)\b"
    r"|\bsuch\s+(?!as\b)|\b(?:next|preceding|previous)\s+(?:argument|chapter|example|page|paragraph|section)s?\b"
    r"|\b(?:is|are|was|were)\s+then\b|\bother\s+(?:than\s+)?that\b|\bsee\s+(?:the|also|section)\b|,\s+see\b"
    r"|\bthe\s+(?:former|latter|given|specified|same\b(?!.*\b(?:as|that)))\b"
    r"|\b(?:the|an?)\s+(?:present\s+)?(?:article|author|book|chapter|experiment|paper|project|report|study|survey|volume)s?\b"
    r"(?!\s+(?:about|by|for|in|of|on|that)\b)",
    re.IGNORECASE,
)
"""Words that point at another place of the page, or at the text or study itself, wherever they stand."""

_VAGUE = re.compile(
    r"""the\s+(?:action|answer|application|argument|attribute|author|behaviou?r|book|callback|caller|case|check|class|code
      |collection|command|constructor|contents|default|difference|effect|example|exception|file|format|function
      |hierarchy|idea|instance|implementation|item|latter|list|middleware
      |meaning|method|module|name|number|object|operation|option|output|package|page|parameter|problem|procedure|range
      |process|product|program|purpose|reason|result|return(?:ed)?|routine|script|second|section|sequence|string|system|text
      |type|user|usage|value|variable|word)s?
      \s+(?:(?:returned|passed|given|used|called)\s+)?
      (?:also|always|are|be|can|could|defaults|depends|does|do|ends|gets|had|has|have|here|if|indicates|is|itself
      |may|means|might|must|never|only|returned|returns|shall|should|specifies|supports|takes|then|uses|was|were
      |when|will|with|would)\b""",
    re.IGNORECASE | re.VERBOSE,
)
"""An opening that names its subject only by its kind, such as "The function returns"."""

LEAST_TITLE_EXPLANATION_WORDS = 3
"""The fewest words of an explanation of a document's title."""
LEAST_ENTRY_EXPLANATION_WORDS = 4
"""The fewest words of an explanation of a manual's entry."""
LEAST_NEW_STEMS = 2
"""The fewest content words by which an explanation of a title says more than the title."""
_ENTRY_NAME = re.compile(
    r"(?:[^\W\d_][\w.]*\(\)(?:, [^\W\d_][\w.]*\(\))*|[a-z]\w*|[A-Z][A-Z0-9_]+)(?: of (?:(?! - ).)+)? - "
)
"""The name of an entry in a manual, with the title of the manual, before its explanation."""
_TITLE_NAME = re.compile(r"(?:^|[:|]\s+)((?=\S*[._()]|[a-z]|\S+[a-z][A-Z])[^\W\d_][\w.-]*(?:\(\))?)$")
"""The last part of a title that is the name of a function, a setting or a command: one word that is no common noun."""
_OWN = re.compile(
    r"^This(?: (?:class|decorator|exception|function|method|module|package))?(?= [a-z])"
    r"|\bthe (?:given|specified)\b|(?<![\w'\u2019\".-])[b-hj-z](?![\w'\u2019\".-])"
)
"""Words of an explanation that point at its entry and at the arguments of the entry."""
_OWN_KIND = re.compile(
    r"^This (?:(?:class|command|decorator|exception|field|function|method|option|setting|tag) )?(?:\w+ly )?"
    r"(?:is|are|was|can|will|may|has|" + "|".join(THIRD_PERSON) + r")\b"
)
"""The opening of a sentence about the name above it."""
_RELATIVE = re.compile(r"\b(?:which|that|who)\s+(?:(?:can|may|should|must|will|could)\s+)?\w+")
_CONNECTIVE = re.compile(
    r"""^(?:additionally|also|as\ a\ result|at\ the\ same\ time|by\ contrast|consequently|conversely
      |for\ (?:example|instance)|furthermore|hence|however
      |in\ (?:addition|contrast|fact|practice|particular|such\ cases?|th(?:at|is)\ case)|instead|likewise|moreover
      |nevertheless|nonetheless|similarly|still|therefore|thus|yet),?\s+""",
    re.IGNORECASE | re.VERBOSE,
)
"""An opening that joins a sentence to the sentence before."""
_POINTER = re.compile(r"^(?:it|they|he|she|its|their|his|her|this|these)\b", re.IGNORECASE)
"""A first word that points at the sentence before."""
_NEAR = re.compile(r"\b(?:this|these|such(?!\s+as\b)|the\s+(?:former|latter|same))\b")
"""A word inside a sentence that points at the sentence before."""
_SPACED_STOP = re.compile(r"\s+([.,;:!?])")
"""A stop that stands apart from its word."""
_FIRST_PERSON = re.compile(
    r"(?<![\w/])(?:I(?:['\u2019](?:d|ll|m|ve))?|[Mm](?:y|ine|e)|[Ww]e(?:['\u2019](?:ll|re|ve))?|[Oo]urs?|us|[Ll]et['\u2019]s)"
    r"(?![\w/])"
)
_INSTRUCTION = re.compile(
    r"^(?:if|when|unless|once|otherwise)\b[^,]*,\s*(?:then\s+)?(?:" + "|".join(v for v in VERBS if v != "use") + r")\b"
    r"|^(?:if|when|unless)\s+(?:\w+\s+)?(?:specified|omitted|given|provided|present|not|true|false|none|set|unspecified|"
    r"necessary|needed|called|supplied|passed|used)\b"
    r"|^if\s+(?:\w+\s+)?\S+\s+(?:is|are)\s+(?:not\s+)?(?:true|false|none|given|omitted|specified|provided|set|present|zero)\b"
    r"|^(?:[^,]{1,30},|always|never|also|currently|just|simply)\s+(?:" + "|".join(THIRD_PERSON) + r")\b"
    r"|^(?:in|by|for|with|within|on|at|from|as|under|without|to)\b[^,]*,\s*(?:it|they|this|he|she|these)\b"
    r"|\b(?:argument|parameter|keyword|flag|attribute|option)s?\b(?=\s+(?:is|are|gives?|may|must|should|can|specif\w*|"
    r"determines?|indicates?|defaults?|has|have|will|controls?|defines?)\b)|\b(?:is|are)\s+returned\b|\breturn\s+value\b"
    r"|^the\s+(?:default|resulting|optional|returned|given|input|output|new|old|current|corresponding|specific)\b"
    r"|^the\s+(?:[a-z]+\s+){1,2}(?:may|can|should|must|will|shall)\b|\bthere[,.]|\bhere\b"
    r"|^an?\s+(?:\w+\s+){1,3}(?:which|that|suitable|used|for)\b(?!.*\b(?:is|are|was|were|has|have|can|will|must|may)\b)"
    r"|\b(?:guide|tutorial|document|documentation|chapter)\b.{0,60}\b(?:cover|describe|discusse|explain)s\b"
    r"|\b(?:is|are|was|were)\s+(?:\w+ly\s+)?(?:considered|described|discussed|examined|outlined|presented|reviewed)\.$"
    r"|\brespective\b|^please\b|^attempt(?:s|ing)?\b|^default\b"
    r"|^(?:abstract\s+|base\s+|mix-?in\s+)?(?:class|decorator|exception|function|interface|method|pattern|wrapper)"
    r"\s+(?:for|of|that|to|used|which)\b"
)
"""A remark on a function or an option that another line names, and an instruction to its author."""


def can_be_read(sentence: str, title: str) -> bool:
    """Return whether a sentence of a document with this title stands alone, or explains the title or an entry."""
    sentence = _set_in_lower_case(sentence)
    return "." in sentence[-2:] and (
        stands_alone(sentence)
        or explains_entry(sentence)
        or explains_title(sentence, title)
        or _explains_name(sentence, find_name(title))
    )


def stands_alone(sentence: str) -> bool:
    """Return whether a sentence can be read, and understood, without the text around it.

    It is a whole statement in plain words: no code, table, list item, heading, menu, caption, question or cut sentence.
    It has a subject of its own, and nothing in it points at another place. So it has no opening such as "However",
    "This" or "The function returns". It has no pronoun before the first word that carries content.
    """
    return _is_prose(sentence) and _is_whole(sentence) and _names_its_subject(sentence)


def explains_title(sentence: str, title: str) -> bool:
    """Return whether a sentence is the title of its document, a dash, and an explanation that says more."""
    name, _, explanation = sentence.partition(" - ")
    tokens, words = explanation.split(), _WORD.findall(explanation)
    return (
        name == title
        and LEAST_TITLE_EXPLANATION_WORDS <= len(tokens) <= MOST_WORDS
        and sum(bool(_PLAIN.fullmatch(token)) for token in tokens) >= EXPLANATION_SHARE * len(tokens)
        and _ENDING.search(explanation) is not None
        and not any(pattern.search(explanation) for pattern in (_DEBRIS, _DEMONSTRATIVE))
        and not _BACKWARD.match(explanation)
        and all(explanation.count(one) == explanation.count(other) for one, other in ("()", "[]"))
        and _PRONOUNS.isdisjoint(explanation.lower().split())
        and sum(word[0].isupper() for word in words) <= MOST_CAPITALS_SHARE * len(words)
        and len(find_stems(explanation) - find_stems(f"{title} module")) >= LEAST_NEW_STEMS
    )


def explains_entry(sentence: str) -> bool:
    """Return whether a sentence is the name of an entry in a manual, a dash, and a whole explanation.

    The name is the subject. So the explanation may open with "Called when", "Like" or an article.
    """
    name = _ENTRY_NAME.match(sentence)
    return name is not None and _is_explanation(sentence[name.end() :])


def find_name(title: str) -> str:
    """Find the name that a title ends with, such as `run()` of "Tasks: Methods: run()". Empty if it ends otherwise."""
    found = _TITLE_NAME.search(title)
    return found[1] if found else ""


def lacks_subject(sentence: str) -> bool:
    """Return whether a sentence is about the heading above it: "Returns the time", "A list of names that ..."."""
    first = _WORD.search(sentence)
    return first is not None and (
        first[0].lower() in SUBJECTLESS or _OWN_KIND.match(sentence) is not None or _is_fragment(sentence)
    )


def _explains_name(sentence: str, name: str) -> bool:
    return bool(name) and sentence.startswith(f"{name} - ") and _is_explanation(sentence[len(name) + 3 :])


def _is_explanation(text: str) -> bool:
    explanation = _OWN.sub("The", text)
    return (
        _is_prose(explanation, LEAST_ENTRY_EXPLANATION_WORDS)
        and _is_clean(explanation)
        and not any(pattern.match(explanation) for pattern in (_BACKWARD, _LABEL, _POINTER))
        and not _DEMONSTRATIVE.search(explanation)
        and not _FIRST_PERSON.search(explanation)
    )


def continues(sentence: str) -> bool:
    """Return whether a sentence can be read after the one before it, to which it points by a word such as "this"."""
    sentence = _set_in_lower_case(sentence)
    named = _POINTER.sub("Venus", _CONNECTIVE.sub("", sentence, count=1), count=1)
    plain = _NEAR.sub("the", named)
    return plain != sentence and stands_alone(f"{plain[:1].upper()}{plain[1:]}")


def _set_in_lower_case(sentence: str) -> str:
    """Set a sentence in capitals, as telegrams and old news have it, in lower case, so that its words can be told."""
    return _SPACED_STOP.sub(r"\1", sentence).capitalize() if sentence.isupper() else sentence


def _is_prose(sentence: str, least_words: int = LEAST_WORDS) -> bool:
    tokens = [token for token in sentence.split() if not _NUMBER.fullmatch(token)]
    plain = sum(bool(_PLAIN.fullmatch(token)) for token in tokens)
    return least_words <= len(tokens) <= MOST_WORDS and plain >= PLAIN_SHARE * len(tokens)


def _is_whole(sentence: str) -> bool:
    first = _WORD.search(sentence)
    return (
        first is not None
        and _is_clean(sentence)
        and not _is_fragment(sentence)
        and FINITE.search(_RELATIVE.sub("", sentence), len(first[0])) is not None
    )


def _is_fragment(sentence: str) -> bool:
    found = _FRAGMENT.match(sentence)
    if found is None:
        return sentence.startswith("Whether ")
    noun, head = found["noun"].lower(), found["head"]
    if noun.endswith("ing"):
        loose = FINITE.search(head)
        return _VERB.search(sentence) is None and (loose is None or loose.end() > len(head) - 2)
    return (FINITE if noun == "the" else _VERB).search(f"{head} ") is None


def _is_clean(sentence: str) -> bool:
    words = _WORD.findall(sentence)
    capitals = sum(word[0].isupper() for word in words)
    return (
        len(words) > 0
        and (sentence[0].isupper() or _NAME_FIRST.match(sentence) is not None)
        and _ENDING.search(sentence) is not None
        and not _DEBRIS.search(sentence)
        and all(sentence.count(one) == sentence.count(other) for one, other in ("()", "[]", "\u201c\u201d"))
        and sentence.count('"') % 2 == 0
        and capitals <= MOST_CAPITALS_SHARE * len(words)
    )


def _names_its_subject(sentence: str) -> bool:
    words = [word.lower().replace("\u2019", "'") for word in _WORD.findall(sentence)]
    if any(one.match(sentence) for one in (_BACKWARD, _INTRODUCES, _LABEL, _VAGUE)) or _EXCEPTS.search(sentence):
        return False
    if _DEMONSTRATIVE.search(sentence) or words[0] in SUBJECTLESS or _FIRST_PERSON.search(sentence):
        return False
    if _INSTRUCTION.search(sentence.lower()):
        return False
    subject = next((place for place, word in enumerate(words) if word not in STOP_WORDS), len(words))
    return subject < len(words) and _PRONOUNS.isdisjoint(words[: max(subject, EARLY_WORDS)])
