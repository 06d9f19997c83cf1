// RUN: espalier-opt --split-input-file --build-optimizer %s | FileCheck %s

// dp shards the bucket, so a rank has half of it. The norm weights each square by a quarter, because four ranks hold
// it. The update writes the master copy and stores it in the parameter's type. A bucket without decay has no term for
// its weight.
// CHECK-LABEL: func.func @block.norm
// CHECK-SAME: tensor<128xf32, #model.dims<element>> {exec.share = ["dp"], model.name = "block.decayed", model.role = "accumulator"}
// CHECK: model.squared_norm {{.*}}2.500000e-01
// CHECK: model.squared_norm {{.*}}1.000000e+00
// CHECK-LABEL: func.func @block.update
// CHECK-SAME: tensor<128xbf16, #model.dims<element>> {exec.share = ["dp"], model.name = "block.decayed", model.role = "parameter"}
// CHECK-SAME: model.name = "block.decayed.master"
// CHECK: model.constant 1.000000e-01
// CHECK: model.scalar "learning_rate"
// CHECK: model.select {{.*}} -> tensor<128xbf16
// CHECK-NOT: model.constant 1.000000e-01
// CHECK: return
// CHECK-LABEL: func.func @step.scalars
// CHECK-SAME: exec.max_grad_norm = 2.000000e+00
module attributes {exec.optimizer = #exec.optimizer<type = "AdamW", beta1 = 0.9, beta2 = 0.95, epsilon = 1.0e-8, weight_decay = 0.1, max_grad_norm = 2.0, masters = true>} {
  exec.segment "block" attributes {gradient_bytes = 1536 : i64, masters, parameter_bytes = 768 : i64, state_bytes = 3072 : i64} {
    exec.bucket "block.decayed" attributes {decays, elements = 256 : i64, gradient_offset = 0 : i64, holders = array<i64>, norm_weight = 0.25 : f64, number = 0 : i64, part_elements = 128 : i64, partial = ["dp"], share = ["dp"], state_offset = 0 : i64, stored = bf16, stored_offset = 0 : i64} {
      exec.parameter "w" {first = 0 : i64, initializer = "normal", local = tensor<6x4xbf16, #model.dims<hidden, ffn>>, padded_shape = array<i64: 6, 4>, shape = array<i64: 6, 4>, sharding = #dist.sharding<[{ }, { }]>, stddev = 0.02 : f64}
    }
    exec.bucket "block.plain" attributes {elements = 128 : i64, gradient_offset = 1024 : i64, holders = array<i64>, norm_weight = 1.0 : f64, number = 1 : i64, part_elements = 128 : i64, partial = [], share = [], state_offset = 1536 : i64, stored = bf16, stored_offset = 512 : i64} {
      exec.parameter "b" {first = 0 : i64, initializer = "zeros", local = tensor<4xbf16, #model.dims<ffn>>, padded_shape = array<i64: 4>, shape = array<i64: 4>, sharding = #dist.sharding<[{ }]>, stddev = 0.0 : f64}
    }
  }
}

// -----

// QK-clip reduces the counter over the ranks that have other samples, scales the new weights of each head by the root of
// threshold / score, and leaves the negated maxima in the counter.
// CHECK-LABEL: func.func @block.update
// CHECK-SAME: %[[COUNTER:.*]]: tensor<2xf32, #model.dims<heads>> {model.name = "largest0", model.role = "counter"}
// CHECK: %[[LARGEST:.*]] = dist.all_reduce %[[COUNTER]] over ["dp"] "max"
// CHECK: %[[NEGATED:.*]] = model.neg %[[LARGEST]]
// CHECK: %[[NEXT:.*]] = model.select {{.*}}, %[[NEGATED]]
// CHECK: model.constant 5.000000e+00
// CHECK: %[[FACTOR:.*]] = model.sqrt
// CHECK: %[[HEADS:.*]] = model.view %[[FACTOR]] {{.*}} -> tensor<2xf32, #model.dims<element_head0>>
// CHECK: %[[ROWS:.*]] = model.broadcast %[[HEADS]] {{.*}} -> tensor<16x2x4xf32
// CHECK: %[[FACTORS:.*]] = model.view %[[ROWS]] {{.*}} -> tensor<128xf32, #model.dims<element>>
// CHECK: %[[CLIPPED:.*]] = model.mul {{.*}}, %[[FACTORS]]
// CHECK: model.select {{.*}}, %[[CLIPPED]]
// CHECK: return %[[NEXT]]
module attributes {exec.optimizer = #exec.optimizer<type = "AdamW", beta1 = 0.9, beta2 = 0.95, epsilon = 1.0e-8, weight_decay = 0.1, max_grad_norm = 2.0, qk_clip_threshold = 5.0>} {
  exec.segment "block" attributes {gradient_bytes = 512 : i64, parameter_bytes = 512 : i64, state_bytes = 1024 : i64} {
    exec.bucket "block.decayed" attributes {clip = #exec.bucket_clip<counter = "largest0", dim = "heads", exponent = 5.0e-01, heads = 2, columns = 4, axes = "dp">, decays, elements = 128 : i64, gradient_offset = 0 : i64, holders = array<i64>, norm_weight = 1.0 : f64, number = 0 : i64, part_elements = 128 : i64, partial = ["dp"], share = [], state_offset = 0 : i64, stored = f32, stored_offset = 0 : i64} {
      exec.parameter "w" {first = 0 : i64, initializer = "normal", local = tensor<16x2x4xf32, #model.dims<hidden, heads, head_dim>>, padded_shape = array<i64: 16, 2, 4>, shape = array<i64: 16, 2, 4>, sharding = #dist.sharding<[{ }, { }, { }]>, stddev = 0.02 : f64}
    }
  }
}

// -----

// If a rank accumulates its shard, the shard of each micro-batch's gradient is added to it.
// CHECK-LABEL: func.func @block.add
// CHECK-SAME: %[[SUM:.*]]: tensor<128xf32, #model.dims<element>> {exec.share = ["dp"], model.name = "block.plain", model.role = "accumulator"}
// CHECK-SAME: %[[TERM:.*]]: tensor<128xf32, #model.dims<element>> {exec.share = ["dp"], model.name = "block.plain", model.role = "scattered"}
// CHECK: %[[MORE:.*]] = model.accumulate %[[SUM]], %[[TERM]]
// CHECK: return %[[MORE]]
// CHECK-LABEL: func.func @step.scalars
module attributes {exec.optimizer = #exec.optimizer<type = "AdamW", beta1 = 0.9, beta2 = 0.95, epsilon = 1.0e-8, weight_decay = 0.1, max_grad_norm = 2.0>} {
  exec.segment "block" attributes {gradient_bytes = 512 : i64, parameter_bytes = 1024 : i64, state_bytes = 1024 : i64, whole_gradient_bytes = 1024 : i64} {
    exec.bucket "block.plain" attributes {elements = 256 : i64, gradient_offset = 0 : i64, holders = array<i64>, norm_weight = 1.0 : f64, number = 0 : i64, part_elements = 128 : i64, partial = ["dp"], share = ["dp"], state_offset = 0 : i64, stored = f32, stored_offset = 0 : i64, whole_gradient_offset = 0 : i64} {
      exec.parameter "b" {first = 0 : i64, initializer = "zeros", local = tensor<4xf32, #model.dims<ffn>>, padded_shape = array<i64: 4>, shape = array<i64: 4>, sharding = #dist.sharding<[{ }]>, stddev = 0.0 : f64}
    }
  }
}

// -----

// The norm, the sum of micro-batches and the update read gradients of the module's type. The optimizer state is f32.
// CHECK-LABEL: func.func @block.add
// CHECK: model.accumulate {{.*}} -> tensor<128xbf16, #model.dims<element>>
// CHECK-LABEL: func.func @block.norm
// CHECK: model.squared_norm {{.*}} : (tensor<128xbf16, #model.dims<element>>) -> tensor<f32>
// CHECK-LABEL: func.func @block.update
// CHECK-SAME: tensor<128xbf16, #model.dims<element>> {exec.share = ["dp"], model.name = "block.plain", model.role = "accumulator"}
// CHECK-SAME: tensor<128xf32, #model.dims<element>> {model.name = "block.plain.moment1", model.role = "state"}
// CHECK: model.mul {{.*}} : (tensor<128xbf16, #model.dims<element>>, tensor<f32>) -> tensor<128xf32, #model.dims<element>>
module attributes {model.gradient_type = bf16, exec.optimizer = #exec.optimizer<type = "AdamW", beta1 = 0.9, beta2 = 0.95, epsilon = 1.0e-8, weight_decay = 0.1, max_grad_norm = 2.0>} {
  exec.segment "block" attributes {gradient_bytes = 256 : i64, parameter_bytes = 1024 : i64, state_bytes = 1024 : i64, whole_gradient_bytes = 512 : i64} {
    exec.bucket "block.plain" attributes {elements = 256 : i64, gradient_offset = 0 : i64, holders = array<i64>, norm_weight = 1.0 : f64, number = 0 : i64, part_elements = 128 : i64, partial = ["dp"], share = ["dp"], state_offset = 0 : i64, stored = f32, stored_offset = 0 : i64, summed = bf16, whole_gradient_offset = 0 : i64} {
      exec.parameter "b" {first = 0 : i64, initializer = "zeros", local = tensor<4xf32, #model.dims<ffn>>, padded_shape = array<i64: 4>, shape = array<i64: 4>, sharding = #dist.sharding<[{ }]>, stddev = 0.0 : f64}
    }
  }
}

// -----

// SGD adds the weight decay to the gradient. Its state is one tensor.
// CHECK-LABEL: func.func @block.update
// CHECK-SAME: model.name = "block.decayed.momentum"
// CHECK-NOT: moment1
// CHECK: model.scalar "gradient_scale"
// CHECK: model.constant 1.000000e-01
// CHECK: model.constant 9.000000e-01
// CHECK: model.scalar "learning_rate"
// CHECK: return
module attributes {exec.optimizer = #exec.optimizer<type = "SGD", momentum = 0.9, nesterov = false, weight_decay = 0.1, max_grad_norm = 0.0>} {
  exec.segment "block" attributes {gradient_bytes = 512 : i64, parameter_bytes = 512 : i64, state_bytes = 512 : i64} {
    exec.bucket "block.decayed" attributes {decays, elements = 128 : i64, gradient_offset = 0 : i64, holders = array<i64>, norm_weight = 1.0 : f64, number = 0 : i64, optimizer = "SGD", part_elements = 128 : i64, partial = [], share = [], state_offset = 0 : i64, stored = f32, stored_offset = 0 : i64} {
      exec.parameter "w" {first = 0 : i64, initializer = "zeros", local = tensor<4xf32, #model.dims<ffn>>, padded_shape = array<i64: 4>, shape = array<i64: 4>, sharding = #dist.sharding<[{ }]>, stddev = 0.0 : f64}
    }
  }
}

// -----

// Muon reads two matrices from the flat bucket. The shorter side of a matrix is multiplied with itself.
// CHECK-LABEL: func.func @block.update
// CHECK: model.view {{.*}} -> tensor<2x16x8xf32, #model.dims<element_matrix, element_row, element_column>>
// CHECK: model.contract {{.*}} -> tensor<2x8x8xf32, #model.dims<element_matrix, element_column, element_side>>
// CHECK: model.contract {{.*}} -> tensor<2x8x8xf32, #model.dims<element_matrix, element_column, element_other>>
// CHECK: model.contract {{.*}} -> tensor<2x16x8xf32, #model.dims<element_matrix, element_row, element_column>>
// CHECK-NOT: model.contract
// CHECK: model.view {{.*}} -> tensor<256xf32, #model.dims<element>>
// CHECK: return
module attributes {exec.optimizer = #exec.optimizer<type = "Muon", momentum = 0.9, nesterov = true, newton_schulz_steps = 1, weight_decay = 0.0, max_grad_norm = 0.0>} {
  exec.segment "block" attributes {gradient_bytes = 1024 : i64, parameter_bytes = 1024 : i64, state_bytes = 1024 : i64} {
    exec.bucket "block.matrices" attributes {elements = 256 : i64, gradient_offset = 0 : i64, holders = array<i64>, matrix = array<i64: 16, 8>, norm_weight = 1.0 : f64, number = 0 : i64, optimizer = "Muon", part_elements = 256 : i64, partial = [], share = [], state_offset = 0 : i64, stored = f32, stored_offset = 0 : i64} {
      exec.parameter "w" {first = 0 : i64, initializer = "zeros", local = tensor<16x8xf32, #model.dims<hidden, ffn>>, padded_shape = array<i64: 16, 8>, shape = array<i64: 16, 8>, sharding = #dist.sharding<[{ }, { }]>, stddev = 0.0 : f64}
    }
  }
}

// -----

// tp splits the columns of one matrix and the rows of another. A rank gathers the update of its slices, orthogonalizes
// whole matrices of 16 times 16 and slices the result. The scale, 1.2 times the root of 16, is that of the whole matrix.
// CHECK-LABEL: func.func @block.update
// CHECK: %[[A:.*]] = model.view {{.*}} {dist.sharding = #dist.sharding<[{}, {}, {tp}]>} {{.*}} -> tensor<1x16x8xf32, #model.dims<element_matrix, element_row, element_column>>
// CHECK: dist.all_gather %[[A]] over ["tp"] dim 2 {{.*}} -> tensor<1x16x16xf32, #model.dims<element_matrix, element_row, element_column>>
// CHECK: model.contract {{.*}} -> tensor<1x16x16xf32, #model.dims<element_matrix, element_row, element_side>>
// CHECK: %[[O:.*]] = dist.slice {{.*}} over ["tp"] dim 2 {{.*}} -> tensor<1x16x8xf32
// CHECK: model.view %[[O]] {{.*}} -> tensor<128xf32, #model.dims<element>>
// CHECK: model.constant 4.800000e+00
// CHECK: %[[B:.*]] = model.view {{.*}} {dist.sharding = #dist.sharding<[{}, {tp}, {}]>} {{.*}} -> tensor<1x8x16xf32, #model.dims<element_matrix, element_row, element_column>>
// CHECK: dist.all_gather %[[B]] over ["tp"] dim 1 {{.*}} -> tensor<1x16x16xf32, #model.dims<element_matrix, element_row, element_column>>
// CHECK: dist.slice {{.*}} over ["tp"] dim 1 {{.*}} -> tensor<1x8x16xf32
// CHECK: return
module attributes {dist.mesh = #dist.mesh<tp = 2>, exec.optimizer = #exec.optimizer<type = "Muon", momentum = 0.9, nesterov = true, newton_schulz_steps = 1, scale_mode = "spectral", scale_factor = 1.2, weight_decay = 0.0, max_grad_norm = 0.0>} {
  exec.segment "block" attributes {gradient_bytes = 1024 : i64, parameter_bytes = 1024 : i64, state_bytes = 1024 : i64} {
    exec.bucket "block.matrices" attributes {column_axes = ["tp"], elements = 128 : i64, gradient_offset = 0 : i64, holders = array<i64>, matrix = array<i64: 16, 8>, norm_weight = 1.0 : f64, number = 0 : i64, optimizer = "Muon", part_elements = 128 : i64, partial = [], share = [], state_offset = 0 : i64, stored = f32, stored_offset = 0 : i64} {
      exec.parameter "up" {first = 0 : i64, initializer = "zeros", local = tensor<16x8xf32, #model.dims<hidden, ffn>>, padded_shape = array<i64: 16, 16>, shape = array<i64: 16, 16>, sharding = #dist.sharding<[{ }, {tp}]>, stddev = 0.0 : f64}
    }
    exec.bucket "block.matrices2" attributes {elements = 128 : i64, gradient_offset = 512 : i64, holders = array<i64>, matrix = array<i64: 8, 16>, norm_weight = 1.0 : f64, number = 1 : i64, optimizer = "Muon", part_elements = 128 : i64, partial = [], row_axes = ["tp"], share = [], state_offset = 512 : i64, stored = f32, stored_offset = 512 : i64} {
      exec.parameter "down" {first = 0 : i64, initializer = "zeros", local = tensor<8x16xf32, #model.dims<ffn, hidden>>, padded_shape = array<i64: 16, 16>, shape = array<i64: 16, 16>, sharding = #dist.sharding<[{tp}, { }]>, stddev = 0.0 : f64}
    }
  }
}
