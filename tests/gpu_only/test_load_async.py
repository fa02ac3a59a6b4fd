"""`load_async`: the interface that also works in a browser, on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

import pteron
from pteron.engine.devices.opening import Device
from tests.support import DATA
from tests.support.browser import serving

SIZES = (128, 3, 77, 1)


def x(size: int) -> Any:
    return np.random.default_rng(size).standard_normal((1, 1, size, 64)).astype(np.float32)


@pytest.fixture(scope="module")
def wanted(device: Device) -> dict[int, Any]:
    with pteron.load(DATA / "dyn_rms.pte", device=device) as program:
        return {size: program(x(size)) for size in SIZES}


def with_program(device: Device, use: Callable[[pteron.AsyncProgram], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with await pteron.load_async(DATA / "dyn_rms.pte", device=device) as program:
            return await use(program)

    return asyncio.run(main())


def test_a_program_from_a_path_bytes_or_a_url(device: Device, wanted: dict[int, Any]) -> None:
    async def main(url: str) -> None:
        path = DATA / "dyn_rms.pte"
        for source in (path, str(path), path.read_bytes(), f"{url}dyn_rms.pte"):
            async with await pteron.load_async(source, device=device) as program:
                for size in SIZES:
                    np.testing.assert_array_equal(await program(x(size)), wanted[size])

    with serving(DATA) as url:
        asyncio.run(main(url))


def test_a_url_is_named_in_errors(device: Device) -> None:
    async def main(url: str) -> None:
        with pytest.raises(OSError, match=r"nothing\.pte: the server answered 404 "):
            await pteron.load_async(f"{url}nothing.pte", device=device)
        with pytest.raises(pteron.FormatError, match=r"http.*: not a \.pte program"):
            await pteron.load_async(url, device=device)

    with serving(DATA) as url:
        asyncio.run(main(url))


def test_many_calls_at_once(device: Device, wanted: dict[int, Any]) -> None:
    async def use(program: pteron.AsyncProgram) -> None:
        await program(x(1))
        before = device.allocations
        results = await asyncio.gather(*(program(x(size)) for size in (*SIZES, *SIZES)))
        for size, result in zip((*SIZES, *SIZES), results, strict=True):
            np.testing.assert_array_equal(result, wanted[size])
        assert device.allocations <= before + 1, "there may be a second staging buffer, but no third"

    with_program(device, use)


def test_cancelled_calls_leave_their_staging_buffers(device: Device, wanted: dict[int, Any]) -> None:
    async def use(program: pteron.AsyncProgram) -> None:
        method = await program.method()
        await asyncio.gather(method(x(1)), method(x(2)))
        tasks = []
        for _ in range(5):
            tasks.append(asyncio.ensure_future(method(x(128))))
            await asyncio.sleep(0)
            tasks[-1].cancel()
        np.testing.assert_array_equal(await method(x(3)), wanted[3])
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)
        np.testing.assert_array_equal(await method(x(77)), wanted[77])

    with_program(device, use)


def test_a_method_is_loaded_once(device: Device) -> None:
    async def use(program: pteron.AsyncProgram) -> None:
        first, second = await asyncio.gather(program.method(), program.method())
        assert first is second
        with pytest.raises(KeyError, match="no method 'backward'; the program has: forward"):
            await program.method("backward")
        program.close()
        with pytest.raises(pteron.PteronError, match="the program is closed"):
            await program(x(1))

    with_program(device, use)


def test_results_that_stay_on_the_gpu(device: Device, wanted: dict[int, Any]) -> None:
    async def use(program: pteron.AsyncProgram) -> None:
        kept = await program(x(3), keep_on_gpu=True)
        np.testing.assert_array_equal(await kept.read_async(), wanted[3])
        np.testing.assert_array_equal(kept.numpy(), wanted[3])

    with_program(device, use)


def test_a_program_is_loaded_again_on_another_device(device: Device, wanted: dict[int, Any]) -> None:
    async def use(program: pteron.AsyncProgram) -> None:
        method = await program.method()
        await method(x(3))
        await program.reload()
        assert program.device is not device
        np.testing.assert_array_equal(await method(x(3)), wanted[3])

    with_program(device, use)
