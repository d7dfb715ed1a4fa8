"""The commands of ``cykafka`` and their options."""

from __future__ import annotations

from cyclopts import App

from cykafka import __version__
from cykafka.cli import consume, produce
from cykafka.cli.acls import acls
from cykafka.cli.bench import bench
from cykafka.cli.command import version
from cykafka.cli.completion import add_completion
from cykafka.cli.configs import configs
from cykafka.cli.demo import demo
from cykafka.cli.groups import groups
from cykafka.cli.top import command as top
from cykafka.cli.topics import topics
from cykafka.testing.command import add_broker

app = App(
    name="cykafka",
    help="A Kafka client for Python.",
    help_format="rst",
    version=f"cykafka {__version__}",
    suppress_keyboard_interrupt=False,  # run_reporting() reports it
)
app.command(
    produce.produce,
    usage="Usage: cykafka produce [OPTIONS] TOPIC [FILE...]",
    help_epilogue=produce.HELP_EPILOGUE,
)
app.command(
    consume.consume,
    usage="Usage: cykafka consume [OPTIONS] TOPIC...",
    help_epilogue=consume.HELP_EPILOGUE,
)
app.command(top.top, help_epilogue=top.HELP_EPILOGUE)
app.command(version)
app.command(
    demo,
    help_epilogue="exit status: 0 every record arrived once and unchanged; 1 it did not, or the "
    "broker failed; 2 bad arguments or a bad file; 130 interrupted",
)
for each in (topics, groups, configs, acls, bench):
    app.command(each)
add_broker(app, "cykafka")
add_completion(app)
