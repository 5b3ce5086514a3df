"""Golden numbers of the size rules: the 24 exact parameter counts that the preset `paper` is built on."""

import pytest

from lmu_scaling.counting import count
from lmu_scaling.models import resolve, width
from lmu_scaling.models.layers.lmu import memory_flops, qkv_flops

VARIANTS = ("lmu", "lmu_attention", "transformer", "lstm")

# d: (q, q', theta, heads, d' of LMU, d' of LMU + attention, exact N of the four variants)
SIZES = {
    48: (60, 6, 240, 2, 87, 78, (55_194, 55_338, 56_640, 56_448)),
    64: (80, 8, 320, 2, 117, 106, (98_078, 98_270, 100_096, 99_840)),
    92: (110, 11, 440, 2, 171, 157, (203_224, 202_945, 205_712, 205_344)),
    120: (150, 15, 600, 4, 223, 205, (346_008, 345_645, 348_960, 348_480)),
    144: (180, 18, 720, 4, 268, 247, (497_832, 497_397, 501_696, 501_120)),
    204: (250, 25, 1000, 4, 382, 355, (999_282, 998_667, 1_004_496, 1_003_680)),
}


@pytest.mark.parametrize("index", range(4), ids=VARIANTS)
@pytest.mark.parametrize("d", SIZES)
def test_exact_parameter_count_of_the_paper_preset(d, index):
    spec = resolve(VARIANTS[index], d, 1024, 50257)
    assert count(spec).n_exact == SIZES[d][6][index]


@pytest.mark.parametrize("d", SIZES)
def test_derived_sizes_of_the_paper_preset(d):
    q, q_reduced, theta, heads, ffn, ffn_attention, _ = SIZES[d]
    lmu, mixed = (resolve(variant, d, 1024, 50257) for variant in VARIANTS[:2])
    assert (lmu.q, lmu.q_reduced, lmu.theta, lmu.ffn, lmu.heads) == (q, q_reduced, theta, ffn, None)
    assert (mixed.q, mixed.q_reduced, mixed.theta, mixed.ffn, mixed.heads) == (
        q,
        q_reduced,
        theta,
        ffn_attention,
        heads,
    )


def test_width_rule_gives_the_papers_sizes():
    assert [width(n) for n in (55e3, 100e3, 200e3, 350e3, 500e3, 1e6)] == list(SIZES)


def test_first_row_of_table_2_at_the_papers_largest_model():
    assert qkv_flops(204, 250, 25, 1024) == 1_004_460


def test_fft_flops_at_the_papers_sequence_length():
    """Appendix A.2: L_FFT-1024 = d(61q + 55)."""
    assert all(memory_flops(d, q, 1024) == d * (61 * q + 55) for d, q in ((1, 1), (48, 60), (204, 250)))


def test_the_papers_two_slips_are_far_from_the_corrected_values():
    d_counted_twice = 3 * (204 * memory_flops(204, 25, 1024) + 2 * 250 * 25)  # appendix A.1, 3[d·L_FFT(q') + 2qq']
    assert d_counted_twice == 3 * (204 * 204 * (55 * 26 + 150) + 2 * 250 * 25) > 190 * qkv_flops(204, 250, 25, 1024)
    complex_transforms = 204 * (110 * 251 + 1500)  # appendix A.2, L_FFT with C(n) = 5n log₂n
    assert complex_transforms > 1.8 * memory_flops(204, 250, 1024)


def test_lmu_costs_2_3_times_the_transformer_at_equal_n():
    lmu, transformer = (count(resolve(variant, 204, 1024, 50257)) for variant in ("lmu", "transformer"))
    assert lmu.flops_forward / transformer.flops_forward == pytest.approx(2.28, abs=0.01)
    assert lmu.flops_with_head / transformer.flops_with_head == pytest.approx(1.155, abs=0.005)


def test_total_parameters_match_the_papers_range():
    """2.5M … "10M" (11.25M in fact) with a tied embedding."""
    assert count(resolve("lmu", 48, 1024, 50257)).n_total == 55_194 + 48 * 50257
    assert count(resolve("lmu", 204, 1024, 50257)).n_total == pytest.approx(11.25e6, rel=1e-3)
