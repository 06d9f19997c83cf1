"""Tests runs in the Python process, metrics, checkpoints and generation."""
import json
import os
import signal
import subprocess
import threading

import numpy
import pytest

import espalier as ep
from conftest import ONE_RANK
from espalier import command


def test_losses_equal_those_of_the_command(plan_file, trained, text, tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    command.call(["run", plan_file.path, "--data", str(text), "--steps", "6", "--metrics", str(metrics)])
    assert ep.read_metrics(metrics).column("loss") == trained.column("loss")
    assert trained.column("step") == [1, 2, 3, 4, 5, 6]
    assert trained.steps[-1]["loss"] < trained.steps[0]["loss"]


def test_split_ranks_train_as_one(split_plan_file, trained, text):
    split = ep.run(split_plan_file, data=text, steps=6)
    numpy.testing.assert_allclose(split.column("loss"), trained.column("loss"), rtol=1e-4)


def test_a_plan_object_is_compiled_and_run(run_file, split_plan_file, text):
    plan = ep.plan(run_file)
    assert ep.run(plan, data=text, steps=2).column("loss") == ep.run(split_plan_file, data=text, steps=2).column("loss")


def test_callback_hears_each_step(plan_file, trained, text):
    heard = []
    ep.run(plan_file, data=text, steps=6, callback=heard.append)
    assert [step["loss"] for step in heard] == trained.column("loss")


def test_exception_of_the_callback_ends_the_run_with_its_checkpoint(plan_file, trained, text, tmp_path):
    def stop(step):
        if step["step"] == 2:
            raise LookupError("enough")
    with pytest.raises(LookupError, match="enough"):
        ep.run(plan_file, data=text, steps=6, callback=stop, checkpoint=tmp_path)
    assert ep.Checkpoint(tmp_path).step == 3  # the ranks agree on the end in the following step, which is still trained
    resumed = ep.run(plan_file, data=text, steps=6, checkpoint=tmp_path, resume=True)
    assert resumed.column("loss") == trained.column("loss")[3:]


def test_ctrl_c_ends_the_run_with_its_checkpoint(plan_file, text, tmp_path):
    heard = []

    def interrupt(step):
        heard.append(step["step"])
        if step["step"] == 2:
            os.kill(os.getpid(), signal.SIGINT)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started this one without it
    try:
        with pytest.raises(KeyboardInterrupt):
            ep.run(plan_file, data=text, steps=1000, callback=interrupt, checkpoint=tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [1, 2]
    assert ep.Checkpoint(tmp_path).step == 3


def test_a_signal_between_steps_ends_the_run(plan_file, text, tmp_path):
    class Told(Exception):
        pass

    def tell(number, frame):
        raise Told(number)
    before = signal.signal(signal.SIGUSR2, tell)
    try:
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGUSR2)).start()
        with pytest.raises(Told):
            ep.run(plan_file, data=text, steps=1000000, checkpoint=tmp_path)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert ep.Checkpoint(tmp_path).step >= 1


def test_runs_of_several_threads_at_a_time(plan_file, trained, text):
    losses = {}

    def train(number):
        losses[number] = ep.run(plan_file, data=text, steps=6).column("loss")
    threads = [threading.Thread(target=train, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert losses == {number: trained.column("loss") for number in range(3)}


def test_evaluations_follow_the_steps(plan_file, text):
    heard = []
    result = ep.run(plan_file, data=text, steps=4, eval_every=2, callback=heard.append)
    assert [line["evaluation_after_step"] for line in result.evaluations] == [2, 4]
    assert heard == result.steps


def test_errors_of_runs(plan_file, tmp_path):
    with pytest.raises(ep.InputError, match="nothing.txt") as raised:
        ep.run(plan_file, data=tmp_path / "nothing.txt")
    assert raised.value.file.endswith("nothing.txt")
    with pytest.raises(ep.InputError, match="absent.plan"):
        ep.run(tmp_path / "absent.plan", data="mock")
    with pytest.raises(ep.InputError, match="steps"):
        ep.run(plan_file, data="mock", steps=0)
    with pytest.raises(ep.InputError, match="checkpoint="):
        ep.run(plan_file, data="mock", resume=True)


def test_a_plan_of_an_unknown_signer_is_noted_or_refused(run_file, text, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "ann"))
    plan = ep.compile(run_file, tmp_path / "ann.plan", cluster="cpu_local:1x1", sets=ONE_RANK)
    ep.run(plan, data=text, steps=1, require_signed=True)
    assert "note" not in capfd.readouterr().err
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "bob"))
    ep.compile(run_file, tmp_path / "bob.plan", cluster="cpu_local:1x1", sets=ONE_RANK)
    capfd.readouterr()
    ep.run(plan, data=text, steps=1)
    assert capfd.readouterr().err.count("ann.plan: nobody known here compiled it: it is signed by a key") == 1
    with pytest.raises(ep.InputError, match="nobody known here compiled it"):
        ep.run(plan, data=text, steps=1, require_signed=True)
    (tmp_path / "ann.plan.sig").unlink()
    with pytest.raises(ep.InputError, match="there is no signature"):
        ep.run(plan, data=text, steps=1, require_signed=True)


def test_metrics_of_a_run_are_what_it_returns(trained):
    with open(trained.checkpoint.replace("checkpoints", "metrics.jsonl"), encoding="utf-8") as stream:
        lines = [json.loads(line) for line in stream]
    assert [line for line in lines if "step" in line] == trained.steps
    assert [line["checkpoint"] for line in lines if "saved_step" in line] == ["step-00000006"]


def test_damaged_metrics_have_their_line(tmp_path):
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"step": 1}\nno json\n{"step": 2}\n')
    with pytest.raises(ep.InputError) as raised:
        ep.read_metrics(file)
    assert (raised.value.file, raised.value.line) == (str(file), 2)


def test_checkpoint_is_a_mapping_of_mapped_arrays(trained):
    checkpoint = ep.Checkpoint(trained.checkpoint)
    assert checkpoint.step == 6 and checkpoint.model == "gpt2"
    total = 0
    for name, array in checkpoint.items():
        assert isinstance(array, numpy.memmap) and array.dtype == numpy.float32 and not array.flags.writeable
        assert numpy.isfinite(array).all() and array.shape == checkpoint.shape(name)
        total += array.size
    assert total == 220544
    assert set(ep.Checkpoint(trained.checkpoint, "moment1")) == set(checkpoint)
    checkpoint.verify()
    with pytest.raises(KeyError):
        checkpoint["no such parameter"]
    with pytest.raises(ep.InputError, match="moment3"):
        ep.Checkpoint(trained.checkpoint, "moment3")


def test_sharded_checkpoint_is_put_together(split_plan_file, text, tmp_path):
    ep.run(split_plan_file, data=text, steps=2, checkpoint=tmp_path / "split")
    dump = tmp_path / "parameters.safetensors"
    command.call(["run", split_plan_file.path, "--data", str(text), "--steps", "2", "--dump-parameters", str(dump)])
    content = dump.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8:8 + size])
    checkpoint = ep.Checkpoint(tmp_path / "split")
    for name, array in checkpoint.items():
        begin, end = header["2/" + name]["data_offsets"]
        assert array.tobytes() == content[8 + size + begin:8 + size + end], name


def test_damage_is_found(trained, tmp_path):
    subprocess.run(["cp", "-r", trained.checkpoint, str(tmp_path / "copy")], check=True)
    shard = next((tmp_path / "copy").glob("step-*/rank-*.safetensors"))
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    with pytest.raises(ep.InputError, match="rank-"):
        ep.Checkpoint(tmp_path / "copy").verify()


def test_generate(trained, run_file, tmp_path):
    plan = ep.compile(run_file, tmp_path / "predict.plan", cluster="cpu_local:1x1",
                      sets=[*ONE_RANK, "run_mode=predict"])
    options = {"checkpoint": trained.checkpoint, "tokenizer": "bytes", "max_tokens": 4}
    texts = ep.generate(plan, ["It was", [73, 116, 32, 119, 97, 115]], **options)
    assert texts[0].tokens == texts[1].tokens and len(texts[0].tokens) == 4
    with pytest.raises(ep.InputError, match="temperature|1e6|range"):
        ep.generate(plan, "It was", temperature=-1, **options)
