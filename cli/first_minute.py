"""The command of `make ask`: prints an ask command about the first sample video, then runs it."""

import shlex
import sys

from paravt_cli.main import main
from paravt_infer import bundled


def first_minute() -> None:
    """Ask the first sample video's question with the bundled checkpoint."""
    sample = bundled.sample_videos()[0]
    command = ["ask", sample.path, sample.question]
    for letter, text in sample.options.items():
        command += ["--option", f"{letter}={text}"]
    print("paravt " + shlex.join(command), file=sys.stderr)
    sys.argv = ["paravt", *command]
    main()


if __name__ == "__main__":
    first_minute()
