"""Ask one question about a video and print the answer with its evidence. Runs offline on a CPU in seconds."""

import asyncio

from paravt_infer import EngineSpec, Settings
from paravt_infer.bundled import sample_videos


async def main() -> None:
    sample = sample_videos()[0]
    # Without a model this is the checkpoint that ships, which knows the sample videos only. For your own video:
    # EngineSpec(model="ParaVT/ParaVT-8B"), or EngineSpec(servers=("http://localhost:30000",)) for a running SGLang.
    async with EngineSpec().open(Settings(frames=16, dispatch="parallel", evidence="text")) as engine:
        rollout = await engine.ask(sample.path, sample.question, options=sample.options)

    print(sample.question)
    for call in rollout.evidence:  # one tool call each, with what its sub-agent reported
        start, end = call.used or (0.0, 0.0)
        print(f"  {start:5.1f} s to {end:5.1f} s ({call.status}): {call.text}")
    print(f"answer: {rollout.answer} (expected {sample.answer})")
    print(f"tokens out: {rollout.usage.output_tokens}, seconds: {rollout.usage.seconds:.1f}")
    if rollout.status == "failed":  # the video or the model failed: never an answer
        print(f"failed: {rollout.error}")


if __name__ == "__main__":
    asyncio.run(main())
