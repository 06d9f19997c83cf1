"""Fixtures: a small model on one rank, a text, and a trained checkpoint."""
import pathlib

import pytest

import espalier as ep

CONFIGS = pathlib.Path(__file__).resolve().parents[2] / "configs"
ONE_RANK = ["parallel_config.data_parallel=1", "parallel_config.model_parallel=1", "parallel_config.pipeline_stage=1",
            "runner_config.gradient_accumulation_steps=8"]


@pytest.fixture(scope="session")
def run_file():
    return CONFIGS / "tiny_gpt.yaml"


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    file = tmp_path_factory.mktemp("data") / "text.txt"
    file.write_text("It was a bright cold day in April, and the clocks were striking thirteen.\n" * 400)
    return file


@pytest.fixture(scope="session")
def plan_file(run_file, tmp_path_factory):
    return ep.compile(run_file, tmp_path_factory.mktemp("plan") / "one.plan", cluster="cpu_local:1x1", sets=ONE_RANK)


@pytest.fixture(scope="session")
def split_plan_file(run_file, tmp_path_factory):
    return ep.compile(run_file, tmp_path_factory.mktemp("plan") / "split.plan")


@pytest.fixture(scope="session")
def trained(plan_file, text, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    return ep.run(plan_file, data=text, steps=6, checkpoint=folder / "checkpoints", metrics=folder / "metrics.jsonl")
