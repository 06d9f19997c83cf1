#!/usr/bin/env python3
"""Tiny transformers models with low-rank adapters of peft: an oracle for pet_config and for files of adapters.

    peft_reference.py                        writes peft.json and gradients/NAME_adapters beside this file
    peft_reference.py --write DIR NAME       saves the adapters of the model NAME, in float32
    peft_reference.py --check DIR NAME       loads the adapters in DIR and compares their loss with that in peft.json

Needs torch, transformers and peft. The models and their weights are those of transformers_reference.py; the adapters'
matrices are values of the same formula, by their names in peft's file. Each entry of peft.json has the arguments of
LoraConfig, the mean loss in float64 of the first batch, the losses of the first steps of AdamW, and the loss after
merge_and_unload. gradients/NAME_adapters has the gradients of the first batch's loss, as peft names the adapters.
"""
import json
import pathlib
import sys

import peft
import safetensors.torch
import torch
import transformers

from transformers_reference import finetune_losses, formula, loss_of, mean_loss, model_of

ADAPTERS = {
    "llama": {"r": 3, "lora_alpha": 6, "target_modules": ["q_proj", "v_proj", "o_proj", "down_proj"]},
    "gpt2": {"r": 2, "lora_alpha": 5, "target_modules": ["c_attn", "mlp.c_proj"], "fan_in_fan_out": True},
    # kv_a_proj_with_mqa and kv_b_proj are two products each: latents and rotary keys, keys and values.
    "deepseek_v3": {"r": 3, "lora_alpha": 6, "target_modules": ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa",
                                                               "kv_b_proj", "o_proj"]},
}


def file_name(name):
    """Returns the name of a trained parameter in peft's file."""
    return name.replace(".default", "")


def trained(model):
    return {file_name(name): parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def base_of(name):
    file = pathlib.Path(__file__).with_name("transformers.json")
    return model_of(json.loads(file.read_text())[name]["config"])


def adapted(name):
    """Returns the model with adapters from the formula."""
    model = peft.get_peft_model(base_of(name), peft.LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0,
                                                               **ADAPTERS[name]))
    for parameter_name, parameter in trained(model).items():
        parameter.data = formula(parameter_name, parameter.shape)
    return model


def gradients_of(model):
    mean_loss(model).backward()
    return {name: parameter.grad.float().contiguous() for name, parameter in trained(model).items()}


def main():
    file = pathlib.Path(__file__).with_name("peft.json")
    if len(sys.argv) > 1:
        action, folder, name = sys.argv[1:]
        if action == "--write":
            adapted(name).float().save_pretrained(folder)
            return
        loss, golden = loss_of(peft.PeftModel.from_pretrained(base_of(name), folder)), json.loads(file.read_text())[name]
        print(f"{folder}: peft {peft.__version__} loses {loss:.9f}, golden {golden['loss']:.9f}")
        sys.exit(0 if abs(loss - golden["loss"]) <= 1e-7 * golden["loss"] else f"{folder}: differs")
    entries = {"made_by": f"peft_reference.py with peft {peft.__version__}, transformers {transformers.__version__}, "
                          f"torch {torch.__version__}"}
    for name, arguments in ADAPTERS.items():
        entries[name] = {"adapter": arguments, "loss": loss_of(adapted(name)),
                         "finetune": finetune_losses(adapted(name)),
                         "merged": loss_of(adapted(name).double().merge_and_unload())}
        gradients = pathlib.Path(__file__).with_name("gradients") / f"{name}_adapters" / "adapter_model.safetensors"
        gradients.parent.mkdir(parents=True, exist_ok=True)
        safetensors.torch.save_file(gradients_of(adapted(name)), gradients, {"format": "pt"})
    file.write_text(json.dumps(entries, indent=1) + "\n")


if __name__ == "__main__":
    main()
