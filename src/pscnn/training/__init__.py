"""The engine: settings, one objective, runs, fitting. It knows no task. Needs the extra ``training``."""

from pscnn._extras import require

for _module in ("yaml", "filelock"):
    require(_module, "training", "Training")

from pscnn.training._environment import environment, precision
from pscnn.training._export import answers, export_run
from pscnn.training._fit import evaluate, train
from pscnn.training._gpu import Watch, gpu_is_used, shared_gpu, usual_workers
from pscnn.training._graph import GraphedStep, prepare
from pscnn.training._learner import Classification, Data, Learner, Supervised
from pscnn.training._place import choose_device, suitable_threads, wake
from pscnn.training._run import (
    RunError,
    Trained,
    check_environment,
    check_result,
    diverged,
    history,
    last_epoch,
    load,
    read_confusion,
    read_environment,
    read_result,
    read_task,
    trained_for_a_time,
    write_arrays,
)
from pscnn.training._runner import check_engine, run_missing
from pscnn.training._settings import ConfigError, Option, Settings, TrainerSettings, setting
from pscnn.training._stacked import fit_stacked, refresh_statistics
from pscnn.training._store import Store, new_folder, run_lock, run_name, start
from pscnn.training._targets import Target, target_of
from pscnn.training._task import Metric, Objective, Task, make_settings, task_names, task_of, task_type
from pscnn.training._timed import train_for, trial_loss
from pscnn.training._workers import processes
from pscnn.training._yaml import read_yaml

__all__ = [
    "Classification",
    "ConfigError",
    "Data",
    "GraphedStep",
    "Learner",
    "Metric",
    "Objective",
    "Option",
    "RunError",
    "Settings",
    "Store",
    "Supervised",
    "Target",
    "Task",
    "Trained",
    "TrainerSettings",
    "Watch",
    "answers",
    "check_engine",
    "check_environment",
    "check_result",
    "choose_device",
    "diverged",
    "environment",
    "evaluate",
    "export_run",
    "fit_stacked",
    "gpu_is_used",
    "history",
    "last_epoch",
    "load",
    "make_settings",
    "new_folder",
    "precision",
    "prepare",
    "processes",
    "read_confusion",
    "read_environment",
    "read_result",
    "read_task",
    "read_yaml",
    "refresh_statistics",
    "run_lock",
    "run_missing",
    "run_name",
    "setting",
    "shared_gpu",
    "start",
    "suitable_threads",
    "target_of",
    "task_names",
    "task_of",
    "task_type",
    "train",
    "train_for",
    "trained_for_a_time",
    "trial_loss",
    "usual_workers",
    "wake",
    "write_arrays",
]
