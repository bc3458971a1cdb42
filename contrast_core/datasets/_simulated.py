"""Simulate examples from the papers, and groups that differ in some of the features."""

import numpy as np

from contrast_core._validation import check_count, check_generator
from contrast_core.datasets._contrast_data import ContrastData


def make_four_groups(*, random_state: int | np.random.Generator | None = 0) -> ContrastData:
    """Simulate four groups; the contrast strength decides which of them cPCA separates.

    The foreground has 400 rows in four groups of 100, and 30 independent features. The table gives
    their distributions as N(mean, standard deviation):

    ===========  ================  ================  ==============
    label        features 1 to 10  features 11 - 20  features 21-30
    ===========  ================  ================  ==============
    0            N(0, 1)           N(0, 1)           N(0, 10)
    1            N(0, 1)           N(3, 1)           N(0, 10)
    2            N(6, 1)           N(0, 1)           N(0, 10)
    3            N(6, 1)           N(3, 1)           N(0, 10)
    background   N(0, 3)           N(0, 1)           N(0, 10)
    ===========  ================  ================  ==============

    PCA finds only the last ten features. As the contrast strength alpha grows, cPCA first finds
    features 1 to 10, which separate the labels {0, 1} from {2, 3}. At larger alpha it finds both
    blocks of features, and finally only features 11 to 20, which separate the labels {0, 2} from
    {1, 3}.

    Parameters
    ----------
    random_state : int, Generator or None, default=0
        Seed of the draw. The same integer gives the same data on every machine, up to rounding.

    Returns
    -------
    ContrastData
        `foreground` (400, 30) and `background` (400, 30) hold the rows. `labels` (400,) holds the
        integers 0 to 3 in blocks of 100.

    Raises
    ------
    TypeError, ValueError
        If `random_state` is not a seed.

    Notes
    -----
    The paper specifies neither the meaning of the second number of N nor the number of background
    rows. Here the second number is taken as the standard deviation, because PCA would already
    separate the groups if it were the variance.

    References
    ----------
    Abid A, Zhang MJ, Bagaria VK, Zou J. Contrastive principal component analysis.
    arXiv:1709.06716, Appendix A.

    Examples
    --------
    >>> from contrast_core.datasets import make_four_groups
    >>> data = make_four_groups()
    >>> data.foreground.shape, data.background.shape
    ((400, 30), (400, 30))
    """
    rng = check_generator(random_state)
    labels = np.repeat(np.arange(4), 100)
    first = np.where(labels >= 2, 6.0, 0.0)
    second = np.where(labels % 2 == 1, 3.0, 0.0)
    means = np.repeat(np.column_stack([first, second, np.zeros(400)]), 10, axis=1)
    foreground = means + rng.standard_normal((400, 30)) * np.repeat([1.0, 1.0, 10.0], 10)
    background = rng.standard_normal((400, 30)) * np.repeat([3.0, 1.0, 10.0], 10)
    return ContrastData(
        foreground,
        background,
        labels,
        description="Four simulated groups (Abid et al., arXiv:1709.06716, Appendix A).",
    )


def make_motion_sensors(
    n_foreground: int = 2000,
    n_background: int = 2000,
    *,
    random_state: int | np.random.Generator | None = 0,
) -> ContrastData:
    """Simulate two activities that 17 of 23 channels of body-worn sensors show.

    The data imitate the mHealth recordings and have the same channels: accelerometers at chest,
    ankle and arm, an electrocardiogram of two leads, and gyroscopes and magnetometers at ankle and
    arm. In this text, N(mean, variance) is a normal distribution. All rows have noise N(0, 1) in
    every channel. They also have five factors that act on all channels, as posture and breathing
    do. The loadings of these factors are N(0, 0.64).

    The foreground has two more factors. One of them is N(-1, 0.25) in the first activity and
    N(1, 0.25) in the second activity. The other factor is the phase of a movement, and is N(0, 1)
    in both activities. The loadings of these two factors on a channel form a vector of random
    direction. The length of the vector depends on the sensor:

    =============  ========  ======
    sensor         channels  length
    =============  ========  ======
    accelerometer  1 to 9    0.8
    ECG            10, 11    0.4
    gyroscope      12 to 17  0.6
    magnetometer   18 to 23  0
    =============  ========  ======

    Parameters
    ----------
    n_foreground, n_background : int, default=2000
        Number of rows of each dataset, at least 2.
    random_state : int, Generator or None, default=0
        Seed of the draw. The same integer gives the same data on every machine, up to rounding.

    Returns
    -------
    ContrastData
        `foreground` (n_foreground, 23) and `background` (n_background, 23) hold the rows. `labels`
        (n_foreground,) alternates between 0 and 1. `feature_names` holds the names of the channels.

    Raises
    ------
    TypeError, ValueError
        If a size is not an integer or is too small, or `random_state` is not a seed.

    References
    ----------
    Structure: Banos et al., "mHealthDroid: a novel framework for agile development of mobile health
    applications", IWAAL 2014, as used by Severson, Ghosh and Ng, arXiv:1811.06094, Section 4.3. All
    numbers are simulated, and the data contain no recordings.

    Examples
    --------
    >>> from contrast_core.datasets import make_motion_sensors
    >>> data = make_motion_sensors(100, 80)
    >>> data.foreground.shape, data.feature_names[-1]
    ((100, 23), 'arm magnetometer z')
    """
    n = check_count(n_foreground, "n_foreground", at_least=2)
    m = check_count(n_background, "n_background", at_least=2)
    rng = check_generator(random_state)
    shared = 0.8 * rng.standard_normal((5, 23))
    lengths = np.repeat([0.8, 0.4, 0.6, 0.0], [9, 2, 6, 6])
    directions = 2 * np.pi * rng.random(23)
    salient = lengths * np.array([np.cos(directions), np.sin(directions)])
    labels = np.arange(n) % 2
    moved = rng.standard_normal((n, 2)) * [0.5, 1.0] + np.outer(2 * labels - 1, [1.0, 0.0])
    foreground, background = (
        rng.standard_normal((size, 5)) @ shared + rng.standard_normal((size, 23)) for size in (n, m)
    )
    places = {"accelerometer": ("chest", "ankle", "arm")}
    names = [
        f"{place} {sensor} {axis}"
        for sensor in ("accelerometer", "gyroscope", "magnetometer")
        for place in places.get(sensor, ("ankle", "arm"))
        for axis in "xyz"
    ]
    return ContrastData(
        foreground + moved @ salient,
        background,
        labels,
        feature_names=(*names[:9], "ECG 1", "ECG 2", *names[9:]),
        description="Two simulated activities that 17 of 23 sensor channels show.",
    )


def make_sparse_groups(
    n_foreground: int = 600,
    n_background: int = 600,
    *,
    random_state: int | np.random.Generator | None = 0,
) -> ContrastData:
    """Simulate four groups that differ in 30 of 500 features, while all other features vary more.

    All rows have noise N(0, 1) in every feature. Ten factors act on the features 31 to 500, with
    the same loadings in both datasets. On average, they add a variance of nine to each of these
    features. In the foreground, the means of the features 1 to 30 differ between the groups:

    =====  =============  ==============
    label  features 1-15  features 16-30
    =====  =============  ==============
    0      -0.72          -0.04
    1      -0.04          -0.72
    2      0.04           0.72
    3      0.72           0.04
    =====  =============  ==============

    No single feature separates the groups. The loadings of contrastive PCA are so noisy that some
    of the features 31 to 500 get larger loadings than some of the features 1 to 30.

    Parameters
    ----------
    n_foreground, n_background : int, default=600
        Number of rows of each dataset, at least 4 in the foreground and 2 in the background.
    random_state : int, Generator or None, default=0
        Seed of the draw. The same integer gives the same data on every machine, up to rounding.

    Returns
    -------
    ContrastData
        `foreground` (n_foreground, 500) and `background` (n_background, 500) hold the rows.
        `labels` (n_foreground,) repeats the integers 0 to 3 in turn.

    Raises
    ------
    TypeError, ValueError
        If a size is not an integer or is too small, or `random_state` is not a seed.

    Examples
    --------
    >>> from contrast_core.datasets import make_sparse_groups
    >>> make_sparse_groups(100, 80).background.shape
    (80, 500)
    """
    n = check_count(n_foreground, "n_foreground", at_least=4)
    m = check_count(n_background, "n_background", at_least=2)
    rng = check_generator(random_state)
    factors = rng.standard_normal((10, 470)) * (3 / np.sqrt(10))
    labels = np.arange(n) % 4
    parts = []
    for size in (n, m):
        rows = rng.standard_normal((size, 500))
        rows[:, 30:] += rng.standard_normal((size, 10)) @ factors
        parts.append(rows)
    foreground, background = parts
    means = np.array([[-0.72, -0.04], [-0.04, -0.72], [0.04, 0.72], [0.72, 0.04]])
    foreground[:, :30] += np.repeat(means[labels], 15, axis=1)
    return ContrastData(
        foreground,
        background,
        labels,
        description="Four simulated groups that differ in 30 of 500 features.",
    )


def make_toy(
    n_foreground: int = 200,
    n_background: int = 200,
    *,
    random_state: int | np.random.Generator | None = 0,
) -> ContrastData:
    """Simulate two groups in the plane, hidden along the background's direction of least variance.

    All rows are normal with covariance [[2.7, 2.6], [2.6, 2.7]]. The background has mean 0. The
    first half of the foreground (label 0) has mean (-1, 1), and the rest (label 1) has mean
    (1, -1). PCA finds the direction (1, 1), along which both datasets vary most. With enough
    contrast, the component turns by nearly 90 degrees to the line through the two means.

    Parameters
    ----------
    n_foreground, n_background : int, default=200
        Numbers of rows, at least 2. If `n_foreground` is odd, label 0 has one more row.
    random_state : int, Generator or None, default=0
        Seed of the draw. The same integer gives the same data on every machine, up to rounding.

    Returns
    -------
    ContrastData
        `foreground` (n_foreground, 2) and `background` (n_background, 2) hold the rows. `labels`
        (n_foreground,) holds the group of each foreground row.

    Raises
    ------
    TypeError, ValueError
        If a size is not an integer of at least 2, or `random_state` is not a seed.

    References
    ----------
    Li D, Jones A, Engelhardt B. Probabilistic contrastive principal component analysis.
    arXiv:2012.07977, Section 6.1. The data are simulated anew and differ from the authors' file.

    Examples
    --------
    >>> from contrast_core.datasets import make_toy
    >>> make_toy(50, 30).foreground.shape
    (50, 2)
    """
    n = check_count(n_foreground, "n_foreground", at_least=2)
    m = check_count(n_background, "n_background", at_least=2)
    rng = check_generator(random_state)
    # `multivariate_normal` is not used, because it computes a singular value decomposition, whose
    # signs may differ between builds of LAPACK. The Cholesky factor is unique.
    factor = np.linalg.cholesky(np.array([[2.7, 2.6], [2.6, 2.7]]))
    labels = np.repeat([0, 1], [n - n // 2, n // 2])
    means = np.array([[-1.0, 1.0], [1.0, -1.0]])[labels]
    return ContrastData(
        means + rng.standard_normal((n, 2)) @ factor.T,
        rng.standard_normal((m, 2)) @ factor.T,
        labels,
        description="Two simulated groups in the plane (Li et al., arXiv:2012.07977, Section 6.1).",
    )
