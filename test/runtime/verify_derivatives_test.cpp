// Rule L: the subprograms of a call agree on random bits, attentions, rotations and routes. A case is a small call that
// is right, one change, and the words that must come.
#include "runtime/verify/rules.h"

#include <functional>
#include <gtest/gtest.h>

namespace espalier::rt::verify {
namespace {

/// A call with the weights a, b, q, k and v, which lie in one bucket; other values are known by their names.
class ToyCall {
public:
  ToyCall();

  uint32_t value(const std::string &name);
  pb::Buffer buffer(const std::string &name) {
    pb::Buffer buffer;
    buffer.set_value(value(name));
    return buffer;
  }
  pb::Subprogram &program(const std::string &name) {
    for (pb::Subprogram &known : *plan.mutable_subprograms())
      if (known.name() == name)
        return known;
    pb::Subprogram &added = *plan.add_subprograms();
    added.set_name(name);
    plan.mutable_stages(0)->mutable_calls(0)->add_programs(static_cast<uint32_t>(plan.subprograms_size()));
    return added;
  }
  pb::LibraryCall &call(const std::string &to, pb::LibraryCall::Function function,
                        const std::vector<std::string> &buffers, std::initializer_list<int64_t> sizes) {
    pb::LibraryCall &made = *program(to).add_instructions()->mutable_call();
    made.set_function(function);
    for (const std::string &name : buffers)
      *made.add_buffers() = buffer(name);
    for (int64_t size : sizes)
      made.add_sizes(size);
    made.set_store(buffers.back().ends_with(".gradient") ? pb::ADD : pb::OVERWRITE);
    return made;
  }
  void product(const std::string &to, const std::string &a, const std::string &b, const std::string &c) {
    call(to, pb::LibraryCall::MATMUL, {a, b, c}, {1, 1, 1, 1});
  }
  /// A row kernel, or one of another shape, that draws the bits of some ops.
  void row(const std::string &to, const std::vector<std::string> &reads, const std::vector<std::string> &writes,
           std::initializer_list<int64_t> draws, const char *shape = "row");
  void attend(const std::string &to, bool isForward, double rate);

  std::string faults() const {
    PlanErrors errors;
    verifyDerivatives(plan, Mesh(plan.mesh()), errors);
    return fmt::format("{}", fmt::join(errors.list, "\n"));
  }

  pb::Plan plan;
};

ToyCall::ToyCall() {
  for (auto set : {&pb::Mesh::set_pp, &pb::Mesh::set_dp, &pb::Mesh::set_cp, &pb::Mesh::set_ep, &pb::Mesh::set_tp})
    (plan.mutable_mesh()->*set)(1);
  plan.add_regions("workspace");
  plan.add_stages()->add_calls();
  pb::Bucket &bucket = *plan.add_buckets();
  *bucket.mutable_stored() = buffer("stored");
  *bucket.mutable_gradient() = buffer("gradients");
  uint64_t first = 0;
  for (const char *weight : {"a", "b", "q", "k", "v"}) {
    for (bool isGradient : {false, true}) {
      uint32_t number = value(weight + std::string(isGradient ? ".gradient" : ""));
      uint32_t whole = value(isGradient ? "gradients" : "stored");
      plan.mutable_values(static_cast<int>(number))->set_whole(whole + 1);
      plan.mutable_values(static_cast<int>(number))->set_first(first);
    }
    first += 128;
  }
}

uint32_t ToyCall::value(const std::string &name) {
  for (int i = 0; i < plan.values_size(); ++i)
    if (plan.values(i).name() == name)
      return static_cast<uint32_t>(i);
  pb::Value &added = *plan.add_values();
  added.set_name(name);
  added.set_elements(1);
  return static_cast<uint32_t>(plan.values_size() - 1);
}

void ToyCall::row(const std::string &to, const std::vector<std::string> &reads, const std::vector<std::string> &writes,
                  std::initializer_list<int64_t> draws, const char *shape) {
  pb::Launch &launch = *program(to).add_instructions()->mutable_launch();
  launch.set_kernel(static_cast<uint32_t>(plan.kernels_size()));
  pb::Kernel &kernel = *plan.add_kernels();
  kernel.set_shape(shape);
  for (const auto *names : {&reads, &writes})
    for (const std::string &name : *names) {
      kernel.add_operands()->set_access(names == &reads ? pb::Operand::READ : pb::Operand::WRITE);
      *launch.add_buffers() = buffer(name);
    }
  for (int64_t op : draws) {
    kernel.add_uses(pb::Kernel::STREAM);
    launch.add_scalars()->set_constant(op);
  }
}

void ToyCall::attend(const std::string &to, bool isForward, double rate) {
  std::string own = to == "evaluate" ? "e." : "";
  std::vector<std::string> buffers = {own + "rq", own + "rk", own + "xv", own + "out", own + "lse", "step"};
  if (!isForward)
    buffers = {"rq", "rk", "xv", "out", "lse", "cotangent", "step", "drq", "drk", "dv"};
  auto function = isForward ? pb::LibraryCall::ATTENTION_FORWARD : pb::LibraryCall::ATTENTION_BACKWARD;
  pb::LibraryCall &made = call(to, function, buffers, {1, 1, 1, 1, 1});
  made.add_scalars()->set_constant(3);
  made.add_floats(0.5);
  made.add_floats(rate);
}

/// stream · a → draw 1 → · b → draw 2. Backward one kernel draws 1 twice: for what it computes again, and for a
/// cotangent.
ToyCall drops() {
  ToyCall toy;
  toy.product("forward", "stream", "a", "y");
  toy.row("forward", {"y"}, {"z"}, {1});
  toy.product("forward", "z", "b", "u");
  toy.row("forward", {"u", "z"}, {"stream_out"}, {2});
  toy.row("backward", {"cotangent"}, {"du"}, {2});
  toy.product("backward", "du", "b", "dz");
  toy.product("backward", "z", "du", "b.gradient");
  toy.row("backward", {"y", "dz", "cotangent"}, {"dy", "z.again"}, {1, 1});
  toy.product("backward", "stream", "dy", "a.gradient");
  return toy;
}

/// Rotated queries and keys, values, attention; all of it again in evaluation, at no rate.
ToyCall attends() {
  ToyCall toy;
  for (const char *phase : {"forward", "evaluate"}) {
    if (phase == std::string("evaluate")) { // backward stands before it, as roles have it
      toy.attend("backward", /*isForward=*/false, 0.1);
      toy.call("backward", pb::LibraryCall::ROPE, {"drq", "positions", "dq"}, {1, 1, 2, 1}).add_floats(10000);
      toy.call("backward", pb::LibraryCall::ROPE, {"drk", "positions", "dk"}, {1, 1, 2, 1}).add_floats(10000);
      for (const char *weight : {"q", "k", "v"})
        toy.product("backward", "stream", std::string("d") + weight, std::string(weight) + ".gradient");
    }
    std::string own = phase == std::string("evaluate") ? "e." : "";
    for (const char *weight : {"q", "k", "v"})
      toy.product(phase, "stream", weight, own + "x" + weight);
    toy.call(phase, pb::LibraryCall::ROPE, {own + "xq", "positions", own + "rq"}, {1, 1, 2, 0}).add_floats(10000);
    toy.call(phase, pb::LibraryCall::ROPE, {own + "xk", "positions", own + "rk"}, {1, 1, 2, 0}).add_floats(10000);
    toy.attend(phase, /*isForward=*/true, phase == std::string("forward") ? 0.1 : 0);
  }
  return toy;
}

/// As ZeRO 3 has it: calls read weights that were gathered from own parts.
ToyCall attendsGathered() {
  ToyCall toy = attends();
  pb::Bucket &bucket = *toy.plan.mutable_buckets(0);
  *bucket.mutable_whole_stored() = bucket.stored();
  *bucket.mutable_stored() = toy.buffer("own");
  return toy;
}

/// Attention as cuda has it: a kernel forward, one for the derivatives of keys and values, one for that of queries.
ToyCall attendsOnDevice() {
  ToyCall toy;
  for (const char *weight : {"q", "k", "v"})
    toy.product("forward", "stream", weight, std::string("x") + weight);
  toy.row("forward", {"xq", "xk", "xv", "step"}, {"out", "lse"}, {3}, "attention_forward");
  toy.row("backward", {"xq", "xk", "xv", "lse", "cotangent", "out", "step"}, {"dq", "delta"}, {3}, "attention_query_gradient");
  toy.row("backward", {"xq", "xk", "xv", "lse", "cotangent", "delta", "step"}, {"dk", "dv"}, {3}, "attention_key_gradient");
  for (const char *weight : {"q", "k", "v"})
    toy.product("backward", "stream", std::string("d") + weight, std::string(weight) + ".gradient");
  return toy;
}

/// A product with gelu, and its derivative behind the product of backward.
ToyCall activates() {
  ToyCall toy;
  toy.call("forward", pb::LibraryCall::MATMUL, {"stream", "a", "active", "b", "wide"}, {1, 1, 1, 1})
      .set_epilogue(pb::LibraryCall::BIAS_GELU);
  toy.product("forward", "active", "q", "stream_out");
  toy.call("backward", pb::LibraryCall::MATMUL, {"cotangent", "q", "dwide", "wide"}, {1, 1, 1, 1})
      .set_epilogue(pb::LibraryCall::GELU_GRADIENT);
  toy.product("backward", "active", "cotangent", "q.gradient");
  toy.product("backward", "stream", "dwide", "a.gradient");
  return toy;
}

/// Rows of tokens go to experts and back.
ToyCall routes() {
  ToyCall toy;
  toy.call("forward", pb::LibraryCall::ROUTE, {"scores", "ids", "slots"}, {1, 1, 1, 1, 1});
  toy.call("forward", pb::LibraryCall::DISPATCH, {"ids", "slots", "stream", "rows"}, {1, 1, 1, 1, 1, 1, 0});
  toy.call("forward", pb::LibraryCall::COMBINE, {"ids", "slots", "rows", "stream_out"}, {1, 1, 1, 1, 1, 1, 0});
  return toy;
}

ToyCall routesOnDevice() {
  ToyCall toy;
  toy.row("forward", {"scores"}, {"ids"}, {}, "choose_experts");
  toy.row("forward", {"ids"}, {"slots"}, {}, "give_slots");
  toy.row("forward", {"ids", "slots"}, {"places"}, {}, "find_rows");
  toy.row("forward", {"ids", "slots", "rows"}, {"stream_out"}, {}, "combine");
  return toy;
}

using Change = std::function<void(ToyCall &)>;

struct Case {
  const char *name, *expected; ///< empty: nothing is wrong
  ToyCall (*make)();
  Change change = [](ToyCall &) {};
};

Change draws(const char *program, int instruction, int which, int64_t op) {
  return [=](ToyCall &toy) {
    toy.program(program).mutable_instructions(instruction)->mutable_launch()->mutable_scalars(which)->set_constant(op);
  };
}
Change swaps(const char *program, int instruction, int buffer) {
  return [=](ToyCall &toy) {
    auto &call = *toy.program(program).mutable_instructions(instruction)->mutable_call();
    call.mutable_buffers()->SwapElements(buffer, buffer + 1);
  };
}
Change swapsLaunch(const char *program, int instruction, int buffer) {
  return [=](ToyCall &toy) {
    auto &launch = *toy.program(program).mutable_instructions(instruction)->mutable_launch();
    launch.mutable_buffers()->SwapElements(buffer, buffer + 1);
  };
}
Change turns(const char *program, int instruction, int64_t isInverse) {
  return [=](ToyCall &toy) {
    toy.program(program).mutable_instructions(instruction)->mutable_call()->set_sizes(3, isInverse);
  };
}
pb::LibraryCall &attention(ToyCall &toy, const char *program, int instruction) {
  return *toy.program(program).mutable_instructions(instruction)->mutable_call();
}

const Case cases[] = {
    {"Drops", "", drops},
    {"TheMaskOfAnotherPlace", "instruction 0: draws random bits of op 1, which forward draws for another place", drops,
     draws("backward", 0, 0, 1)},
    {"OneOfTwoMasksOfAKernel", "instruction 3: draws random bits of op 2, which forward draws for another place", drops,
     draws("backward", 3, 1, 2)},
    {"TheOtherOfTwoMasks", "backward, instruction 3: draws random bits of op 2", drops, draws("backward", 3, 0, 2)},
    {"AMaskThatForwardHasNot", "draws random bits of op 7, which forward does not draw", drops,
     draws("backward", 3, 1, 7)},
    {"ForwardTwiceOneMask", "draws random bits of op 1, which are drawn elsewhere by forward, instruction 1", drops,
     draws("forward", 3, 0, 1)},
    {"AMaskThatBackwardHasNot", "random bits of op 2 are drawn here, and not again backward", drops,
     [](ToyCall &toy) { toy.program("backward").mutable_instructions(0)->mutable_launch()->clear_scalars(); }},
    {"Attends", "", attends},
    {"KeysForQueries", "forward, instruction 5: has other queries than", attends, swaps("forward", 5, 0)},
    {"ValuesForKeysInEvaluation", "has other keys than", attends, swaps("evaluate", 5, 1)},
    {"KeysForQueriesBackward", "backward, instruction 0: has other queries than forward, instruction 5", attends,
     swaps("backward", 0, 0)},
    {"ResultForValues", "takes other results or another cotangent than those of forward, instruction 5", attends,
     swaps("backward", 0, 2)},
    {"DerivativesCrossed", "makes of the derivative of queries one of something else", attends,
     swaps("backward", 0, 7)},
    {"AnotherOp", "backward, instruction 0: is not the derivative of forward, instruction 5", attends,
     [](ToyCall &toy) { attention(toy, "backward", 0).mutable_scalars(0)->set_constant(4); }},
    {"AnotherScale", "has another scale, rate or mask than", attends,
     [](ToyCall &toy) { attention(toy, "evaluate", 5).set_floats(0, 0.25); }},
    {"AnotherRate", "has another scale, rate or mask than backward, instruction 0", attends,
     [](ToyCall &toy) { attention(toy, "forward", 5).set_floats(1, 0); }},
    {"NoMask", "has another scale, rate or mask than", attends,
     [](ToyCall &toy) { attention(toy, "backward", 0).set_causal(true); }},
    {"TurnedBackForward", "forward, instruction 3: turns what is no cotangent back", attends, turns("forward", 3, 1)},
    {"TurnedForthBackward", "backward, instruction 1: turns a cotangent forth", attends, turns("backward", 1, 0)},
    {"AnotherBase", "is the only rotation with the base 500", attends,
     [](ToyCall &toy) { attention(toy, "backward", 1).set_floats(0, 500); }},
    {"AttendsGathered", "", attendsGathered},
    {"KeysForQueriesGathered", "backward, instruction 0: has other queries than forward, instruction 5", attendsGathered,
     swaps("backward", 0, 0)},
    {"DerivativesCrossedGathered", "makes of the derivative of queries one of something else", attendsGathered,
     swaps("backward", 0, 7)},
    {"AttendsOnDevice", "", attendsOnDevice},
    {"KeysForQueriesOnDevice", "has other queries than forward, instruction 3", attendsOnDevice,
     swapsLaunch("backward", 0, 0)},
    {"CotangentForResultOnDevice", "takes other results or another cotangent than those of forward, instruction 3",
     attendsOnDevice, swapsLaunch("backward", 0, 4)},
    {"DerivativesCrossedOnDevice", "makes of the derivative of keys one of something else", attendsOnDevice,
     swapsLaunch("backward", 1, 7)},
    {"AnotherOpOnDevice", "instruction 1: is not the derivative of forward, instruction 3", attendsOnDevice,
     draws("backward", 1, 0, 4)},
    {"Gelu", "", activates},
    {"GeluResultForItsOperand", "backward, instruction 0: takes gelu's result for its operand", activates,
     [](ToyCall &toy) {
       *toy.program("backward").mutable_instructions(0)->mutable_call()->mutable_buffers(3) = toy.buffer("active");
     }},
    {"GeluOperandForItsResult", "forward, instruction 1: multiplies by what is kept for the derivative of gelu", activates,
     [](ToyCall &toy) {
       auto &call = *toy.program("forward").mutable_instructions(0)->mutable_call();
       call.mutable_buffers()->SwapElements(2, 4);
     }},
    {"Routes", "", routes},
    {"RoutesOnDevice", "", routesOnDevice},
    {"SlotsForIdsOnDevice", "forward, instruction 3: buffer 0 holds no ids of a route", routesOnDevice,
     swapsLaunch("forward", 3, 0)},
    {"SlotsForIds", "buffer 0 holds no ids of a route", routes, swaps("forward", 1, 0)},
    {"RouteCrossed", "buffer 1 holds no slots of a route", routes, swaps("forward", 0, 1)},
};

class CallsAgree : public testing::TestWithParam<Case> {};

TEST_P(CallsAgree, OrAreRefused) {
  ToyCall toy = GetParam().make();
  GetParam().change(toy);
  std::string faults = toy.faults(), expected = GetParam().expected;
  EXPECT_EQ(faults.empty(), expected.empty()) << faults;
  EXPECT_NE(faults.find(expected), std::string::npos) << faults;
}

INSTANTIATE_TEST_SUITE_P(Rule, CallsAgree, testing::ValuesIn(cases),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace
} // namespace espalier::rt::verify
