"""Find positive pairs of similar rows from two conditions, for data that come without pairs.

`scaled_features` and `pairing_basis` make rows of both conditions comparable, and `neighbor_pairs`
pairs them. The result, `PositivePairs`, holds the indices of the paired rows, to which
`contrast_core.PCAPlusPlus` can then be fitted.

`ilisi` and `kbet` measure how well an embedding mixes the conditions, and `label_transfer`
measures how well labels can be predicted across conditions. `mixing_scores` computes these and
other scores.
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
