"""R_tool: the reward of tool use, computed from the record and never from text."""

from paravt_infer.rollout import Rollout


def tool_reward(rollout: Rollout, accuracy: float, *, right_above: float) -> float:
    """R_tool, between 0 and 0.8: 0 without a valid call, 0.1 with one, 0.3 if one ran; 0.5 more if right.

    A valid call passed every check: a known tool and a window inside the video that was not requested before. Calls
    in `<tool_code>` syntax are valid too if the episode's settings run them. A tool response that the model wrote
    itself is not evidence and earns nothing. (Section 3.2.3; the levels are those of the public release.)

    Args:
        right_above: an answer whose accuracy is above this is right.
    """
    valid = [call for call in rollout.evidence if call.used is not None]
    if not valid:
        return 0.0
    ran = any(call.status == "ok" for call in valid)
    return min(1.0, (0.3 if ran else 0.1) + 0.5 * (accuracy > right_above))
