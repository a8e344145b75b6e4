"""`paravt`: the sub-commands, and the only place where a user's mistake becomes one line and exit code 1.

Sub-commands import what they need when they run, so that `paravt --help` stays instant. No command imports another.
"""

import sys

import typer

import paravt_infer
from paravt_cli import ab, ask, data, doctor, eval, merge, probe, rescore, samples, show, table1, tasks, train

app = typer.Typer(
    name="paravt",
    help="Ask questions about long videos: a main agent, parallel sub-agents, one answer.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (ask.ask, show.show, probe.probe, samples.samples, doctor.doctor):
    app.command()(command)
app.command("eval")(eval.evaluate)
for benchmark_command in (ab.ab, rescore.rescore, merge.merge, table1.table1, tasks.tasks):
    app.command()(benchmark_command)
app.add_typer(data.app, name="data")
app.add_typer(train.app, name="train")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"paravt-infer {paravt_infer.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    pass


def main() -> None:
    """The console script."""
    from paravt_infer.errors import ParavtError

    try:
        app()
    except ParavtError as error:
        print(f"paravt: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("paravt: stopped", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader of the pipe has exited
        sys.stderr.close()
        sys.exit(1)


if __name__ == "__main__":
    main()
