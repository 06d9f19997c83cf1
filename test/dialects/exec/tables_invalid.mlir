// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifiers of tables.

module @segment_c1_negative {
  // expected-error @+1 {{needs bytes of at least 0, got -8}}
  exec.segment "block" attributes {gradient_bytes = 0 : i64, parameter_bytes = -8 : i64, state_bytes = 0 : i64} {
  }
}

// -----

module @bucket_c1_unequal_parts {
  exec.segment "block" attributes {gradient_bytes = 0 : i64, parameter_bytes = 0 : i64, state_bytes = 0 : i64} {
    // expected-error @+1 {{needs elements in equal parts, got 256 in parts of 100}}
    exec.bucket "block.plain" attributes {elements = 256 : i64, gradient_offset = 0 : i64, holders = array<i64>, norm_weight = 1.0 : f64, number = 0 : i64, part_elements = 100 : i64, partial = [], share = ["dp"], state_offset = 0 : i64, stored = f32, stored_offset = 0 : i64} {
    }
  }
}

// -----

module @bucket_c2_unknown_axis {
  exec.segment "block" attributes {gradient_bytes = 0 : i64, parameter_bytes = 0 : i64, state_bytes = 0 : i64} {
    // expected-error @+1 {{needs axes pp, dp, cp, ep or tp, got ["sp"] and []}}
    exec.bucket "block.plain" attributes {elements = 256 : i64, gradient_offset = 0 : i64, holders = array<i64>, norm_weight = 1.0 : f64, number = 0 : i64, part_elements = 256 : i64, partial = ["sp"], share = [], state_offset = 0 : i64, stored = f32, stored_offset = 0 : i64} {
    }
  }
}

// -----

module @bucket_c3_frozen_and_summed {
  exec.segment "block" attributes {gradient_bytes = 0 : i64, parameter_bytes = 0 : i64, state_bytes = 0 : i64} {
    // expected-error @+1 {{is frozen and needs no partial axes and no whole gradients, got ["dp"]}}
    exec.bucket "block.frozen" attributes {elements = 256 : i64, frozen, gradient_offset = 0 : i64, holders = array<i64>, norm_weight = 0.0 : f64, number = 0 : i64, part_elements = 256 : i64, partial = ["dp"], share = [], state_offset = 0 : i64, stored = f32, stored_offset = 0 : i64} {
    }
  }
}

// -----

module @bucket_c4_part_of_a_matrix {
  exec.segment "block" attributes {gradient_bytes = 0 : i64, parameter_bytes = 0 : i64, state_bytes = 0 : i64} {
    // expected-error @+1 {{needs parts of whole matrices, got parts of 256 elements and matrices of 512}}
    exec.bucket "block.matrices" attributes {elements = 512 : i64, gradient_offset = 0 : i64, holders = array<i64>, matrix = array<i64: 16, 32>, norm_weight = 1.0 : f64, number = 0 : i64, optimizer = "Muon", part_elements = 256 : i64, partial = ["dp"], share = ["dp"], state_offset = 0 : i64, stored = f32, stored_offset = 0 : i64} {
    }
  }
}

// -----

module @bucket_c5_unknown_optimizer {
  exec.segment "block" attributes {gradient_bytes = 0 : i64, parameter_bytes = 0 : i64, state_bytes = 0 : i64} {
    // expected-error @+1 {{needs an optimizer of format/optimizers.h, got Lion}}
    exec.bucket "block.plain" attributes {elements = 256 : i64, gradient_offset = 0 : i64, holders = array<i64>, norm_weight = 1.0 : f64, number = 0 : i64, optimizer = "Lion", part_elements = 256 : i64, partial = [], share = [], state_offset = 0 : i64, stored = f32, stored_offset = 0 : i64} {
    }
  }
}

// -----

module @bucket_c6_sign_without_rate {
  exec.segment "block" attributes {gradient_bytes = 0 : i64, parameter_bytes = 0 : i64, state_bytes = 0 : i64} {
    // expected-error @+1 {{needs a sign_rate above 0 for the optimizer Sign alone, got 0}}
    exec.bucket "block.plain" attributes {elements = 256 : i64, gradient_offset = 0 : i64, holders = array<i64>, norm_weight = 1.0 : f64, number = 0 : i64, optimizer = "Sign", part_elements = 256 : i64, partial = [], share = [], state_offset = 0 : i64, stored = f32, stored_offset = 0 : i64} {
    }
  }
}

// -----

module @bucket_c7_split_rows_without_a_matrix {
  exec.segment "block" attributes {gradient_bytes = 0 : i64, parameter_bytes = 0 : i64, state_bytes = 0 : i64} {
    // expected-error @+1 {{needs a matrix and axes pp, dp, cp, ep or tp for its rows and columns, got ["tp"]}}
    exec.bucket "block.plain" attributes {elements = 256 : i64, gradient_offset = 0 : i64, holders = array<i64>, norm_weight = 1.0 : f64, number = 0 : i64, part_elements = 256 : i64, partial = [], row_axes = ["tp"], share = [], state_offset = 0 : i64, stored = f32, stored_offset = 0 : i64} {
    }
  }
}

// -----

module @bucket_c8_part_of_a_row {
  exec.segment "block" attributes {gradient_bytes = 0 : i64, parameter_bytes = 0 : i64, state_bytes = 0 : i64} {
    // expected-error @+1 {{needs a clip with heads, columns and axes of a mesh, and parts of whole rows, got #exec.bucket_clip<counter = "largest0", dim = "heads", exponent = 5.000000e-01, heads = 3, columns = 4> and parts of 128 elements}}
    exec.bucket "block.decayed" attributes {clip = #exec.bucket_clip<counter = "largest0", dim = "heads", exponent = 0.5, heads = 3, columns = 4>, elements = 128 : i64, gradient_offset = 0 : i64, holders = array<i64>, norm_weight = 1.0 : f64, number = 0 : i64, part_elements = 128 : i64, partial = [], share = [], state_offset = 0 : i64, stored = f32, stored_offset = 0 : i64} {
    }
  }
}

// -----

module @parameter_c1_ranks_differ {
  exec.segment "block" attributes {gradient_bytes = 0 : i64, parameter_bytes = 0 : i64, state_bytes = 0 : i64} {
    exec.bucket "block.plain" attributes {elements = 256 : i64, gradient_offset = 0 : i64, holders = array<i64>, norm_weight = 1.0 : f64, number = 0 : i64, part_elements = 256 : i64, partial = [], share = [], state_offset = 0 : i64, stored = f32, stored_offset = 0 : i64} {
      // expected-error @+1 {{needs a tensor, a sharding and two shapes of one rank, got 'tensor<4x6xf32, #model.dims<a, b>>'}}
      exec.parameter "w" {first = 0 : i64, initializer = "zeros", local = tensor<4x6xf32, #model.dims<a, b>>, padded_shape = array<i64: 4, 6>, shape = array<i64: 4>, sharding = #dist.sharding<[{ }, { }]>, stddev = 0.0 : f64}
    }
  }
}

// -----

module @parameter_c2_unknown_initializer {
  exec.segment "block" attributes {gradient_bytes = 0 : i64, parameter_bytes = 0 : i64, state_bytes = 0 : i64} {
    exec.bucket "block.plain" attributes {elements = 256 : i64, gradient_offset = 0 : i64, holders = array<i64>, norm_weight = 1.0 : f64, number = 0 : i64, part_elements = 256 : i64, partial = [], share = [], state_offset = 0 : i64, stored = f32, stored_offset = 0 : i64} {
      // expected-error @+1 {{needs initializer zeros, ones or normal, got uniform}}
      exec.parameter "w" {first = 0 : i64, initializer = "uniform", local = tensor<4xf32, #model.dims<a>>, padded_shape = array<i64: 4>, shape = array<i64: 4>, sharding = #dist.sharding<[{ }]>, stddev = 0.0 : f64}
    }
  }
}

// -----

module @region_c1_unknown {
  // expected-error @+1 {{needs a region of plan.proto, got attic}}
  exec.region "attic" of "tokens" {bytes = 8 : i64, offset = 0 : i64}
}

// -----

module @region_c2_negative {
  // expected-error @+1 {{needs an offset and bytes of at least 0, got 0 and -1}}
  exec.region "inputs" of "tokens" {bytes = -1 : i64, offset = 0 : i64}
}
