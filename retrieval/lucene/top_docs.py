"""Lucene searches of a batch of queries in Java: a few calls from Python per batch, none per query or hit.

The threads are Java's, because only one Python thread at a time may call Java. Keystone composes their work from method
handles (`java.lang.invoke`). Java compiles these like any code, so Keystone neither builds nor ships Java classes.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from keystone.indexing.lucene.java import java_class
from keystone.indexing.lucene.method_handles import (
    call,
    class_of,
    handle_of,
    handles,
    lookup,
    privileged_lookup,
    type_of,
)
from keystone.retrieval.types import Columns

_LUCENE = "org.apache.lucene.search."
_OBJECT, _OBJECTS = "Ljava/lang/Object;", "[Ljava.lang.Object;"


def make_batch_search(find: Any) -> Any:
    """Make the handle `(list of queries) -> array of {docs, scores}`, which searches them in parallel.

    `find` is a handle from a query, which is a text or a Java object, to its `TopDocs`. Java compiles a handle after
    some calls, so a caller keeps it for further batches.
    """
    of, stream = handles(), "java.util.stream.Stream"
    function = _as_interface("java.util.function.Function").bindTo(of.filterReturnValue(find, _columns()))
    kept = java_class("java.util.concurrent.atomic.AtomicReference")()
    call(of.filterReturnValue(function, _taking_object(kept)))
    mapped = handle_of(stream, "map", f"(Ljava/util/function/Function;)L{_path(stream)};")
    again = handle_of("java.util.concurrent.atomic.AtomicReference", "get", f"(){_OBJECT}", kept)
    again = again.asType(type_of("()Ljava/util/function/Function;"))
    mapped = of.collectArguments(mapped, 1, again)
    opened = handle_of("java.util.Collection", "parallelStream", f"()L{_path(stream)};")
    gathered = handle_of(stream, "toArray", f"()[{_OBJECT}")
    return of.filterReturnValue(of.filterReturnValue(opened, mapped), gathered)


def search_columns(search: Any, queries: Sequence[Any], threads: int) -> list[Columns]:
    """Search queries in `threads` threads of Java; returns the hits of each query, best first.

    `search` comes from `make_batch_search`. Any Java exception of the search passes through.
    """
    asked = java_class("java.util.Arrays").asList(*queries)
    hits = call(_submitted(), _pool(threads), handles().insertArguments(search, 0, asked)).get()
    return [(np.array(docs, dtype=np.int32), np.array(scores, dtype=np.float32)) for docs, scores in hits]


@cache
def _pool(threads: int) -> Any:
    return java_class("java.util.concurrent.ForkJoinPool")(threads)


def _taking_object(kept: Any) -> Any:
    """Make the handle `function -> nothing` that keeps its argument in an `AtomicReference`."""
    taken = handle_of("java.util.concurrent.atomic.AtomicReference", "set", f"({_OBJECT})V", kept)
    return taken.asType(type_of("(Ljava/util/function/Function;)V"))


def _as_interface(name: str) -> Any:
    """Make a handle that turns a handle into an object of an interface with one method.

    Python cannot make such an object itself: it has no class that the bridge to Java knows.
    """
    made = privileged_lookup().findStatic(
        class_of("java.lang.invoke.MethodHandleProxies"),
        "asInterfaceInstance",
        type_of("(Ljava/lang/Class;Ljava/lang/invoke/MethodHandle;)Ljava/lang/Object;"),
    )
    return made.bindTo(class_of(name)).asType(type_of(f"(Ljava/lang/invoke/MethodHandle;)L{_path(name)};"))


@cache
def _submitted() -> Any:
    """Make the handle `(pool, handle) -> task` that runs a handle in the pool."""
    task = "(Ljava/util/concurrent/Callable;)Ljava/util/concurrent/ForkJoinTask;"
    submitted = handle_of("java.util.concurrent.ForkJoinPool", "submit", task)
    return handles().filterArguments(submitted, 1, _as_interface("java.util.concurrent.Callable"))


@cache
def _columns() -> Any:
    """Make the handle `TopDocs -> {docs, scores}`."""
    pair = handles().identity(class_of(_OBJECTS)).asCollector(class_of(_OBJECTS), 2)
    pair = pair.asType(type_of("([I[F)[Ljava/lang/Object;"))
    both = handles().filterArguments(pair, 0, _column("doc", "Integer", "I"), _column("score", "Float", "F"))
    return handles().permuteArguments(both, type_of(f"(L{_path(_LUCENE)}TopDocs;)[Ljava/lang/Object;"), 0, 0)


def _column(field: str, boxed: str, code: str) -> Any:
    """Make the handle `TopDocs -> array` of one field of its hits: `for i: array[i] = hits[i].field`."""
    of = handles()
    hit, hits, array = class_of(_LUCENE + "ScoreDoc"), class_of(f"[L{_LUCENE}ScoreDoc;"), class_of(f"[{code}")

    def body_type(result: str) -> Any:
        return type_of(f"([{code}I[L{_path(_LUCENE)}ScoreDoc;){result}")

    primitive = java_class(f"java.lang.{boxed}").TYPE
    value = of.filterReturnValue(of.arrayElementGetter(hits), lookup().findGetter(hit, field, primitive))
    assign = of.collectArguments(of.arrayElementSetter(array), 2, value)
    same_array = of.permuteArguments(of.identity(array), body_type(f"[{code}"), 0)
    body = of.foldArguments(same_array, of.permuteArguments(assign, body_type("V"), 0, 1, 2, 1))
    length = of.arrayLength(hits)
    loop = of.countedLoop(length, of.filterReturnValue(length, of.arrayConstructor(array)), body)
    return of.filterReturnValue(lookup().findGetter(class_of(_LUCENE + "TopDocs"), "scoreDocs", hits), loop)


def _path(name: str) -> str:
    return name.replace(".", "/")
