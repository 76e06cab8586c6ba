"""One thread for every test of the fuse."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        yield
