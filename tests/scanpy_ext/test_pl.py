"""Tests that plots show the right content and leave no open figure or changed setting."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest
import scanpy as sc
from matplotlib import pyplot as plt
from matplotlib.image import imread

import scanpy_ext as cx

REFERENCE = {"groupby": "condition", "reference": "ctrl"}


@pytest.fixture(autouse=True)
def _no_setting_changes():
    """Check that a test does not change matplotlib's settings."""
    settings = dict(mpl.rcParams)
    yield
    assert dict(mpl.rcParams) == settings


@pytest.fixture
def done(cells):
    cx.tl.cpca(cells, **REFERENCE, mask_var=np.arange(12) < 8)
    cx.tl.cpca_path(cells, **REFERENCE)
    return cells


def test_a_failing_plot_closes_its_figure(done, tmp_path):
    with pytest.raises(ValueError, match="palette"):
        cx.pl.cpca_path(done, color="condition", palette="nope")
    with pytest.raises(FileNotFoundError):
        cx.pl.loadings(done, save=tmp_path / "no" / "such" / "folder.png")
    assert not plt.get_fignums()


def test_the_path_plot_has_a_panel_per_representative_and_a_row_per_colour(done):
    cx.tl.cpca_path(done, **REFERENCE, n_comps=4, key_added="four", n_representatives=2)
    for key in ("cpca_path", "four"):
        axes = cx.pl.cpca_path(done, color="condition", key=key, show=False)
        alphas = done.uns[key]["alphas"][done.uns[key]["representatives"]]
        titles = [f"alpha = {alpha:.3g}" for alpha in alphas[1:]]
        assert [ax.get_title() for ax in axes] == ["PCA (alpha = 0)", *titles]
        for i, ax in enumerate(axes):
            offsets = [dots.get_offsets() for dots in ax.collections]
            drawn = np.concatenate([each for each in offsets if each.size])
            for cell in done.obsm["four" + f"_{i}" if key == "four" else f"X_{key}_{i}"][:5]:
                assert np.isclose(drawn, cell[:2], rtol=1e-5).all(axis=1).any()
        assert [ax.get_legend() is not None for ax in axes] == [*[False] * (len(axes) - 1), True]
    axes = cx.pl.cpca_path(done, color=["condition", "depth", "gene1"], show=False, size=20)
    assert len(axes) == 3 * len(done.uns["cpca_path"]["representatives"])
    assert axes[0].get_title() == "condition, PCA (alpha = 0)"
    assert axes[-1].get_title().startswith("gene1, alpha = ")
    axes[0].figure.canvas.draw()
    assert cx.pl.cpca_path(done, show=False)


def test_the_components_to_plot_can_be_chosen(done):
    cx.tl.cpca_path(done, **REFERENCE, n_comps=4, key_added="four", n_representatives=2)
    axes = cx.pl.cpca_path(done, "condition", key="four", components="3,4", show=False)
    assert {ax.get_xlabel() for ax in axes} == {"component 3"}
    assert [ax.get_ylabel() for ax in axes] == ["component 4"] + [""] * (len(axes) - 1)
    done.obsm["four_1"][:, :2] = [5.0, -5.0]  # both components of one representative are constant
    n_panels = len(axes)
    axes = cx.pl.cpca_path(done, "condition", key="four", show=False)
    assert [ax.get_xlabel() for ax in axes] == ["component 1"] * (n_panels - 1)
    axes = cx.pl.loadings(done, components="2", key="cpca_path", level=0, show=False)
    assert [ax.get_title() for ax in axes] == ["component 2"]
    cx.tl.cpca_path(done, **REFERENCE, n_comps=1, key_added="one")
    with pytest.raises(ValueError, match="components=2 is out of range: it must be from 1 to 1"):
        cx.pl.cpca_path(done, key="one")
    with pytest.raises(ValueError, match="expected two components to draw"):
        cx.pl.cpca_path(done, components=[1])


def test_constant_components_are_not_stretched(done):
    rng = np.random.default_rng(0)
    flat = done.obsm["X_cpca_path_2"]
    flat[:, 1] = 3 + 1e-6 * rng.normal(size=len(flat))
    axes = cx.pl.cpca_path(done, color="condition", show=False)
    low, high = axes[2].get_ylim()
    spans = [np.ptp(done.obsm[f"X_cpca_path_{i}"]) for i in range(len(axes))]
    assert high - low > 1e-4 * max(spans)
    assert low < 3 < high


def test_the_largest_loadings_are_plotted_with_their_signs(done):
    axes = cx.pl.loadings(done, n_points=5, show=False)
    assert [ax.get_title() for ax in axes] == ["component 1", "component 2"]
    for i, ax in enumerate(axes):
        loading = done.varm["PCs_cpca"][:, i]
        names = [label.get_text() for label in ax.get_yticklabels()]
        drawn = [bar.get_width() for bar in ax.patches]
        assert set(names) == set(done.var_names[np.argsort(-np.abs(loading))[:5]])
        assert drawn == sorted(drawn)
        np.testing.assert_allclose(drawn, loading[done.var_names.get_indexer(names)])
    given = plt.figure().subplots()
    [ax] = cx.pl.loadings(done, components=[2], n_points=12, ax=given)
    assert ax is given
    assert len(ax.patches) == 8  # genes with loading 0 are not drawn


def test_the_contrast_curve_marks_the_representatives(done):
    result = done.uns["cpca_path"]
    for component in (None, 2):
        [ax] = cx.pl.contrast_curve(done, component=component, show=False)
        curve = ax.lines[0].get_xydata()
        columns = slice(None) if component is None else slice(1, 2)
        expected = result["foreground_variance"][:, columns].sum(axis=1)
        np.testing.assert_allclose(curve[:, 1], expected)
        assert len(ax.texts) == len(result["representatives"])
        np.testing.assert_allclose(ax.figure.get_size_inches(), [5.0, 3.4])


@pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")
def test_the_significance_plot_shows_p_values_by_donor(analysed):
    left, right = cx.pl.significance(analysed, show=False)
    table = analysed.uns["significance"]["components"]
    below = [label.get_text() for label in left.get_xticklabels()]
    assert below == [f"{i + 1}\n{p:.2g}" for i, p in enumerate(table["p_value"])]
    assert left.get_xlabel() == "component, and its p-value"
    assert right.get_xlabel() == "component"
    np.testing.assert_array_equal(right.get_xticks(), np.arange(len(table)) + 1)
    assert "exploratory" not in left.get_title()
    assert len(right.patches) == 4


@pytest.fixture
def settings(tmp_path):
    """Yield scanpy's settings with a folder for figures, and restore them after the test."""
    names = ("figdir", "autosave", "autoshow", "file_format_figs")
    before = {name: getattr(sc.settings, name) for name in names}
    sc.settings.figdir = tmp_path / "figures"
    yield sc.settings
    for name, value in before.items():
        setattr(sc.settings, name, value)


N_PANELS = {"cpca_path": 3, "loadings": 2, "contrast_curve": 1, "significance": 2, "cvae": 1}
N_PANELS |= {"contrast_check": 2, "match_pairs": 3, "contrasts": 2}


@pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")
def test_every_plot_can_go_into_axes_a_figure_or_a_file(analysed, settings):
    settings.file_format_figs = "svg"
    for name, n_panels in N_PANELS.items():
        call = getattr(cx.pl, name)
        axes = [*plt.figure().subplots(1, n_panels, squeeze=False).flat]
        assert call(analysed, ax=axes if n_panels > 1 else axes[0]) == axes
        assert all(ax.has_data() for ax in axes), name
        with pytest.raises(ValueError, match=r"ax holds 9 object\(s\), but"):
            call(analysed, ax=axes[:1] * 9)
        figure = call(analysed, figsize=(7, 5), return_fig=True)
        np.testing.assert_allclose(figure.get_size_inches(), (7, 5))
        plt.close("all")
        assert call(analysed, save=True) is None
        assert call(analysed, save="_kang.png") is None
        assert not plt.get_fignums()
        for file in (f"{name}.svg", f"{name}_kang.png"):
            assert (settings.figdir / file).exists()


def test_where_figures_are_saved_and_when_they_are_shown(done, settings, tmp_path, monkeypatch):
    for save in ("_kang", ".png", tmp_path / "path.png", str(tmp_path / "loadings.pdf")):
        assert cx.pl.loadings(done, save=save) is None
    assert {path.name for path in settings.figdir.iterdir()} == {
        "loadings_kang.pdf",
        "loadings.png",
    }
    assert (tmp_path / "path.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "loadings.pdf").read_bytes().startswith(b"%PDF")
    cx.pl.loadings(done, save=tmp_path / "again.png", show=False)
    assert (tmp_path / "again.png").exists()
    plt.close("all")
    shown = []
    monkeypatch.setattr(plt, "show", lambda: shown.append(len(plt.get_fignums())))
    settings.autoshow = True
    assert cx.pl.cpca_path(done) is None
    assert cx.pl.loadings(done, show=True) is None
    assert shown == [1, 2]
    settings.autoshow, settings.autosave = False, True
    cx.pl.contrast_curve(done)
    assert shown == [1, 2]
    assert (settings.figdir / "contrast_curve.pdf").exists()


def test_resolution_and_size_follow_scanpys_settings(done, settings):
    small = cx.pl.loadings(done, return_fig=True)
    with mpl.rc_context({"font.size": 20, "savefig.dpi": 40}):
        large = cx.pl.loadings(done, return_fig=True)
        cx.pl.contrast_curve(done, save="_of_cells.png", figsize=(5, 4))
    np.testing.assert_allclose(large.get_size_inches(), 2 * small.get_size_inches())
    saved = imread(settings.figdir / "contrast_curve_of_cells.png")
    assert saved.shape[:2] == (160, 200)
