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

// -----

!x = tensor<2x16xf32, #model.dims<batch, hidden>>
!w = tensor<16x4xf32, #model.dims<hidden, ffn>>
!y = tensor<2x4xf32, #model.dims<batch, ffn>>

module attributes {dist.mesh = #dist.mesh<tp = 2>, exec.optimizer = {type = "Muon"},
                   model.runs = [{count = 1 : i64, kind = "embed"}, {count = 1 : i64, kind = "block"}, {count = 1 : i64, kind = "head"}]} {
  func.func @block(
      %x: !x {model.role = "stream", model.name = "x"},
      // expected-error@+1 {{Muon needs matrices whose elements on a rank are a multiple of 128, and parameter up has 16 times 4; choose other sizes, a smaller model_parallel, or another optimizer.type}}
      %up: !w {model.role = "parameter", model.name = "up", dist.sharding = #dist.sharding<[{ }, {tp}]>})
      attributes {model.segment, model.parameters = {up = {}}} {
    %a = model.contract %x, %up : (!x, !w) -> !y
    return
  }
}

// -----

!x = tensor<2x5xf32, #model.dims<batch, hidden>>
!w = tensor<5x8xf32, #model.dims<hidden, ffn>>
!y = tensor<2x8xf32, #model.dims<batch, ffn>>

module attributes {dist.mesh = #dist.mesh<dp = 1>, exec.optimizer = {type = "Muon"},
                   model.runs = [{count = 1 : i64, kind = "embed"}, {count = 1 : i64, kind = "block"}, {count = 1 : i64, kind = "head"}]} {
  func.func @block(
      %x: !x {model.role = "stream", model.name = "x"},
      // expected-error@+1 {{Muon needs matrices whose elements are a multiple of 128, and parameter up has 5 times 8}}
      %up: !w {model.role = "parameter", model.name = "up", dist.sharding = #dist.sharding<[{ }, { }]>})
      attributes {model.segment, model.parameters = {up = {}}} {
    %a = model.contract %x, %up : (!x, !w) -> !y
    return
  }
}

// -----

// expected-error@+1 {{exec.optimizer has the type "Lion", which is no optimizer of format/optimizers.h}}
module attributes {dist.mesh = #dist.mesh<dp = 1>, exec.optimizer = {type = "Lion"}} {
}
