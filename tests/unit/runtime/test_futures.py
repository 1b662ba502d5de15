from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from federation.runtime.futures import fail


async def test_an_error_that_nobody_waits_for_is_no_noise() -> None:
    loop, told = asyncio.get_running_loop(), list[Any]()
    loop.set_exception_handler(lambda _, context: told.append(context))
    future: asyncio.Future[None] = loop.create_future()
    fail(future, ValueError("nobody is here"))
    del future
    gc.collect()
    await asyncio.sleep(0)
    assert told == []


async def test_the_first_outcome_stands() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    fail(future, ValueError("first"))
    fail(future, ValueError("second"))
    with pytest.raises(ValueError, match="first"):
        await future
    left: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    left.cancel()
    fail(left, ValueError("late"))
    assert left.cancelled()
