"""The section of the dock that exports results, reuses models, and writes a Python script."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from magicgui.widgets import PushButton, show_file_dialog
from psygnal import Signal
from qtpy.QtWidgets import QApplication

from napari_plugin._files import export
from napari_plugin._layers import calibration_of
from napari_plugin._parts import Section, row
from napari_plugin._results import Results
from napari_plugin._runner import Job
from napari_plugin._saved import ENDING, apply_to_folder, as_python, load_model, save_model
from napari_plugin._solve import Solution

_IMAGES = "OME-TIFF or OME-Zarr (*.ome.tif *.ome.zarr)"
_MODELS = f"Model (*{ENDING})"


class Reuse(Section):
    """Buttons that write results and models, and apply saved models.

    Parameters
    ----------
    results : Results
        The layers of the last run.
    """

    begun = Signal(object)
    """Signal with a `Job` that the dock is to run in its thread."""
    said = Signal(str)
    """Signal with a message for the status line."""
    failed = Signal(object)
    """Signal with an exception that the dock explains to the user."""
    loaded = Signal(object)
    """Signal with the file of the model that was loaded, or None if the model was unloaded."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self.path: Path | None = None
        """File of the loaded model. If it is None, every run fits a model."""
        self.export = PushButton(
            text="Export…", tooltip="Write the result as .ome.tif or .ome.zarr"
        )
        self.script = PushButton(text="Copy as Python", tooltip="A script that repeats this run")
        self.save = PushButton(text="Save model…")
        self.load = PushButton(
            text="Load model…",
            tooltip="Apply a saved model to other images, which need no background",
        )
        self.folder = PushButton(text="Apply to folder…")
        # Two buttons in a row also fit if the font is large.
        rows = [row(self.export, self.script), row(self.save, self.load), self.folder]
        super().__init__("Reuse", rows, labels=False)
        self.export.changed.connect(self._on_export)
        self.script.changed.connect(self._on_script)
        self.save.changed.connect(self._on_save)
        self.load.changed.connect(self._on_load)
        self.folder.changed.connect(self._on_folder)

    def show_what_applies(self, busy: bool) -> None:
        """Enable the buttons that can be used now."""
        for button in (self.export, self.script, self.save):
            button.enabled = bool(self._results.shown) and not busy
        self.load.enabled = self.folder.enabled = not busy

    def saved(self, shape: tuple[int, ...]) -> Solution | None:
        """Return the loaded model for images of this shape, or None if no model is loaded."""
        return None if self.path is None else load_model(self.path, shape)

    def _on_export(self) -> None:
        layer = self._results.current.layers["denoised"]
        path = self.ask("w", "Export the result", f"{layer.name}.ome.tif", _IMAGES)
        if path is not None:
            run = partial(export, layer.data, path, calibration_of(layer))
            done = partial(self.said.emit, f"Written to {path}.")
            self.begun.emit(Job(run, lambda _: done(), self.failed.emit))

    def _on_script(self) -> None:
        outcome = self._results.current.outcome
        text = "A script that repeats this run is on the clipboard."
        if outcome.task.saved is None:
            script = as_python(outcome.task.pair, outcome.solution)
            QApplication.clipboard().setText(script)
        else:
            text = "No script can be made, because the result comes from a saved model."
        self.said.emit(text)

    def _on_save(self) -> None:
        solution = self._results.current.outcome.solution
        path = self.ask("w", "Save the model", f"background{ENDING}", _MODELS)
        if path is None:
            return
        try:
            path, live = save_model(solution, path)
        except OSError as error:
            self.failed.emit(error)
            return
        text = f'Saved as {path.name}. The button "Load model" applies it to other images.'
        if solution.is_live and not live:
            text += " Its suppression cannot be changed later, because its frames are too large."
        self.said.emit(text)

    def _on_load(self) -> None:
        if self.path is not None:
            self.set_path(None)
            self.said.emit("The saved model is unloaded; choose a background.")
        else:
            kinds = f"{_MODELS};;All files (*)"
            self.set_path(self.ask("r", "Load a model", "", kinds))

    def set_path(self, path: Path | None) -> None:
        """Apply this saved model from now on; if `path` is None, fit models again."""
        self.path = path
        self.load.text = "Load model…" if path is None else "Unload model"
        self.loaded.emit(path)

    def _on_folder(self) -> None:
        if self.path is None:
            self.said.emit(
                "No model is loaded. Save a model and load it; then it can be applied to every "
                "image of a folder."
            )
            return
        source = self.ask("d", "Folder of images")
        target = source and self.ask("d", "Folder for the results")
        if source is None or target is None:
            return

        def done(failures: tuple[str, ...]) -> None:
            text = f"Done: the results are in {target}."
            if failures:
                text = "\n\n".join([f"Done, except for {len(failures)} files:", *failures])
            self.said.emit(text)

        run = partial(apply_to_folder, self.path, source, target)
        self.begun.emit(Job(run, done, self.failed.emit))

    def ask(self, mode: str, title: str, name: str = "", kinds: str = "") -> Path | None:
        """Ask the user for a file or folder; return None if the dialog was cancelled.

        Parameters
        ----------
        mode : {"r", "w", "d"}
            Whether the path of a file to read, of a file to write or of a folder is wanted.
        title : str
            Title of the dialog.
        name, kinds : str
            For files: the suggested name, and the kinds of files that are listed.
        """
        found = show_file_dialog(mode, title, name, kinds, self.native)
        return Path(found) if found else None
