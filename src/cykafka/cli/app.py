"""The ``cykafka`` commands and their options."""

from __future__ import annotations

from typing import Literal

from cyclopts import App

from cykafka import __version__
from cykafka.cli.commands import consume, produce, top
from cykafka.cli.commands.acls import acls
from cykafka.cli.commands.bench import bench
from cykafka.cli.commands.configs import configs
from cykafka.cli.commands.demo import demo
from cykafka.cli.commands.groups import groups
from cykafka.cli.commands.schemas import schemas
from cykafka.cli.commands.topics import topics
from cykafka.cli.main import version
from cykafka.testing.broker_command import add_broker

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
for command in (topics, groups, configs, acls, schemas, bench):
    app.command(command)
add_broker(app, "cykafka")
app.register_install_completion_command()


@app.command
def completion(shell: Literal["bash", "zsh", "fish"], /) -> int:
    """Print the script by which a shell completes commands and options.

    cykafka --install-completion writes it to the right place for your shell.

    Parameters
    ----------
    shell : str
        bash, zsh or fish
    """
    print(app.generate_completion(shell=shell), end="")
    return 0
