"""Token budget: what the paper predicts, and what an episode used."""

from paravt_infer.rollout import Rollout

VISUAL_TOKENS, SYSTEM_TOKENS, RESPONSE_TOKENS = 16_000, 300, 50
"""The paper's estimates for the frames of a context, a system prompt, and a kept response (App. "Token-Budget")."""


def predicted_sequential(calls: int, *, visual: float = VISUAL_TOKENS) -> float:
    """T_seq(K) = K (visual + 300) + K (K + 1) / 2 * 50 tokens, for K sequential calls.

    >>> predicted_sequential(3)
    49200.0
    """
    return calls * (visual + SYSTEM_TOKENS) + calls * (calls + 1) / 2 * RESPONSE_TOKENS


def predicted_parallel(calls: int, *, visual: float = VISUAL_TOKENS) -> float:
    """T_par(K) = visual + 300 + 50 K tokens, for K calls in one turn.

    >>> predicted_parallel(3)
    16450
    """
    return visual + SYSTEM_TOKENS + RESPONSE_TOKENS * calls


def fill_usage(rollout: Rollout, *, seconds: float) -> None:
    """Fill `rollout.usage` from its turns and evidence; `seconds` is the episode's wall time."""
    usage = rollout.usage
    requests = [*rollout.turns, *(e.sub_agent for e in rollout.evidence if e.sub_agent is not None)]
    usage.prompt_tokens = sum(r.prompt_tokens for r in requests)
    usage.visual_tokens = sum(r.visual_tokens for r in requests)
    usage.cached_tokens = sum(r.cached_tokens or 0 for r in requests)
    usage.output_tokens = sum(len(r.output_ids) for r in requests)
    usage.main_prompt_tokens = sum(turn.prompt_tokens for turn in rollout.turns)
    usage.main_visual_tokens = rollout.turns[-1].visual_tokens if rollout.turns else 0
    usage.calls = len(rollout.evidence)
    usage.calls_ok = len(rollout.supporting_evidence)
    usage.tool_turns = len({e.turn for e in rollout.evidence})
    visual = sum(frame.tokens for frame in rollout.overview)
    usage.predicted_sequential = predicted_sequential(usage.calls, visual=visual)
    usage.predicted_parallel = predicted_parallel(usage.calls, visual=visual)
    usage.seconds = seconds
    usage.critical_path_seconds = critical_path(rollout)


def critical_path(rollout: Rollout) -> float:
    """Seconds of the longest chain of decoding and generation: overview, turns, and each turn's slowest call."""
    seconds = rollout.overview_seconds
    for number, turn in enumerate(rollout.turns):
        calls = [
            e.decode_seconds + (e.sub_agent.seconds if e.sub_agent else 0.0)
            for e in rollout.evidence
            if e.turn == number
        ]
        seconds += turn.seconds + max(calls, default=0.0)
    return seconds
