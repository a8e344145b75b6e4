"""What both token-exact backends promise: the same tokens, log-probabilities, stops and limits."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from paravt_infer.backends import Backend
from paravt_infer.backends.base import Generation, Request
from paravt_infer.errors import ContextLimitError
from paravt_infer.model import load_model_files
from tests.fixtures.requests import request


async def test_frames_count_as_what_they_stand_for(backend: Backend) -> None:
    asked = request(backend, shown=3)
    generation = await backend.generate(asked)
    assert generation.visual_tokens == 3 * (64 // 32) * (96 // 32)
    assert generation.prompt_tokens == len(asked.ids) - 3 + generation.visual_tokens


async def test_a_length_limit_is_kept_and_told(backend: Backend) -> None:
    generation = await backend.generate(request(backend, max_new_tokens=5, regex="[a-z]{40}"))
    assert (len(generation.ids), generation.finish) == (5, "length")


async def test_the_text_is_held_to_a_regular_expression(backend: Backend) -> None:
    generation = await backend.generate(request(backend, regex="<answer>[AB]</answer>"))
    assert generation.text in ("<answer>A</answer>", "<answer>B</answer>")
    assert generation.finish == "stop"


async def test_generation_stops_at_a_stop_text_which_is_kept(backend: Backend) -> None:
    form = "abc</tool_call>defgh</tool_call>"
    generation = await backend.generate(request(backend, regex=form, stop=("</tool_call>",), max_new_tokens=60))
    assert (generation.text, generation.finish) == ("abc</tool_call>", "stop")


async def test_the_text_is_that_of_the_ids(backend: Backend) -> None:
    assert backend.chat is not None
    generation = await backend.generate(request(backend, temperature=1.0, seed=3))
    assert generation.text == backend.chat.decode(generation.ids)


async def test_no_frame_placeholder_is_ever_generated(backend: Backend) -> None:
    """The next turn would take it for a frame. At a high temperature every token is as likely as another."""
    assert backend.chat is not None
    generation = await backend.generate(request(backend, temperature=50.0, max_new_tokens=1500))
    assert not set(generation.ids) & set(backend.chat.media_token_ids)


async def test_a_prompt_beyond_the_context_is_refused_with_both_numbers(backend: Backend) -> None:
    assert backend.context_limit is not None
    with pytest.raises(ContextLimitError, match=rf"\d+ tokens .* holds {backend.context_limit}; use fewer"):
        await backend.generate(request(backend, text="word " * backend.context_limit))


async def test_a_reply_is_cut_where_the_context_ends(backend: Backend) -> None:
    assert backend.context_limit is not None
    asked = request(backend, text="w" * 200, max_new_tokens=10**9, regex="[a-z]{4}")
    generation = await backend.generate(asked)
    assert generation.finish == "stop" and len(generation.text) == 4


async def both(left: Backend, right: Backend, **sampling: Any) -> tuple[Generation, Generation]:
    asked = request(left, **sampling)
    again = dataclasses.replace(asked, id=asked.id + "-again")
    return await left.generate(asked), await right.generate(again)


@pytest.mark.parametrize("shown", [0, 1, 3])
async def test_sglang_and_transformers_agree_to_the_token(sglang: Backend, in_process: Backend, shown: int) -> None:
    """Greedy, held to letters so that many tokens compete closely."""
    there, here = await both(sglang, in_process, shown=shown, regex="[a-z ]{60}", logprobs=True, max_new_tokens=80)
    assert there.ids == here.ids
    assert there.logprobs is not None and here.logprobs is not None
    assert np.abs(np.array(there.logprobs) - np.array(here.logprobs)).max() < 0.01


def scored(model: Path, backend: Backend, asked: Request, ids: list[int]) -> np.ndarray:
    """Log-probabilities of `ids` after the request's prompt, by one plain forward pass over the whole sequence."""
    assert backend.chat is not None
    files = load_model_files(str(model))
    network = transformers.AutoModelForImageTextToText.from_pretrained(model, dtype="auto")
    tokens = (64 // 32) * (96 // 32)
    image = backend.chat.image_token_id
    prompt = [i for token in asked.ids for i in [token] * (tokens if token == image else 1)]
    row = torch.tensor([prompt + ids])
    pixels = files.image_processor(images=[f.pixels for f in asked.frames], do_resize=False, return_tensors="pt")
    with torch.no_grad():
        logits = network(input_ids=row, mm_token_type_ids=(row == image).int(), **pixels).logits[0].float()
    logits[:, list(backend.chat.media_token_ids)] = float("-inf")
    logprobs = torch.log_softmax(logits / asked.sampling.temperature, dim=-1)
    at = torch.arange(len(prompt) - 1, len(prompt) + len(ids) - 1)
    return logprobs[at, torch.tensor(ids)].numpy()


async def test_log_probabilities_are_of_the_distribution_drawn_from(backend: Backend, tiny: Path) -> None:
    """At temperature 0.7, with frames, against an independent pass: what a trainer's importance weights rest on.

    The model is bf16, whose numbers from 1 to 2 are 2^-7 apart: one logit rounded to the neighbour is 0.011 at this
    temperature. A fault of temperature, mask or alignment moves the mean. (In fp32: tests/training/test_grpo.py.)
    """
    errors: list[float] = []
    for seed in range(5):
        asked = request(backend, shown=3, temperature=0.7, seed=seed, logprobs=True, max_new_tokens=48)
        generation = await backend.generate(asked)
        assert generation.logprobs is not None
        errors += list(np.abs(np.array(generation.logprobs) - scored(tiny, backend, asked, generation.ids)))
    assert len(errors) > 40 and np.mean(errors) < 0.003 and max(errors) < 0.02
