"""The methods beside cPCA, and what is done with their results."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scanpy as sc
import scipy.sparse as sp
from anndata import AnnData
from matplotlib import pyplot as plt
from sklearn.metrics import silhouette_score

import scanpy_ext as cx
from contrast_core import (
    CLVM,
    CPCA,
    PCPCA,
    bootstrap_stability,
