"""vLLM's engine within this process: for the vectors of texts, the scores of pairs and the replies of a chat alike.

An engine takes most of a GPU's memory, so this process has one at a time. It stays loaded until another is asked for.
"""

import atexit
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from threading import Condition
from typing import Any, TypeVar

from keystone.indexing.encoders.checkpoint import Checkpoint
from keystone.indexing.errors import MissingPackage, UserError
from keystone.indexing.io.error_text import describe_error
from keystone.indexing.io.json_values import digest

T = TypeVar("T")

SHUTDOWN_TIMEOUT_S = 0.1
"""How long the engine may take to end by itself. It holds nothing that could be lost."""
EXIT_TIMEOUT_S = 10.0
"""How long the processes of an engine may take to be gone, and with them the memory that they hold."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    key: str
    engine: Any
    processes: frozenset[BaseProcess]


@dataclass(slots=True)
class _State:
    """The engine of this process. `waiting` counts the callers that wait for one, by its key."""

    loaded: _Loaded | None = None
    is_lent: bool = False
    waiting: Counter[str] = field(default_factory=Counter)


_turn, _state = Condition(), _State()


@contextmanager
def lend_engine(model: str, arguments: Mapping[str, Any]) -> Iterator[Any]:
    """Lend the `vllm.LLM` of a model and its arguments to one caller at a time.

    If it is not loaded yet, another one is freed, and then it is loaded. Those who wait for the loaded engine go before
    the others, so that few are loaded. Errors are those of `load_engine`.
    """
    key = _name_engine(model, arguments)
    with _turn:
        _state.waiting[key] += 1
        try:
            _turn.wait_for(lambda: not _state.is_lent and not _is_awaited_by_others(key))
        finally:
            _state.waiting[key] -= 1
        _state.is_lent = True
    try:
        loaded = _state.loaded
        if not loaded or loaded.key != key:
            _end_engine()
            before = set(active_children())
            engine = load_engine(model, arguments)
            atexit.register(_end_engine)  # now, so that it runs before Python waits for the engine's processes
            loaded = _state.loaded = _Loaded(key, engine, frozenset(set(active_children()) - before))
        yield loaded.engine
    finally:
        with _turn:
            _state.is_lent = False
            _turn.notify_all()


def _is_awaited_by_others(key: str) -> bool:
    loaded = _state.loaded
    return loaded is not None and loaded.key != key and _state.waiting[loaded.key] > 0


def free_engine(model: str, arguments: Mapping[str, Any], at_once: bool = False) -> None:
    """End the engine of a model, if it is loaded. It stays while it is lent, unless it must end `at_once`."""
    with _turn:
        loaded = _state.loaded
        if loaded and loaded.key == _name_engine(model, arguments) and (at_once or not _state.is_lent):
            _end_engine()


def _end_engine() -> None:
    """End the loaded engine, if there is one, and wait until its processes are gone."""
    loaded, _state.loaded = _state.loaded, None
    if not loaded:
        return
    core = loaded.engine.llm_engine.engine_core
    try:
        core.shutdown(timeout=SHUTDOWN_TIMEOUT_S)
    except TypeError:  # older versions of vLLM take no timeout
        core.shutdown()
    for process in loaded.processes:
        process.join(EXIT_TIMEOUT_S)


def _name_engine(model: str, arguments: Mapping[str, Any]) -> str:
    return digest([model, dict(arguments)])


def load_engine(model: str, arguments: Mapping[str, Any]) -> Any:
    """Load the engine of a model. `MissingPackage` without vLLM, `UserError` if the engine cannot load the model."""
    llm = import_vllm().LLM
    try:
        return llm(**{"model": model, **arguments})
    except Exception as error:  # the model's files, the arguments and the machine can raise any error
        raise UserError(f"{model}: vLLM cannot load it: {describe_error(str(error))}") from error


def import_vllm() -> Any:
    """Import vLLM, which then logs to standard error. `MissingPackage` if it is not installed."""
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")  # standard output is for results
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_WORKER_MULTIPROCESSING_METHOD", "spawn")  # a fork of a process with threads may hang
    try:
        import vllm
    except ImportError as error:
        raise MissingPackage("vllm is needed for its offline engine: pip install 'keystone-rag[vllm]'") from error
    return vllm


def find_engine_device() -> str:
    """Find where vLLM runs: `cuda` on a GPU of this machine, or `cpu`. `MissingPackage` if it is not installed."""
    import_vllm()
    from vllm.platforms import current_platform

    return str(current_platform.device_type)


def ask_pooling_engine(checkpoint: Checkpoint, window: int, arguments: Mapping[str, Any], ask: Callable[[Any], T]) -> T:
    """Ask the engine of a model of vectors or scores; `arguments` are further ones of `vllm.LLM`.

    On a processor it computes in single precision, else in the one that vLLM chooses by the checkpoint. `UserError` if
    the engine cannot load the model, or fails.
    """
    plain = {"dtype": "float32", "enforce_eager": True} if find_engine_device() == "cpu" else {}
    own = {"runner": "pooling", "max_model_len": window, **plain, **arguments}
    with lend_engine(str(checkpoint.folder), own) as engine:
        try:
            return ask(engine)
        except Exception as error:  # vLLM raises many kinds
            raise UserError(f"{checkpoint.name}: vLLM's engine has failed: {describe_error(str(error))}") from error
