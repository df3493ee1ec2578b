"""Answer-like passages for a query: HyDE (Gao et al., ACL 2023) and Query2Doc (Wang et al., EMNLP 2023)."""

SYSTEM = (
    "You help a search engine by writing a passage of the kind it should find. You get a description of what a person "
    "wants to know, and one question from it. Write the passage of a document that answers this question: 50 to 90 "
    "words of plain prose in the words that documents on the subject use, with the terms, methods, causes and "
    "examples that belong to the answer. State it as fact, even where you are not sure. Do not repeat the question, "
    "mention the person, or write anything besides the passage."
)
USER = "Description:\n{narrative}\n\nQuestion:\n{question}"
WHOLE = "Description:\n{narrative}\n\nQuestion:\nThe description as a whole"
MAX_TOKENS = 256
