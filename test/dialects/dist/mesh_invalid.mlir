// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the mesh attribute.

// An axis has at least one device.
// expected-error @+1 {{needs axis sizes of at least 1, got 0 for "dp"}}
module attributes {dist.mesh = #dist.mesh<pp = 2, dp = 0>} {}
