// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// A module holds its mesh.

// The last axis varies fastest with the rank.
// CHECK: module attributes {dist.mesh = #dist.mesh<pp = 2, dp = 3, tp = 4>}
module attributes {dist.mesh = #dist.mesh<pp = 2, dp = 3, tp = 4>} {}
