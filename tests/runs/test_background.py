"""Work beside the caller: in order, done when its block is left, and nothing that went wrong is lost."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

import pytest

from aceglt.runs.background import Background


def test_works_are_done_in_order_and_all_when_the_block_is_left() -> None:
    done: list[int] = []
    with Background() as background:
        for number in range(5):
            background.begin(lambda number=number: done.append(number))  # type: ignore[misc]
    assert done == [0, 1, 2, 3, 4]


def test_the_caller_goes_on_meanwhile() -> None:
    gone_on, waited = Event(), []
    with Background() as background:
        background.begin(lambda: waited.append(gone_on.wait(60)))
        gone_on.set()
    assert waited == [True]


def fails() -> None:
    raise OSError("no space left")


def begins_next(background: Background) -> None:
    background.begin(lambda: None)


@pytest.mark.parametrize("then", [begins_next, Background.wait, lambda background: None])
def test_what_goes_wrong_is_raised_in_the_caller(then: Callable[[Background], None]) -> None:
    def use() -> None:
        with Background() as background:
            background.begin(fails)
            then(background)

    with pytest.raises(OSError, match="no space left"):
        use()


def test_what_the_caller_raises_comes_first_and_the_work_is_done() -> None:
    done: list[int] = []

    def use() -> None:
        with Background() as background:
            background.begin(lambda: done.append(1))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        use()
    assert done == [1]


def test_what_goes_wrong_beside_an_error_of_the_caller_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def use() -> None:
        with Background() as background:
            background.begin(fails)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        use()
    assert caplog.messages == ["work in the background failed as well: no space left"]
