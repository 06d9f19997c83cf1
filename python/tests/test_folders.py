"""Tests what begins and ends in folders: training from a run file, conversations, conversions, imported flags."""
import numpy
import pytest

import espalier as ep
from conftest import ONE_RANK


@pytest.fixture(scope="session")
def talker(run_file, text, tmp_path_factory):
    """A checkpoint of a model of bytes."""
    folder = tmp_path_factory.mktemp("talker")
    ep.train(run_file, cluster="cpu_local:1x1", sets=ONE_RANK, data=text, steps=3, checkpoint=folder)
    return folder


def test_train_compiles_and_runs(run_file, text, trained, tmp_path):
    sets = dict(assignment.split("=") for assignment in ONE_RANK)
    result = ep.train(run_file, output=tmp_path / "kept.plan", cluster="cpu_local:1x1", sets=sets, data=text, steps=6)
    assert result.column("loss") == trained.column("loss")
    assert ep.run(tmp_path / "kept.plan", data=text, steps=2).column("loss") == trained.column("loss")[:2]


def test_sets_as_a_dict(run_file):
    as_list = ep.plan(run_file, sets=["parallel_config.model_parallel=4", "parallel_config.pipeline_stage=1"])
    as_dict = ep.plan(run_file, sets={"parallel_config.model_parallel": 4, "parallel_config.pipeline_stage": 1})
    assert as_dict.plan == as_list.plan and as_dict["tp"] == 4
    with pytest.raises(TypeError, match="dict or a list"):
        ep.plan(run_file, sets="parallel_config.model_parallel=4")


def test_plan_for_other_software_and_its_report(run_file, tmp_path):
    plan = ep.plan(run_file, cluster="h100_dgx:1x8", system="megatron_core", report=tmp_path / "report.html")
    assert "<html" in (tmp_path / "report.html").read_text()
    assert plan.step_seconds > 0
    with pytest.raises(ep.InputError, match="nothing"):
        ep.plan(run_file, system="nothing")


def test_chat_answers_in_turn(talker):
    with ep.chat(talker, tokenizer="bytes", temperature=0, max_tokens=5) as chat:
        first, second = chat.say("It was\na bright"), chat.say("cold")
    assert [first, second] == [answer.text for answer in chat.answers]
    assert all(len(answer.tokens) == 5 for answer in chat.answers)
    with ep.chat(talker, tokenizer="bytes", temperature=0, max_tokens=5) as again:
        assert again.say("It was\na bright") == first
    with pytest.raises(ValueError, match="closed"):
        chat.say("more")


def test_a_chat_that_was_killed_is_an_error(talker):
    with ep.chat(talker, tokenizer="bytes", max_tokens=5) as chat:
        chat.say("It was")
        chat._process.kill()
        with pytest.raises(ep.RunError, match="signal 9"):
            chat.say("a bright")
        with pytest.raises(ValueError, match="closed"):
            chat.say("cold")


def test_chat_of_nothing_is_an_input_error(tmp_path):
    with ep.chat(tmp_path / "nowhere") as chat, pytest.raises(ep.InputError, match="nowhere: is no folder"):
        chat.say("Hello")


def test_train_refuses_a_wrong_key(run_file, text):
    with pytest.raises(ep.InputError, match="model_parallel"):
        ep.train(run_file, data=text, sets={"parallel_config.model_paralel": 2})


def test_convert_there_and_back(trained, tmp_path):
    there = ep.convert(trained.checkpoint, tmp_path / "hf", "hf")
    assert there.fields["format"] == "hf" and there.fields["parameters"] > 0
    ep.convert(there, tmp_path / "back", "espalier")
    before, after = ep.Checkpoint(trained.checkpoint), ep.Checkpoint(tmp_path / "back")
    assert set(before) == set(after)
    for name, array in before.items():
        numpy.testing.assert_array_equal(array, after[name])
    with pytest.raises(ep.InputError, match="nowhere"):
        ep.convert(tmp_path / "nowhere", tmp_path / "out", "hf")


FLAGS = ["--num-layers", "4", "--hidden-size", "256", "--num-attention-heads", "4", "--seq-length", "128",
         "--max-position-embeddings", "128", "--micro-batch-size", "2", "--global-batch-size", "16", "--train-iters", "10",
         "--lr", "1e-4", "--vocab-size", "1024", "--tokenizer-type", "NullTokenizer", "--bf16",
         "--tensor-model-parallel-size", "2", "--transformer-impl", "local"]


def test_import_args_writes_a_run_file(tmp_path):
    imported = ep.import_args(FLAGS, tmp_path / "run.yaml", cluster="h100_dgx:1x4")
    assert imported.yaml == (tmp_path / "run.yaml").read_text()
    assert ep.plan(tmp_path / "run.yaml")["tp"] == 2
    script = tmp_path / "train.sh"
    script.write_text("torchrun pretrain_gpt.py " + " ".join(FLAGS) + "\n")
    assert ep.import_args(script, cluster="h100_dgx:1x4").yaml.splitlines()[2:] == imported.yaml.splitlines()[2:]


def test_import_args_refuses_what_it_cannot_honour():
    with pytest.raises(ep.InputError, match="no-such-flag"):
        ep.import_args([*FLAGS, "--no-such-flag", "3"], cluster="h100_dgx:1x4")
    ep.import_args([*FLAGS, "--no-such-flag", "3"], cluster="h100_dgx:1x4", ignore_flags=["no-such-flag"])


def test_losses_are_a_picture():
    metrics = ep.Metrics([{"step": i, "loss": 4.0 / i} for i in range(1, 9)] + [{"step": 9, "loss": None}],
                         [{"evaluation_after_step": 8, "evaluation_loss": 0.75}])
    page = metrics._repr_html_()
    assert page.count("<polyline") == 2 and "evaluation, step 8: 0.75" in page and "step 8" in page
    assert ep.Metrics([], [])._repr_html_() == "<p>no steps</p>"
