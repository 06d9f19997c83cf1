// RUN: espalier-opt --verify-diagnostics --expand-schedule %s

// expected-error@+1 {{needs 1 stages, which assign-stages makes, got 0}}
module attributes {dist.mesh = #dist.mesh<pp = 1>, exec.plan = {stages = [{layers = 0 : i64}]}, exec.queues = ["compute", "to_device"],
                   model.runs = [{kind = "embed", count = 1 : i64}, {kind = "embed", count = 1 : i64}]} {
  exec.segment "embed" attributes {gradient_bytes = 0 : i64, parameter_bytes = 0 : i64, state_bytes = 0 : i64} {
  }
  exec.entry "train_step" {finds = [], micro_batches = 1 : i64, writes = []}
  exec.transfer "tok" "copy" on "to_device" {from = [], to = []}
}
