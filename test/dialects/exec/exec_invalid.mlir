// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifiers of the exec dialect.

// The body's argument has another type than the input.
func.func @fused_c1_argument_differs(%x: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  // expected-error @+1 {{needs a body from the inputs' types to the results' types}}
  %y = exec.fused "flat" split 1 (%x) : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  ^bb0(%a: tensor<2x4xf32, #model.dims<a, b>>):
    %z = model.constant 1.0 : tensor<f32>
    %b = model.broadcast %z : (tensor<f32>) -> tensor<2x3xf32, #model.dims<a, b>>
    exec.yield %b : tensor<2x3xf32, #model.dims<a, b>>
  }
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}

// -----

// The body yields another type than the result.
func.func @fused_c1_yield_differs(%x: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x4xf32, #model.dims<a, b>> {
  // expected-error @+1 {{needs a body from the inputs' types to the results' types}}
  %y = exec.fused "flat" split 1 (%x) : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x4xf32, #model.dims<a, b>> {
  ^bb0(%a: tensor<2x3xf32, #model.dims<a, b>>):
    exec.yield %a : tensor<2x3xf32, #model.dims<a, b>>
  }
  return %y : tensor<2x4xf32, #model.dims<a, b>>
}

// -----

// The shape is unknown.
func.func @fused_c2_unknown_shape(%x: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  // expected-error @+1 {{needs shape row, column or flat, got tile}}
  %y = exec.fused "tile" split 1 (%x) : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  ^bb0(%a: tensor<2x3xf32, #model.dims<a, b>>):
    exec.yield %a : tensor<2x3xf32, #model.dims<a, b>>
  }
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}

// -----

// The shape is unknown.
// expected-error @+1 {{needs shape row, column or flat, or parameters, got tile}}
exec.kernel @kernel_c1_unknown_shape "tile" split 1 {
^bb0(%a: tensor<2x3xf32, #model.dims<a, b>>):
  exec.yield %a : tensor<2x3xf32, #model.dims<a, b>>
}

// -----

// The plan cannot name a passing buffer without a value.
// expected-error @+1 {{needs passing buffers with a value and an element type of the plan, got #exec.buffer<region = "saved", offset = 0, bytes = 8>}}
exec.program @program_c1_no_value attributes {passing = [#exec.buffer<region = "saved", offset = 0, bytes = 8>]} {
}

// -----

// The module does not define the kernel.
exec.program @launch_c1_unknown_kernel {
  // expected-error @+1 {{needs a kernel of the module, got @absent}}
  exec.launch {kernel = @absent, buffers = [], outputs = 0, scalars = [], extent = 2, grain = 1}
}

// -----

exec.kernel @copy "flat" split 1 {
^bb0(%a: tensor<2x3xf32, #model.dims<a, b>>):
  exec.yield %a : tensor<2x3xf32, #model.dims<a, b>>
}
// The extent is 0.
exec.program @launch_c2_no_iterations {
  // expected-error @+1 {{needs a positive extent and grain, got 0 and 1}}
  exec.launch {kernel = @copy, buffers = [], outputs = 0, scalars = [], extent = 0, grain = 1}
}

// -----

exec.kernel @copy "flat" split 1 {
^bb0(%a: tensor<2x3xf32, #model.dims<a, b>>):
  exec.yield %a : tensor<2x3xf32, #model.dims<a, b>>
}
// The grain is 0.
exec.program @launch_c2_no_grain {
  // expected-error @+1 {{needs a positive extent and grain, got 2 and 0}}
  exec.launch {kernel = @copy, buffers = [], outputs = 0, scalars = [], extent = 2, grain = 0}
}

// -----

// functions.def does not have this function.
exec.program @call_c1_unknown_function {
  // expected-error @+1 {{needs a function of functions.def, got transform}}
  exec.call {function = "transform", buffers = [], types = [], sizes = array<i64>}
}

// -----

// A buffer has no type.
exec.program @call_c2_types_missing {
  // expected-error @+1 {{needs one type per buffer, got 0 for 1}}
  exec.call {function = "matmul", buffers = [#exec.buffer<region = "saved", offset = 0, bytes = 8>], types = [],
             sizes = array<i64>}
}

// -----

// A number is not a buffer.
exec.program @call_c3_no_buffer {
  // expected-error @+1 {{needs buffers, got [3]}}
  exec.call {function = "zero", buffers = [3], types = [tensor<2xf32>], sizes = array<i64: 8>}
}

// -----

// An instruction cannot start this kind of transfer.
exec.program @start_c1_unknown_kind {
  // expected-error @+1 {{needs kind all_reduce, all_gather, reduce_scatter or all_to_all, got broadcast}}
  exec.start {id = 1, kind = "broadcast", reduction = "sum", axes = ["tp"], type = f32, elements = 2,
              from = #exec.buffer<region = "saved", offset = 0, bytes = 8>,
              to = #exec.buffer<region = "saved", offset = 8, bytes = 8>}
}

// -----

// The reduction is unknown.
exec.program @start_c2_unknown_reduction {
  // expected-error @+1 {{needs reduction sum or max, got mean}}
  exec.start {id = 1, kind = "all_reduce", reduction = "mean", axes = ["tp"], type = f32, elements = 2,
              from = #exec.buffer<region = "saved", offset = 0, bytes = 8>,
              to = #exec.buffer<region = "saved", offset = 8, bytes = 8>}
}

// -----

// The preceding start has another id.
exec.program @wait_c1_nothing_started {
  exec.start {id = 1, kind = "all_reduce", reduction = "sum", axes = ["tp"], type = f32, elements = 2,
              from = #exec.buffer<region = "saved", offset = 0, bytes = 8>,
              to = #exec.buffer<region = "saved", offset = 8, bytes = 8>}
  // expected-error @+1 {{needs a start of id 2 before it}}
  exec.wait {id = 2}
}

// -----

// The epilogue is unknown.
func.func @product_c1_unknown_epilogue(%a: tensor<2x3xf32, #model.dims<a, b>>, %b: tensor<3x4xf32, #model.dims<b, c>>) -> tensor<2x4xf32, #model.dims<a, c>> {
  // expected-error @+1 {{needs an epilogue of functions.def, got none}}
  %c = exec.product "none" %a, %b : (tensor<2x3xf32, #model.dims<a, b>>, tensor<3x4xf32, #model.dims<b, c>>) -> tensor<2x4xf32, #model.dims<a, c>>
  return %c : tensor<2x4xf32, #model.dims<a, c>>
}

// -----

// The epilogue needs a bias, which is missing.
func.func @product_c2_operand_missing(%a: tensor<2x3xf32, #model.dims<a, b>>, %b: tensor<3x4xf32, #model.dims<b, c>>) -> tensor<2x4xf32, #model.dims<a, c>> {
  // expected-error @+1 {{needs 3 operands and 1 results for bias}}
  %c = exec.product "bias" %a, %b : (tensor<2x3xf32, #model.dims<a, b>>, tensor<3x4xf32, #model.dims<b, c>>) -> tensor<2x4xf32, #model.dims<a, c>>
  return %c : tensor<2x4xf32, #model.dims<a, c>>
}
