"""The command of `make ask`: prints an ask command about the first sample video, then runs it."""

import shlex
import sys

from paravt_cli.main import main
from paravt_infer import bundled

if __name__ == "__main__":
    sample = bundled.sample_videos()[0]
    command = ["paravt", "ask", sample.path, sample.question]
    for letter, text in sample.options.items():
        command += ["--option", f"{letter}={text}"]
    print(shlex.join(command), file=sys.stderr)
    sys.argv = command
    main()
