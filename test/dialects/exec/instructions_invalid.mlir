// RUN: espalier-opt --split-input-file --verify-diagnostics %s

exec.program @launch_c1 {
  // expected-error@+1 {{needs a kernel of the module, got @missing}}
  exec.launch {kernel = @missing, buffers = [], outputs = 0 : i64, scalars = [], extent = 1 : i64, grain = 1 : i64}
}

// -----

exec.program @call_c1 {
  // expected-error@+1 {{needs a function of plan.proto, got sort}}
  exec.call {function = "sort", buffers = [], types = [], outputs = 0 : i64, sizes = array<i64>}
}

// -----

exec.program @call_c4 {
  // expected-error@+1 {{needs an epilogue of plan.proto, which only a matmul has, got swish}}
  exec.call {function = "matmul", buffers = [], types = [], outputs = 0 : i64, sizes = array<i64>, epilogue = "swish"}
}

// -----

// No other library function does something on the way.
exec.program @call_c4_not_of_a_product {
  // expected-error@+1 {{which only a matmul has, got bias}}
  exec.call {function = "zero", buffers = [], types = [], outputs = 0 : i64, sizes = array<i64>, epilogue = "bias"}
}

// -----

#x = #exec.buffer<region = "saved", offset = 0, bytes = 8>

// The bias is missing.
exec.program @call_c5_count {
  // expected-error@+1 {{needs 4 buffers for matmul, got 3}}
  exec.call {function = "matmul", buffers = [#x, #x, #x], types = [f32, f32, f32], outputs = 1 : i64,
             sizes = array<i64>, epilogue = "bias"}
}

// -----

#x = #exec.buffer<region = "saved", offset = 0, bytes = 8>

// Weights are one buffer more, two are too many.
exec.program @call_c5_weights {
  exec.call {function = "dispatch", buffers = [#x, #x, #x, #x], types = [i32, i32, bf16, bf16], outputs = 1 : i64,
             sizes = array<i64>}
  exec.call {function = "dispatch", buffers = [#x, #x, #x, #x, #x], types = [i32, i32, bf16, bf16, bf16],
             outputs = 1 : i64, sizes = array<i64>}
  // expected-error@+1 {{needs 4 buffers for dispatch, got 6}}
  exec.call {function = "dispatch", buffers = [#x, #x, #x, #x, #x, #x], types = [i32, i32, bf16, bf16, bf16, bf16],
             outputs = 1 : i64, sizes = array<i64>}
}

// -----

#x = #exec.buffer<region = "saved", offset = 0, bytes = 8>

// Ids and rows of the table have changed places.
exec.program @call_c5_ids {
  // expected-error@+1 {{needs a float in buffer 0 of embed, got 'i32'}}
  exec.call {function = "embed", buffers = [#x, #x, #x], types = [i32, f32, f32], outputs = 1 : i64, sizes = array<i64>}
}

// -----

#x = #exec.buffer<region = "saved", offset = 0, bytes = 8>

// Sums are f32.
exec.program @call_c5_sums {
  // expected-error@+1 {{needs f32 in buffer 2 of embed_gradient, got 'bf16'}}
  exec.call {function = "embed_gradient", buffers = [#x, #x, #x], types = [i32, bf16, bf16], outputs = 1 : i64,
             sizes = array<i64>}
}

// -----

exec.program @wait_c1 {
  // expected-error@+1 {{needs a start of id 3 before it}}
  exec.wait {id = 3 : i64}
}
