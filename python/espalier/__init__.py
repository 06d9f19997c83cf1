"""Espalier: plans, compiles and runs the training of language models.

    import espalier as ep

    plan = ep.plan("run.yaml")                    # the best plan and its alternatives; needs no device
    ep.compile("run.yaml", "run.plan")
    result = ep.run("run.plan", data="text.txt", steps=100, checkpoint="out",
                    callback=lambda step: print(step["step"], step["loss"]))
    weights = ep.Checkpoint("out")                # a mapping of names to NumPy arrays
    with ep.chat("out") as chat:
        print(chat.say("Hello"))

Errors in files are :class:`InputError` with file, line and hint.
"""
from .chatting import Chat, chat
from .checkpoint import Checkpoint
from .conversion import Converted, ImportedArgs, convert, import_args
from .errors import DoesNotFitError, EspalierError, Finding, InputError, RunError
from .generation import Completion, generate
from .notebook import plan_html
from .planning import CompiledPlan, Explanation, Plan, WhyNot, compile, explain, plan
from .running import Metrics, RunResult, read_metrics, run, train

__all__ = [
    "Chat", "Checkpoint", "CompiledPlan", "Completion", "Converted", "DoesNotFitError", "EspalierError", "Explanation",
    "Finding", "ImportedArgs", "InputError", "Metrics", "Plan", "RunError", "RunResult", "WhyNot", "chat", "compile",
    "convert", "explain", "generate", "import_args", "plan", "plan_html", "read_metrics", "run", "train",
]
