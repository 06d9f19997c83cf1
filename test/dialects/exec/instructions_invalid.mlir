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
  // expected-error@+1 {{needs an epilogue of plan.proto, got swish}}
  exec.call {function = "matmul", buffers = [], types = [], outputs = 0 : i64, sizes = array<i64>, epilogue = "swish"}
}

// -----

exec.program @wait_c1 {
  // expected-error@+1 {{needs a start of id 3 before it}}
  exec.wait {id = 3 : i64}
}
