"""Least-squares fits of scaling laws, for one data set or for thousands of bootstrap draws at once (docs/claims.md).

* power law, L = (N_c / N)^α: least squares of ln L on ln N, in closed form;
* sums of powers, L = E + A·N^-a (+ B·D^-b) with E, A, B ≥ 0: variable projection. For given exponents the coefficients
  are a non-negative linear problem, solved exactly; exponents start from a grid and are refined by damped Gauss–Newton
  steps, vectorised over draws. The point estimate is refined by SciPy, which also reports convergence.

Axes: b draws, k data points, j terms.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

Array = NDArray[np.float64]
EXPONENTS = (0.005, 4.0)  # a loss that falls more slowly than N^-0.005 or faster than N^-4 is not a scaling law


# ------------------------------------------------------------------------------------------------------- power law
@dataclass(frozen=True)
class PowerFit:
    """ln L = intercept - α ln N = α (ln N_c - ln N); one value per draw."""

    alpha: Array
    intercept: Array

    @property
    def log_nc(self) -> Array:
        """NaN for a law that does not fall, as it has no N_c."""
        falls = self.alpha > 0
        return np.where(falls, self.intercept / np.where(falls, self.alpha, 1.0), np.nan)

    def log_loss(self, n: Array) -> Array:
        """[b, len(n)]"""
        return self.intercept[:, None] - self.alpha[:, None] * np.log(n)[None, :]


def fit_power(n: Array, log_loss_bk: Array, weights: Array | None = None) -> PowerFit:
    """Closed-form least squares."""
    x, y = np.log(n), np.atleast_2d(log_loss_bk)
    w = np.ones_like(x) if weights is None else np.asarray(weights, float)
    w = w / w.sum()
    x_mean, y_mean = w @ x, y @ w
    slope = ((y - y_mean[:, None]) * w) @ (x - x_mean) / (w @ (x - x_mean) ** 2)
    return PowerFit(-slope, y_mean - slope * x_mean)


def power_report(n: Array, log_loss: Array, weights: Array | None = None) -> dict[str, Any]:
    """Fit one data set by SciPy: parameters, covariance, R², residuals, convergence."""
    x = np.log(n)
    start = fit_power(n, log_loss, weights)
    root = np.ones_like(x) if weights is None else np.sqrt(weights / np.mean(weights))

    def misfit(p: Array) -> Array:
        return root * (p[0] + p[1] * (x - x.mean()) - log_loss)

    solution = least_squares(misfit, np.array([log_loss.mean(), -start.alpha[0]]), xtol=1e-15, ftol=1e-15)
    level, slope = solution.x
    residual = solution.fun
    freedom = len(x) - 2
    spread = root * (log_loss - np.average(log_loss, weights=root**2))
    covariance = np.linalg.pinv(_gram(solution.jac)) * (residual @ residual / freedom) if freedom > 0 else None
    return {
        "alpha": -slope,
        "log_nc": x.mean() - level / slope if slope < 0 else np.nan,
        "covariance": None if covariance is None else covariance.tolist(),
        "covariance_of": ["ln L at the geometric-mean N", "-alpha"],
        "r2": 1 - residual @ residual / (spread @ spread) if spread @ spread > 0 else np.nan,
        "rmse_log": float(np.sqrt(residual @ residual / len(x))),
        "residuals": (-residual / root).tolist(),
        "converged": bool(solution.success),
    }


def curvature(n: Array, log_loss_bk: Array) -> Array:
    """Quadratic coefficient of ln L in ln N: zero for a power law. Needs three sizes."""
    x = np.log(n) - np.log(n).mean()
    design = np.stack([np.ones_like(x), x, x**2], axis=1)
    return (np.linalg.pinv(design) @ np.atleast_2d(log_loss_bk).T)[2]


def _gram(jacobian: Any) -> Array:
    return np.asarray(jacobian).T @ np.asarray(jacobian)


# ------------------------------------------------------------------------------------------------- sums of powers
@dataclass(frozen=True)
class SumFit:
    """L = coefficients[0] + Σ_j coefficients[j] · x_j^-exponents[j-1], per draw."""

    coefficients: Array  # [b, j]
    exponents: Array  # [b, j-1]
    loss: Array  # [b, k], fitted
    converged: NDArray[np.bool_] = field(default_factory=lambda: np.ones(0, bool))

    def parameters(self, *exponents: str) -> dict[str, Array]:
        """Values [b] by name: E, then A, B, … each followed by its exponent, which is named by the caller."""
        found = {"E": self.coefficients[:, 0]}
        for j, (coefficient, exponent) in enumerate(zip("AB", exponents, strict=False)):
            found |= {coefficient: self.coefficients[:, j + 1], exponent: self.exponents[:, j]}
        return found


def fit_sum(xs: list[Array], loss_bk: Array, grid: int = 40) -> SumFit:
    """Fit E + Σ A_j x_j^-a_j to every row of `loss_bk`, minimising relative residuals (as in a log fit)."""
    y = np.atleast_2d(loss_bk)
    scale = y.mean(axis=0)
    logs = [np.log(x) for x in xs]
    centres = np.array([log.mean() for log in logs])
    us = np.stack([log - centre for log, centre in zip(logs, centres, strict=True)])  # [j-1, k]
    coefficients, exponents = _grid_start(us, y, 1 / scale, grid if len(xs) == 1 else max(12, grid // 2))
    coefficients, exponents, converged = _refine(us, y, 1 / scale, coefficients, exponents)
    fitted = np.einsum("bkj,bj->bk", _powers(us, exponents), coefficients)
    coefficients[:, 1:] *= np.exp(exponents * centres)  # back from x / geometric mean to x
    return SumFit(coefficients, exponents, fitted, converged)


def sum_report(xs: list[Array], loss: Array) -> tuple[SumFit, dict[str, Any]]:
    """The same fit for one data set, refined by SciPy, with covariance and convergence."""
    start = fit_sum(xs, loss)
    centres = [np.log(x).mean() for x in xs]
    us = np.stack([np.log(x) - centre for x, centre in zip(xs, centres, strict=True)])
    j, scale = len(xs) + 1, loss
    shift = np.concatenate([[0.0], start.exponents[0] * centres])
    free = start.coefficients[0] > 0
    coefficients = np.where(free, start.coefficients[0] * np.exp(-shift), 0.0)

    def residual(p: Array) -> Array:
        terms = p[1:j, None] * np.exp(-p[j:, None] * us)
        return (p[0] + terms.sum(axis=0) - loss) / scale

    low = np.concatenate([np.zeros(j), np.full(j - 1, EXPONENTS[0])])
    high = np.concatenate([np.full(j, np.inf), np.full(j - 1, EXPONENTS[1])])
    first = np.concatenate([coefficients, start.exponents[0]])
    solution = least_squares(
        residual,
        np.clip(first, low + 1e-12, high - 1e-12),
        bounds=(low, high),
        x_scale=np.maximum(np.abs(first), 1e-3),
        xtol=1e-15,
        ftol=1e-15,
        gtol=1e-15,
        max_nfev=2000,
    )
    best = solution.x if 2 * solution.cost <= (residual(first) ** 2).sum() else first
    exponents = best[j:]
    fitted = np.concatenate([best[:1], best[1:j] * np.exp(exponents * centres)])
    freedom = len(loss) - len(best)
    misfit = residual(best)
    spread = (loss - loss.mean()) / scale
    covariance = np.linalg.pinv(_gram(solution.jac)) * (misfit @ misfit) / freedom if freedom > 0 else None
    report = {
        "r2": float(1 - misfit @ misfit / (spread @ spread)) if spread @ spread > 0 else np.nan,
        "rmse_relative": float(np.sqrt(misfit @ misfit / len(loss))),
        "residuals": (-misfit).tolist(),
        "converged": bool(solution.success),
        "covariance": None if covariance is None else covariance.tolist(),
        "covariance_of": ["E", *(f"coefficient {i} at the geometric mean" for i in range(1, j)), "exponents"],
        "points": len(loss),
        "on_bound": bool(np.any(exponents <= EXPONENTS[0] * 1.01) or np.any(exponents >= EXPONENTS[1] * 0.99)),
    }
    return SumFit(fitted[None], exponents[None], loss[None] * (1 + misfit[None]), np.array([solution.success])), report


def _powers(us: Array, exponents: Array) -> Array:
    """[b, k, j]: the constant, then each power."""
    powers = np.exp(-exponents[:, None, :] * us.T[None])
    return np.concatenate([np.ones((len(exponents), us.shape[1], 1)), powers], axis=2)


def _grid_start(us: Array, y: Array, w: Array, grid: int) -> tuple[Array, Array]:
    """Best exponents on a grid, for every draw, with exact non-negative coefficients."""
    axis = np.geomspace(0.01, 3.0, grid)
    points = np.stack(np.meshgrid(*[axis] * len(us), indexing="ij"), axis=-1).reshape(-1, len(us))  # [g, j-1]
    basis = np.concatenate([np.ones((len(points), us.shape[1], 1)), np.exp(-points[:, None] * us.T[None])], axis=2)
    basis *= w[:, None]
    target, j = (y * w).T, len(us) + 1  # [k, b]
    best = np.full(len(y), np.inf)
    coefficients, exponents = np.zeros((len(y), j)), np.zeros((len(y), len(us)))
    subsets = [np.array(s) for size in range(j, 0, -1) for s in itertools.combinations(range(j), size)]
    for subset in subsets:
        inverse = np.linalg.pinv(basis[:, :, subset])
        for chunk in np.array_split(np.arange(len(points)), max(1, len(points) // 16)):
            solved = inverse[chunk] @ target  # [g, subset, b]
            misfit = ((basis[chunk][:, :, subset] @ solved - target) ** 2).sum(axis=1)
            misfit[(solved <= 0).any(axis=1)] = np.inf
            first = misfit.argmin(axis=0)
            lowest = misfit[first, np.arange(len(y))]
            better = np.flatnonzero(lowest < best)
            best[better] = lowest[better]
            coefficients[better] = 0.0
            coefficients[np.ix_(better, subset)] = solved[first[better], :, better]
            exponents[better] = points[chunk][first[better]]
    return coefficients, exponents


def _refine(
    us: Array, y: Array, w: Array, coefficients: Array, exponents: Array, rounds: int = 8
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Levenberg–Marquardt for all draws at once; converged draws drop out between rounds."""
    j = len(us) + 1
    theta = np.concatenate([coefficients, exponents], axis=1)
    settled = np.zeros(len(y), bool)
    damping = np.full(len(y), 1e-3)
    for _ in range(rounds):
        todo = np.flatnonzero(~settled)
        if len(todo) == 0:
            break
        theta[todo], damping[todo], settled[todo] = _damped_steps(us, y[todo], w, theta[todo], damping[todo])
    return theta[:, :j], theta[:, j:], settled


def _damped_steps(
    us: Array, y: Array, w: Array, theta: Array, damping: Array, steps: int = 12
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """A few damped Gauss–Newton steps; a parameter at its bound whose gradient points outwards is held there."""
    j = len(us) + 1
    low = np.concatenate([np.zeros(j), np.full(j - 1, EXPONENTS[0])])
    high = np.concatenate([np.full(j, np.inf), np.full(j - 1, EXPONENTS[1])])
    settled = np.zeros(len(y), bool)

    def misfit(p: Array) -> tuple[Array, Array, Array]:
        powers = _powers(us, p[:, j:])
        residual = (np.einsum("bkj,bj->bk", powers, p[:, :j]) - y) * w
        return powers, residual, (residual**2).sum(axis=1)

    powers, residual, cost = misfit(theta)
    for _ in range(steps):
        slopes = -us.T[None] * powers[:, :, 1:] * theta[:, None, 1:j]
        jacobian = np.concatenate([powers, slopes], axis=2) * w[None, :, None]
        gradient = np.einsum("bkp,bk->bp", jacobian, residual)
        held = ((theta <= low) & (gradient > 0)) | ((theta >= high) & (gradient < 0))
        jacobian = np.where(held[:, None, :], 0.0, jacobian)
        normal = jacobian.transpose(0, 2, 1) @ jacobian
        diagonal = np.einsum("bpp->bp", normal)
        ridge = damping[:, None] * diagonal + 1e-15 * diagonal.max(axis=1, keepdims=True) + (diagonal == 0)
        right = np.where(held, 0.0, -gradient)[..., None]
        step = np.linalg.solve(normal + ridge[:, :, None] * np.eye(2 * j - 1), right)[..., 0]
        trial = np.clip(theta + step, low, high)
        new_powers, new_residual, new_cost = misfit(trial)
        good = new_cost <= cost
        still = (np.abs(trial - theta) <= 1e-7 * (np.abs(theta) + 1e-9)).all(axis=1)
        settled |= (good & (still | (new_cost > cost * (1 - 1e-9)))) | (damping > 1e8)
        theta = np.where(good[:, None], trial, theta)
        powers = np.where(good[:, None, None], new_powers, powers)
        residual = np.where(good[:, None], new_residual, residual)
        cost = np.where(good, new_cost, cost)
        damping = np.clip(np.where(good, damping / 4, damping * 6), 1e-14, 1e9)
    return theta, damping, settled
