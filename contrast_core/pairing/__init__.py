"""Positive pairs of unpaired rows: the same thing seen under two conditions.

`scaled_features` and `pairing_basis` make rows of both conditions comparable, `neighbor_pairs`
pairs them; `PositivePairs` then indexes the rows that `contrast_core.PCAPlusPlus` is fitted on.
`ilisi`, `kbet` and `label_transfer` measure how well an embedding mixes the conditions;
`mixing_scores` has these and others.
"""

from contrast_core.pairing._basis import pairing_basis, scaled_features
from contrast_core.pairing._clusters import match_clusters
from contrast_core.pairing._mixing import ilisi, kbet, label_transfer, mixing_scores
from contrast_core.pairing._neighbors import neighbor_pairs
from contrast_core.pairing._pairs import PositivePairs

__all__ = [
    "PositivePairs",
    "ilisi",
    "kbet",
    "label_transfer",
    "match_clusters",
    "mixing_scores",
    "neighbor_pairs",
    "pairing_basis",
    "scaled_features",
]
