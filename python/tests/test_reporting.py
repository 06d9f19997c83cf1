"""Tests that metrics reach MLflow and Weights & Biases. The packages are stubs, and MLflow itself where it is installed."""
import contextlib
import json
import sys
import types

import pytest

import espalier as ep

LINES = [{"step": 1, "loss": 5.5, "grad_norm": None, "lr": 0.1}, {"step": 2, "loss": 4.5, "grad_norm": 2, "lr": 0.1}]


@pytest.fixture(autouse=True)
def native(monkeypatch):
    """The native module calls back with these lines."""
    def run(*arguments):
        for line in LINES:
            arguments[-1](json.dumps(line))
        return [json.dumps(line) for line in LINES]
    module = types.SimpleNamespace(run=run)
    monkeypatch.setitem(sys.modules, "espalier._native", module)
    monkeypatch.setattr(ep, "_native", module, raising=False)


class Service:
    """Records the calls of one service."""
    def __init__(self):
        self.logged, self.ended = [], None

    def set_tracking_uri(self, uri):
        self.uri = uri

    @contextlib.contextmanager
    def start_run(self):
        self.ended = "FAILED"
        yield self
        self.ended = "FINISHED"

    init = start_run

    def log_metrics(self, metrics, step):
        self.logged.append((step, metrics))

    log = log_metrics


@pytest.mark.parametrize("target, name", [("mlflow:http://host:1", "mlflow"), ("wandb", "wandb")])
def test_each_step_is_logged(monkeypatch, target, name):
    service, heard = Service(), []
    monkeypatch.setitem(sys.modules, name, service)
    result = ep.run("x.plan", report_to=target, callback=heard.append)
    assert service.logged == [(1, {"loss": 5.5, "lr": 0.1}), (2, {"loss": 4.5, "grad_norm": 2.0, "lr": 0.1})]
    assert service.ended == "FINISHED" and heard == LINES and result.column("loss") == [5.5, 4.5]
    assert name == "wandb" or service.uri == "http://host:1"


def test_a_failed_run_is_marked(monkeypatch):
    service = Service()
    monkeypatch.setitem(sys.modules, "mlflow", service)

    def stop(line):
        raise LookupError("enough")
    with pytest.raises(LookupError):
        ep.run("x.plan", report_to="mlflow:folder", callback=stop)
    assert service.ended == "FAILED"


def test_errors_name_the_way_out(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ep.InputError, match="needs the Python package wandb; pip install wandb"):
        ep.run("x.plan", report_to="wandb")
    for target in ("mlflow", "mlflow:", "wandb:x", "tensorboard"):
        with pytest.raises(ep.InputError, match="must be 'mlflow:URI' or 'wandb'"):
            ep.run("x.plan", report_to=target)


def test_mlflow_itself(tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed; its stub is tested above")
    uri = f"sqlite:///{tmp_path}/runs.db"
    ep.run("x.plan", report_to=f"mlflow:{uri}")
    (run,) = mlflow.MlflowClient(uri).search_runs(["0"])
    history = mlflow.MlflowClient(uri).get_metric_history(run.info.run_id, "loss")
    assert [(point.step, point.value) for point in history] == [(1, 5.5), (2, 4.5)] and run.info.status == "FINISHED"
