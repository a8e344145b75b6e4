"""`paravt samples`: the videos that ship with the package, each with a question and its right answer."""

from typing import Annotated

import typer


def samples(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: path, question, options, answer.")] = False,
) -> None:
    """List the sample videos, each with a question and the right answer."""
    import json
    import shlex

    from paravt_infer import bundled

    found = bundled.sample_videos()
    if as_json:
        print(json.dumps([sample.as_dict() for sample in found], indent=1))
        return
    for sample in found:
        options = " ".join(f"-o {shlex.quote(f'{letter}={text}')}" for letter, text in sample.options.items())
        print(f"paravt ask {shlex.quote(sample.path)} {shlex.quote(sample.question)} {options}")
        print(f"  right: {sample.answer}. {sample.options[sample.answer]}  ({sample.note})\n")
