"""Espalier: plans, compiles and runs the training of language models.

    import espalier as ep

    plan = ep.plan("run.yaml")                    # the best plan and its alternatives; needs no device
    ep.compile("run.yaml", "run.plan")
    result = ep.run("run.plan", data="text.txt", steps=100, checkpoint="out",
                    callback=lambda step: print(step["step"], step["loss"]))
    weights = ep.Checkpoint("out")                # a mapping of names to NumPy arrays

Errors in files are :class:`InputError` with file, line and hint.
"""
from .checkpoint import Checkpoint
from .errors import DoesNotFitError, EspalierError, Finding, InputError, RunError
from .generation import Completion, generate
from .notebook import plan_html
from .planning import CompiledPlan, Explanation, Plan, WhyNot, compile, explain, plan
from .running import Metrics, RunResult, read_metrics, run

__all__ = [
    "Checkpoint", "CompiledPlan", "Completion", "DoesNotFitError", "EspalierError", "Explanation", "Finding",
    "InputError", "Metrics", "Plan", "RunError", "RunResult", "WhyNot", "compile", "explain", "generate", "plan",
    "plan_html", "read_metrics", "run",
]
