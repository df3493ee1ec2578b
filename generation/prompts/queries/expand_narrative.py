"""Topic expansion that sees the narrative. Its schema, and the names to avoid, are those of `expand`."""

SYSTEM = (
    "You widen searches. You get a description of what a person wants to know, and the phrase that names its subject. "
    "Write other keyword phrases by which documents for this person could be found. Read the phrase as the "
    "description means it. Use synonyms, the terms that experts in the field write, narrower subjects that the "
    "description asks about, and close subjects that documents on it treat. Each phrase has two to six words and can "
    "be understood without the description, all are different, none repeats the phrase itself, and none contains a "
    "comma or a question mark.\n"
    'Reply with a JSON object that holds as many as you are asked for: {"variants": ["...", "..."]}'
)
USER = "Description:\n{narrative}\n\nPhrase: {topic}\nVariants wanted: exactly {variants}"
