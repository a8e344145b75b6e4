"""`paravt samples`: the sample videos in the package, each with a question and its right answer."""

from paravt_cli import options as shared


def samples(as_json: shared.JsonOption = False) -> None:
    """List the sample videos, each with a question and the right answer, as commands to run."""
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
