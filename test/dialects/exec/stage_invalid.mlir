// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifiers of a stage and its parts.

module @stage_c1_one_arena {
  // expected-error @+1 {{needs arena bytes of device and host, got 1 numbers}}
  exec.stage attributes {arena_bytes = array<i64: 64>, first_layer = 0 : i64, layers = 1 : i64} {
  }
}

// -----

module @lifetime_c1_no_slot {
  exec.stage attributes {arena_bytes = array<i64: 64, 0>, first_layer = 0 : i64, layers = 1 : i64} {
    // expected-error @+1 {{needs at least one slot, got 0}}
    exec.lifetime "resident" slots 0
  }
}

// -----

module @place_c1_unknown_memory {
  exec.stage attributes {arena_bytes = array<i64: 64, 0>, first_layer = 0 : i64, layers = 1 : i64} {
    exec.lifetime "resident" slots 1
    // expected-error @+1 {{needs memory device or host, got disk}}
    exec.place {bytes = 64 : i64, lifetime = 0 : i64, memory = "disk", offsets = array<i64: 0>, stride = 64 : i64}
  }
}

// -----

module @place_c2_unknown_lifetime {
  exec.stage attributes {arena_bytes = array<i64: 64, 0>, first_layer = 0 : i64, layers = 1 : i64} {
    exec.lifetime "resident" slots 1
    // expected-error @+1 {{needs one of the stage's 1 lifetimes, got number 1}}
    exec.place {bytes = 64 : i64, lifetime = 1 : i64, memory = "device", offsets = array<i64: 0>, stride = 64 : i64}
  }
}

// -----

module @layer_c1_unknown_program {
  exec.stage attributes {arena_bytes = array<i64: 64, 0>, first_layer = 0 : i64, layers = 1 : i64} {
    // expected-error @+1 {{needs programs of the module by role, got "forward" @block.none.forward}}
    exec.layer "block.0" {bindings = [], buckets = [], layer = 1 : i64, programs = {forward = @block.none.forward}}
  }
}

// -----

module @layer_c2_unknown_place {
  exec.stage attributes {arena_bytes = array<i64: 64, 0>, first_layer = 0 : i64, layers = 1 : i64} {
    // expected-error @+1 {{needs bindings to the stage's 0 places, got #exec.binding<region = "saved", place = 0>}}
    exec.layer "block.0" {bindings = [#exec.binding<region = "saved", place = 0>], buckets = [], layer = 1 : i64, programs = {}}
  }
}

// -----

module @layer_c3_no_use {
  exec.stage attributes {arena_bytes = array<i64: 64, 0>, first_layer = 0 : i64, layers = 1 : i64} {
    // expected-error @+1 {{needs uses of buckets, got 3 : i64}}
    exec.layer "block.0" {bindings = [], buckets = [3], layer = 1 : i64, programs = {}}
  }
}

// -----

module @chunk_c1_beyond_last {
  exec.stage attributes {arena_bytes = array<i64: 64, 0>, first_layer = 0 : i64, layers = 1 : i64} {
    exec.layer "block.0" {bindings = [], buckets = [], layer = 1 : i64, programs = {}}
    // expected-error @+1 {{needs calls of the stage's 1 layers, got 2 from 0}}
    exec.chunk "layers" {calls = 2 : i64, first_call = 0 : i64, lifetimes = array<i64>}
  }
}

// -----

module @exchange_c1_unknown_layer {
  exec.stage attributes {arena_bytes = array<i64: 64, 0>, first_layer = 0 : i64, layers = 1 : i64} {
    // expected-error @+1 {{needs one of the stage's 0 layers, got number 0}}
    exec.exchange "tokens" {buffer = #exec.buffer<region = "staged", offset = 0, bytes = 8, value = "tokens">, call = 0 : i64, entries = [], split = []}
  }
}

// -----

module @memory_c1_negative {
  exec.stage attributes {arena_bytes = array<i64: 64, 0>, first_layer = 0 : i64, layers = 1 : i64} {
    // expected-error @+1 {{needs bytes of at least 0, got -64}}
    exec.memory "workspace" bytes -64
  }
}

// -----

module @list_c1_unknown_entry {
  exec.stage attributes {arena_bytes = array<i64: 64, 0>, first_layer = 0 : i64, layers = 1 : i64} {
    // expected-error @+1 {{needs an entry of the module, got train_step}}
    exec.list "train_step" {
    }
  }
}

// -----

module @block_c1_no_round {
  exec.entry "train_step" {finds = [], micro_batches = 1 : i64, writes = []}
  exec.stage attributes {arena_bytes = array<i64: 64, 0>, first_layer = 0 : i64, layers = 1 : i64} {
    exec.list "train_step" {
      // expected-error @+1 {{needs at least one round, got 0}}
      exec.block rounds 0 advance 0 {
      }
    }
  }
}

// -----

module @run_c1_unknown_role {
  exec.entry "train_step" {finds = [], micro_batches = 1 : i64, writes = []}
  exec.stage attributes {arena_bytes = array<i64: 64, 0>, first_layer = 0 : i64, layers = 1 : i64} {
    exec.layer "block.0" {bindings = [], buckets = [], layer = 1 : i64, programs = {}}
    exec.list "train_step" {
      exec.block rounds 1 advance 0 {
        // expected-error @+1 {{needs a role of plan.proto, got sideward}}
        exec.run "sideward" {calls = 1 : i64, first = array<i64>, first_call = 0 : i64, micro_batch = 0 : i64, slots = array<i64>}
      }
    }
  }
}

// -----

module @run_c2_beyond_last {
  exec.entry "train_step" {finds = [], micro_batches = 1 : i64, writes = []}
  exec.stage attributes {arena_bytes = array<i64: 64, 0>, first_layer = 0 : i64, layers = 1 : i64} {
    exec.layer "block.0" {bindings = [], buckets = [], layer = 1 : i64, programs = {}}
    exec.list "train_step" {
      exec.block rounds 1 advance 0 {
        // expected-error @+1 {{needs calls of the stage's 1 layers, got 1 from 1}}
        exec.run "forward" {calls = 1 : i64, first = array<i64>, first_call = 1 : i64, micro_batch = 0 : i64, slots = array<i64>}
      }
    }
  }
}

// -----

module @start_transfers_c1_unknown_layer {
  exec.entry "train_step" {finds = [], micro_batches = 1 : i64, writes = []}
  exec.stage attributes {arena_bytes = array<i64: 64, 0>, first_layer = 0 : i64, layers = 1 : i64} {
    exec.list "train_step" {
      exec.block rounds 1 advance 0 {
        // expected-error @+1 {{needs flights of the stage's 0 layers, got #exec.flight<transfer = "out", call = 0>}}
        exec.start_transfers [#exec.flight<transfer = "out", call = 0>]
      }
    }
  }
}

// -----

module @wait_transfers_c1_no_flight {
  exec.entry "train_step" {finds = [], micro_batches = 1 : i64, writes = []}
  exec.stage attributes {arena_bytes = array<i64: 64, 0>, first_layer = 0 : i64, layers = 1 : i64} {
    exec.list "train_step" {
      exec.block rounds 1 advance 0 {
        // expected-error @+1 {{needs flights of the stage's 0 layers, got "out"}}
        exec.wait_transfers ["out"]
      }
    }
  }
}
