// Values with named dimensions for tests of shape rules.
#pragma once

#include "runtime/verify/dims.h"

#include <initializer_list>
#include <string>
#include <tuple>

namespace espalier::rt::verify {

/// A plan on a mesh with dp 2 and tp 2. No two dimensions have the same size.
class Toy {
public:
  Toy() {
    plan.mutable_mesh()->set_pp(1);
    plan.mutable_mesh()->set_dp(2);
    plan.mutable_mesh()->set_cp(1);
    plan.mutable_mesh()->set_ep(1);
    plan.mutable_mesh()->set_tp(2);
    plan.mutable_mesh()->set_ranks_per_host(8);
    plan.set_target("cpu");
    plan.mutable_settings()->set_vocabulary(250);
    for (auto [name, size, split] : {std::tuple("batch", 4, DP),
                                     std::tuple("seq", 6, AxisBit(0)),
                                     std::tuple("hidden", 16, AxisBit(0)),
                                     std::tuple("ffn", 20, TP),
                                     std::tuple("vocab", 128, TP),
                                     std::tuple("heads", 2, TP),
                                     std::tuple("head_dim", 5, AxisBit(0)),
                                     std::tuple("part", 2, AxisBit(0)),
                                     std::tuple("seq", 3, TP),
                                     std::tuple("seq", 3, AxisBit(0)),
                                     std::tuple("choice", 3, AxisBit(0)),
                                     std::tuple("router", 8, AxisBit(0)),
                                     std::tuple("expert", 8, AxisBit(0)),
                                     std::tuple("capacity", 7, AxisBit(0)),
                                     std::tuple("expert", 4, TP),
                                     std::tuple("row", 1, AxisBit(0)),
                                     std::tuple("heads", 4, AxisBit(0)),
                                     std::tuple("element", 42, AxisBit(0)),
                                     std::tuple("element_row", 14, AxisBit(0)),
                                     std::tuple("element_column", 3, AxisBit(0)),
                                     std::tuple("value_dim", 10, AxisBit(0)),
                                     std::tuple("value_dim", 10, TP),
                                     std::tuple("columns", 15, AxisBit(0))}) {
      pb::Dim &dim = *plan.add_dims();
      dim.set_name(name);
      dim.set_size(static_cast<uint64_t>(size));
      dim.set_split(split);
    }
  }

  /// Returns a buffer with a new value of these dimensions: b(atch), s(eq), h(idden), f(fn), v(ocab), n (heads), d
  /// (head_dim), p (a vocabulary shard), q (shard of seq), r (gathered), c(hoice), x (router), e(xpert), a (capacity),
  /// g (shard of expert), o (one row), m (all heads), k (a flat bucket), j and l
  /// (its rows and columns), w (value_dim), u (a shard of value_dim), y (columns of head_dim and value_dim).
  pb::Buffer operator()(const std::string &dims, uint32_t partial = 0) {
    pb::Buffer buffer;
    buffer.set_value(static_cast<uint32_t>(plan.values_size()));
    pb::Value &value = *plan.add_values();
    value.set_name(dims);
    value.set_elements(1);
    value.set_partial(partial);
    for (char letter : dims) {
      auto number = static_cast<int>(std::string("bshfvndpqrcxeagomkjlwuy").find(letter));
      value.add_dims(static_cast<uint32_t>(number));
      value.set_elements(value.elements() * plan.dims(number).size());
    }
    buffer.set_bytes(value.elements() * 4);
    return buffer;
  }

  pb::LibraryCall call(pb::LibraryCall::Function function, std::initializer_list<pb::Buffer> buffers,
                       std::initializer_list<int64_t> sizes) {
    pb::LibraryCall call;
    call.set_function(function);
    for (const pb::Buffer &buffer : buffers)
      *call.add_buffers() = buffer;
    for (int64_t size : sizes)
      call.add_sizes(size);
    return call;
  }

  Mesh mesh() const { return Mesh(plan.mesh()); }
  pb::Plan plan;
};

} // namespace espalier::rt::verify
