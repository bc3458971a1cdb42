"""Fit ContrastiveVI of scvi-tools to the cells that `cvae.py` wrote into a folder.

`cvae.py` runs this script with the Python of a separate environment that has scvi-tools.
"""

import sys
import warnings

import anndata
import numpy as np
import scipy.sparse as sp

folder = sys.argv[1]
counts, cells = sp.load_npz(f"{folder}/counts.npz"), np.load(f"{folder}/cells.npz")
used, treated = cells["used"], cells["treated"]

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import scvi

    scvi.settings.seed = 0
    scvi.settings.verbosity = 40
    everything = anndata.AnnData(counts)
    everything.obs["cell"] = np.arange(len(used)).astype(str)
    fitted = everything[used].copy()
    scvi.external.ContrastiveVI.setup_anndata(fitted)
    model = scvi.external.ContrastiveVI(fitted, n_salient_latent=2, n_background_latent=8)
    # The foreground is all cells, including the controls, as for the other methods.
    model.train(
        background_indices=np.flatnonzero(~treated[used]),
        target_indices=np.arange(used.sum()),
        max_epochs=int(min(400, max(20, 4000 * 256 // (2 * used.sum())))),
        early_stopping=True,
        enable_progress_bar=False,
        accelerator="cpu",
    )
    scores = model.get_latent_representation(everything, representation_kind="salient")
np.save(f"{folder}/scores.npy", scores)
