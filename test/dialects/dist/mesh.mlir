// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// The mesh is an attribute of the module.

// The last axis varies fastest with the rank.
// CHECK: module attributes {dist.mesh = #dist.mesh<pp = 2, dp = 3, tp = 4>}
module attributes {dist.mesh = #dist.mesh<pp = 2, dp = 3, tp = 4>} {}
