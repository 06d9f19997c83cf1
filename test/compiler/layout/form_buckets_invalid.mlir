// RUN: espalier-opt --split-input-file --verify-diagnostics --form-buckets %s

!w = tensor<4xf32, #model.dims<hidden>>

// expected-error@+1 {{needs dist.mesh and exec.plan, which the phase model sets}}
module {
}

// -----

// expected-error@+1 {{needs exec.optimizer, which the phase model sets}}
module attributes {dist.mesh = #dist.mesh<dp = 2>, exec.plan = #exec.plan<>} {
}

// -----

!w = tensor<4xf32, #model.dims<hidden>>

module attributes {exec.optimizer = #exec.optimizer<type = "AdamW">, exec.plan = #exec.plan<>, dist.mesh = #dist.mesh<dp = 2>} {
  // expected-error@+1 {{parameter "w" of @block needs dist.sharding and an entry in model.parameters}}
  func.func @block(%w: !w {model.role = "parameter", model.name = "w"}) attributes {model.segment} {
    return
  }
}

// -----

!w = tensor<4xf32, #model.dims<hidden>>

module attributes {exec.optimizer = #exec.optimizer<type = "AdamW">, exec.plan = #exec.plan<>, dist.mesh = #dist.mesh<dp = 2>} {
  // expected-error@+1 {{w is tied to embed.table, which no segment before @block has}}
  func.func @block(%w: !w {model.role = "parameter", model.name = "w", dist.sharding = #dist.sharding<[{ }]>})
      attributes {model.segment, model.parameters = {w = #exec.parameter<tied_to = "embed.table">}} {
    return
  }
}

// -----

!x = tensor<2x16xf32, #model.dims<batch, hidden>>
!w = tensor<16x4xf32, #model.dims<hidden, ffn>>
!y = tensor<2x4xf32, #model.dims<batch, ffn>>

module attributes {exec.plan = #exec.plan<>, dist.mesh = #dist.mesh<tp = 2>, exec.optimizer = #exec.optimizer<type = "Muon">,
                   model.runs = [#model.run<kind = "embed", count = 1>, #model.run<kind = "block", count = 1>, #model.run<kind = "head", count = 1>]} {
  func.func @block(
      %x: !x {model.role = "stream", model.name = "x"},
      // expected-error@+1 {{Muon needs matrices whose elements on a rank are a multiple of 128, and parameter up has 16 times 4; choose other sizes, a smaller model_parallel, or another optimizer.type}}
      %up: !w {model.role = "parameter", model.name = "up", dist.sharding = #dist.sharding<[{ }, {tp}]>})
      attributes {model.segment, model.parameters = {up = #exec.parameter<>}} {
    %a = model.contract %x, %up : (!x, !w) -> !y
    return
  }
}

// -----

!x = tensor<2x5xf32, #model.dims<batch, hidden>>
!w = tensor<5x8xf32, #model.dims<hidden, ffn>>
!y = tensor<2x8xf32, #model.dims<batch, ffn>>

module attributes {exec.plan = #exec.plan<>, dist.mesh = #dist.mesh<dp = 1>, exec.optimizer = #exec.optimizer<type = "Muon">,
                   model.runs = [#model.run<kind = "embed", count = 1>, #model.run<kind = "block", count = 1>, #model.run<kind = "head", count = 1>]} {
  func.func @block(
      %x: !x {model.role = "stream", model.name = "x"},
      // expected-error@+1 {{Muon needs matrices whose elements are a multiple of 128, and parameter up has 5 times 8}}
      %up: !w {model.role = "parameter", model.name = "up", dist.sharding = #dist.sharding<[{ }, { }]>})
      attributes {model.segment, model.parameters = {up = #exec.parameter<>}} {
    %a = model.contract %x, %up : (!x, !w) -> !y
    return
  }
}

// -----

// expected-error@+2 {{'Lion' is no optimizer of format/optimizers.h}}
// expected-error@+1 {{failed to parse Exec_OptimizerAttr parameter 'type'}}
module attributes {exec.optimizer = #exec.optimizer<type = "Lion">} {
}
