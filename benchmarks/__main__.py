"""`python -m benchmarks [NAME ...]` runs these benchmarks, or all, prints their tables and writes `out/bench.json`."""

import importlib
import sys
from dataclasses import asdict
from pathlib import Path

import orjson
from rich.console import Console
from rich.table import Table

from benchmarks.table import Row

BENCHMARKS = (
    *("fusion", "run_files", "bm25", "dense", "passages", "dense_shards", "parasol", "calls", "presets", "signals"),
    *("encoders", "growth", "short_documents", "scale", "update"),
    *(
        "opensearch_load",
        "opensearch_search",
        "section_trees",
        "discourse_trees",
        "readers",
        "agents",
        "research",
        "sweep",
        "server",
    ),
)
OUT = Path(__file__).parent / "out" / "bench.json"


def show(rows: list[Row]) -> None:
    """Print rows. A ratio above 1 means that Keystone is better than its peer."""
    table = Table(box=None, pad_edge=False)
    for heading in ("benchmark", "ours", "peer", "unit", "ratio", "target", "met", "bound by"):
        table.add_column(heading, justify="right" if heading in ("ours", "peer", "ratio", "target") else "left")
    for row in rows:
        target, met = ("", "") if row.target is None else (f"{row.target:g}", "yes" if row.met else "NO")
        table.add_row(
            row.name, f"{row.ours:.4g}", f"{row.peer:.4g}", row.unit, f"{row.ratio:.2f}", target, met, row.bound_by
        )
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def main(names: list[str]) -> None:
    """Run these benchmarks in order, or all if there is no name.

    If one fails, the others still run, and an `ExceptionGroup` has all errors at the end.
    """
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        sys.exit(f"unknown benchmark {unknown[0]!r}; expected one of {', '.join(BENCHMARKS)}")
    found, errors = list[Row](), list[Exception]()
    OUT.parent.mkdir(exist_ok=True)
    for name in names or BENCHMARKS:
        try:
            rows = importlib.import_module(f"benchmarks.{name}").rows()
        except Exception as error:
            error.add_note(f"benchmark: {name}")
            errors.append(error)
            continue
        show(rows)
        found += rows
        OUT.write_bytes(orjson.dumps([{**asdict(row), "met": row.met} for row in found], option=orjson.OPT_INDENT_2))
    if errors:
        raise ExceptionGroup("Benchmarks failed", errors)


if __name__ == "__main__":
    main(sys.argv[1:])
