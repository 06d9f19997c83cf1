// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifiers of reshard and of its shardings.

// The sharding has one entry for two dimensions.
func.func @reshard_c1_entries_do_not_fit_the_rank(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  // expected-error @+1 {{needs one sharding entry per dimension: tensor has 2, shardings have 1 and 2}}
  %y = dist.reshard %x0 from <[{dp}]> to <[{dp}, {}]> : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}

// -----

// A reshard works on global shapes.
func.func @reshard_c2_types_differ(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<4x3xf32, #model.dims<a, b>> {
  // expected-error @+1 {{needs equal types}}
  %y = dist.reshard %x0 from <[{dp}, {}]> to <[{}, {}]> : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<4x3xf32, #model.dims<a, b>>
  return %y : tensor<4x3xf32, #model.dims<a, b>>
}

// -----

// A reshard cannot make a value partial.
func.func @reshard_c3_becomes_partial(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  // expected-error @+1 {{cannot make a value partial over "tp"}}
  %y = dist.reshard %x0 from <[{}, {}]> to <[{}, {}], partial = {tp}> : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}

// -----

// An axis can split only one dimension.
func.func @sharding_with_an_axis_twice(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  // expected-error @+1 {{needs each axis at most once, got "tp" twice}}
  %y = dist.reshard %x0 from <[{tp}, {tp}]> to <[{}, {}]> : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}
