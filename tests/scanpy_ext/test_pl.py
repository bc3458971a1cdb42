"""Plots: what is in them, and that they leave nothing behind."""

from __future__ import annotations

from itertools import pairwise

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from matplotlib import pyplot as plt

import scanpy_ext as cx

REFERENCE = {"groupby": "condition", "reference": "ctrl"}


@pytest.fixture(autouse=True)
def _nothing_left_behind():
    """No open figure, no changed setting: before the test closes what it was handed."""
    settings = dict(mpl.rcParams)
    assert not plt.get_fignums()
    yield
    assert not plt.get_fignums()
    assert dict(mpl.rcParams) == settings


@pytest.fixture
def done(cells):
    cx.tl.cpca(cells, **REFERENCE, mask_var=np.arange(12) < 8)
    cx.tl.cpca_path(cells, **REFERENCE)
    return cells


def close(axes):
    plt.close(axes[0].figure)


def test_path_has_a_panel_per_representative(done):
    axes = cx.pl.cpca_path(done, color="condition", show=False)
    alphas = done.uns["cpca_path"]["alphas"][done.uns["cpca_path"]["representatives"]]
    titles = [f"alpha = {alpha:.3g}" for alpha in alphas[1:]]
    assert [ax.get_title() for ax in axes] == ["PCA (alpha = 0)", *titles]
    for i, ax in enumerate(axes):
        drawn = np.concatenate(
            [dots.get_offsets() for dots in ax.collections if dots.get_offsets().size]
        )
        expected = done.obsm[f"X_cpca_path_{i}"]
        for cell in expected[:5]:
            assert np.isclose(drawn, cell, rtol=1e-5).all(axis=1).any()
    assert [ax.get_legend() is not None for ax in axes] == [*[False] * (len(axes) - 1), True]
    close(axes)


def test_path_has_a_row_per_colour(done):
    axes = cx.pl.cpca_path(done, color=["condition", "depth", "gene1"], show=False, size=20)
    assert len(axes) == 3 * len(done.uns["cpca_path"]["representatives"])
    assert axes[0].get_title() == "condition, PCA (alpha = 0)"
    assert axes[-1].get_title().startswith("gene1, alpha = ")
    axes[0].figure.canvas.draw()
    close(axes)
    close(cx.pl.cpca_path(done, show=False))


def test_path_reads_what_key_added_named(done):
    cx.tl.cpca_path(done, **REFERENCE, key_added="mine", n_representatives=2)
    axes = cx.pl.cpca_path(done, color="condition", key="mine", show=False)
    assert len(axes) == len(done.uns["mine"]["representatives"])
    close(axes)


def test_saving_writes_the_file_and_closes(done, tmp_path):
    assert cx.pl.cpca_path(done, color="condition", save=tmp_path / "path.png") is None
    assert cx.pl.loadings(done, save=str(tmp_path / "loadings.pdf")) is None
    assert (tmp_path / "path.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "loadings.pdf").read_bytes().startswith(b"%PDF")
    axes = cx.pl.loadings(done, save=tmp_path / "again.png", show=False)
    assert (tmp_path / "again.png").exists()
    close(axes)


@pytest.fixture
def autoshow():
    before = sc.settings.autoshow
    yield
    sc.settings.autoshow = before


@pytest.mark.usefixtures("autoshow")
def test_showing_follows_scanpys_setting(done, monkeypatch):
    shown = []
    monkeypatch.setattr(plt, "show", lambda: shown.append(len(plt.get_fignums())))
    sc.settings.autoshow = True
    assert cx.pl.cpca_path(done) is None
    assert cx.pl.loadings(done, show=True) is None
    assert shown == [1, 2]
    sc.settings.autoshow = False
    cx.pl.cpca_path(done)
    assert shown == [1, 2]
    plt.close("all")


def test_loadings_are_the_largest_with_their_signs(done):
    axes = cx.pl.loadings(done, n_points=5, show=False)
    assert [ax.get_title() for ax in axes] == ["component 1", "component 2"]
    for i, ax in enumerate(axes):
        loading = done.varm["PCs_cpca"][:, i]
        names = [label.get_text() for label in ax.get_yticklabels()]
        drawn = [bar.get_width() for bar in ax.patches]
        assert set(names) == set(done.var_names[np.argsort(-np.abs(loading))[:5]])
        assert drawn == sorted(drawn)
        np.testing.assert_allclose(drawn, loading[done.var_names.get_indexer(names)])
    close(axes)


def test_genes_without_a_part_are_not_drawn(done):
    axes = cx.pl.loadings(done, components=[2], n_points=12, show=False)
    assert len(axes) == 1
    assert len(axes[0].patches) == 8
    close(axes)


def test_scanpy_plots_the_embedding(done):
    ax = sc.pl.embedding(done, basis="cpca", color="condition", show=False)
    assert ax.get_xlabel() == "cpca1"
    plt.close(ax.figure)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a: cx.pl.cpca_path(a, key="other"), "no result .other. of scanpy_ext.tl.cpca_path"),
        (lambda a: cx.pl.cpca_path(a, color="nope"), "'nope' is neither a gene nor a column"),
        (lambda a: cx.pl.cpca_path(a, color=[]), "color is an empty list"),
        (
            lambda a: cx.pl.loadings(a, key="PCs"),
            "no result .PCs. of .* its results are .cpca., .cpca_path.",
        ),
        (lambda a: cx.pl.loadings(a, components=[3]), "components=3: .*from 1 to 2"),
        (lambda a: cx.pl.loadings(a, components=[0]), "from 1 to 2"),
        (lambda a: cx.pl.loadings(a, components=[]), "from 1 to 2"),
        (lambda a: cx.pl.loadings(a, n_points=0), "n_points=0"),
    ],
)
def test_bad_choices_are_named(done, call, message):
    with pytest.raises(ValueError, match=message):
        call(done)


def test_a_failing_plot_closes_its_figure(done, tmp_path):
    with pytest.raises(ValueError, match="palette"):
        cx.pl.cpca_path(done, color="condition", palette="nope")
    with pytest.raises(FileNotFoundError):
        cx.pl.loadings(done, save=tmp_path / "no" / "such" / "folder.png")


def test_what_does_not_vary_is_not_stretched(done):
    rng = np.random.default_rng(0)
    flat = done.obsm["X_cpca_path_2"]
    flat[:, 1] = 3 + 1e-6 * rng.normal(size=len(flat))
    axes = cx.pl.cpca_path(done, color="condition", show=False)
    low, high = axes[2].get_ylim()
    spans = [np.ptp(done.obsm[f"X_cpca_path_{i}"]) for i in range(len(axes))]
    assert high - low > 1e-4 * max(spans)
    assert low < 3 < high
    close(axes)


def test_contrast_curve_marks_the_representatives(done):
    result = done.uns["cpca_path"]
    for component in (None, 2):
        [ax] = cx.pl.contrast_curve(done, component=component, show=False)
        curve = ax.lines[0].get_xydata()
        columns = slice(None) if component is None else slice(1, 2)
        expected = result["foreground_variance"][:, columns].sum(axis=1)
        np.testing.assert_allclose(curve[:, 1], expected)
        assert len(ax.texts) == len(result["representatives"])
        close([ax])
    with pytest.raises(ValueError, match="component=3: expected a number from 1 to 2"):
        cx.pl.contrast_curve(done, component=3)
    with pytest.raises(ValueError, match=r"no result 'x' of scanpy_ext\.tl\.cpca_path"):
        cx.pl.contrast_curve(done, key="x")


def test_scree_shows_p_values_by_donor(done):
    done.obs["donor"] = [f"d{i // 25}" for i in range(200)]
    design = {"foreground": "is_stim", "background": "is_ctrl"}
    cx.tl.significance(done, donor="donor", **design, test_kwargs={"n_resamples": 3})
    left, right = cx.pl.significance(done, show=False)
    table = done.uns["significance"]["components"]
    below = [label.get_text() for label in left.get_xticklabels()]
    assert below == [f"{i + 1}\n{p:.2g}" for i, p in enumerate(table["p_value"])]
    assert "exploratory" not in left.get_title()
    assert len(right.patches) == 4
    close([left])
    with pytest.raises(ValueError, match=r"no result 'x' of scanpy_ext\.tl\.significance"):
        cx.pl.significance(done, key="x")


CALLS = {
    "cpca_path": lambda a, **k: cx.pl.cpca_path(a, "condition", **k),
    "loadings": cx.pl.loadings,
    "contrast_curve": cx.pl.contrast_curve,
    "significance": cx.pl.significance,
    "contrast_check": cx.pl.contrast_check,
    "match_pairs": cx.pl.match_pairs,
}
N_PANELS = {
    "cpca_path": 4,
    "loadings": 2,
    "contrast_curve": 1,
    "significance": 2,
    "contrast_check": 2,
    "match_pairs": 3,
}


@pytest.fixture
def every(done):
    """Cells with all that is plotted."""
    done.obs["donor"] = [f"d{i % 8}" for i in range(200)]
    cx.tl.significance(
        done,
        donor="donor",
        **REFERENCE,
        test_kwargs={"n_resamples": 3, "n_permutations": 20, "random_state": 0},
    )
    cx.pp.contrast_check(done, **REFERENCE, donor="donor")
    cx.pp.match_pairs(done, "condition", "ctrl", n_comps=3)
    return done


@pytest.fixture
def figdir(tmp_path):
    before = sc.settings.figdir, sc.settings.autosave, sc.settings.file_format_figs
    sc.settings.figdir = tmp_path / "figures"
    yield tmp_path / "figures"
    sc.settings.figdir, sc.settings.autosave, sc.settings.file_format_figs = before


@pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")
def test_every_plot_goes_into_axes_that_are_given_or_returns_its_figure(every):
    for name, call in CALLS.items():
        figure, axes = plt.subplots(1, N_PANELS[name], squeeze=False)
        assert call(every, ax=axes.ravel() if axes.size > 1 else axes[0, 0]) == list(axes.flat)
        assert all(ax.has_data() for ax in axes.flat), name
        with pytest.raises(ValueError, match=r"ax holds 9 object\(s\), but"):
            call(every, ax=[axes[0, 0]] * 9)
        figure.canvas.draw()
        plt.close(figure)
        figure = call(every, figsize=(7, 5), return_fig=True)
        np.testing.assert_allclose(figure.get_size_inches(), (7, 5))
        plt.close(figure)


@pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")
def test_every_plot_is_saved_as_scanpy_is_set(every, figdir):
    sc.settings.file_format_figs = "svg"
    for name, call in CALLS.items():
        assert call(every, save=True) is None
        assert (figdir / f"{name}.svg").exists()
        assert call(every, save="_kang.png") is None
        assert (figdir / f"{name}_kang.png").exists()
    cx.pl.loadings(every, save="_kang")
    cx.pl.loadings(every, save=".png")
    assert {"loadings_kang.svg", "loadings.png"} <= {path.name for path in figdir.iterdir()}
    sc.settings.autosave = True
    cx.pl.cpca_path(every)
    assert (figdir / "cpca_path.svg").exists()


def test_resolution_and_size_follow_scanpys_settings(done, figdir):
    from matplotlib.image import imread

    small = cx.pl.loadings(done, return_fig=True)
    with mpl.rc_context({"font.size": 20, "savefig.dpi": 40}):
        large = cx.pl.loadings(done, return_fig=True)
        cx.pl.contrast_curve(done, save="_of_cells.png", figsize=(5, 4))
    np.testing.assert_allclose(large.get_size_inches(), 2 * small.get_size_inches())
    assert imread(figdir / "contrast_curve_of_cells.png").shape[:2] == (160, 200)
    plt.close("all")


def test_path_begins_with_pca_and_names_its_components(cells):
    cx.tl.cpca_path(cells, **REFERENCE, n_comps=4, n_representatives=2)
    n = len(cells.uns["cpca_path"]["representatives"])
    axes = cx.pl.cpca_path(cells, "condition", components="3,4", show=False)
    assert axes[0].get_title() == "PCA (alpha = 0)"
    assert [ax.get_xlabel() for ax in axes] == ["component 3"] * n
    assert [ax.get_ylabel() for ax in axes] == ["component 4"] + [""] * (n - 1)
    close(axes)
    cells.obsm["X_cpca_path_1"][:, :2] = 5.0  # a representative whose components do not vary
    axes = cx.pl.cpca_path(cells, "condition", show=False)
    assert [ax.get_xlabel() for ax in axes] == ["component 1"] * (n - 1)
    close(axes)
    axes = cx.pl.loadings(cells, components="2", key="cpca_path", level=0, show=False)
    assert [ax.get_title() for ax in axes] == ["component 2"]
    close(axes)


@pytest.mark.parametrize(
    ("components", "error", "message"),
    [
        ("1,5", ValueError, "components=5: expected a number from 1 to 2"),
        ("1;2", TypeError, "components='1;2': expected a whole number from 1 to 2"),
        ([1], ValueError, "expected two, one for each axis"),
        (2.0, TypeError, "components=2.0: expected a whole number"),
        (None, TypeError, "components=None"),
    ],
)
def test_components_of_a_path_are_two_that_are_there(done, components, error, message):
    with pytest.raises(error, match=message):
        cx.pl.cpca_path(done, components=components)


def test_a_path_of_one_component_is_refused_in_words(cells):
    cx.tl.cpca_path(cells, **REFERENCE, n_comps=1)
    with pytest.raises(ValueError, match="components=2: expected a number from 1 to 1"):
        cx.pl.cpca_path(cells, "condition")


def test_twenty_components_have_readable_p_values(done):
    table = done.uns["significance"] = {"exploratory": True, "unit": "cell"}
    values = {name: np.linspace(1, 0.1, 20) for name in ("statistic", "null_95", "stability")}
    table["components"] = pd.DataFrame(
        values | {"retention": 1.0, "exploratory_p_value": np.linspace(0.01, 1, 20)}
    )
    left, _ = cx.pl.significance(done, show=False)
    figure = left.figure
    figure.canvas.draw()
    labels = left.get_xticklabels()
    assert len(labels) == 20
    assert all(label.get_rotation() == 0 for label in labels)
    boxes = [label.get_window_extent() for label in labels]
    assert not any(a.overlaps(b) for a, b in pairwise(boxes))
    plt.close(figure)
