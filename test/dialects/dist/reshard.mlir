// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// Moves a tensor to another sharding.

// Gathers over tp.
// CHECK-LABEL: func.func @reshard(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor
// CHECK: dist.reshard %[[X0]] from <{{\[}}{dp}, {tp}{{\]}}> to <{{\[}}{dp}, {}{{\]}}> : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
func.func @reshard(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  %y = dist.reshard %x0 from <[{dp}, {tp}]> to <[{dp}, {}]> : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}

// Reduce-scatters over tp; the value stays partial over dp.
// CHECK-LABEL: func.func @reshard_partial(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor
// CHECK: dist.reshard %[[X0]] from <{{\[}}{}, {}{{\]}}, partial = {dp, tp}> to <{{\[}}{tp}, {}{{\]}}, partial = {dp}> : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
func.func @reshard_partial(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  %y = dist.reshard %x0 from <[{}, {}], partial = {dp, tp}> to <[{tp}, {}], partial = {dp}> : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}
