"""The section of the dock for files: export, models saved and loaded, whole folders, a script."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from magicgui.widgets import PushButton
from psygnal import Signal
from qtpy.QtWidgets import QApplication, QFileDialog

from napari_plugin._copy import as_python
from napari_plugin._export import export
from napari_plugin._layers import calibration_of
from napari_plugin._parts import Section, row
from napari_plugin._results import Results
from napari_plugin._runner import Work
from napari_plugin._saved import ENDING, apply_to_folder, load_model, save_model
from napari_plugin._settings import InputError
from napari_plugin._solve import Solution

_IMAGES = "OME-TIFF (*.ome.tif);;OME-Zarr (*.ome.zarr)"
_MODELS = f"Model (*{ENDING})"


class Reuse(Section):
    """Buttons that write results and models, and apply saved models.

    Parameters
    ----------
    results : Results
        The layers of the last run.
    """

    begun = Signal(object)
    """A `Work` is to be done."""
    said = Signal(str)
    """Something was done, in words."""
    failed = Signal(object)
    """An exception, for the dock to explain."""
    loaded = Signal(object)
    """The file of a model, or None if it was unloaded."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self.path: Path | None = None
        """The file of the loaded model."""
        self.export = PushButton(text="Export…", tooltip="As OME-TIFF or OME-Zarr, with its scale")
        self.script = PushButton(text="Copy as Python", tooltip="A script that does the same")
        self.save = PushButton(text="Save model…")
        self.load = PushButton(
            text="Load model…", tooltip="Apply it to other images, without a background"
        )
        self.folder = PushButton(text="Apply to folder…")
        super().__init__(
            "Reuse",
            # in pairs, which fit in larger fonts too
            [row(self.export, self.script), row(self.save, self.load), self.folder],
            labels=False,
        )
        for button, slot in (
            (self.export, self._on_export),
            (self.script, self._on_script),
            (self.save, self._on_save),
            (self.load, self._on_load),
            (self.folder, self._on_folder),
        ):
            button.changed.connect(slot)

    def show_what_applies(self, result: bool, busy: bool) -> None:
        """Enable what can be done with a result, and what can be begun."""
        for button in (self.export, self.script, self.save):
            button.enabled = result and not busy
        self.load.enabled = self.folder.enabled = not busy

    def saved(self, shape: tuple[int, ...]) -> Solution | None:
        """Return the loaded model for images of a shape."""
        return None if self.path is None else load_model(self.path, shape)

    def _on_export(self) -> None:
        layer = self._results.denoised
        path = self.ask_for_file("Export the result", f"{layer.name}.ome.tif", _IMAGES)
        if path is None:
            return
        self.begun.emit(
            Work(
                partial(export, layer.data, path, calibration_of(layer)),
                lambda written: self.said.emit(f"Written to {written}."),
                partial(self._fail, path),
                "Exporting",
            )
        )

    def _fail(self, path: Path, error: Exception) -> None:
        if isinstance(error, OSError):
            why = error.strerror or error
            error = InputError(f"{path.name} could not be written: {why}. Choose another folder.")
        self.failed.emit(error)

    def _on_script(self) -> None:
        outcome = self._results.outcome
        if outcome is None:
            return
        if outcome.task.saved is not None:
            self.said.emit("A saved model was applied; the script that made it is not known.")
            return
        text = as_python(outcome.task.pair, outcome.solution, self._results.sources())
        QApplication.clipboard().setText(text)
        self.said.emit("A script that does the same is on the clipboard.")

    def _on_save(self) -> None:
        outcome = self._results.outcome
        path = self.ask_for_file("Save the model", f"background{ENDING}", _MODELS)
        if path is None or outcome is None:
            return
        try:
            path, live = save_model(outcome.solution, path)
        except OSError as error:
            self._fail(path, error)
            return
        text = f"Saved as {path.name}. Load model applies it to other images."
        if outcome.solution.is_live and not live:
            text += " Its suppression stays as it is, for its frames are too large to be kept."
        self.said.emit(text)

    def _on_load(self) -> None:
        if self.path is not None:
            self.unload()
            self.said.emit("The saved model is unloaded; choose a background.")
            return
        self.path = self.ask_for_existing("Load a model", f"{_MODELS};;All files (*)")
        if self.path is not None:
            self.load.text = "Unload model"
            self.loaded.emit(self.path)

    def unload(self) -> None:
        """Go back to models that are fitted."""
        self.path, self.load.text = None, "Load model…"
        self.loaded.emit(None)

    def _on_folder(self) -> None:
        if self.path is None:
            self.said.emit(
                "Choose a saved model first (Save model, then Load model); it is applied to every "
                "image of a folder."
            )
            return
        source = self.ask_for_folder("Folder of images")
        target = None if source is None else self.ask_for_folder("Folder for the results")
        if source is None or target is None:
            return

        def done(failures: tuple[str, ...]) -> None:
            text = f"Done: the results are in {target}."
            if failures:
                text = "\n\n".join([f"Done, except for {len(failures)}:", *failures])
            self.said.emit(text)

        run = partial(apply_to_folder, self.path, source, target)
        self.begun.emit(Work(run, done, self.failed.emit, "Processing the folder"))

    def ask_for_file(self, title: str, name: str, kinds: str) -> Path | None:
        """Ask for a file to be written."""
        text, kind = QFileDialog.getSaveFileName(self.native, title, name, kinds)
        if text and ".ome.zarr" in kind and not text.endswith("zarr"):
            text = text.removesuffix(".ome.tif") + ".ome.zarr"
        return Path(text) if text else None

    def ask_for_existing(self, title: str, kinds: str) -> Path | None:
        """Ask for a file to be read."""
        text, _ = QFileDialog.getOpenFileName(self.native, title, "", kinds)
        return Path(text) if text else None

    def ask_for_folder(self, title: str) -> Path | None:
        """Ask for a folder."""
        text = QFileDialog.getExistingDirectory(self.native, title)
        return Path(text) if text else None
