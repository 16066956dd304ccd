"""The tasks: what each one's settings, data, network, loss, metric and labels are. Needs the extra ``training``.

A task is a module of this package with a class of settings and a subclass of ``pscnn.training.Task``; its line below
makes it known to the command line, to tables and to reports. A program can add tasks of its own to ``TASKS``.
"""

TASKS = {
    "ddmnist": "pscnn.tasks.double_digits:DoubleDigits",
    "medmnist3d": "pscnn.tasks.volumes:Volumes",
    "shapes3d": "pscnn.tasks.shapes:Shapes",
    "smoke": "pscnn.tasks.flows:Smoke",
    "jetflow": "pscnn.tasks.flows:JetFlow",
    "vectors": "pscnn.tasks.vectors:Vectors",
    "symmetry": "pscnn.tasks.symmetry:Symmetry",
    "own": "pscnn.tasks.own:Own",
}
"""Module and class of every task; the module is imported when the task is asked for."""
FORMER_NAMES = {f"own-{kind}{what}": "own" for kind in ("images", "volumes") for what in ("", "-regression")}
"""What tasks were called in earlier versions."""
