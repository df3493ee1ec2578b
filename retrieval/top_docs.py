"""Lucene searches of a batch of queries, run in Java: a few crossings a batch and one a query, none a hit.

The threads are Java's, since one thread of Python at a time may call it. What they run is put together from method
handles (`java.lang.invoke`), which the virtual machine compiles like any code: none of ours is built or shipped.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexing.java import java_class

_LUCENE = "org.apache.lucene.search."
_OBJECTS = "[Ljava.lang.Object;"


Columns = tuple[NDArray[np.int32], NDArray[np.float32]]
"""Lucene's document numbers and the scores of a query's hits, best first."""


def handle_of(owner: str, name: str, descriptor: str, *bound: Any) -> Any:
    """The handle of a method of a class, its object and first arguments bound; `descriptor` as in class files."""
    found = _lookup().findVirtual(_class(owner), name, _type(descriptor))
    return _handles().insertArguments(found, 0, *bound) if bound else found


def columns_of(find: Any, queries: Sequence[Any], threads: int) -> list[Columns]:
    """What a handle from a query, a text or an object of Java, to its `TopDocs` finds for each of them."""
    asked = java_class("java.util.ArrayList")()
    for query in queries:
        asked.add(query)
    pool = java_class("java.util.concurrent.ForkJoinPool")(threads)
    try:
        found = _call(_mapped(), asked.parallelStream(), _handles().filterReturnValue(find, _columns()))
        gather = handle_of("java.util.stream.Stream", "toList", "()Ljava/util/List;", found)
        rows = _call(_submitted(), pool, gather).get()
        hits = [rows.get(i) for i in range(len(queries))]
    finally:
        pool.shutdown()
    return [(np.array(docs, dtype=np.int32), np.array(scores, dtype=np.float32)) for docs, scores in hits]


def _call(handle: Any, *arguments: Any) -> Any:
    listed = java_class("java.util.ArrayList")()
    for argument in arguments:
        listed.add(argument)
    return handle.invokeWithArguments(listed)


def _handles() -> Any:
    return java_class("java.lang.invoke.MethodHandles")


def _lookup() -> Any:
    return _handles().publicLookup()


def _class(name: str) -> Any:
    return java_class("java.lang.Class").forName(name)


def _type(descriptor: str) -> Any:
    return java_class("java.lang.invoke.MethodType").fromMethodDescriptorString(descriptor, None)


def _as_interface(name: str) -> Any:
    """A handle from a handle to it as the one method of an interface; such objects have no class that crosses."""
    made = _lookup().findStatic(
        _class("java.lang.invoke.MethodHandleProxies"),
        "asInterfaceInstance",
        _type("(Ljava/lang/Class;Ljava/lang/invoke/MethodHandle;)Ljava/lang/Object;"),
    )
    path = name.replace(".", "/")
    return made.bindTo(_class(name)).asType(_type(f"(Ljava/lang/invoke/MethodHandle;)L{path};"))


@cache
def _mapped() -> Any:
    """The handle `(stream, handle) -> stream` of what the handle makes of its elements."""
    mapped = handle_of("java.util.stream.Stream", "map", "(Ljava/util/function/Function;)Ljava/util/stream/Stream;")
    return _handles().filterArguments(mapped, 1, _as_interface("java.util.function.Function"))


@cache
def _submitted() -> Any:
    """The handle `(pool, handle) -> task`, which runs the handle in the pool."""
    task = "(Ljava/util/concurrent/Callable;)Ljava/util/concurrent/ForkJoinTask;"
    submitted = handle_of("java.util.concurrent.ForkJoinPool", "submit", task)
    return _handles().filterArguments(submitted, 1, _as_interface("java.util.concurrent.Callable"))


@cache
def _columns() -> Any:
    """The handle `TopDocs -> {docs, scores}`."""
    pair = _handles().identity(_class(_OBJECTS)).asCollector(_class(_OBJECTS), 2)
    pair = pair.asType(_type("([I[F)[Ljava/lang/Object;"))
    both = _handles().filterArguments(pair, 0, _column("doc", "Integer", "I"), _column("score", "Float", "F"))
    return _handles().permuteArguments(both, _type(f"(L{_LUCENE.replace('.', '/')}TopDocs;)[Ljava/lang/Object;"), 0, 0)


def _column(field: str, boxed: str, code: str) -> Any:
    """The handle `TopDocs -> array` of one field of its hits: `for i: array[i] = hits[i].field`."""
    handles = _handles()
    hit, hits, array = _class(_LUCENE + "ScoreDoc"), _class(f"[L{_LUCENE}ScoreDoc;"), _class(f"[{code}")

    def body_type(result: str) -> Any:
        return _type(f"([{code}I[L{_LUCENE.replace('.', '/')}ScoreDoc;){result}")

    primitive = java_class(f"java.lang.{boxed}").TYPE
    value = handles.filterReturnValue(handles.arrayElementGetter(hits), _lookup().findGetter(hit, field, primitive))
    assign = handles.collectArguments(handles.arrayElementSetter(array), 2, value)
    same_array = handles.permuteArguments(handles.identity(array), body_type(f"[{code}"), 0)
    body = handles.foldArguments(same_array, handles.permuteArguments(assign, body_type("V"), 0, 1, 2, 1))
    length = handles.arrayLength(hits)
    loop = handles.countedLoop(length, handles.filterReturnValue(length, handles.arrayConstructor(array)), body)
    return handles.filterReturnValue(_lookup().findGetter(_class(_LUCENE + "TopDocs"), "scoreDocs", hits), loop)
