"""What the dock does with files: export, models saved and loaded, whole folders."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from magicgui.widgets import Container, PushButton, Widget
from qtpy.QtWidgets import QApplication, QFileDialog

from napari_plugin._copy import as_python
from napari_plugin._export import export
from napari_plugin._layers import calibration_of
from napari_plugin._runner import Work
from napari_plugin._saved import ENDING, apply_to_folder, load_model, save_model
from napari_plugin._settings import AUTOMATIC, InputError

if TYPE_CHECKING:
    from napari_plugin._widget import BackgroundRemoval

_IMAGES = "OME-TIFF (*.ome.tif);;OME-Zarr (*.ome.zarr)"
_MODELS = f"Model (*{ENDING})"


class FileActions(Container[Widget]):
    """Buttons below the results.

    Parameters
    ----------
    dock : BackgroundRemoval
        Whose results are written, and which says what was done.
    """

    def __init__(self, dock: BackgroundRemoval) -> None:
        self._dock = dock
        self.path: Path | None = None
        """The model that was loaded, and is applied instead of solving one."""
        self.export = PushButton(text="Export…", tooltip="As OME-TIFF or OME-Zarr, with its scale")
        self.script = PushButton(text="Copy as Python", tooltip="A script that does the same")
        self.save = PushButton(text="Save model…")
        self.load = PushButton(
            text="Load model…", tooltip="Apply it to other images, without a background"
        )
        self.folder = PushButton(text="Apply to folder…")
        super().__init__(
            widgets=[
                row(self.export, self.script),
                row(self.save, self.load),  # in pairs, which fit in larger fonts too
                self.folder,
            ],
            labels=False,
        )
        self.margins = (0, 0, 0, 0)
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

    def _on_export(self) -> None:
        layer = self._dock.results.denoised
        if layer is None:
            return
        path = self.ask_for_file("Export the result", f"{layer.name}.ome.tif", _IMAGES)
        if path is None:
            return
        self._dock.begin(
            Work(
                partial(export, layer.data, path, calibration_of(layer)),
                lambda written: self._dock.finish(f"Written to {written}."),
                partial(self._fail, path),
                "Exporting",
            )
        )

    def _fail(self, path: Path, error: Exception) -> None:
        if isinstance(error, OSError):
            why = error.strerror or error
            error = InputError(f"{path.name} could not be written: {why}. Choose another folder.")
        self._dock.fail(error)

    def _on_script(self) -> None:
        outcome, solution = self._dock.results.outcome, self._dock.results.solution
        if outcome is None or solution is None:
            return
        if outcome.task.saved is not None:
            self._dock.say_anew("A saved model was applied, of which the script is not known.")
            return
        QApplication.clipboard().setText(as_python(outcome.task.pair, solution))
        self._dock.say_anew("A script that does the same is on the clipboard.")

    def _on_save(self) -> None:
        solution = self._dock.results.solution
        path = self.ask_for_file("Save the model", f"background{ENDING}", _MODELS)
        if path is None or solution is None:
            return
        try:
            live = save_model(solution, path)
        except OSError as error:
            self._fail(path, error)
            return
        text = f"Saved as {path.name}. Load model applies it to other images."
        if solution.is_live and not live:
            text += " Its suppression stays as it is, for its frames are too large to be kept."
        self._dock.say_anew(text)

    def _on_load(self) -> None:
        choices = self._dock.choices
        if self.path is not None:
            self.path = None
            self.load.text = "Load model…"
            choices.method.enabled = choices.background.enabled = True
            self._dock.say_anew("The saved model is put away; choose a background.")
            return
        path = self.ask_for_existing("Load a model", f"{_MODELS};;All files (*)")
        if path is None:
            return
        try:
            settings = load_model(path, choices.images().shape).settings
        except InputError as error:
            self._dock.fail(error)
            return
        self.path = path
        self.load.text = "Put model away"
        if settings.method != "automatic":
            choices.advanced.value = choices.advanced.value or settings.method == "cpca_star"
            choices.method.value = settings.method
            choices.suppression.value = round(100 * AUTOMATIC)
            choices.n_components.value = settings.n_components
        choices.method.enabled = choices.background.enabled = False
        self._dock.say_anew(f"{path.name} is loaded: press Run to apply it, without a background.")

    def _on_folder(self) -> None:
        if self.path is None:
            self._dock.say_anew(
                "Choose a saved model first (Save model, then Load model); it is applied to every "
                "image of a folder."
            )
            return
        source = self.ask_for_folder("Folder of images")
        target = None if source is None else self.ask_for_folder("Folder for the results")
        if source is None or target is None:
            return

        def done(failures: tuple[str, ...]) -> None:
            if failures:
                self._dock.finish(f"Done, except for {len(failures)}:", *failures)
            else:
                self._dock.finish(f"Done: the results are in {target}.")

        steps = partial(apply_to_folder, self.path, source, target, ".ome.tif")
        self._dock.begin(Work(steps, done, self._dock.fail, "Working off the folder"))

    def ask_for_file(self, title: str, name: str, kinds: str) -> Path | None:
        """A file to be written."""
        text, kind = QFileDialog.getSaveFileName(self.native, title, name, kinds)
        if text and ".ome.zarr" in kind and not text.endswith("zarr"):
            text = text.removesuffix(".ome.tif") + ".ome.zarr"
        return Path(text) if text else None

    def ask_for_existing(self, title: str, kinds: str) -> Path | None:
        """A file to be read."""
        text, _ = QFileDialog.getOpenFileName(self.native, title, "", kinds)
        return Path(text) if text else None

    def ask_for_folder(self, title: str) -> Path | None:
        """A folder."""
        text = QFileDialog.getExistingDirectory(self.native, title)
        return Path(text) if text else None


def row(*widgets: Widget) -> Container[Widget]:
    """Widgets beside each other."""
    beside = Container[Widget](widgets=list(widgets), layout="horizontal", labels=False)
    beside.margins = (0, 0, 0, 0)
    return beside
