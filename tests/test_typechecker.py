"""The tests check types and shapes in the package's signatures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from headcount.attention.key_query import KeyQuery
from headcount.shapes import Float
from headcount.theory.capacity_law import capacity_ratio
from tests.typechecker import TypeViolation, begin_test, checked, unchecked


@checked
def product(left: Float[Tensor, "m k"], right: Float[Tensor, "k n"]) -> Float[Tensor, "m n"]:
    return (left @ right).sum(0) if left.shape[0] == 7 else left @ right


@checked
def halves(number: float) -> float:
    return "half" if number < 0 else number / 2  # pyright: ignore[reportReturnType]


@checked
def rows(table: Float[Tensor, "m d"]) -> Iterator[Float[Tensor, " d"]]:
    yield from table


def added_to(first: int):
    @checked
    def added(second: int) -> int:
        return first + second

    return added


@checked
@dataclass
class Sized:
    size: int


def test_axes_of_one_name_have_one_length():
    assert product(torch.ones(2, 3), torch.ones(3, 4)).shape == (2, 4)
    assert product(torch.ones(5, 6), torch.ones(6, 1)).shape == (5, 1)  # lengths of this call
    for left, right in (
        (torch.ones(2, 3), torch.ones(2, 4)),
        (torch.ones(2, 3).int(), torch.ones(3, 4)),
        (torch.ones(7, 3), torch.ones(3, 4)),  # the result has one axis
    ):
        with pytest.raises(TypeViolation):
            product(left, right)
    assert [row.tolist() for row in rows(torch.eye(2))] == [[1, 0], [0, 1]]


def test_types_of_arguments_results_and_fields():
    assert halves(3) == 1.5  # an int may stand for a float
    for call in (lambda: halves("3"), lambda: halves(-1.0), lambda: Sized("1")):  # pyright: ignore
        with pytest.raises(TypeViolation):
            call()
    assert Sized(1).size == 1


def test_functions_inside_others_are_checked_each_with_its_own_names():
    one, two = added_to(1), added_to(2)
    assert (one(5), two(5), one(6)) == (6, 7, 7)
    for call in (one, two):
        with pytest.raises(TypeViolation):
            call("5")  # pyright: ignore[reportArgumentType]


def test_the_package_is_checked():
    with pytest.raises(TypeViolation):
        capacity_ratio("8", 8, 4, 1, 2)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeViolation):
        KeyQuery(torch.ones(2, 4, 3), torch.ones(2, 4, 5), 0.5)


def test_the_check_can_be_switched_off():
    with unchecked():
        assert Sized("1").size == "1"  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeViolation):
        Sized("1")  # pyright: ignore[reportArgumentType]


def test_of_many_calls_some_are_checked():
    def is_refused(number: float) -> bool:
        try:
            halves(number)
        except TypeViolation:
            return True
        return False

    assert all(is_refused(-1) for _ in range(50))
    assert sum(is_refused(-1) for _ in range(100)) == 10
    assert not is_refused(-1)
    begin_test()
    assert is_refused(-1)
