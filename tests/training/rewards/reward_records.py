"""Records as the engine writes them, of a video of 60 seconds, without the video."""

from paravt_infer.answers import read_answer
from paravt_infer.protocols.calls import has_forged_response, parse_calls
from paravt_infer.questions import Question
from paravt_infer.rollout import Evidence, Rollout, Turn
from paravt_infer.settings import Settings
from paravt_infer.tools import TOOLS, CallFault

OPTIONS = {"A": "a red car", "B": "a blue car", "C": "a dog", "D": "a man"}
THOUGHT = "<think>\nthe red one moves first\n</think>\n"
OPEN = "<think>\nthe red one moves first\n"
ANSWER = "<answer>B</answer>"
ALL = "<answer>A, B, C, D</answer>"
ZOOM = '<tool_call>{"name": "zoom", "arguments": {"start_time": 1, "end_time": 2}}</tool_call>'
CODE = "<tool_code>crop_video(1, 2)</tool_code>"


def record(*responses: str, prefix: str = "", ran: bool = True, frames: int = 64) -> Rollout:
    """A finished episode of these responses.

    Args:
        prefix: the think prefix; the responses go on from it.
        ran: whether valid calls ran; else their windows could not be decoded.
    """
    turns = [Turn(text=text.removeprefix(prefix), prefix=prefix) for text in responses]
    evidence = []
    for number, turn in enumerate(turns):
        turn.forged_response = has_forged_response(turn.response)
        for call in parse_calls(turn.response):
            one = Evidence(turn=number, tool=call.name, raw=call.raw, syntax=call.syntax, status="error")
            one.repairs = [repair.value for repair in call.repairs]
            if call.fault is None and call.name in TOOLS:
                try:
                    one.used = list(TOOLS[call.name].window(call, 60.0).span)
                    one.status = "ok" if ran else "error"
                except CallFault as fault:
                    one.fault = fault.fault.value
            evidence.append(one)
    reading = read_answer(turns[-1].response) if turns else None
    return Rollout(
        question=Question(video="v.mp4", text="Which moves first?", options=OPTIONS),
        settings=Settings(frames=frames),
        turns=turns,
        evidence=evidence,
        answer_text=reading.text if reading else None,
        status="answered" if reading else "no_answer",
    )
