// Causal convolutions of channels over the sequence, like runtime/kernels/cpu/conv_loops.cpp. A thread sums the taps of
// a few neighbouring channels of one position. The weight's gradient is summed over positions by the warps of a block,
// each over every n-th position, and then over the warps in order.
#include "compiler/codegen/cuda/runs.h"

using namespace mlir;

namespace espalier::codegen::cuda {

namespace {

/// The inputs of convolutions. A sample is a run of positions.
class Inputs {
public:
  Inputs(KernelFunction &f, exec::KernelOp kernel, int width)
      : f(f), parameters(*kernel.getParameters()), element(typeParameter(kernel, has("type") ? "type" : "x")),
        width(width), taps(integerParameter(kernel, "taps", integerParameter(kernel, "before", 0) + 1)),
        own(has("zigzag") ? 2 : 1), channels(f, f.scalar("channels")), length(Expr(f, f.scalar("seq")) / own) {
    if (!has("parts"))
      return;
    kept = atMost(length, Expr(f, f.integer(taps - 1, 64)));
    count = Expr(f, f.scalar("edges")) / kept;
  }

  bool has(StringRef parameter) const { return parameters.contains(parameter); }

  /// Sets the position, counted over all samples.
  void setPosition(Expr at) {
    row = at;
    sample = at / length;
    t = at % length;
    start = has("parts") ? runNumber(f, sample, own, length, count) * length : Expr(f, f.integer(0, 64));
    if (has("carried"))
      position = wideAt(f, "positions", row);
  }

  /// Runs body(x) with the input that is `distance` positions from the position, or not at all if the convolution does
  /// not read it. The transposed convolution reads inputs at later positions.
  void visit(int64_t distance, Expr channel, const std::function<void(const std::vector<Expr> &)> &body) {
    bool isLater = has("transposed");
    Expr from = isLater ? t + distance : t - distance;
    when(isRead(distance, from), [&] {
      Expr isOwn = isLater ? from < length : from >= 0;
      if (!has("parts") && !has("carried"))
        return body(load("x", row + (from - t), channel));
      std::vector<Variable> values;
      for (int i = 0; i < width; ++i)
        values.emplace_back(Expr(f, f.number(0)));
      auto read = [&](StringRef operand, Expr at) {
        std::vector<Expr> loaded = load(operand, at, channel);
        for (int i = 0; i < width; ++i)
          values[i].set(loaded[i]);
      };
      when(isOwn, [&] { read("x", row + (from - t)); });
      when(isOwn == Expr(f, f.integer(0, 1)), [&] {
        if (has("carried"))
          read("halo", sample * (taps - 1) + (from + (taps - 1)));
        else
          read("edges", edgeOf(from));
      });
      std::vector<Expr> all;
      for (const Variable &value : values)
        all.push_back(value.get());
      body(all);
    });
  }

  std::vector<Expr> load(StringRef operand, Expr at, Expr channel) {
    return loadElements(elementAt(Expr(f, f.buffer(operand)), at * channels + channel, element), element, width);
  }

  KernelFunction &f;
  const DictionaryAttr parameters;
  const Type element;
  const int width;
  const int64_t taps, own;
  const Expr channels, length;

private:
  Expr isRead(int64_t distance, Expr from) {
    if (has("carried"))
      return position >= distance;
    if (!has("transposed"))
      return start + from >= beginOf(row, start + t);
    Expr end = has("parts") ? count * length : length, isThere = start + from < end;
    if (!has("visible_from") && !has("limited"))
      return isThere;
    Variable reads(Expr(f, f.integer(0, 1)));
    auto compare = [&](Expr visibleFrom) { reads.set(start + t >= clamped(visibleFrom, start + from)); };
    when(isThere & (from < length), [&] { compare(wideAt(f, "visible_from", row + distance)); });
    if (has("limited"))
      when(isThere & (from >= length), [&] { compare(wideAt(f, "limits", edgeOf(from))); });
    return reads.get();
  }

  Expr clamped(Expr visibleFrom, Expr at) { return atMost(atLeast(visibleFrom, Expr(f, f.integer(0, 64))), at); }

  /// Returns the first position that the convolution reads at position `at`.
  Expr beginOf(Expr ofRow, Expr at) {
    return has("visible_from") ? clamped(wideAt(f, "visible_from", ofRow), at) : Expr(f, f.integer(0, 64));
  }

  /// Returns the row among the edges of a position of another run: one of the last of an earlier run, or one of the
  /// first of a later run.
  Expr edgeOf(Expr from) {
    Expr at = start + from, within = at % length;
    if (!has("transposed"))
      within = within - (length - kept);
    return (sample / own * count + at / length) * kept + within;
  }

  Expr kept, count; ///< positions per run in the edges, and runs of a sequence
  Expr row, sample, t, start, position;
};

LogicalResult convolve(KernelFunction &f, exec::KernelOp kernel) {
  auto width = static_cast<int>(integerParameter(kernel, "width"));
  Inputs inputs(f, kernel, width);
  Type ofWeight = typeParameter(kernel, "weight"), ofResult = typeParameter(kernel, "y");
  Expr begin(f, f.blockBegin()), rows = Expr(f, f.blockEnd()) - begin, perRow = inputs.channels / width;
  loop(wide(Expr(f, f.threadIndex())), rows * perRow, f.geometry.getThreads(), [&](Expr piece) {
    Expr row = begin + piece / perRow, channel = piece % perRow * width;
    inputs.setPosition(row);
    std::vector<Variable> sums;
    for (int i = 0; i < width; ++i)
      sums.emplace_back(Expr(f, f.number(0)));
    for (int64_t distance = 0; distance < inputs.taps; ++distance)
      inputs.visit(distance, channel, [&](const std::vector<Expr> &x) {
        for (int i = 0; i < width; ++i) {
          Expr at = (channel + i) * inputs.taps + (inputs.taps - 1 - distance);
          Expr weight(f, f.load(f.buffer("weight"), at.get(), ofWeight));
          sums[i].set(sums[i].get() + weight * x[i]);
        }
      });
    std::vector<Expr> results;
    for (const Variable &sum : sums)
      results.push_back(sum.get());
    storeElements(results, elementAt(Expr(f, f.buffer("y")), row * inputs.channels + channel, ofResult), ofResult);
  });
  return success();
}

LogicalResult differentiateWeight(KernelFunction &f, exec::KernelOp kernel) {
  Inputs inputs(f, kernel, 1);
  int64_t warps = f.geometry.getThreads() / 32, taps = inputs.taps;
  Type f32 = f.b.getF32Type(), ofGradient = typeParameter(kernel, "dweight"), ofResult = typeParameter(kernel, "dy");
  Expr lane(f, f.laneIndex()), warp(f, f.warpIndex()), channel = Expr(f, f.blockBegin()) + wide(lane);
  Expr rows = Expr(f, f.scalar("batch")) * Expr(f, f.scalar("seq")), isChannel = channel < inputs.channels;
  std::vector<Variable> sums;
  for (int64_t i = 0; i < taps; ++i)
    sums.emplace_back(Expr(f, f.number(0)));
  when(isChannel, [&] {
    loop(wide(warp), rows, warps, [&](Expr row) {
      inputs.setPosition(row);
      Expr dy(f, f.load(f.buffer("dy"), (row * inputs.channels + channel).get(), ofResult));
      for (int64_t distance = 0; distance < taps; ++distance)
        inputs.visit(distance, channel, [&](const std::vector<Expr> &x) {
          Variable &sum = sums[taps - 1 - distance];
          sum.set(sum.get() + x[0] * dy);
        });
    });
  });
  auto place = [&](Expr ofWarp, int64_t tap) { return sharedAt(f, ((ofWarp * taps + tap) * 32 + lane) * 4); };
  for (int64_t tap = 0; tap < taps; ++tap)
    storeValue(sums[tap].get(), place(warp, tap));
  f.barrier();
  when((warp == 0) & isChannel, [&] {
    Destination destination = destinationOf(kernel);
    Expr adds(f, f.integer(destination == Destination::Add, 1));
    if (destination == Destination::AddUnlessFirst)
      adds = Expr(f, f.scalar("FIRST")) == 0;
    for (int64_t tap = 0; tap < taps; ++tap) {
      Expr to = elementAt(Expr(f, f.buffer("dweight")), channel * taps + tap, ofGradient);
      Variable total(Expr(f, f.number(0)));
      when(adds, [&] { total.set(loadElements(to, ofGradient, 1).front()); });
      for (int64_t i = 0; i < warps; ++i)
        total.set(total.get() + loadValue(place(Expr(f, f.integer(i)), tap), f32));
      storeElements({total.get()}, to, ofGradient);
    }
  });
  return success();
}

} // namespace

template <> LogicalResult build<SpecialKernel::causal_conv>(KernelFunction &f, exec::KernelOp kernel) {
  return convolve(f, kernel);
}

template <> LogicalResult build<SpecialKernel::causal_conv_carried>(KernelFunction &f, exec::KernelOp kernel) {
  return convolve(f, kernel);
}

template <> LogicalResult build<SpecialKernel::causal_conv_shard>(KernelFunction &f, exec::KernelOp kernel) {
  return convolve(f, kernel);
}

template <> LogicalResult build<SpecialKernel::causal_conv_limited>(KernelFunction &f, exec::KernelOp kernel) {
  return convolve(f, kernel);
}

template <> LogicalResult build<SpecialKernel::causal_conv_gradient>(KernelFunction &f, exec::KernelOp kernel) {
  return differentiateWeight(f, kernel);
}

template <> LogicalResult build<SpecialKernel::causal_conv_gradient_shard>(KernelFunction &f, exec::KernelOp kernel) {
  return differentiateWeight(f, kernel);
}

/// Moves the last inputs of a sequence to its halo, in order, because most of them may be in the halo already.
template <> LogicalResult build<SpecialKernel::keep_inputs>(KernelFunction &f, exec::KernelOp kernel) {
  Inputs inputs(f, kernel, 1);
  int64_t before = inputs.taps - 1;
  Expr sample(f, f.blockBegin()), seq(f, f.scalar("seq")), thread = wide(Expr(f, f.threadIndex()));
  Expr channel = wide(Expr(f, f.blockY())) * f.geometry.getColumnsPerBlock() + thread;
  Variable tokens(Expr(f, f.integer(0, 64)));
  loop(Expr(f, f.integer(0, 64)), seq, 1,
       [&](Expr t) { tokens.set(select(wideAt(f, "positions", sample * seq + t) >= 0, t + 1, tokens.get())); });
  when((channel < inputs.channels) & (tokens.get() > 0), [&] {
    for (int64_t i = 0; i < before; ++i) {
      Expr from = tokens.get() + (i - before), to = sample * before + i;
      Variable x(Expr(f, f.number(0)));
      when(from >= 0, [&] { x.set(inputs.load("x", sample * seq + from, channel)[0]); });
      when(from < 0, [&] { x.set(inputs.load("halo", sample * before + (from + before), channel)[0]); });
      Expr place = elementAt(Expr(f, f.buffer("halo")), to * inputs.channels + channel, inputs.element);
      storeElements({x.get()}, place, inputs.element);
    }
  });
  return success();
}

} // namespace espalier::codegen::cuda
