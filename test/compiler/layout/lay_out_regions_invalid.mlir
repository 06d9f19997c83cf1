// RUN: espalier-opt --split-input-file --verify-diagnostics --lay-out-regions %s

// expected-error@+1 {{needs an exec.segment of kind 'block', which form-buckets lists}}
func.func @block.none.forward() {
  return
}

// -----

exec.segment "block" attributes {gradient_bytes = 0 : i64, parameter_bytes = 0 : i64, state_bytes = 0 : i64} {
}
// expected-error@+1 {{needs model.role and the model.name of something that exec.segment lists, at argument 0 of @block.none.forward}}
func.func @block.none.forward(%w: tensor<4xf32> {model.role = "parameter", model.name = "w"}) {
  return
}

// -----

exec.segment "block" attributes {gradient_bytes = 0 : i64, parameter_bytes = 0 : i64, state_bytes = 0 : i64} {
}
// expected-error@+1 {{needs model.role and the model.name of something that exec.segment lists, at result 0 of @block.none.forward}}
func.func @block.none.forward(%w: tensor<4xf32> {model.role = "stream", model.name = "x"}) -> tensor<4xf32> {
  return %w : tensor<4xf32>
}
