"""`paravt`: the sub-commands, and the one place where a user's mistake becomes one line and exit code 1.

Sub-commands import what they need when they run: `paravt --help` must stay instant.
"""

import sys

import typer

import paravt_infer
from paravt_cli import ab, ask, data, doctor, eval, probe, rescore, samples, show, table1, tasks, train

app = typer.Typer(
    name="paravt",
    help="Ask long videos questions: a main agent, parallel sub-agents, one answer.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("ask")(ask.ask)
app.command("show")(show.show)
app.command("probe")(probe.probe)
app.command("samples")(samples.samples)
app.command("doctor")(doctor.doctor)
app.command("eval")(eval.evaluate)
app.command("ab")(ab.ab)
app.command("rescore")(rescore.rescore)
app.command("merge")(eval.merge)
app.command("table1")(table1.table1)
app.command("tasks")(tasks.tasks)
app.add_typer(data.app, name="data")
app.add_typer(train.app, name="train")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"paravt-infer {paravt_infer.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
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
    except BrokenPipeError:  # the reader of a pipe went away
        sys.stderr.close()
        sys.exit(1)


if __name__ == "__main__":
    main()
