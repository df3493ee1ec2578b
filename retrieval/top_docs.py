"""What a Lucene search found, as arrays: two crossings from Java a query instead of three a hit.

The loops over the hits run in Java. They are put together from method handles (`java.lang.invoke`), which the
virtual machine compiles like any loop, so that no Java code of ours has to be built or shipped.
"""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexing.java import java_class

_LUCENE = "org.apache.lucene.search."


def columns(top_docs: Any) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Lucene's document numbers (int32[hits]) and the scores (float32[hits]) of a `TopDocs`, best first."""
    arguments = java_class("java.util.ArrayList")()
    arguments.add(top_docs)
    docs = _column("doc", "Integer", "I").invokeWithArguments(arguments)
    scores = _column("score", "Float", "F").invokeWithArguments(arguments)
    return np.array(docs, dtype=np.int32), np.array(scores, dtype=np.float32)


@cache
def _column(field: str, boxed: str, code: str) -> Any:
    """The handle `TopDocs -> array` of one field of its hits: `for i: array[i] = hits[i].field`."""
    handles, class_of = java_class("java.lang.invoke.MethodHandles"), java_class("java.lang.Class").forName
    hit, hits, array = class_of(_LUCENE + "ScoreDoc"), class_of(f"[L{_LUCENE}ScoreDoc;"), class_of(f"[{code}")
    lookup = handles.publicLookup()

    def body_type(result: str) -> Any:
        of = java_class("java.lang.invoke.MethodType").fromMethodDescriptorString
        return of(f"([{code}I[L{_LUCENE.replace('.', '/')}ScoreDoc;){result}", None)

    primitive = java_class(f"java.lang.{boxed}").TYPE
    value = handles.filterReturnValue(handles.arrayElementGetter(hits), lookup.findGetter(hit, field, primitive))
    assign = handles.collectArguments(handles.arrayElementSetter(array), 2, value)
    same_array = handles.permuteArguments(handles.identity(array), body_type(f"[{code}"), 0)
    body = handles.foldArguments(same_array, handles.permuteArguments(assign, body_type("V"), 0, 1, 2, 1))
    length = handles.arrayLength(hits)
    loop = handles.countedLoop(length, handles.filterReturnValue(length, handles.arrayConstructor(array)), body)
    return handles.filterReturnValue(lookup.findGetter(class_of(_LUCENE + "TopDocs"), "scoreDocs", hits), loop)
