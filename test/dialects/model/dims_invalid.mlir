// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the dims attribute.

// Names must be distinct.
// expected-error @+1 {{needs distinct dimension names, got "a" twice}}
func.func private @dims_twice(tensor<2x3xf32, #model.dims<a, a>>)
