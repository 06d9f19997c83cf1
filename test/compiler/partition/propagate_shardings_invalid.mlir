// RUN: espalier-opt %s -propagate-shardings -verify-diagnostics

// An op without a sharding rule is refused.
module attributes {dist.mesh = #dist.mesh<tp = 2>} {
  func.func @not_shardable() -> tensor<3xf32> {
    // expected-error@+1 {{'arith.constant' op cannot be sharded}}
    %x = arith.constant dense<1.0> : tensor<3xf32>
    return %x : tensor<3xf32>
  }
}
