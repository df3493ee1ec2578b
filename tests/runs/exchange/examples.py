"""A small file of each form, written by hand in the form that its tool writes, and the same file as Keystone writes it.

Keys that Keystone does not keep are part of the first one.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """A file as its tool writes it, and the golden file that `write(read(file))` gives; None: the same bytes."""

    given: str
    golden: str | None = None


DOC = '{"title":"Bees","url":"u","segment":"Bees see blue."}'
REQUESTS = (
    '{"query":{"qid":"q1","text":"colours of bees"},"candidates":[{"docid":"d1","score":12.5,"doc":%s},'
    '{"docid":"d2","score":11,"doc":"Ants smell."}],"invocations_history":[{"prompt":"p"}]}\n'
    '{"query":"ants","candidates":["Ants smell.",{"text":"Ants walk.","docid":"d3","judgment":2}]}\n'
    '{"query":{"id":7,"text":"x"},"candidates":[{"doc":{"docid":"d4","segment":"S"},"score":1}]}\n'
).replace("%s", DOC)
REQUESTS_GOLDEN = (
    '{"query":{"text":"colours of bees","qid":"q1"},"candidates":[{"docid":"d1","score":12.5,"doc":%s},'
    '{"docid":"d2","score":11.0,"doc":{"contents":"Ants smell."}}]}\n'
    '{"query":{"text":"ants"},"candidates":[{"doc":{"segment":"Ants smell."}},'
    '{"docid":"d3","judgment":2,"doc":{"text":"Ants walk."}}]}\n'
    '{"query":{"text":"x","qid":"7"},"candidates":[{"docid":"d4","score":1.0,"doc":{"segment":"S"}}]}\n'
).replace("%s", DOC)
UMBRELA = (
    '{"model":"m","query":"ants","passage":"Ants smell.","prompt":"p","prediction":"##final score: 3",'
    '"judgment":3,"result_status":1}\n'
    '{"task_id":"t","status":"completed","query":"bees","passage":"Bees see.","judgment":0,"qid":"q1","docid":"d1"}\n'
    '{"task_id":"u","status":"failed","query":"bees","passage":"Bees eat.","judgment":-1,"qid":"q1","docid":"d2",'
    '"result_status":"failed","error":"e"}\n'
)
UMBRELA_GOLDEN = (
    '{"query":"ants","passage":"Ants smell.","judgment":3,"status":"completed","result_status":1}\n'
    '{"query":"bees","passage":"Bees see.","judgment":0,"status":"completed","result_status":1,"qid":"q1",'
    '"docid":"d1"}\n'
    '{"query":"bees","passage":"Bees eat.","judgment":-1,"status":"failed","result_status":0,"qid":"q1",'
    '"docid":"d2"}\n'
)
ANSWER = '"answer":[{"text":"Bees see blue.","citations":[0,1]},{"text":"So it is.","citations":[]}]'
METADATA = (
    '"metadata":{"team_id":"t","run_id":"r","type":"automatic","narrative_id":"1","narrative":"bees","prompt":"p"}'
)
RAG24 = (
    '{"run_id":"r","topic_id":"2024-1","topic":"bees","references":["d1#0","d2"],"response_length":6,' + ANSWER + "@}\n"
)
GROUNDED = (
    '{"metadata":{"existing_supported_citations":["9"],"team_id":"t","run_id":"r","qa_id":"116","question":"bees?"},'
    '"answer":[{"text":"One.","existing_supported_citations":["9"],"supported_citations":["3","4"],'
    '"contradicted_citations":["5"]},{"text":"Two.","supported_citations":[],"contradicted_citations":[]}]}\n'
)
BIOGEN24 = (
    '{\n  "team_id": "t",\n  "run_name": "r",\n  "contact_email": "a@b.org",\n  "results": [\n    {\n'
    '      "topic_id": "57",\n      "answer": "Bees see blue [12,13]. Ants smell.",\n'
    '      "references": [\n        "12",\n        "13"\n      ]\n    }\n  ]\n}\n'
)
SUPPORT = (
    '{"topic_id":"14","narrative_id":"14","run_id":"r","sentences":[{"sentenceID":0,"text":"Bees see.","citations":'
    '[{"citationID":0,"reference":"d1","support":"2"},{"citationID":1,"reference":"d2","support":"-1"}]}]}\n'
)
PAIRS = (
    '{"task_id":"r:14:s0:c0","statement":"Bees see.","citation":"Bees see blue.","support_label":"FS",@'
    '"status":"completed","metadata":{"topic_id":"14","run_id":"r","sentence_index":0,"citation_index":0,'
    '"docid":"d1"}}\n'
)
NUGGETIZER = (
    '{"query":"bees","qid":"1","answer_text":"Bees see.","response_length":2,"run_id":"r","nuggets":'
    '[{"text":"Bees see","importance":"vital","assignment":"support"}]@}\n'
)
BANK = (
    '{"query_id":"1","title_query":"bees","format_version":"v3","nugget_bank":{"What?":{"question":"What?",'
    '"question_id":"n1","query_id":"1","aggregator_type":"OR","answers":{"Blue":{"answer":"Blue",'
    '"references":[{"doc_id":"d1"}]}}}},"claim_bank":{"Bees see":{"claim":"Bees see","claim_id":"n2",'
    '"query_id":"1","importance":"okay"}}@}\n'
)
RAGTIME = (
    '{"metadata":{"team_id":"t","topic_id":"1","run_id":"r","run_desc":"d"},"nugget_bank":[{"question":"What?",'
    '"aggregator_type":"OR","answers":[{"answer":"Blue","references":["d1"]}]}]}\n'
)
EVIDENCE = (
    '{"topic_id":"1","items":[{"span":{"doc_id":"d1","start":3,"end":7},"text":"blue","score":1.5,"query_id":"1.0",'
    '"heading":"Bees","why":"best","segments":["d1#0","d1#1"]}],"notes":[],"stop":"done","reader":"plain","by":"rules"}\n'
)
TABLE = "r{0}GRADE{0}t1{0}0.9\nr{0}GRADE{0}all{0}0.90\n"

EXAMPLES: dict[str, Example] = {
    "requests": Example(REQUESTS, REQUESTS_GOLDEN),
    "umbrela": Example(UMBRELA, UMBRELA_GOLDEN),
    "run": Example(
        "1 Q0 d1 1 2.5 r\n1 Q0 d2 2 1.5 r\n2 Q0 d1 1 1.0 r\n", "1 Q0 d1 1 2.5 r\n1 Q0 d2 2 1.5 r\n2 Q0 d1 1 1 r\n"
    ),
    "qrels": Example("1 Q0 d2 2\n1 Q0 d1 0\n2 Q0 d1 -1\n", "1 0 d2 2\n1 0 d1 0\n2 0 d1 -1\n"),
    "nugget-qrels": Example("1 n1 d1 1\n1 n2 d1 0\n2 n1 d2 2\n"),
    "topics": Example('{"id":"1","narrative":"bees and ants","limit":300}\n{"id":"2","narrative":"ants"}\n'),
    "topics-tsv": Example("1\tbees and ants\n2\tants\n"),
    "evidence": Example(EVIDENCE),
    "answers": Example(
        '{"topic_id":"1","sentences":[{"text":"Bees.","citations":["d1#0"],"evidence":[0]}],"fallbacks":[]}\n',
        '{"topic_id":"1","sentences":[{"text":"Bees.","citations":["d1#0"]}],"fallbacks":[]}\n',
    ),
    "rag24": Example(RAG24.replace("@", ',"trace":{"prompt":"p"}'), RAG24.replace("@", "")),
    "rag25": Example(
        "{" + METADATA + ',"references":["d1","d2"],' + ANSWER + "}\n",
        '{"metadata":{"prompt":"p","team_id":"t","run_id":"r","type":"automatic","narrative_id":"1","narrative":"bees"}'
        ',"references":["d1","d2"],' + ANSWER + "}\n",
    ),
    "rag26": Example(
        '{"metadata":{"team_id":"t","narrative_id":"1","narrative":"bees","run_id":"r","run_desc":"d"},'
        '"references":["d1","d2"],"answer":[{"text":"Bees see.","citations":["d2"]}]}\n',
        '{"metadata":{"team_id":"t","narrative_id":"1","narrative":"bees","run_id":"r","run_desc":"d"},'
        '"references":["d1","d2"],"answer":[{"text":"Bees see.","citations":[1]}]}\n',
    ),
    "responses": Example(
        '{"metadata":{"run_desc":"d","team_id":"t","run_id":"r","topic_id":"1"},"references":["d1","d2"],"responses":'
        '[{"text":"Bees see.","citations":{"d2":0.5}},{"text":"Ants.","citations":["d1"]}]}\n'
    ),
    "dragun25": Example(
        '{"metadata":{"use_starter_kit":1,"narrative":"bees","team_id":"t","run_id":"r","topic_id":"1","type":"manual"'
        '},"references":["d1"],"responses":[{"text":"Bees see.","citations":["d1"]}]}\n'
    ),
    "auto-judge": Example(
        '{"metadata":{"team_id":"t","run_id":"r","topic_id":"1"},"references":[],"responses":[{"text":"Bees see.",'
        '"citations":["d1"]}],"documents":{"d1":{"id":"d1","title":"Bees","text":"Bees see blue."}},'
        '"evaldata":{"a":1}}\n',
        '{"metadata":{"team_id":"t","run_id":"r","topic_id":"1"},"references":["d1"],"responses":[{"text":"Bees see.",'
        '"citations":["d1"]}],"documents":{"d1":{"id":"d1","title":"Bees","text":"Bees see blue."}}}\n',
    ),
    "biogen24": Example(BIOGEN24),
    "biogen-grounded": Example(GROUNDED),
    "ragdoll-answers": Example(
        '{"run_id":"r","qid":"1","topic_id":"1","query":"bees","topic":"bees","response_length":2,"answer_text":'
        '"Bees see.","answer":[{"text":"Bees see.","citations":["d1",0]}]}\n',
        '{"run_id":"r","qid":"1","topic_id":"1","query":"bees","topic":"bees","response_length":2,"answer_text":'
        '"Bees see.","answer":[{"text":"Bees see.","citations":["d1"]}]}\n',
    ),
    "ragdoll-resolved": Example(
        '{"topic_id":"14","run_id":"r","references":["d1"],"segments":{"d1":"Bees see blue."},"answer":'
        '[{"text":"Bees see.","citations":[0]}]}\n',
        '{"metadata":{"team_id":"keystone","run_id":"r","narrative_id":"14"},"references":["d1"],"answer":'
        '[{"text":"Bees see.","citations":[0]}],"topic_id":"14","run_id":"r","segments":{"d1":"Bees see blue."}}\n',
    ),
    "ragdoll-support": Example(SUPPORT),
    "ragdoll-pairs": Example(PAIRS.replace("@", '"raw_output":"Full Support",'), PAIRS.replace("@", "")),
    "nuggets": Example(
        '{"topic":"1","text":"Bees see","doc_id":"d1","start":0,"end":8,"importance":"vital","id":"n1","source":"s"}\n',
        '{"topic_id":"1","text":"Bees see","nugget_id":"n1","importance":"vital","doc_id":"d1","start":0,"end":8}\n',
    ),
    "nuggetizer": Example(NUGGETIZER.replace("@", ',"trace":{"prompt":"p"}'), NUGGETIZER.replace("@", "")),
    "nuggetbank": Example(BANK.replace("@", ',"creator":[{"is_human":true}]'), BANK.replace("@", "")),
    "ragtime-nuggets": Example(RAGTIME),
    "sub-narratives": Example(
        '[{"id":464,"narrative":"bees","sub_narratives":[{"text":"What?","importance":"vital"}],"year":2025},'
        '{"id":"9","narrative":"ants","sub_narratives":[]}]',
        '[\n  {\n    "id": "464",\n    "narrative": "bees",\n    "sub_narratives": [\n      {\n'
        '        "text": "What?",\n        "importance": "vital"\n      }\n    ]\n  },\n'
        '  {\n    "id": "9",\n    "narrative": "ants",\n    "sub_narratives": []\n  }\n]\n',
    ),
    "leaderboard": Example(TABLE.format("    "), TABLE.format("\t")),
    "ir-measures": Example(
        "run_id\tquery_id\tmeasure\tvalue\nr\tt1\tGRADE\t0.9\nr\tall\tGRADE\t0.90\n",
        "r\tt1\tGRADE\t0.9\nr\tall\tGRADE\t0.90\n",
    ),
    "score-lines": Example(
        '{"run_id":"r","topic_id":"t1","measure":"IS","value":true}\n'
        '{"run_id":"r","topic_id":"all","measure":"IS","value":0.5}\n'
    ),
    "metrics": Example(
        '{"qid":"t1","run_id":"r","vital_score":0.5,"all_score":1}\n',
        '{"run_id":"r","qid":"t1","vital_score":0.5,"all_score":1.0}\n',
    ),
}
"""The examples by the name of their form."""
