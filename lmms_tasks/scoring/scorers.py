"""The scorers by name."""

from functools import partial
from importlib.metadata import PackageNotFoundError, version

from lmms_tasks.scoring.base import Scorer
from lmms_tasks.scoring.benchmark_rules import lmms_eval, official
from lmms_tasks.scoring.judge import make_judge
from lmms_tasks.scoring.rules import paravt, strict
from paravt_infer.errors import SettingsError, suggestion

SCORERS = {
    "paravt": "the option, text or span that the answer commits to, however it is worded (default)",
    "strict": "only the letter, exactly the gold text or [start, end], in an answer block",
    "lmms-eval": "the functions of lmms-eval's own tasks, given the last turn's text",
    "official": "the rule that the benchmark's authors publish, where it differs from paravt's",
    "judge": "a language model decides on choices and open answers (--server, --model)",
}
"""Name to what it counts as right."""


def get_scorer(name: str, *, server: str | None = None, model: str | None = None) -> Scorer:
    """The scorer of that name.

    Args:
        server: a chat endpoint's base URL. `judge` needs one, and so does `official` for MMVU.
        model: the endpoint's name of the judge; by default the first it lists.

    Raises:
        SettingsError: no such scorer, or it needs a server.
        BackendError: the server does not list a model.

    >>> get_scorer("paravt").name
    'paravt'
    """
    if name == "paravt":
        return Scorer(name=name, rule=paravt)
    if name == "strict":
        return Scorer(name=name, rule=strict)
    if name == "lmms-eval":
        return Scorer(name=name, rule=lmms_eval, facts=_lmms_eval_version())
    if name == "official":
        judge = make_judge(server, model) if server else None
        facts = {**_lmms_eval_version(), **(judge.facts if judge else {})}
        return Scorer(name=name, rule=partial(official, judge=judge), facts=facts, remote=judge is not None)
    if name == "judge":
        if server is None:
            raise SettingsError("scorer judge asks a language model; add its endpoint: --server http://HOST:PORT/v1")
        return make_judge(server, model)
    raise SettingsError(f"unknown scorer {name!r}{suggestion(name, SCORERS)}")


def _lmms_eval_version() -> dict[str, str]:
    try:
        return {"lmms-eval": version("lmms-eval")}
    except PackageNotFoundError:
        return {"lmms-eval": "not installed"}
