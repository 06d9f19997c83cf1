// RUN: espalier-opt --split-input-file --form-buckets %s | FileCheck %s

!w = tensor<4x6xf32, #model.dims<hidden, ffn>>
!b = tensor<6xf32, #model.dims<ffn>>

// Weights with decay and the bias without decay are in separate buckets. Each parameter begins at a multiple of 128
// elements. Under ZeRO-1, a bucket has a multiple of 128 elements for each of the two shards. Gradients that are
// replicated on tp count once in the norm.
// CHECK-LABEL: exec.segment "block" attributes {gradient_bytes = 2048 : i64, parameter_bytes = 2048 : i64, state_bytes = 2048 : i64}
// CHECK: exec.bucket "block.decayed" attributes {decays, elements = 256 : i64, {{.*}}norm_weight = 1.000000e+00 : f64, number = 0 : i64, part_elements = 128 : i64, partial = ["dp"], share = ["dp"], state_offset = 0 : i64, stored = f32, stored_offset = 0 : i64}
// CHECK-NEXT: exec.parameter "up" {first = 0 : i64, initializer = "normal", {{.*}}padded_shape = array<i64: 4, 12>, shape = array<i64: 4, 12>, {{.*}}stddev = 2.000000e-02 : f64}
// CHECK-NEXT: exec.parameter "down" {first = 128 : i64, {{.*}}shape = array<i64: 4, 12>
// CHECK: exec.bucket "block.plain" attributes {elements = 256 : i64, {{.*}}number = 1 : i64, part_elements = 128 : i64, {{.*}}stored_offset = 1024 : i64}
// CHECK-NEXT: exec.parameter "bias" {first = 0 : i64, initializer = "zeros"
module attributes {exec.optimizer = #exec.optimizer<type = "AdamW">, dist.mesh = #dist.mesh<dp = 2, tp = 2>, exec.plan = #exec.plan<zero = 1>} {
  func.func @block(
      %up: !w {model.role = "parameter", model.name = "up", dist.sharding = #dist.sharding<[{ }, {tp}]>},
      %bias: !b {model.role = "parameter", model.name = "bias", dist.sharding = #dist.sharding<[{tp}]>},
      %down: !w {model.role = "parameter", model.name = "down", dist.sharding = #dist.sharding<[{ }, {tp}]>},
      %dup: !w {model.role = "accumulator", model.name = "up", dist.sharding = #dist.sharding<[{ }, {tp}], partial = {dp}>},
      %dbias: !b {model.role = "accumulator", model.name = "bias", dist.sharding = #dist.sharding<[{tp}], partial = {dp}>},
      %ddown: !w {model.role = "accumulator", model.name = "down", dist.sharding = #dist.sharding<[{ }, {tp}], partial = {dp}>})
      attributes {model.segment, model.parameters = {up = #exec.parameter<decays = true, initializer = normal, stddev = 0.02>, bias = #exec.parameter<initializer = zeros>, down = #exec.parameter<decays = true, initializer = normal, stddev = 0.02>}} {
    return
  }
}

// -----

!table = tensor<16x4xbf16, #model.dims<vocab, hidden>>

// A table that two segments of one stage share is one bucket with one number and one allocation. It has 13 rows without
// the padding of the vocabulary. It is stored in bf16, so it has a master copy: 12 bytes of state per element.
// CHECK-LABEL: exec.segment "embed" attributes {gradient_bytes = 512 : i64, masters, parameter_bytes = 256 : i64, state_bytes = 1536 : i64}
// CHECK: exec.bucket "embed.table" attributes {{.*}}holders = array<i64>{{.*}}number = 0
// CHECK-NEXT: exec.parameter "table" {{.*}}padded_shape = array<i64: 16, 4>, shape = array<i64: 13, 4>
// CHECK-LABEL: exec.segment "head"
// CHECK: exec.bucket "embed.table" attributes {{.*}}number = 0 : i64, {{.*}}tied, tied_here}
// CHECK-NEXT: exec.parameter "weight" {{.*}}tied_to = "embed.table"}
module attributes {exec.plan = #exec.plan<>, dist.mesh = #dist.mesh<pp = 1>, exec.optimizer = #exec.optimizer<type = "AdamW", masters = true>, model.sizes = {vocab = 13 : i64}} {
  func.func @embed(%t: !table {model.role = "parameter", model.name = "table", dist.sharding = #dist.sharding<[{ }, { }]>})
      attributes {model.segment, model.parameters = {table = #exec.parameter<decays = true>}} {
    return
  }
  func.func @head(%t: !table {model.role = "parameter", model.name = "weight", dist.sharding = #dist.sharding<[{ }, { }]>})
      attributes {model.segment, model.parameters = {weight = #exec.parameter<decays = true, tied_to = "embed.table">}} {
    return
  }
}

// -----

!table = tensor<16x4xf32, #model.dims<vocab, hidden>>

// On two stages, both hold the table. Its gradient is summed over them, and each counts half of it in the norm.
// CHECK-LABEL: exec.segment "embed"
// CHECK: exec.bucket "embed.table" attributes {{.*}}holders = array<i64: 0, 1>, norm_weight = 5.000000e-01 : f64
// CHECK-LABEL: exec.segment "head"
// CHECK: exec.bucket "embed.table" attributes {{.*}}holders = array<i64: 0, 1>, {{.*}}tied}
module attributes {exec.optimizer = #exec.optimizer<type = "AdamW">, exec.plan = #exec.plan<>, dist.mesh = #dist.mesh<pp = 2>} {
  func.func @embed(%t: !table {model.role = "parameter", model.name = "table", dist.sharding = #dist.sharding<[{ }, { }]>})
      attributes {model.segment, model.parameters = {table = #exec.parameter<decays = true>}} {
    return
  }
  func.func @head(%t: !table {model.role = "parameter", model.name = "weight", dist.sharding = #dist.sharding<[{ }, { }]>})
      attributes {model.segment, model.parameters = {weight = #exec.parameter<decays = true, tied_to = "embed.table">}} {
    return
  }
}

// -----

!w = tensor<4x6xf32, #model.dims<hidden, ffn>>

// Generation has a function per phase and no gradients. Both phases read the parameters of one segment.
// CHECK-LABEL: exec.segment "block"
// CHECK: exec.bucket "block.decayed" attributes {{.*}}partial = []
// CHECK-NEXT: exec.parameter "w"
// CHECK-NOT: exec.segment
module attributes {exec.optimizer = #exec.optimizer<type = "AdamW">, exec.plan = #exec.plan<>, dist.mesh = #dist.mesh<tp = 1>, exec.mode = #exec.mode<generate>} {
  func.func @block.prefill(%w: !w {model.role = "parameter", model.name = "w", dist.sharding = #dist.sharding<[{ }, { }]>})
      attributes {model.segment} {
    return
  }
  func.func @block.decode(%w: !w {model.role = "parameter", model.name = "w", dist.sharding = #dist.sharding<[{ }, { }]>})
      attributes {model.segment, model.parameters = {w = #exec.parameter<decays = true>}} {
    return
  }
}

// -----

!w = tensor<4x6xf32, #model.dims<hidden, ffn>>

// Under ZeRO-3, a rank has half of the parameters, of the accumulator and of the state. Gathered buffers have separate
// regions.
// CHECK-LABEL: exec.segment "block" attributes {gradient_bytes = 512 : i64, parameter_bytes = 512 : i64, state_bytes = 1024 : i64, whole_gradient_bytes = 1024 : i64, whole_stored_bytes = 1024 : i64}
// CHECK: exec.bucket "block.plain" attributes {elements = 256 : i64, {{.*}}part_elements = 128 : i64, {{.*}}whole_gradient_offset = 0 : i64, whole_stored_offset = 0 : i64}
module attributes {exec.optimizer = #exec.optimizer<type = "AdamW">, dist.mesh = #dist.mesh<dp = 2>, exec.plan = #exec.plan<zero = 3>} {
  func.func @block(
      %w: !w {model.role = "parameter", model.name = "w", dist.sharding = #dist.sharding<[{ }, { }]>},
      %dw: !w {model.role = "accumulator", model.name = "w", dist.sharding = #dist.sharding<[{ }, { }], partial = {dp}>})
      attributes {model.segment, model.parameters = {w = #exec.parameter<initializer = zeros>}} {
    return
  }
}

// -----

!w = tensor<4x6xbf16, #model.dims<hidden, ffn>>

// Gradients in bf16 take two bytes per element, in shards and unsharded; the optimizer state is f32.
// CHECK-LABEL: exec.segment "block" attributes {gradient_bytes = 256 : i64, parameter_bytes = 512 : i64, state_bytes = 1024 : i64, whole_gradient_bytes = 512 : i64}
module attributes {exec.optimizer = #exec.optimizer<type = "AdamW">, dist.mesh = #dist.mesh<dp = 2>, exec.plan = #exec.plan<zero = 2>, model.gradient_type = bf16} {
  func.func @block(
      %w: !w {model.role = "parameter", model.name = "w", dist.sharding = #dist.sharding<[{ }, { }]>},
      %dw: !w {model.role = "accumulator", model.name = "w", dist.sharding = #dist.sharding<[{ }, { }], partial = {dp}>})
      attributes {model.segment, model.parameters = {w = #exec.parameter<initializer = zeros>}} {
    return
  }
}

// -----

!w = tensor<4x6xf32, #model.dims<hidden, ffn>>

// Under ZeRO-2, parameters are not sharded.
// CHECK-LABEL: exec.segment "block" attributes {gradient_bytes = 512 : i64, parameter_bytes = 1024 : i64, state_bytes = 1024 : i64, whole_gradient_bytes = 1024 : i64}
// CHECK: exec.bucket "block.plain" attributes {{.*}}whole_gradient_offset = 0 : i64}
module attributes {exec.optimizer = #exec.optimizer<type = "AdamW">, dist.mesh = #dist.mesh<dp = 2>, exec.plan = #exec.plan<zero = 2>} {
  func.func @block(
      %w: !w {model.role = "parameter", model.name = "w", dist.sharding = #dist.sharding<[{ }, { }]>},
      %dw: !w {model.role = "accumulator", model.name = "w", dist.sharding = #dist.sharding<[{ }, { }], partial = {dp}>})
      attributes {model.segment, model.parameters = {w = #exec.parameter<initializer = zeros>}} {
    return
  }
}

// -----

!table = tensor<16x4xf32, #model.dims<vocab, hidden>>

// Both segments list two tied tables in the same order, even if they name them in different orders, because stages sum
// them in that order.
// CHECK-LABEL: exec.segment "embed"
// CHECK: exec.bucket "embed.keys" attributes {{.*}}number = 0
// CHECK: exec.bucket "embed.table" attributes {{.*}}number = 1
// CHECK-LABEL: exec.segment "head"
// CHECK: exec.bucket "embed.keys" attributes {{.*}}number = 0
// CHECK: exec.bucket "embed.table" attributes {{.*}}number = 1
module attributes {exec.optimizer = #exec.optimizer<type = "AdamW">, dist.mesh = #dist.mesh<pp = 2>, exec.plan = #exec.plan<stages = [#exec.stage<first_layer = 0, layers = 1>, #exec.stage<first_layer = 1, layers = 1>]>} {
  func.func @embed(%t: !table {model.role = "parameter", model.name = "table", dist.sharding = #dist.sharding<[{ }, { }]>},
                   %k: !table {model.role = "parameter", model.name = "keys", dist.sharding = #dist.sharding<[{ }, { }]>})
      attributes {model.segment, model.parameters = {table = #exec.parameter<decays = true>, keys = #exec.parameter<decays = true>}} {
    return
  }
  func.func @head(%k: !table {model.role = "parameter", model.name = "a", dist.sharding = #dist.sharding<[{ }, { }]>},
                  %t: !table {model.role = "parameter", model.name = "b", dist.sharding = #dist.sharding<[{ }, { }]>})
      attributes {model.segment, model.parameters = {a = #exec.parameter<decays = true, tied_to = "embed.keys">, b = #exec.parameter<decays = true, tied_to = "embed.table">}} {
    return
  }
}

// -----

!w = tensor<4x6xf32, #model.dims<hidden, ffn>>
!b = tensor<6xf32, #model.dims<ffn>>

// A frozen parameter has a bucket without gradient and state, which only ZeRO 3 shards.
// CHECK-LABEL: exec.segment "block" attributes {gradient_bytes = 512 : i64, parameter_bytes = 1024 : i64, state_bytes = 1024 : i64, whole_gradient_bytes = 1024 : i64, whole_stored_bytes = 2048 : i64}
// CHECK: exec.bucket "block.frozen" attributes {elements = 256 : i64, frozen, gradient_offset = 0 : i64, {{.*}}norm_weight = 0.000000e+00 : f64, number = 0 : i64, part_elements = 128 : i64, partial = [], share = ["dp"], {{.*}}whole_stored_offset = 0 : i64}
// CHECK: exec.bucket "block.plain" attributes {elements = 256 : i64, gradient_offset = 0 : i64, {{.*}}partial = ["dp"], share = ["dp"], {{.*}}stored_offset = 512 : i64, whole_gradient_offset = 0 : i64, whole_stored_offset = 1024 : i64}
module attributes {exec.optimizer = #exec.optimizer<type = "AdamW">, dist.mesh = #dist.mesh<dp = 2>, exec.plan = #exec.plan<zero = 3>} {
  func.func @block(
      %up: !w {model.role = "parameter", model.name = "up", model.frozen, dist.sharding = #dist.sharding<[{ }, { }]>},
      %bias: !b {model.role = "parameter", model.name = "bias", dist.sharding = #dist.sharding<[{ }]>},
      %dbias: !b {model.role = "accumulator", model.name = "bias", dist.sharding = #dist.sharding<[{ }], partial = {dp}>})
      attributes {model.segment, model.parameters = {up = #exec.parameter<decays = true>, bias = #exec.parameter<>}} {
    return
  }
}

// -----

!w = tensor<4x6xf32, #model.dims<hidden, ffn>>

// Under ZeRO 2 every rank has all of it.
// CHECK-LABEL: exec.segment "block" attributes {gradient_bytes = 0 : i64, parameter_bytes = 512 : i64, state_bytes = 0 : i64}
// CHECK: exec.bucket "block.frozen" attributes {elements = 128 : i64, frozen, {{.*}}part_elements = 128 : i64, partial = [], share = []
module attributes {exec.optimizer = #exec.optimizer<type = "AdamW">, dist.mesh = #dist.mesh<dp = 2>, exec.plan = #exec.plan<zero = 2>} {
  func.func @block(
      %up: !w {model.role = "parameter", model.name = "up", model.frozen, dist.sharding = #dist.sharding<[{ }, { }]>})
      attributes {model.segment, model.parameters = {up = #exec.parameter<decays = true>}} {
    return
  }
}

// -----

!x = tensor<2x16xf32, #model.dims<batch, hidden>>
!w = tensor<16x8xf32, #model.dims<hidden, ffn>>
!y = tensor<2x8xf32, #model.dims<batch, ffn>>

// Muon updates the weights of products: three matrices of one shape. Each of the two shards has two matrices, of which
// one is padding. AdamW updates `scale`, which no product reads.
// CHECK-LABEL: exec.segment "block"
// CHECK: exec.bucket "block.matrices" attributes {elements = 512 : i64, {{.*}}matrix = array<i64: 16, 8>, {{.*}}optimizer = "Muon", part_elements = 256 : i64
// CHECK-NEXT: exec.parameter "up" {first = 0 : i64
// CHECK-NEXT: exec.parameter "gate" {first = 128 : i64
// CHECK-NEXT: exec.parameter "third" {first = 256 : i64
// CHECK: exec.bucket "block.plain"
// CHECK-NOT: optimizer =
// CHECK: exec.parameter "scale"
module attributes {dist.mesh = #dist.mesh<dp = 2>, exec.plan = #exec.plan<zero = 1>, exec.optimizer = #exec.optimizer<type = "Muon">,
                   model.runs = [#model.run<kind = "embed", count = 1>, #model.run<kind = "block", count = 1>, #model.run<kind = "head", count = 1>]} {
  func.func @block(
      %x: !x {model.role = "stream", model.name = "x"},
      %up: !w {model.role = "parameter", model.name = "up", dist.sharding = #dist.sharding<[{ }, { }]>},
      %gate: !w {model.role = "parameter", model.name = "gate", dist.sharding = #dist.sharding<[{ }, { }]>},
      %third: !w {model.role = "parameter", model.name = "third", dist.sharding = #dist.sharding<[{ }, { }]>},
      %scale: !w {model.role = "parameter", model.name = "scale", dist.sharding = #dist.sharding<[{ }, { }]>},
      %dup: !w {model.role = "accumulator", model.name = "up", dist.sharding = #dist.sharding<[{ }, { }], partial = {dp}>},
      %dgate: !w {model.role = "accumulator", model.name = "gate", dist.sharding = #dist.sharding<[{ }, { }], partial = {dp}>},
      %dthird: !w {model.role = "accumulator", model.name = "third", dist.sharding = #dist.sharding<[{ }, { }], partial = {dp}>},
      %dscale: !w {model.role = "accumulator", model.name = "scale", dist.sharding = #dist.sharding<[{ }, { }], partial = {dp}>})
      attributes {model.segment, model.parameters = {up = #exec.parameter<>, gate = #exec.parameter<>, third = #exec.parameter<>, scale = #exec.parameter<>}} {
    %a = model.contract %x, %up : (!x, !w) -> !y
    %b = model.contract %x, %gate : (!x, !w) -> !y
    %c = model.contract %x, %third : (!x, !w) -> !y
    return
  }
}

// -----

!x = tensor<2x16xf32, #model.dims<batch, hidden>>
!w = tensor<16x1x8xf32, #model.dims<hidden, heads, head_dim>>
!y = tensor<2x1x8xf32, #model.dims<batch, heads, head_dim>>
!o = tensor<1x8x16xf32, #model.dims<heads, head_dim, hidden>>

// Each of two tensor ranks has one head. Slices of columns and slices of rows are in two buckets.
// CHECK-LABEL: exec.segment "block"
// CHECK: exec.bucket "block.matrices" attributes {column_axes = ["tp"], elements = 128 : i64, {{.*}}matrix = array<i64: 16, 8>
// CHECK-NOT: row_axes
// CHECK: exec.parameter "q"
// CHECK: exec.bucket "block.matrices2" attributes {elements = 128 : i64, {{.*}}matrix = array<i64: 8, 16>, {{.*}}row_axes = ["tp"]
// CHECK: exec.parameter "o"
module attributes {dist.mesh = #dist.mesh<tp = 2>, exec.plan = #exec.plan<>, exec.optimizer = #exec.optimizer<type = "Muon">,
                   model.runs = [#model.run<kind = "embed", count = 1>, #model.run<kind = "block", count = 1>, #model.run<kind = "head", count = 1>]} {
  func.func @block(
      %x: !x {model.role = "stream", model.name = "x"},
      %q: !w {model.role = "parameter", model.name = "q", dist.sharding = #dist.sharding<[{ }, {tp}, { }]>},
      %o: !o {model.role = "parameter", model.name = "o", dist.sharding = #dist.sharding<[{tp}, { }, { }]>})
      attributes {model.segment, model.parameters = {q = #exec.parameter<>, o = #exec.parameter<>}} {
    %a = model.contract %x, %q : (!x, !w) -> !y
    %b = model.contract %a, %o : (!y, !o) -> !x
    return
  }
}
