"""A callback for Lightning: each training step is a span, with its epoch, rank and, by option, its loss."""

from ingero import spans

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    try:
        from pytorch_lightning.callbacks import Callback
    except ImportError:
        Callback = object


class StepSpans(Callback):
    """loss: also send the loss. Reading it waits for the device, so it is off by default."""

    def __init__(self, loss=False, every=1, writer=None):
        self._loss = loss
        self._every = max(1, int(every))
        self._writer = writer
        self._step = None
        self._phase = None

    def on_train_epoch_start(self, trainer, module):
        self._end_phase()
        self._phase = spans.phase(f"epoch-{trainer.current_epoch}", writer=self._writer, epoch=trainer.current_epoch)
        self._phase.__enter__()

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if batch_idx % self._every:
            return
        labels = {"epoch": trainer.current_epoch, "rank": getattr(trainer, "global_rank", None)}
        self._step = spans.step(trainer.global_step, writer=self._writer, **labels)
        self._step.__enter__()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        step, self._step = self._step, None
        if step is None:
            return
        if self._loss:
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            try:
                step.value(loss=float(loss))
            except Exception:
                pass
        step.end()

    def on_train_epoch_end(self, trainer, module):
        self._end_phase()

    def on_exception(self, trainer, module, exception):
        step, self._step = self._step, None
        if step is not None:
            step.end(type(exception).__name__)
        self._end_phase()

    def _end_phase(self):
        phase, self._phase = self._phase, None
        if phase is not None:
            phase.end()
