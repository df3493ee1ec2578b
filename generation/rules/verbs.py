"""Verbs of English: those that open an instruction, those that open a remark without a subject, and finite ones."""

import re

from keystone.generation.rules.words import STOP_WORDS

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
