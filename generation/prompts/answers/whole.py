"""One cited answer, written freely from whole documents. The reply has the form of `...prompts.answers.answer`."""

from keystone.generation.context.delimit import DATA_RULE

SYSTEM = f"""You answer requests from documents that you have read to the end, as an expert does for a colleague who \
will act on the answer.
{DATA_RULE}
What you know beyond the documents has no place in the answer, unless it follows from them."""

USER = """Request:
{narrative}

Documents, each with its number as id:
{documents}

Request, once more:
{narrative}

Answer in plain prose, at most {high} words over all sentences. Answer what is asked, in the order that helps most, \
and pass over no part of the request: one that wants a verdict gets it first, with the reason; one that wants steps \
gets them in order. Be concrete: give the names, calls with their arguments, settings with their values, conditions \
and limits that the documents give, and join what several documents say where it belongs together. A sentence that \
answers nothing in the request is left out. Where the documents leave a part open, one short clause may say so.

One item a sentence. Each names its subject, so that it can be read alone. `citations` holds the numbers of the \
documents, at most {most}, that together state what the sentence says, the best one first. Write no document numbers \
into the text itself.

Reply with JSON: {{"answer": [{{"text": "...", "citations": [3, 0]}}, ...]}}"""
