"""``python -m cli.samples``: asks a question about a video that ships with the package, as `make ask` does."""

import json
import shlex
import sys
from importlib.resources import files


def main() -> None:
    """Print the command, then run it."""
    folder = files("paravt_infer") / "samples"
    sample = json.loads((folder / "samples.json").read_text())[0]
    command = ["ask", str(folder / sample["path"]), sample["question"]]
    for letter, text in sample["options"].items():
        command += ["--option", f"{letter}={text}"]
    command.append("--rehearse")
    print("paravt " + shlex.join(command), file=sys.stderr)
    sys.argv = ["paravt", *command]
    from cli.main import main as paravt

    paravt()


if __name__ == "__main__":
    main()
