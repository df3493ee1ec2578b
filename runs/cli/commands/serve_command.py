"""The commands `keystone serve`, and `replay` for its logs of calls."""

from pathlib import Path
from typing import Annotated

import typer

from keystone.indexing.errors import UserError
from keystone.runs.cli.commands.ask_commands import IndexFolder
from keystone.runs.cli.options import CORES, WANTED, Json, Overrides, Preset, Quiet, RelevantFrom, Threads
from keystone.runs.report.say import say, say_result
from keystone.runs.serving.server import REPLY_S

LOG_FILE = "calls.jsonl"


def serve(
    folder: IndexFolder,
    config: Annotated[
        Path | None, typer.Option(help="A YAML file, as for run. The command ignores its index and topics.")
    ] = None,
    preset: Preset = None,
    set: Overrides = None,
    host: Annotated[
        str, typer.Option(help="The address to bind. One that other machines reach needs KEYSTONE_API_TOKEN.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to bind; 0 takes a free one.")] = 8081,
    log: Annotated[
        Path | None, typer.Option(help="The file that gets a line for each call.", show_default="in the run directory")
    ] = None,
    stdio: Annotated[
        bool, typer.Option("--stdio", help="Serve one agent by MCP over standard input and output, and bind no port.")
    ] = False,
    reply_seconds: Annotated[
        float, typer.Option(min=0.1, help="How long a request may wait until its reply begins.")
    ] = REPLY_S,
    workers: Annotated[
        int, typer.Option(min=1, help="Processes that answer searches by BM25; the first one answers all else.")
    ] = 1,
    threads: Threads = CORES,
    quiet: Quiet = False,
) -> None:
    """Serve an index to programs (REST), agents (MCP) and people (a web page), until an interrupt.

    Its REST interface is that of Pyserini's servers; see the page for engineers.

    Example: keystone serve index --preset keystone
    """
    import asyncio
    from contextlib import nullcontext

    from keystone.indexing.index import open_index
    from keystone.runs.config.read import make_config
    from keystone.runs.serving.agents.server import serve_stdio
    from keystone.runs.serving.app import make_app
    from keystone.runs.serving.call_log import make_settings_key, open_call_log
    from keystone.runs.serving.served import open_served
    from keystone.runs.serving.server.guard import choose_guard
    from keystone.runs.serving.server.listen import listen, open_socket
    from keystone.runs.serving.server.metrics import Metrics
    from keystone.runs.serving.workers import Task, open_workers

    if stdio and workers > 1:
        raise UserError("--workers: expected without --stdio, which serves one agent")
    guard = choose_guard(host, reply_seconds)
    settings = make_config(config, set or [], preset, Path("-"), folder)
    path = log or settings.out / settings.run_id / LOG_FILE

    def tell(text: str) -> None:
        if not quiet:
            say(text, err=True)

    with (
        nullcontext() if stdio else open_socket(host, port) as bound,
        open_call_log(path, open_index(folder).key, make_settings_key(settings)) as calls,
        nullcontext()
        if workers == 1
        else open_workers(workers - 1, Task(settings, calls, max(1, threads // workers), guard)) as others,
        open_served(settings, calls, threads, tell) as served,
    ):
        if bound is None:
            asyncio.run(serve_stdio(served))
            return
        address = f"http://{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}"
        told = f"{folder.resolve().name} is served at {address}; log: {path}"
        app = make_app(served, guard, Metrics(others.ask_counts if others else None))
        listen(app, bound, lambda: None if quiet else say(told), others)


def replay(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="A log of calls, written by `keystone serve --log`.")],
    folder: IndexFolder,
    config: Annotated[Path | None, typer.Option(help="A YAML file, as for serve.")] = None,
    preset: Annotated[str | None, typer.Option(help="A preset, as for serve.")] = None,
    set: Overrides = None,
    allow_other: Annotated[
        bool, typer.Option("--allow-other", help="Repeat calls of another index or of other settings, too.")
    ] = False,
    session: Annotated[str | None, typer.Option(help="Repeat and score only the calls of this session.")] = None,
    qrels: Annotated[Path | None, typer.Option(help="Judgments in TREC form, of documents or segments.")] = None,
    nuggets: Annotated[Path | None, WANTED] = None,
    topic: Annotated[str | None, typer.Option(help="The topic of the session, if the judgments have several.")] = None,
    relevant_from: RelevantFrom = 1,
    json: Json = False,
    threads: Threads = CORES,
    quiet: Quiet = False,
) -> None:
    """Repeat the calls of a log, compare the replies, and score the documents that the session found.

    Example: keystone replay calls.jsonl index --qrels qrels.txt --topic 1
    """
    import asyncio

    from keystone.indexing.index import open_index
    from keystone.retrieval.backends import open_store
    from keystone.runs.config.read import make_config
    from keystone.runs.serving.agents import replay as sessions
    from keystone.runs.serving.app import open_fronts
    from keystone.runs.serving.call_log import make_settings_key, open_call_log
    from keystone.runs.serving.service import open_service
    from keystone.runs.wording import plural

    if qrels is not None and nuggets is not None:
        raise UserError("expected either --qrels with judgments or --nuggets with nuggets")
    if qrels is None and nuggets is None and topic is not None:
        raise UserError("--topic: expected with --qrels or --nuggets")
    calls, torn = sessions.read_calls(log)
    for lost in () if quiet else torn:
        say(lost, err=True)
    if session is not None:
        calls = sessions.select_session(log, calls, session)
    if not calls:
        raise UserError(f"{log}: found no call, expected one or more")
    settings = make_config(config, set or [], preset, Path("-"), folder)
    with (
        open_call_log(None, open_index(folder).key, make_settings_key(settings)) as unwritten,
        open_service(settings, unwritten, threads) as service,
    ):
        if not allow_other:
            sessions.check_keys(log, calls, unwritten)
        judged, store = None, open_store(service.index)
        if qrels is not None:
            judged = sessions.read_relevant(qrels, topic, relevant_from, store)
        elif nuggets is not None:
            judged = sessions.read_wanted_nuggets(nuggets, topic)

        differing = []

        async def repeat() -> None:
            async for number, difference in sessions.repeat_calls(log, calls, open_fronts(service)):
                if difference:
                    call = calls[number].call
                    differing.append({"line": number, "operation": call.operation, "difference": difference})
                    if not json:
                        say(f"{log}:{number}: {call.front} {call.operation}: the reply differs: {difference}")

        asyncio.run(repeat())
        same = len(calls) - len(differing)
        scores = sessions.score_session(sessions.locate(sessions.collect_ids(calls), store), judged) if judged else []
        if json:
            told = {"calls": len(calls), "same": same, "differing": differing}
            say_result("replay", log, {**told, "scores": scores})
        else:
            say(f"{same} of {plural(len(calls), 'call')} have replies of the same bytes")
            for line in ["", *sessions.format_scores(scores)] if judged else []:
                say(line)
    if same < len(calls):
        raise typer.Exit(1)
