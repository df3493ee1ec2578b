"""One node of OpenSearch: a Python process with a JVM that holds the server's jars; nothing has to be compiled.

`python -m tests.support.servers.opensearch_node JARS NAME=VALUE ...` starts a node with those settings. The node ends
when its standard input ends.
"""

import os
import sys
from pathlib import Path
from typing import Any

from keystone.indexing.lucene.java import find_java_home

MODULES = (
    "transport.Netty4 analysis.common.CommonAnalysis painless.Painless index.reindex.Reindex index.mapper.MapperExtras"
).split()
PLUGINS = {
    "opensearch-knn": "org.opensearch.knn.plugin.KNNPlugin",
    "neural-search": "org.opensearch.neuralsearch.plugin.NeuralSearch",
}
HEAP_SIZE = "512m"
SHORT_LIFE = "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"
"""The options of a Java that ends after minutes: it compiles once and quickly, which halves the time of a start."""


def start(jars: Path, settings: dict[str, str]) -> Any:
    """Start a node from the jars of a folder that the set-up made; returns it, a Java object."""
    import jnius_config

    os.environ["JAVA_HOME"] = str(find_java_home())
    plugins = [plugin for plugin in PLUGINS if (jars / "plugins" / plugin).is_dir()]
    jnius_config.set_classpath(
        *(
            str(jar)
            for part in ("lib", *(f"plugins/{plugin}" for plugin in plugins))
            for jar in jars.glob(f"{part}/*.jar")
        )
    )
    jnius_config.add_options(f"-Xms{HEAP_SIZE}", f"-Xmx{HEAP_SIZE}", "-Dlog4j2.level=warn", *SHORT_LIFE)
    from jnius import autoclass

    builder = autoclass("org.opensearch.common.settings.Settings").builder()
    for name, value in settings.items():
        builder.put(name, value)
    home = autoclass("java.nio.file.Paths").get(settings["path.home"])
    environment = autoclass("org.opensearch.env.Environment")(builder.build(), home)
    classes = autoclass("java.util.ArrayList")()
    ending = "Plugin" if jars.name.startswith("2.") else "ModulePlugin"
    modules = [f"org.opensearch.{module}{ending}" for module in MODULES]
    for name in [*modules, *(PLUGINS[plugin] for plugin in plugins)]:
        classes.add(autoclass("java.lang.Class").forName(name))
    return autoclass("org.codelibs.opensearch.runner.node.OpenSearchRunnerNode")(environment, classes).start()


if __name__ == "__main__":
    node = start(Path(sys.argv[1]), dict(setting.split("=", 1) for setting in sys.argv[2:]))
    sys.stdin.read()
    os._exit(0)
