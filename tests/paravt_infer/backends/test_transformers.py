"""The in-process backend: what arrives together runs together, and each row is its own."""

import asyncio
from pathlib import Path

import pytest

from paravt_infer import Engine, Settings
from paravt_infer.backends import Backend
from paravt_infer.backends.transformers import TransformersBackend
from paravt_infer.errors import ModelError
from tests.fixtures.requests import request
from tests.fixtures.responses import answer_form, calls_form


async def test_the_sub_agents_of_a_turn_run_in_one_batch(tiny: Path, video: str) -> None:
    backend = TransformersBackend(str(tiny), device="cpu")
    forms = (calls_form((1, 3), (5, 7), (9, 11), (13, 15), (17, 19)), answer_form("AB"))
    async with Engine(backend, Settings(turn_regex=forms, summary_tokens=8)) as engine:
        rollout = await engine.ask(video, "Which?", options=["a", "b"])
    assert backend.batch_sizes == [1, 5, 1]
    assert rollout.status == "answered"


async def test_rows_of_a_batch_keep_their_own_sampling(in_process: Backend) -> None:
    """Different limits, forms, temperatures and numbers of frames, side by side."""
    short, form, plain = await asyncio.gather(
        in_process.generate(request(in_process, text="a", max_new_tokens=3, regex="[a-z]{9}")),
        in_process.generate(request(in_process, text="b", shown=4, regex="[0-9]{7}", temperature=1.0)),
        in_process.generate(request(in_process, text="c", shown=0, max_new_tokens=11)),
    )
    assert (len(short.ids), short.finish) == (3, "length")
    assert form.text.isdigit() and len(form.text) == 7
    assert len(plain.ids) == 11


async def test_a_row_is_the_same_alone_and_in_a_batch(in_process: Backend) -> None:
    asked = [request(in_process, text=text, regex="[a-z ]{30}", max_new_tokens=40) for text in ("one", "two two two")]
    together = await asyncio.gather(*(in_process.generate(one) for one in asked))
    alone = [await in_process.generate(one) for one in asked]
    assert [g.ids for g in together] == [g.ids for g in alone]


async def test_a_seed_repeats_the_draw_and_another_does_not(in_process: Backend) -> None:
    def drawn(seed: int) -> "asyncio.Future[object]":
        return in_process.generate(request(in_process, temperature=1.0, seed=seed))  # type: ignore[return-value]

    first, again, other = [(await drawn(seed)).ids for seed in (1, 1, 2)]  # type: ignore[attr-defined]
    assert first == again != other


async def test_top_k_of_one_is_greedy(in_process: Backend) -> None:
    greedy = await in_process.generate(request(in_process))
    drawn = await in_process.generate(request(in_process, temperature=5.0, top_k=1))
    assert drawn.ids == greedy.ids


async def test_a_cancelled_row_stops_and_the_next_request_runs(in_process: Backend) -> None:
    task = asyncio.create_task(in_process.generate(request(in_process, max_new_tokens=20000, regex="[a-z]{20000}")))
    while not in_process.batch_sizes:  # type: ignore[attr-defined]
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    generation = await asyncio.wait_for(in_process.generate(request(in_process, max_new_tokens=2)), 60)
    assert len(generation.ids) == 2


async def test_a_device_that_is_not_there_is_one_line(tiny: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot be moved to cuda:7 .*; try --device cpu"):
        await TransformersBackend(str(tiny), device="cuda:7").start()
