// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// What the mesh refuses.

// An axis has at least one place.
// expected-error @+1 {{needs axis sizes of at least 1, got 0 for "dp"}}
module attributes {dist.mesh = #dist.mesh<pp = 2, dp = 0>} {}
