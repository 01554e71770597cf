"""The step that tools/kernel_instructions.py finds in a listing of machine code."""

import pytest

from tests.scripts import script


@pytest.fixture(scope="module")
def tool():
    return script("tools/kernel_instructions.py")


def listing(*lines: str) -> str:
    code = [f"        /*{16 * n:04x}*/                   {line} ;" for n, line in enumerate(lines)]
    return "\n".join(["\t\tFunction : train_resident", *code, "\t\t......"])


def test_a_step_is_the_smallest_loop_with_most_of_the_products(tool):
    """Here a loop over runs, in it the loop over steps, and in that one a short loop and a wait."""
    code = listing(
        "MOV R1, c[0x0][0x28]",
        "LDL R9, [R1]",  # 0x10: the loop over runs
        "HMMA.1688.F32.TF32 R4, R8, R6, R4",  # 0x20: the loop over steps
        "@!P0 BRA 0x20",  # 0x30: of one of five products
        "HGMMA.64x16x8.F32.TF32 R24, gdesc[UR4], R24",
        "STL.64 [R1+0x8], R2",
        "LDL R3, [R1+0x8]",
        "BAR.SYNC.DEFER_BLOCKING 0x0",
        "HMMA.1688.F32.TF32 R4, R8, R6, R4",
        "LDG.E.64.STRONG.SYS R2, [R2.64]",  # 0x90: a wait
        "@P1 BRA 0x90",
        "@P2 BRA 0x20",
        "HMMA.1688.F32.TF32 R4, R8, R6, R4",
        "@P3 BRA 0x10",
        "EXIT",
    )
    assert tool.step_of(code) == tool.Step(instructions=10, products=3, spills=2, barriers=1)


def test_a_kernel_without_a_loop_has_no_step(tool):
    with pytest.raises(ValueError, match="no loop"):
        tool.step_of(listing("HMMA.1688.F32.TF32 R4, R8, R6, R4", "EXIT"))
