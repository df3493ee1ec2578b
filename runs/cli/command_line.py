"""What all commands of the command line have in common: advice for those who type the options of other tools."""

from collections.abc import Mapping
from typing import Any

from typer.core import TyperCommand

OF_OTHER_TOOLS: Mapping[str, Mapping[str, str]] = {
    "index": {
        "--input": "name the corpus first: keystone index CORPUS --out INDEX",
        "--index": "name the new index by --out INDEX",
        "--collection": "name the form by --format or leave it to be guessed",
        "--generator": "leave it out: the form of the corpus decides",
        "--storePositions": "leave it out: the index stores all that Keystone reads",
        "--storeDocvectors": "leave it out: feedback needs none",
        "--storeRaw": "leave it out: the index always keeps the documents",
        "--stemmer": "leave it out: the analyzer is Anserini's for English",
    },
    "search": {
        "--index": "name the index first: keystone search INDEX TEXT",
        "--query": "name the text second: keystone search INDEX TEXT",
        "--hits": "name the number of documents by --top",
        "--k": "name the number of documents by --top",
        "--bm25": "use --set 'retrieval.systems=[bm25]'",
        "--rm3": "use --set retrieval.feedback=rm3",
        "--rocchio": "use --set retrieval.feedback=rocchio",
        "--topics": "for a file of topics, use keystone run --preset bm25 --index INDEX --topics TOPICS",
        "--output": "for a run file, use keystone run --preset bm25 --index INDEX --topics TOPICS",
    },
    "run": {
        "--output": "name the folder of runs by --out",
        "--hits": "use --set retrieval.depth=N",
        "--bm25": "use --preset bm25",
        "--k1": "use --set retrieval.k1=X",
        "--b": "use --set retrieval.b=X",
        "--rm3": "use --set retrieval.feedback=rm3",
        "--rocchio": "use --set retrieval.feedback=rocchio",
        "--tag": "use --set run_id=TAG",
        "--runtag": "use --set run_id=TAG",
    },
    "fuse": {
        "--runs": "name the run files without an option: keystone fuse A B --out FUSED",
        "--output": "name the run file to write by --out",
        "--runtag": "name the tag by --tag",
        "--k": "use --depth for documents of each topic, or --set k=60 for rrf",
        "--rrf.k": "use --set k=60",
        "--alpha": "use --method wsum --weights ALPHA,1-ALPHA",
    },
    "evaluate": {
        "-c": "leave it out: topics without a ranking always count 0",
        "-l": "use --relevant-from",
        "-J": "use --condensed",
        "-M": "use a measure with a cutoff, such as map_cut.100",
        "--complete_rel_info_wanted": "leave it out: topics without a ranking always count 0",
        "--level_for_rel": "use --relevant-from",
    },
    "answer": {"--output": "name the file to write by --out", "--input": "name the narratives by --topics"},
    "validate": {"--input": "name the files without an option: keystone validate FILE --topics TOPICS"},
}
"""Options of Pyserini, trec_eval and ragnarok by command, each with what to type here."""


class Command(TyperCommand):
    """A command of the table. Its error for an option of another tool says what to type."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. Wrong usage is an option of another tool, too."""
        known = {name for parameter in self.params for name in (*parameter.opts, *parameter.secondary_opts)}
        typed = {arg.partition("=")[0] for arg in args} - known
        found = [item for item in OF_OTHER_TOOLS.get(self.name or "", {}).items() if item[0] in typed]
        if found:
            ctx.fail("\n".join(f"No such option: {option}; {advice}." for option, advice in found))
        return super().parse_args(ctx, args)
