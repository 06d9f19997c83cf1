// RUN: espalier-opt --split-input-file --verify-diagnostics --form-buckets %s

!w = tensor<4xf32, #model.dims<hidden>>

// expected-error@+1 {{needs dist.mesh, which apply-plan sets}}
module {
}

// -----

!w = tensor<4xf32, #model.dims<hidden>>

module attributes {dist.mesh = #dist.mesh<dp = 2>} {
  // expected-error@+1 {{parameter "w" of @block needs dist.sharding and an entry in model.parameters}}
  func.func @block(%w: !w {model.role = "parameter", model.name = "w"}) attributes {model.segment} {
    return
  }
}

// -----

!w = tensor<4xf32, #model.dims<hidden>>

module attributes {dist.mesh = #dist.mesh<dp = 2>} {
  // expected-error@+1 {{w is tied to embed.table, which no segment before @block has}}
  func.func @block(%w: !w {model.role = "parameter", model.name = "w", dist.sharding = #dist.sharding<[{ }]>})
      attributes {model.segment, model.parameters = {w = {tied_to = "embed.table"}}} {
    return
  }
}
