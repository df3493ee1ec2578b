"""Method handles of Java (`java.lang.invoke`): loops over Lucene's classes that one call from Python runs.

The virtual machine compiles a combination of handles like any code, so Keystone neither builds nor ships Java code.
"""

from typing import Any

from keystone.indexing.lucene.java import java_class


def handle_of(owner: str, name: str, descriptor: str, *bound: Any) -> Any:
    """The handle of a method of the class `owner`; `bound` are its object and first arguments.

    `descriptor` is the type of the method, as in class files: `(I)V` takes an int and returns nothing.
    """
    found = lookup().findVirtual(class_of(owner), name, type_of(descriptor))
    return handles().insertArguments(found, 0, *bound) if bound else found


def call(handle: Any, *arguments: Any) -> Any:
    """Call a handle with these arguments and return its result."""
    values = java_class("java.util.ArrayList")()
    for argument in arguments:
        values.add(argument)
    return handle.invokeWithArguments(values)


def handles() -> Any:
    """The functions that combine handles."""
    return java_class("java.lang.invoke.MethodHandles")


def lookup() -> Any:
    """The finder of public methods and fields."""
    return handles().publicLookup()


def privileged_lookup() -> Any:
    """The finder of public methods, also of those that look at their caller.

    Before Java 24, `MethodHandleProxies` looked at its caller, and `lookup` refuses such methods. Those releases have
    one finder that finds them. It is not public, but these releases no longer change.
    """
    if java_class("java.lang.Runtime").version().feature() >= 24:
        return lookup()
    return java_class("java.lang.invoke.MethodHandles$Lookup").IMPL_LOOKUP


def class_of(name: str) -> Any:
    """A class as an object, by its full name; an array class by its name in class files, such as `[B`."""
    return java_class("java.lang.Class").forName(name)


def type_of(descriptor: str) -> Any:
    """The type of a method from its descriptor in class files."""
    return java_class("java.lang.invoke.MethodType").fromMethodDescriptorString(descriptor, None)
