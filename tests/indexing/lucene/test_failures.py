"""An error of Java blames the index only if the index is damaged."""

from pathlib import Path

import pytest

from keystone.indexing.lucene.write import explain_failure


class Failed(Exception):
    """An error with the attributes of pyjnius's own."""

    def __init__(self, name: str, message: str, *stack: str) -> None:
        super().__init__(message)
        self.classname, self.innermessage, self.stacktrace = name, message, stack


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(
            Failed("org.apache.lucene.index.CorruptIndexException", "checksum failed\n(x)"),
            "ix: not a whole Lucene index: build it again: checksum failed",
            id="damage",
        ),
        pytest.param(
            Failed("java.util.concurrent.ExecutionException", "x", "Caused by:", "java.lang.OutOfMemoryError: heap"),
            "ix: Lucene could not read it on this machine: OutOfMemoryError",
            id="memory",
        ),
        pytest.param(
            Failed("java.nio.file.FileSystemException", "ix/_0.fnm: Too many open files"),
            "ix: Lucene could not read it on this machine: Too many open files",
            id="open files",
        ),
        pytest.param(
            Failed("java.nio.file.AccessDeniedException", "ix/segments_1"),
            "ix: Lucene could not read it on this machine: AccessDeniedException",
            id="rights",
        ),
    ],
)
def test_the_reason_of_java_decides_the_remedy(error: Exception, expected: str) -> None:
    assert str(explain_failure(Path("ix"), error)) == expected
