"""Checks of the options of the contrastive latent variable model, and of their combinations."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from contrast_core._validation import (
    check_choice,
    check_count,
    check_known_length,
    check_number,
    shown,
)
from contrast_core.probabilistic._clvm_priors import PriorSettings, Sparsity
from contrast_core.probabilistic._row_posterior import Tails
from contrast_core.rows import Rows, check_device
from contrast_core.solve import Design


def check_tails(robust: object, noise: object, inference: object) -> Tails:
    """Return the distribution that `robust` and `noise` select; check that `inference` fits it."""
    method = check_choice(inference, "inference", ["em", "vi"])
    if check_choice(noise, "noise", ["normal", "counts"]) == "counts":
        if robust is not None:
            raise ValueError(
                f"robust={robust!r} replaces normal noise, but noise='counts' is negative "
                "binomial: leave one of them out."
            )
        if method == "em":
            raise ValueError(
                "noise='counts' cannot be fitted with inference='em', because its steps then have "
                "no closed form: give inference='vi', or fit logarithms of normalised counts."
            )
        return "counts"
    if robust is None:
        return "normal"
    found = check_choice(robust, "robust", ["entries", "rows"], "None")
    return "rows" if found == "rows" else "entries"


def check_combination(parts: Sequence[Rows], design: Design, what: str) -> None:
    """Raise ValueError if an option is given that only a fit from moments supports.

    `what` names the setting that needs a fit to the rows, for the error message.
    """
    centre = "subtract the mean or median of each label's rows first, in foreground and background"
    refused = {
        "within": (design.within is not None, centre),
        "background_within": (design.background_within is not None, centre),
        "sample_weight": (design.sample_weight is not None, "leave it out, or repeat rows"),
        "background_weight": (design.background_weight is not None, "leave it out, or repeat rows"),
        "background_mix": (design.background_mix is not None, "leave it out"),
        "several backgrounds": (
            len(parts) > 2,
            "subtract from each its own mean and stack them (each then counts in proportion to its "
            "number of rows, whereas several backgrounds otherwise count equally)",
        ),
    }
    for name, (given, remedy) in refused.items():
        if given:
            raise ValueError(f"CLVM does not combine {what} with {name}: {remedy}.")


def check_in_memory(parts: Sequence[Rows], what: str) -> None:
    """Raise TypeError for rows that are not in memory, because the fit reads them many times."""
    for part in parts:
        if not (part.in_memory and (part.can_miss or part.is_sparse)):
            raise TypeError(
                f"{part.name} is not an array, DataFrame or sparse matrix in memory. With {what}, "
                "the fit reads the rows many times, so convert the data to one of these."
            )


def check_streamed(parts: Sequence[Rows], design: Design) -> None:
    """Raise an error for data or options that stochastic inference does not support."""
    if not parts:
        raise TypeError(
            "inference='vi' reads the rows, but moments were given, which do not contain them. "
            "Give the rows, or inference='em'."
        )
    check_combination(parts, design, "inference='vi'")
    for part in parts:
        check_known_length(part.shape[0], part.name)


def check_torch(device: object) -> Any:
    """Check that torch is installed, and return the device to compute on."""
    try:
        import_module("torch")
    except ImportError as error:
        raise ImportError(
            "inference='vi' needs torch; run pip install torch, or give inference='em'."
        ) from error
    return check_device("cpu" if device is None else device)


def check_dimensions(n_shared: object, n_salient: object, n_varying: int) -> tuple[int, int]:
    """Check the numbers of shared and salient variables against the number of varying features."""
    if n_varying < 2:
        raise ValueError(
            f"{n_varying} feature(s) vary in X or the background, but a latent variable and "
            "noise need at least 2."
        )
    reason, most = f"with {n_varying} features that vary", n_varying - 1
    k = check_count(n_shared, "n_shared", at_least=0, at_most=most, reason=reason)
    reason = f"{reason} and n_shared={k}, and one direction left for the noise,"
    least, most = int(not k), most - k
    return k, check_count(n_salient, "n_salient", at_least=least, at_most=most, reason=reason)


def check_sparsity(sparsity: object, n_salient: int, priors: PriorSettings) -> Sparsity | None:
    """Return the checked `sparsity`; raise ValueError if there are no salient loadings."""
    if sparsity is None:
        return None
    if not n_salient:
        raise ValueError(
            f"sparsity={shown(sparsity)} selects salient loadings, but n_salient=0 gives a model "
            "without them; leave sparsity out."
        )
    if isinstance(sparsity, str):
        found = check_choice(sparsity, "sparsity", ["auto", "horseshoe"], "a number")
        if found == "auto" and not priors.adaptive_penalty:
            raise ValueError(
                "sparsity='auto' chooses the adaptive penalty, but priors has adaptive_penalty="
                "False: give a number for sparsity, or leave adaptive_penalty out."
            )
        if found == "horseshoe" and priors.feature_groups is not None:
            raise ValueError(
                "sparsity='horseshoe' selects single features, but priors has feature_groups: give "
                "sparsity='auto' or a number, or leave feature_groups out."
            )
        return "auto" if found == "auto" else "horseshoe"
    expected = "'auto', 'horseshoe' or a number"
    return check_number(sparsity, "sparsity", above=0, expected=expected)
