"""The contenders of the scoreboard: Sluice and the libraries, with their precisions and tasks."""

from dataclasses import dataclass

from company import TASKS, Task

# `tei` is onnxruntime with batches by TEI's rule.
PRECISIONS = {
    "sluice": ("f32", "bf16", "int8"),
    "pytorch": ("f32", "bf16"),
    "onnxruntime": ("f32", "int8"),
    "tei": ("f32",),
    "openvino": ("f32", "bf16", "int8"),
    "ctranslate2": ("f32", "int8"),
    "llama_cpp": ("f32", "q8_0"),
}
# The tasks that an engine cannot do, with the reason.
DOES_NOT = {
    ("onnxruntime", "text"): "it computes graphs; the generation loop is in another package",
    ("openvino", "text"): "it computes graphs; the generation loop is in another package",
    ("tei", "score"): "TEI serves only encoders",
    ("tei", "text"): "TEI serves only encoders",
}


# The names of all contenders, in the order of tables.
NAMES = [f"{engine} {precision}" for engine, precisions in PRECISIONS.items()
         for precision in precisions]


@dataclass(frozen=True)
class Arm:
    """A contender at one task."""

    task: Task
    engine: str
    precision: str

    @property
    def name(self) -> str:
        return f"{self.engine} {self.precision}"

    @property
    def does_not(self) -> str:
        """The reason why the engine cannot do the task; empty if it can."""
        return DOES_NOT.get((self.engine, self.task.name), "")


def arms(tasks: list[str], only: list[str] | None) -> list[Arm]:
    """Returns the arms of these tasks; with `only`, those whose names contain one of its words."""
    made = [Arm(TASKS[task], engine, precision) for task in tasks
            for engine, precisions in PRECISIONS.items() for precision in precisions]
    return [arm for arm in made if not only or any(word in arm.name for word in only)]
