// RUN: espalier-opt --split-input-file --verify-diagnostics %s

exec.program @launch_c1 {
  // expected-error@+1 {{needs a kernel of the module, got @missing}}
  exec.launch {kernel = @missing, buffers = [], outputs = 0 : i64, scalars = [], extent = 1 : i64, grain = 1 : i64}
}

// -----

exec.program @call_c1 {
  // expected-error@+1 {{needs a function of functions.def, got sort}}
  exec.call {function = "sort", buffers = [], types = [], sizes = array<i64>}
}

// -----

exec.program @call_c4 {
  // expected-error@+1 {{needs an epilogue of functions.def, which only a matmul has, got swish}}
  exec.call {function = "matmul", buffers = [], types = [], sizes = array<i64>, epilogue = "swish"}
}

// -----

// Only matmul has epilogues.
exec.program @call_c4_not_of_a_product {
  // expected-error@+1 {{which only a matmul has, got bias}}
  exec.call {function = "zero", buffers = [], types = [], sizes = array<i64>, epilogue = "bias"}
}

// -----

#x = #exec.buffer<region = "saved", offset = 0, bytes = 8>

// The bias is missing.
exec.program @call_c5_count {
  // expected-error@+1 {{needs 4 buffers for matmul, got 3}}
  exec.call {function = "matmul", buffers = [#x, #x, #x], types = [f32, f32, f32],
             sizes = array<i64>, epilogue = "bias"}
}

// -----

#x = #exec.buffer<region = "saved", offset = 0, bytes = 8>

// The function has at most one optional buffer, the weights.
exec.program @call_c5_weights {
  exec.call {function = "dispatch", buffers = [#x, #x, #x, #x], types = [i32, i32, bf16, bf16],
             sizes = array<i64>}
  exec.call {function = "dispatch", buffers = [#x, #x, #x, #x, #x], types = [i32, i32, bf16, bf16, bf16], sizes = array<i64>}
  // expected-error@+1 {{needs 5 buffers for dispatch, got 6}}
  exec.call {function = "dispatch", buffers = [#x, #x, #x, #x, #x, #x], types = [i32, i32, bf16, bf16, bf16, bf16], sizes = array<i64>}
}

// -----

#x = #exec.buffer<region = "saved", offset = 0, bytes = 8>

// The table and the ids are swapped.
exec.program @call_c5_ids {
  // expected-error@+1 {{needs a float in buffer 0 (table) of embed, got 'i32'}}
  exec.call {function = "embed", buffers = [#x, #x, #x], types = [i32, f32, f32], sizes = array<i64>}
}

// -----

#x = #exec.buffer<region = "saved", offset = 0, bytes = 8>

// Partial sums must be f32.
exec.program @call_c5_sums {
  // expected-error@+1 {{needs f32 in buffer 0 (parts) of reduce_parts, got 'bf16'}}
  exec.call {function = "reduce_parts", buffers = [#x, #x], types = [bf16, f32], sizes = array<i64>}
}

// -----

#x = #exec.buffer<region = "saved", offset = 0, bytes = 8>

// Keys must have the type of the queries.
exec.program @call_c5_types_that_differ {
  // expected-error@+1 {{needs the float type of the other buffers in buffer 1 (k) of attention_forward, got 'bf16'}}
  exec.call {function = "attention_forward", buffers = [#x, #x, #x, #x, #x, #x], types = [f32, bf16, f32, f32, f32, i32],
             sizes = array<i64>}
}

// -----

exec.program @wait_c1 {
  // expected-error@+1 {{needs a start of id 3 before it}}
  exec.wait {id = 3 : i64}
}
