// RUN: espalier-opt --split-input-file --verify-diagnostics --link-plan %s

// expected-error@+1 {{needs exec.plan with a stage for each of 2 chunks, got 0}}
module attributes {dist.mesh = #dist.mesh<pp = 2>} {
}

// -----

// expected-error@+1 {{needs model.runs with a first and a last segment, got 0}}
module attributes {dist.mesh = #dist.mesh<pp = 1>, exec.plan = {stages = [{layers = 1 : i64}]}} {
}

// -----

// expected-error@+1 {{needs an exec.segment of kind 'embed', which form-buckets lists}}
module attributes {dist.mesh = #dist.mesh<pp = 1>, exec.plan = {stages = [{layers = 0 : i64}]},
                   model.runs = [{kind = "embed", count = 1 : i64}, {kind = "head", count = 1 : i64}]} {
}
