// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifiers of element-wise ops.

// The result lacks a dimension.
func.func @neg_c1_result_of_other_dimensions(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2xf32, #model.dims<a>> {
  // expected-error @+1 {{needs a result with the operand's dimensions}}
  %y = model.neg %x0 : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2xf32, #model.dims<a>>
  return %y : tensor<2xf32, #model.dims<a>>
}

// -----

// The result lacks a dimension.
func.func @exp_c1_result_of_other_dimensions(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2xf32, #model.dims<a>> {
  // expected-error @+1 {{needs a result with the operand's dimensions}}
  %y = model.exp %x0 : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2xf32, #model.dims<a>>
  return %y : tensor<2xf32, #model.dims<a>>
}

// -----

// The result lacks a dimension.
func.func @log_c1_result_of_other_dimensions(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2xf32, #model.dims<a>> {
  // expected-error @+1 {{needs a result with the operand's dimensions}}
  %y = model.log %x0 : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2xf32, #model.dims<a>>
  return %y : tensor<2xf32, #model.dims<a>>
}

// -----

// The result lacks a dimension.
func.func @tanh_c1_result_of_other_dimensions(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2xf32, #model.dims<a>> {
  // expected-error @+1 {{needs a result with the operand's dimensions}}
  %y = model.tanh %x0 : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2xf32, #model.dims<a>>
  return %y : tensor<2xf32, #model.dims<a>>
}

// -----

// The result lacks a dimension.
func.func @gelu_c1_result_of_other_dimensions(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2xf32, #model.dims<a>> {
  // expected-error @+1 {{needs a result with the operand's dimensions}}
  %y = model.gelu %x0 : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2xf32, #model.dims<a>>
  return %y : tensor<2xf32, #model.dims<a>>
}

// -----

// An operand has a dimension that the result lacks.
func.func @gelu_grad_c1_operand_of_other_dimensions(%x0: tensor<2x3xf32, #model.dims<a, b>>, %x1: tensor<2x3xf32, #model.dims<a, c>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  // expected-error @+1 {{needs operands whose dimensions are a subsequence of the result's}}
  %y = model.gelu_grad %x0, %x1 : (tensor<2x3xf32, #model.dims<a, b>>, tensor<2x3xf32, #model.dims<a, c>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}

// -----

// The result lacks a dimension.
func.func @erf_c1_result_of_other_dimensions(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2xf32, #model.dims<a>> {
  // expected-error @+1 {{needs a result with the operand's dimensions}}
  %y = model.erf %x0 : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2xf32, #model.dims<a>>
  return %y : tensor<2xf32, #model.dims<a>>
}

// -----

// The result lacks a dimension.
func.func @logistic_c1_result_of_other_dimensions(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2xf32, #model.dims<a>> {
  // expected-error @+1 {{needs a result with the operand's dimensions}}
  %y = model.logistic %x0 : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2xf32, #model.dims<a>>
  return %y : tensor<2xf32, #model.dims<a>>
}

// -----

// The result lacks a dimension.
func.func @rsqrt_c1_result_of_other_dimensions(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2xf32, #model.dims<a>> {
  // expected-error @+1 {{needs a result with the operand's dimensions}}
  %y = model.rsqrt %x0 : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2xf32, #model.dims<a>>
  return %y : tensor<2xf32, #model.dims<a>>
}

// -----

// The result lacks a dimension.
func.func @sqrt_c1_result_of_other_dimensions(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2xf32, #model.dims<a>> {
  // expected-error @+1 {{needs a result with the operand's dimensions}}
  %y = model.sqrt %x0 : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2xf32, #model.dims<a>>
  return %y : tensor<2xf32, #model.dims<a>>
}

// -----

// The result lacks a dimension.
func.func @step_c1_result_of_other_dimensions(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2xf32, #model.dims<a>> {
  // expected-error @+1 {{needs a result with the operand's dimensions}}
  %y = model.step %x0 : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2xf32, #model.dims<a>>
  return %y : tensor<2xf32, #model.dims<a>>
}

// -----

// The result lacks a dimension.
func.func @convert_c1_result_of_other_dimensions(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2xf32, #model.dims<a>> {
  // expected-error @+1 {{needs a result with the operand's dimensions}}
  %y = model.convert %x0 : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2xf32, #model.dims<a>>
  return %y : tensor<2xf32, #model.dims<a>>
}

// -----

// The operands have a dimension that the result lacks.
func.func @add_c1_operand_outside_the_result(%x0: tensor<2x3xf32, #model.dims<a, b>>, %x1: tensor<3xf32, #model.dims<b>>) -> tensor<2xf32, #model.dims<a>> {
  // expected-error @+1 {{needs operands whose dimensions are a subsequence of the result's}}
  %y = model.add %x0, %x1 : (tensor<2x3xf32, #model.dims<a, b>>, tensor<3xf32, #model.dims<b>>) -> tensor<2xf32, #model.dims<a>>
  return %y : tensor<2xf32, #model.dims<a>>
}

// -----

// The operands have a dimension that the result lacks.
func.func @sub_c1_operand_outside_the_result(%x0: tensor<2x3xf32, #model.dims<a, b>>, %x1: tensor<3xf32, #model.dims<b>>) -> tensor<2xf32, #model.dims<a>> {
  // expected-error @+1 {{needs operands whose dimensions are a subsequence of the result's}}
  %y = model.sub %x0, %x1 : (tensor<2x3xf32, #model.dims<a, b>>, tensor<3xf32, #model.dims<b>>) -> tensor<2xf32, #model.dims<a>>
  return %y : tensor<2xf32, #model.dims<a>>
}

// -----

// The operands have a dimension that the result lacks.
func.func @mul_c1_operand_outside_the_result(%x0: tensor<2x3xf32, #model.dims<a, b>>, %x1: tensor<3xf32, #model.dims<b>>) -> tensor<2xf32, #model.dims<a>> {
  // expected-error @+1 {{needs operands whose dimensions are a subsequence of the result's}}
  %y = model.mul %x0, %x1 : (tensor<2x3xf32, #model.dims<a, b>>, tensor<3xf32, #model.dims<b>>) -> tensor<2xf32, #model.dims<a>>
  return %y : tensor<2xf32, #model.dims<a>>
}

// -----

// The operands have a dimension that the result lacks.
func.func @div_c1_operand_outside_the_result(%x0: tensor<2x3xf32, #model.dims<a, b>>, %x1: tensor<3xf32, #model.dims<b>>) -> tensor<2xf32, #model.dims<a>> {
  // expected-error @+1 {{needs operands whose dimensions are a subsequence of the result's}}
  %y = model.div %x0, %x1 : (tensor<2x3xf32, #model.dims<a, b>>, tensor<3xf32, #model.dims<b>>) -> tensor<2xf32, #model.dims<a>>
  return %y : tensor<2xf32, #model.dims<a>>
}

// -----

// The names agree, but the sizes differ.
func.func @add_c1_sizes_differ(%x0: tensor<2x3xf32, #model.dims<a, b>>, %x1: tensor<4xf32, #model.dims<b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  // expected-error @+1 {{needs operands whose dimensions are a subsequence of the result's}}
  %y = model.add %x0, %x1 : (tensor<2x3xf32, #model.dims<a, b>>, tensor<4xf32, #model.dims<b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}

// -----

// The dimensions are in another order.
func.func @mul_c1_order_differs(%x0: tensor<3x2xf32, #model.dims<b, a>>, %x1: tensor<2xf32, #model.dims<a>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  // expected-error @+1 {{needs operands whose dimensions are a subsequence of the result's}}
  %y = model.mul %x0, %x1 : (tensor<3x2xf32, #model.dims<b, a>>, tensor<2xf32, #model.dims<a>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}

// -----

// broadcast cannot drop a dimension.
func.func @broadcast_c1_operand_outside_the_result(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<3xf32, #model.dims<b>> {
  // expected-error @+1 {{needs operands whose dimensions are a subsequence of the result's}}
  %y = model.broadcast %x0 : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<3xf32, #model.dims<b>>
  return %y : tensor<3xf32, #model.dims<b>>
}

// -----

// The condition has a dimension that the result lacks.
func.func @select_c1_condition_outside_the_result(%x0: tensor<2x3xf32, #model.dims<a, b>>, %x1: tensor<3xf32, #model.dims<b>>, %x2: tensor<3xf32, #model.dims<b>>) -> tensor<3xf32, #model.dims<b>> {
  // expected-error @+1 {{needs operands whose dimensions are a subsequence of the result's}}
  %y = model.select %x0, %x1, %x2 : (tensor<2x3xf32, #model.dims<a, b>>, tensor<3xf32, #model.dims<b>>, tensor<3xf32, #model.dims<b>>) -> tensor<3xf32, #model.dims<b>>
  return %y : tensor<3xf32, #model.dims<b>>
}

// -----

// The tensor has no dimension names.
func.func @neg_needs_named_dimensions(%x0: tensor<2xf32>) -> tensor<2xf32> {
  // expected-error @+1 {{needs tensors with named dimensions}}
  %y = model.neg %x0 : (tensor<2xf32>) -> tensor<2xf32>
  return %y : tensor<2xf32>
}
