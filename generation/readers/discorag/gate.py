"""The gate: questions that need more than one place of a document, told by words that stand in a table.

DiscoRAG (sections 3.1 and 5.5) fine-tunes an encoder on 6,500 questions, and reports F1 0.984. It also says that the
encoder relies too much on words such as "why" and "how". Here such words decide openly. No accuracy is claimed.
"""

import re

MARKERS = {
    "several": r"\w+\?.*\?",
    "cause": r"why|caus(?:e[sd]?|ing)|because|reasons?|(?:leads?|led) to|results?|consequences?|effects?|affect\w*|"
    r"impact\w*|influenc\w+",
    "manner": r"how(?!\s+(?:many|much|old|long|far|often|tall|high|big|large|deep|wide|fast|heavy|late|soon|few)\b)",
    "comparison": r"compar\w+|contrast\w*|differ(?:s|ent|ences?)?|similar\w*|versus|vs|whereas|pros and cons",
    "connection": r"relat(?:e[sd]?|ions?|ionships?)|connect\w*|roles?|interact\w*",
    "interpretation": r"themes?|symbol\w*|signific\w+|importan\w+|mean(?:s|ing)?|motiv\w+|attitudes?|personality|"
    r"feel(?:s|ings?)?|portray\w*|represent\w*|impl(?:y|ies|ied|ications?)",
    "development": r"chang(?:e[sd]?|ing)|develop(?:s|ed|ments?)?|evol\w+|throughout|over time",
    "overview": r"summar\w+|plot|overview|descri\w+|explain\w*|discuss\w*|analy\w+|settings?|explor\w+|learn about",
}
"""The patterns of complex questions by class. The classes follow the paper's Table 2; a `how` of quantity is simple."""

_PATTERNS = {name: re.compile(rf"(?i)(?<!\w)(?:{pattern})(?!\w)") for name, pattern in MARKERS.items()}


def find_marker(question: str) -> str:
    """Find the class by which a question is complex, with the text that shows it; empty if the question is simple."""
    for name, pattern in _PATTERNS.items():
        if found := pattern.search(" ".join(question.split())):
            return f"{name}: {found[0]}"
    return ""
