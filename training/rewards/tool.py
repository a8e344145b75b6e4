"""R_tool: what using tools is worth, read from the record and never from text."""

from paravt_infer.rollout import Rollout


def tool_reward(rollout: Rollout, accuracy: float, *, right_above: float) -> float:
    """R_tool, between 0 and 0.8: 0 without a valid call, 0.1 with one, 0.3 where one ran; 0.5 more if right.

    A call is valid that passed every check: a tool there is, a window inside the video, not asked for before. One in
    the `<tool_code>` form is, too, where the episode's settings run it. A tool response that the model wrote itself is
    no evidence, so it earns nothing.
    (Section 3.2.3; the levels are the public release's.)

    Args:
        right_above: an answer whose accuracy is above this is right.
    """
    valid = [call for call in rollout.evidence if call.used is not None]
    if not valid:
        return 0.0
    ran = any(call.status == "ok" for call in valid)
    return min(1.0, (0.3 if ran else 0.1) + 0.5 * (accuracy > right_above))
