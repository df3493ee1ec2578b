"""Method handles of Java (`java.lang.invoke`): loops over Lucene's own classes that cross into Java once.

What is put together from them is compiled by the virtual machine like any code: none of ours is built or shipped.
"""

from typing import Any

from indexing.lucene.java import java_class


def handle_of(owner: str, name: str, descriptor: str, *bound: Any) -> Any:
    """The handle of a method of a class, its object and first arguments bound; `descriptor` as in class files."""
    found = lookup().findVirtual(class_of(owner), name, type_of(descriptor))
    return handles().insertArguments(found, 0, *bound) if bound else found


def call(handle: Any, *arguments: Any) -> Any:
    """What a handle returns for these arguments."""
    listed = java_class("java.util.ArrayList")()
    for argument in arguments:
        listed.add(argument)
    return handle.invokeWithArguments(listed)


def handles() -> Any:
    """The functions that combine handles."""
    return java_class("java.lang.invoke.MethodHandles")


def lookup() -> Any:
    """The finder of public methods and fields."""
    return handles().publicLookup()


def class_of(name: str) -> Any:
    """A class as an object, by its full name or as in class files where it is of arrays."""
    return java_class("java.lang.Class").forName(name)


def type_of(descriptor: str) -> Any:
    """The type of a method, written as in class files."""
    return java_class("java.lang.invoke.MethodType").fromMethodDescriptorString(descriptor, None)
