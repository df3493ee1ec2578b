"""The command `keystone serve`."""

from pathlib import Path
from typing import Annotated

import typer

from keystone.runs.cli.commands.ask_commands import IndexFolder
from keystone.runs.cli.options import CORES, Overrides, Preset, Quiet, Threads
from keystone.runs.report.say import say
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
        float, typer.Option(min=0.1, help="How long a request may take to the beginning of its reply.")
    ] = REPLY_S,
    threads: Threads = CORES,
    quiet: Quiet = False,
) -> None:
    """Serve an index to programs (REST), agents (MCP) and people (a web page), until an interrupt.

    Its REST interface is that of Pyserini's servers; see the page on serving.

    Example: keystone serve index --preset keystone
    """
    import asyncio
    from contextlib import nullcontext

    from keystone.indexing.index import open_index
    from keystone.runs.config.read import make_config
    from keystone.runs.serving.agents.stdio import serve_stdio
    from keystone.runs.serving.app import make_app
    from keystone.runs.serving.call_log import open_call_log
    from keystone.runs.serving.keys import make_settings_key
    from keystone.runs.serving.served import open_served
    from keystone.runs.serving.server.guard import choose_guard
    from keystone.runs.serving.server.listen import listen, open_socket

    guard = choose_guard(host, reply_seconds)
    settings = make_config(config, set or [], preset, Path("-"), folder)
    path = log or settings.out / settings.run_id / LOG_FILE

    def tell(text: str) -> None:
        if not quiet:
            say(text, err=True)

    with (
        nullcontext() if stdio else open_socket(host, port) as bound,
        open_call_log(path, open_index(folder).key, make_settings_key(settings)) as calls,
        open_served(settings, calls, threads, tell) as served,
    ):
        if bound is None:
            asyncio.run(serve_stdio(served))
            return
        address = f"http://{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}"
        told = f"{folder.resolve().name} is served at {address}; log: {path}"
        listen(make_app(served, guard), bound, lambda: None if quiet else say(told))
