// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// Element-wise ops: parsed and printed.

// A unary op.
// CHECK-LABEL: func.func @neg(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor
// CHECK: model.neg %[[X0]] : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
func.func @neg(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  %y = model.neg %x0 : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}

// A unary op.
// CHECK-LABEL: func.func @exp(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor
// CHECK: model.exp %[[X0]] : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
func.func @exp(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  %y = model.exp %x0 : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}

// A unary op.
// CHECK-LABEL: func.func @log(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor
// CHECK: model.log %[[X0]] : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
func.func @log(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  %y = model.log %x0 : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}

// A unary op.
// CHECK-LABEL: func.func @tanh(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor
// CHECK: model.tanh %[[X0]] : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
func.func @tanh(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  %y = model.tanh %x0 : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}

// A unary op.
// CHECK-LABEL: func.func @gelu(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor
// CHECK: model.gelu %[[X0]] : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
func.func @gelu(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  %y = model.gelu %x0 : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}

// Operands are the cotangent and x.
// CHECK-LABEL: func.func @gelu_grad(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor{{.*}}, %[[X1:[a-z0-9]+]]: tensor
// CHECK: model.gelu_grad %[[X0]], %[[X1]] : (tensor<2x3xf32, #model.dims<a, b>>, tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
func.func @gelu_grad(%x0: tensor<2x3xf32, #model.dims<a, b>>, %x1: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  %y = model.gelu_grad %x0, %x1 : (tensor<2x3xf32, #model.dims<a, b>>, tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}

// A unary op.
// CHECK-LABEL: func.func @erf(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor
// CHECK: model.erf %[[X0]] : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
func.func @erf(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  %y = model.erf %x0 : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}

// A unary op.
// CHECK-LABEL: func.func @logistic(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor
// CHECK: model.logistic %[[X0]] : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
func.func @logistic(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  %y = model.logistic %x0 : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}

// A unary op.
// CHECK-LABEL: func.func @rsqrt(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor
// CHECK: model.rsqrt %[[X0]] : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
func.func @rsqrt(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  %y = model.rsqrt %x0 : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}

// A unary op.
// CHECK-LABEL: func.func @sqrt(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor
// CHECK: model.sqrt %[[X0]] : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
func.func @sqrt(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  %y = model.sqrt %x0 : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}

// A unary op.
// CHECK-LABEL: func.func @step(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor
// CHECK: model.step %[[X0]] : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
func.func @step(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  %y = model.step %x0 : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}

// The element type may change.
// CHECK-LABEL: func.func @convert(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor
// CHECK: model.convert %[[X0]] : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xbf16, #model.dims<a, b>>
func.func @convert(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xbf16, #model.dims<a, b>> {
  %y = model.convert %x0 : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xbf16, #model.dims<a, b>>
  return %y : tensor<2x3xbf16, #model.dims<a, b>>
}

// Both operands are broadcast, along different dimensions.
// CHECK-LABEL: func.func @add(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor{{.*}}%[[X1:[a-z0-9]+]]: tensor
// CHECK: model.add %[[X0]], %[[X1]] : (tensor<2xf32, #model.dims<a>>, tensor<3xf32, #model.dims<b>>) -> tensor<2x3xf32, #model.dims<a, b>>
func.func @add(%x0: tensor<2xf32, #model.dims<a>>, %x1: tensor<3xf32, #model.dims<b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  %y = model.add %x0, %x1 : (tensor<2xf32, #model.dims<a>>, tensor<3xf32, #model.dims<b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}

// The second operand is broadcast along the inner dimension.
// CHECK-LABEL: func.func @sub(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor{{.*}}%[[X1:[a-z0-9]+]]: tensor
// CHECK: model.sub %[[X0]], %[[X1]] : (tensor<2x3xf32, #model.dims<a, b>>, tensor<2xf32, #model.dims<a>>) -> tensor<2x3xf32, #model.dims<a, b>>
func.func @sub(%x0: tensor<2x3xf32, #model.dims<a, b>>, %x1: tensor<2xf32, #model.dims<a>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  %y = model.sub %x0, %x1 : (tensor<2x3xf32, #model.dims<a, b>>, tensor<2xf32, #model.dims<a>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}

// The first operand is broadcast along the outer dimension.
// CHECK-LABEL: func.func @mul(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor{{.*}}%[[X1:[a-z0-9]+]]: tensor
// CHECK: model.mul %[[X0]], %[[X1]] : (tensor<3xf32, #model.dims<b>>, tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
func.func @mul(%x0: tensor<3xf32, #model.dims<b>>, %x1: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  %y = model.mul %x0, %x1 : (tensor<3xf32, #model.dims<b>>, tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}

// No operand is broadcast.
// CHECK-LABEL: func.func @div(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor{{.*}}%[[X1:[a-z0-9]+]]: tensor
// CHECK: model.div %[[X0]], %[[X1]] : (tensor<2x3xf32, #model.dims<a, b>>, tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
func.func @div(%x0: tensor<2x3xf32, #model.dims<a, b>>, %x1: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  %y = model.div %x0, %x1 : (tensor<2x3xf32, #model.dims<a, b>>, tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}

// The vector is broadcast along the outer dimension.
// CHECK-LABEL: func.func @broadcast(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor
// CHECK: model.broadcast %[[X0]] : (tensor<3xf32, #model.dims<b>>) -> tensor<2x3xf32, #model.dims<a, b>>
func.func @broadcast(%x0: tensor<3xf32, #model.dims<b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  %y = model.broadcast %x0 : (tensor<3xf32, #model.dims<b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}

// Each operand is broadcast along other dimensions.
// CHECK-LABEL: func.func @select(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor{{.*}}%[[X1:[a-z0-9]+]]: tensor{{.*}}%[[X2:[a-z0-9]+]]: tensor
// CHECK: model.select %[[X0]], %[[X1]], %[[X2]] : (tensor<2xf32, #model.dims<a>>, tensor<3xf32, #model.dims<b>>, tensor<f32>) -> tensor<2x3xf32, #model.dims<a, b>>
func.func @select(%x0: tensor<2xf32, #model.dims<a>>, %x1: tensor<3xf32, #model.dims<b>>, %x2: tensor<f32>) -> tensor<2x3xf32, #model.dims<a, b>> {
  %y = model.select %x0, %x1, %x2 : (tensor<2xf32, #model.dims<a>>, tensor<3xf32, #model.dims<b>>, tensor<f32>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}
