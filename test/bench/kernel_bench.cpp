// Measures the rates of library kernels on one thread, and of oneDNN for the same matrix products as a reference.
//   build/test/bench/kernel_bench --benchmark_filter=matmul
// items_per_second is FLOP/s of the products (attention: causal products only). bytes_per_second counts the bytes that
// must be read and written.
#include "runtime/kernels/kernels.h"

#include <benchmark/benchmark.h>
#ifdef ESPALIER_ONEDNN
#include <dnnl.hpp>
#endif

#include <cstdlib>
#include <cstring>
#include <vector>

namespace espalier::rt {

namespace {

/// A call with its buffers and scratch, whose parts run on this thread.
class Bench {
public:
  pb::LibraryCall call;
  std::vector<pb::DataType> types;
  bool packs = false; ///< packs the second operand once, before the time is taken

  explicit Bench(pb::LibraryCall::Function function, std::vector<int64_t> sizes, std::vector<double> floats = {}) {
    call.set_function(function);
    call.mutable_sizes()->Add(sizes.begin(), sizes.end());
    call.mutable_floats()->Add(floats.begin(), floats.end());
  }
  ~Bench() {
    for (void *memory : owned_)
      std::free(memory);
  }

  /// Adds a buffer of small values of `type`.
  void *buffer(pb::DataType type, int64_t elements, int32_t limit = 0) {
    int64_t bytes = elements * (type == pb::BF16 || type == pb::F16 ? 2 : 4);
    char *data = static_cast<char *>(allocate(bytes));
    for (int64_t i = 0; i < elements; ++i) {
      float value = static_cast<float>((i * 2654435761u) % 1000) / 1000.0f - 0.5f;
      uint32_t bits;
      std::memcpy(&bits, &value, 4);
      uint16_t half = static_cast<uint16_t>(type == pb::F16 ? 0x3000 + i % 512 : bits >> 16);
      int32_t id = limit ? static_cast<int32_t>((i * 2654435761u) % static_cast<uint32_t>(limit)) : 0;
      if (type == pb::I32)
        std::memcpy(data + i * 4, &id, 4);
      else if (type == pb::F32)
        std::memcpy(data + i * 4, &value, 4);
      else
        std::memcpy(data + i * 2, &half, 2);
    }
    call.add_buffers()->set_bytes(static_cast<uint64_t>(bytes));
    types.push_back(type);
    buffers_.push_back(data);
    return data;
  }

  void run(benchmark::State &state, bool adds = false) {
    std::unique_ptr<LibraryKernel> kernel = makeLibraryKernel(call, types, /*threads=*/1);
    std::vector<int64_t> scalars(4, 0);
    void *scratch = allocate(static_cast<int64_t>(kernel->scratchBytesPerThread()));
    CallArguments arguments{.buffers = buffers_.data(),
                            .scalars = scalars.data(),
                            .adds = adds,
                            .scratch = allocate(static_cast<int64_t>(kernel->sharedScratchBytes())),
                            .seed = 1};
    if (packs) {
      void *packed = allocate(static_cast<int64_t>(kernel->packedBytes()));
      for (int64_t part = 0; part < kernel->packParts(); ++part)
        kernel->pack(buffers_[1], packed, part);
      arguments.packed = packed;
    }
    scalars[3] = call.sizes_size() > 1 ? call.sizes(1) : 0;
    for ([[maybe_unused]] auto _ : state) {
      for (int64_t part = 0; part < kernel->parts(); ++part)
        kernel->run(arguments, part, scratch);
      kernel->finish(arguments);
    }
    state.counters["parts"] = static_cast<double>(kernel->parts());
  }

  void addScalars(int count) {
    for (int i = 0; i < count; ++i)
      call.add_scalars();
  }

private:
  void *allocate(int64_t bytes) {
    void *memory = std::aligned_alloc(64, static_cast<size_t>((bytes + 127) / 64 * 64));
    owned_.push_back(memory);
    return memory;
  }
  std::vector<void *> owned_, buffers_;
};

void countFlops(benchmark::State &state, double flops) {
  state.counters["FLOP/s"] = benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}

/// Arguments: m, n, k, transpose_a, transpose_b.
void matmul(benchmark::State &state, pb::DataType from, pb::DataType to, bool accumulate) {
  int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  Bench bench(pb::LibraryCall::MATMUL, {m, n, k, 1});
  bench.call.set_transpose_a(state.range(3) != 0);
  bench.call.set_transpose_b(state.range(4) != 0);
  bench.buffer(from, m * k);
  bench.buffer(from, k * n);
  bench.buffer(to, m * n);
  bench.run(state, accumulate);
  countFlops(state, 2.0 * static_cast<double>(m * n) * static_cast<double>(k));
}

/// The products of the experts of a dropless mixture: an expert has a slot for each token, and the first `filled` have
/// one. Arguments: experts, slots, filled, n, k. Compare with matmul of experts * filled rows.
void expertsMatmul(benchmark::State &state, pb::DataType type) {
  int64_t experts = state.range(0), slots = state.range(1), filled = state.range(2), n = state.range(3);
  int64_t k = state.range(4), bytes = type == pb::F32 ? 4 : 2;
  Bench bench(pb::LibraryCall::MATMUL, {slots, n, k, experts});
  char *rows = static_cast<char *>(bench.buffer(type, experts * slots * k));
  for (int64_t expert = 0; expert < experts; ++expert)
    std::memset(rows + (expert * slots + filled) * k * bytes, 0, static_cast<size_t>((slots - filled) * k * bytes));
  bench.buffer(type, experts * k * n);
  bench.buffer(type, experts * slots * n);
  bench.run(state);
  countFlops(state, 2.0 * static_cast<double>(experts * filled * n) * static_cast<double>(k));
}

/// The head of GPT-2 for a batch of eight sequences that decode one token each.
void decodeMatmul(benchmark::State &state, bool packs) {
  int64_t m = 8, n = 50257, k = 768;
  Bench bench(pb::LibraryCall::MATMUL, {m, n, k, 1});
  bench.packs = packs;
  bench.call.set_transpose_b(true);
  for (int64_t elements : {m * k, k * n, m * n})
    bench.buffer(pb::F32, elements);
  bench.run(state);
  state.SetBytesProcessed(state.iterations() * 4 * k * n);
}

#ifdef ESPALIER_ONEDNN
dnnl::memory::data_type oneDnnType(pb::DataType type) {
  return type == pb::BF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

void oneDnn(benchmark::State &state, pb::DataType from, pb::DataType to) {
  using Tag = dnnl::memory::format_tag;
  int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  Bench data(pb::LibraryCall::MATMUL, {});
  dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  dnnl::memory::desc a({m, k}, oneDnnType(from), state.range(3) ? Tag::ba : Tag::ab);
  dnnl::memory::desc b({k, n}, oneDnnType(from), state.range(4) ? Tag::ba : Tag::ab);
  dnnl::memory::desc c({m, n}, oneDnnType(to), Tag::ab);
  dnnl::matmul product(dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), engine));
  dnnl::memory left(a, engine, data.buffer(from, m * k)), right(b, engine, data.buffer(from, k * n));
  dnnl::memory sum(c, engine, data.buffer(to, m * n));
  for ([[maybe_unused]] auto _ : state)
    product.execute(stream, {{DNNL_ARG_SRC, left}, {DNNL_ARG_WEIGHTS, right}, {DNNL_ARG_DST, sum}});
  countFlops(state, 2.0 * static_cast<double>(m * n) * static_cast<double>(k));
}
#endif

/// Arguments: batch, sequence, kv heads, group, head dimension.
void attention(benchmark::State &state, pb::DataType type, bool backward, double rate) {
  int64_t batch = state.range(0), sequence = state.range(1), heads = state.range(2), group = state.range(3);
  int64_t dim = state.range(4), q = batch * sequence * heads * group * dim, k = batch * sequence * heads * dim;
  Bench bench(backward ? pb::LibraryCall::ATTENTION_BACKWARD : pb::LibraryCall::ATTENTION_FORWARD,
              {batch, sequence, heads, group, dim}, {0.125, rate});
  bench.call.set_causal(true);
  bench.addScalars(4);
  for (int64_t elements : {q, k, k, q})
    bench.buffer(type, elements);
  bench.buffer(pb::F32, q / dim);
  if (backward)
    bench.buffer(type, q);
  bench.buffer(pb::I32, 1);
  if (backward)
    for (int64_t elements : {q, k, k})
      bench.buffer(type, elements);
  bench.run(state);
  double product = 2.0 * static_cast<double>(q) * static_cast<double>(sequence + 1) / 2;
  countFlops(state, (backward ? 5 : 2) * product);
}

void embedGradient(benchmark::State &state, bool accumulate) {
  int64_t tokens = 4096, rows = 50257, hidden = 768;
  Bench bench(pb::LibraryCall::EMBED_GRADIENT, {tokens, rows, hidden});
  bench.addScalars(1);
  bench.buffer(pb::I32, tokens, 50257);
  bench.buffer(pb::F32, tokens * hidden);
  bench.buffer(pb::F32, rows * hidden);
  bench.run(state, accumulate);
  state.SetBytesProcessed(state.iterations() * (accumulate ? 12 * tokens * hidden : 4 * rows * hidden));
}

void embed(benchmark::State &state) {
  int64_t tokens = 4096, rows = 50257, hidden = 768;
  Bench bench(pb::LibraryCall::EMBED, {tokens, rows, hidden});
  bench.addScalars(1);
  bench.buffer(pb::F32, rows * hidden);
  bench.buffer(pb::I32, tokens, 50257);
  bench.buffer(pb::F32, tokens * hidden);
  bench.run(state);
  state.SetBytesProcessed(state.iterations() * 8 * tokens * hidden);
}

void rope(benchmark::State &state, pb::DataType type) {
  int64_t tokens = 4096, heads = 12, dim = 64;
  Bench bench(pb::LibraryCall::ROPE, {tokens, heads, dim, 0}, {10000});
  int64_t bytes = bench.call.sizes(0) * heads * dim * (type == pb::F32 ? 4 : 2);
  bench.buffer(type, tokens * heads * dim);
  bench.buffer(pb::I32, tokens, 1024);
  bench.buffer(type, tokens * heads * dim);
  bench.run(state);
  state.SetBytesProcessed(state.iterations() * 2 * bytes);
}

void squaredNorm(benchmark::State &state) {
  int64_t elements = 32 << 20;
  Bench bench(pb::LibraryCall::SQUARED_NORM, {elements}, {1});
  bench.buffer(pb::F32, elements);
  bench.buffer(pb::F32, 1);
  bench.run(state);
  state.SetBytesProcessed(state.iterations() * 4 * elements);
}

void reduceParts(benchmark::State &state) {
  int64_t parts = 8, elements = 1 << 20;
  Bench bench(pb::LibraryCall::REDUCE_PARTS, {parts, elements});
  bench.buffer(pb::F32, parts * elements);
  bench.buffer(pb::F32, elements);
  bench.run(state);
  state.SetBytesProcessed(state.iterations() * 4 * (parts + 1) * elements);
}

void copy(benchmark::State &state) {
  int64_t bytes = 128 << 20;
  Bench bench(pb::LibraryCall::COPY, {1, bytes, bytes});
  bench.buffer(pb::F32, bytes / 4);
  bench.buffer(pb::F32, bytes / 4);
  bench.run(state);
  state.SetBytesProcessed(state.iterations() * bytes);
}

void productShapes(benchmark::internal::Benchmark *benchmark) {
  for (std::vector<int64_t> shape : {std::vector<int64_t>{64, 64, 64},
                                     {256, 768, 768},
                                     {256, 3072, 768},
                                     {1024, 768, 3072},
                                     {1024, 3072, 768},
                                     {4096, 768, 3072},
                                     {4096, 3072, 768},
                                     {1024, 50257, 768}})
    for (std::vector<int64_t> transposed : {std::vector<int64_t>{0, 0}, {0, 1}, {1, 0}})
      benchmark->Args({shape[0], shape[1], shape[2], transposed[0], transposed[1]});
}

void attentionShapes(benchmark::internal::Benchmark *benchmark) {
  benchmark->Args({1, 1024, 12, 1, 64})->Args({1, 2048, 2, 4, 128});
}

BENCHMARK_CAPTURE(matmul, f32, pb::F32, pb::F32, false)->Apply(productShapes);
BENCHMARK_CAPTURE(matmul, bf16, pb::BF16, pb::BF16, false)->Apply(productShapes);
BENCHMARK_CAPTURE(matmul, bf16_gradient, pb::BF16, pb::F32, true)->Args({768, 3072, 1024, 1, 0});
BENCHMARK_CAPTURE(matmul, f16, pb::F16, pb::F16, false)->Args({1024, 3072, 768, 0, 0});
BENCHMARK_CAPTURE(expertsMatmul, bf16, pb::BF16)->Args({128, 2048, 128, 768, 1024});
BENCHMARK_CAPTURE(expertsMatmul, f32, pb::F32)->Args({128, 2048, 128, 768, 1024});
BENCHMARK_CAPTURE(matmul, bf16_as_experts, pb::BF16, pb::BF16, false)->Args({16384, 768, 1024, 0, 0});
BENCHMARK_CAPTURE(matmul, f32_as_experts, pb::F32, pb::F32, false)->Args({16384, 768, 1024, 0, 0});
BENCHMARK_CAPTURE(decodeMatmul, packs_each_time, false);
BENCHMARK_CAPTURE(decodeMatmul, packed_once, true);
#ifdef ESPALIER_ONEDNN
BENCHMARK_CAPTURE(oneDnn, f32, pb::F32, pb::F32)->Apply(productShapes);
BENCHMARK_CAPTURE(oneDnn, bf16, pb::BF16, pb::BF16)->Apply(productShapes);
#endif
BENCHMARK_CAPTURE(attention, forward_f32, pb::F32, false, 0.0)->Apply(attentionShapes);
BENCHMARK_CAPTURE(attention, forward_f32_dropout, pb::F32, false, 0.1)->Args({1, 1024, 12, 1, 64});
BENCHMARK_CAPTURE(attention, forward_bf16, pb::BF16, false, 0.0)->Apply(attentionShapes);
BENCHMARK_CAPTURE(attention, backward_f32, pb::F32, true, 0.0)->Apply(attentionShapes);
BENCHMARK_CAPTURE(attention, backward_f32_dropout, pb::F32, true, 0.1)->Args({1, 1024, 12, 1, 64});
BENCHMARK_CAPTURE(attention, backward_bf16, pb::BF16, true, 0.0)->Apply(attentionShapes);
BENCHMARK(embed);
BENCHMARK_CAPTURE(embedGradient, overwrite, false);
BENCHMARK_CAPTURE(embedGradient, accumulate, true);
BENCHMARK_CAPTURE(rope, f32, pb::F32);
BENCHMARK_CAPTURE(rope, bf16, pb::BF16);
BENCHMARK(squaredNorm);
BENCHMARK(reduceParts);
BENCHMARK(copy);

} // namespace

} // namespace espalier::rt

BENCHMARK_MAIN();
