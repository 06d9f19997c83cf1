// Rule K for library calls: sizes, transposition and scalars follow from the names of dimensions.
#include "runtime/abi.h"
#include "runtime/verify/dims.h"

#include <algorithm>

namespace espalier::rt::verify {
namespace {

class Product {
public:
  Product(const pb::Plan &plan, const Mesh &mesh, const pb::LibraryCall &call)
      : plan(plan), mesh(mesh), shapes(plan, mesh), call(call) {}

  /// What is wrong with the call, or nothing.
  std::string fault();

private:
  std::string matmul();
  std::string epilogue(const Dims &c, const Dims &n) const;
  std::string attention(bool isForward);
  std::string attendCache();
  std::string embed(bool isForward);
  std::string rope();
  std::string copy();
  std::string rearrange();
  std::string takeRow();
  std::string route();
  std::string moveRows(bool isDispatch);
  std::string reduceParts();
  std::string updateScalars();
  std::string scalars(const std::vector<pb::Affine> &wanted) const;
  std::string sizes(const std::vector<int64_t> &wanted) const;
  std::string unlike(int a, int b) const {
    return fmt::format("buffers {} and {} hold {} and {}", a, b, textOf(dims[static_cast<size_t>(a)]),
                       textOf(dims[static_cast<size_t>(b)]));
  }
  const Dims &of(int buffer) const { return dims[static_cast<size_t>(buffer)]; }
  int64_t widthAt(int buffer) const {
    return widthOf(plan.values(static_cast<int>(call.buffers(buffer).value())).type());
  }

  const pb::Plan &plan;
  const Mesh &mesh;
  Shapes shapes;
  const pb::LibraryCall &call;
  std::vector<Dims> dims; ///< by buffer
};

Dims prefix(const Dims &dims, size_t count) {
  return Dims(dims.begin(), dims.begin() + static_cast<int64_t>(std::min(count, dims.size())));
}

std::string Product::fault() {
  using Call = pb::LibraryCall;
  bool draws = call.function() == Call::ATTENTION_FORWARD || call.function() == Call::ATTENTION_BACKWARD;
  bool hasRow = call.function() == Call::EMBED || call.function() == Call::EMBED_GRADIENT;
  if (call.causal() && !draws)
    return "is no attention and masks later positions";
  if ((call.transpose_a() || call.transpose_b()) && call.function() != Call::MATMUL)
    return "transposes what is no product's operand";
  if (call.epilogue() != Call::NONE && call.function() != Call::MATMUL)
    return "has an epilogue, which only products have";
  if (!draws && !hasRow && !call.scalars().empty())
    return fmt::format("has {} scalars and takes none", call.scalars_size());
  if (call.function() == Call::UPDATE_SCALARS)
    return updateScalars();
  int known = 0;
  for (const pb::Buffer &buffer : call.buffers()) {
    bool isSlice = call.function() == Call::COPY && dims.empty() && call.sizes_size() == 3 && call.sizes(0) * call.sizes(1) != call.sizes(2);
    if (shapes.isLess(buffer) && !isSlice)
      return ""; // rule E's bytes are all that is known
    std::optional<Dims> found = shapes.of(buffer);
    known += found && !plan.values(static_cast<int>(buffer.value())).dims().empty();
    dims.push_back(found.value_or(Dims()));
    if (!found && known > 0)
      return fmt::format("buffer {} holds a value without dims", dims.size() - 1);
  }
  if (known == 0)
    return "";
  switch (call.function()) {
  case Call::MATMUL:
    return matmul();
  case Call::ATTENTION_FORWARD:
  case Call::ATTENTION_BACKWARD:
    return attention(call.function() == Call::ATTENTION_FORWARD);
  case Call::ATTEND_CACHE:
    return attendCache();
  case Call::EMBED:
  case Call::EMBED_GRADIENT:
    return embed(call.function() == Call::EMBED);
  case Call::ROPE:
    return rope();
  case Call::COPY:
    return copy();
  case Call::REARRANGE:
    return rearrange();
  case Call::TAKE_ROW:
    return takeRow();
  case Call::ROUTE:
    return route();
  case Call::DISPATCH:
  case Call::COMBINE:
    return moveRows(call.function() == Call::DISPATCH);
  case Call::REDUCE_PARTS:
    return reduceParts();
  default: // ZERO and SQUARED_NORM: bytes and elements are all they know
    return "";
  }
}

std::string Product::sizes(const std::vector<int64_t> &wanted) const {
  std::vector<int64_t> found(call.sizes().begin(), call.sizes().end());
  return found == wanted ? "" : fmt::format("has sizes {}, its dims give {}", fmt::join(found, " "), fmt::join(wanted, " "));
}

std::string Product::scalars(const std::vector<pb::Affine> &wanted) const {
  if (static_cast<size_t>(call.scalars_size()) != wanted.size())
    return fmt::format("has {} scalars, takes {}", call.scalars_size(), wanted.size());
  for (int i = 0; i < call.scalars_size(); ++i)
    if (!isSame(call.scalars(i), wanted[static_cast<size_t>(i)]))
      return fmt::format("scalar {} is {}, it must be {}", i, textOf(call.scalars(i)),
                         textOf(wanted[static_cast<size_t>(i)]));
  return "";
}

/// What stands behind c has its dims or those of its columns; sums may be the only part of a gradient's.
std::string Product::epilogue(const Dims &c, const Dims &n) const {
  for (int i = 3; i < call.buffers_size(); ++i) {
    Dims found = of(i);
    if (!found.empty() && found.front() == Dim{"part", 1})
      found.erase(found.begin());
    bool isRow = i == 3 && call.epilogue() != pb::LibraryCall::ADD && call.epilogue() != pb::LibraryCall::GELU_GRADIENT;
    if (found != (isRow ? n : c))
      return unlike(2, i);
  }
  return "";
}

/// c = op(a) op(b): batch is what all three have, m and n what c has of one, k what a and b have and c has not.
std::string Product::matmul() {
  const Dims &a = of(0), &b = of(1), &c = of(2);
  auto isIn = [](const Dims &dims) { return [&dims](const Dim &dim) { return contains(dims, dim); }; };
  Dims batch = where(c, [&](const Dim &dim) { return contains(a, dim) && contains(b, dim); });
  Dims m = where(where(c, isIn(a)), [&](const Dim &dim) { return !contains(b, dim); });
  Dims n = where(where(c, isIn(b)), [&](const Dim &dim) { return !contains(a, dim); });
  Dims k = where(a, [&](const Dim &dim) { return !contains(c, dim); });
  bool isPlainA = a == joined({batch, m, k}), isPlainB = b == joined({batch, k, n});
  bool isProduct = c == joined({batch, m, n}) && (isPlainA || a == joined({batch, k, m})) &&
                   (isPlainB || b == joined({batch, n, k}));
  if (!isProduct)
    return fmt::format("{} and {} have no product {}", textOf(a), textOf(b), textOf(c));
  if (call.transpose_a() == isPlainA || call.transpose_b() == isPlainB)
    return fmt::format("{} and {} are {}transposed and {}transposed in {}", textOf(a), textOf(b),
                       isPlainA ? "not " : "", isPlainB ? "not " : "", textOf(c));
  if (std::string fault = epilogue(c, n); !fault.empty())
    return fault;
  return sizes({elementsOf(m), elementsOf(n), elementsOf(k), elementsOf(batch)});
}

/// q [batch, seq, heads.., head_dim], k and v [batch, seq, kv heads, head_dim]; results as what they belong to.
std::string Product::attention(bool isForward) {
  const Dims &q = of(0), &k = of(1);
  Dims rows = prefix(q, q.size() - 1);
  if (q.size() < 4 || q.size() > 5 || k.size() != 4 || of(2) != k || k[0] != q[0] || k[2] != q[2] ||
      k[3] != q.back() || k[1].name != q[1].name)
    return fmt::format("queries {} and keys {} do not belong together", textOf(q), textOf(k));
  bool isRight = isForward ? of(3) == q && of(4) == rows
                           : of(3) == q && of(4) == rows && of(5) == q && of(7) == q && of(8) == k && of(9) == k;
  if (!isRight)
    return fmt::format("of queries {} something has other dims", textOf(q));
  int64_t heads = elementsOf(Dims(q.begin() + 2, q.end() - 1));
  std::vector<int64_t> wanted = {q[0].size, q[1].size, k[2].size, heads / std::max<int64_t>(k[2].size, 1),
                                 q.back().size};
  if (k[1].size != q[1].size)
    wanted.push_back(k[1].size);
  if (k[1].size != q[1].size && k[1].size != shapes.whole(q[1]))
    return fmt::format("{} keys of a sequence of {}", k[1].size, shapes.whole(q[1]));
  pb::Affine stream = constant(call.scalars().empty() ? 0 : call.scalars(0).constant());
  stream.set_layer(256);
  std::string fault = sizes(wanted);
  return fault.empty() ? scalars({stream, shapes.origin(q[0]), firstHead(shapes, q), constant(shapes.whole(q[1])), shapes.origin(q[1])})
                       : fault;
}

std::string Product::attendCache() {
  const Dims &q = of(0), &k = of(1), &cache = of(5);
  if (q.size() < 4 || k.size() != 4 || cache.size() != 4 || of(2) != k || of(4) != q || of(6) != cache ||
      of(3) != prefix(q, 2) || cache[0] != k[0] || cache[1] != k[2] || cache[3] != k[3] || k[0] != q[0] ||
      k[1] != q[1] || k[2] != q[2] || k[3] != q.back())
    return fmt::format("queries {}, keys {} and caches {} do not belong together", textOf(q), textOf(k), textOf(cache));
  int64_t heads = elementsOf(Dims(q.begin() + 2, q.end() - 1));
  return sizes({q[0].size, q[1].size, k[2].size, heads / std::max<int64_t>(k[2].size, 1), k[3].size, cache[2].size});
}

/// Tables have rows and columns; tokens the dims of their ids.
std::string Product::embed(bool isForward) {
  const Dims &table = of(isForward ? 0 : 2), &ids = of(isForward ? 1 : 0), &rows = of(isForward ? 2 : 1);
  if (table.size() != 2 || rows != joined({ids, {table[1]}}))
    return fmt::format("rows {} of a table {} for {}", textOf(rows), textOf(table), textOf(ids));
  std::string fault = sizes({elementsOf(ids), table[0].size, table[1].size});
  return fault.empty() ? scalars({shapes.origin(table[0])}) : fault;
}

std::string Product::rope() {
  const Dims &x = of(0), &positions = of(1);
  if (of(2) != x)
    return unlike(0, 2);
  if (x.size() <= positions.size() || prefix(x, positions.size()) != positions)
    return unlike(0, 1);
  int64_t tokens = elementsOf(positions), headDim = x.back().size;
  bool isInverse = call.sizes_size() > 3 && call.sizes(3) == 1;
  return sizes({tokens, elementsOf(x) / std::max<int64_t>(tokens * headDim, 1), headDim, isInverse});
}

/// The same, or the rank's own part along one dimension.
std::string Product::copy() {
  std::optional<Cut> cut = cutOf(of(0), of(1));
  if (!cut)
    return unlike(0, 1);
  int64_t outer = cut->parts == 1 ? 1 : cut->outer, bytes = elementsOf(of(1)) * widthAt(1) / std::max<int64_t>(outer, 1);
  if (cut->parts != mesh.count(cut->axes))
    return unlike(0, 1);
  pb::Affine place = shapes.index(cut->axes, bytes);
  if (!isSame(place, call.buffers(0).reads_at()))
    return fmt::format("reads at {}, its part begins at {}", textOf(call.buffers(0).reads_at()), textOf(place));
  return sizes({outer, cut->parts * bytes, bytes});
}

/// From parts one behind the other to their places in the whole, or back.
std::string Product::rearrange() {
  bool fromParts = !of(0).empty() && of(0).front().name == "part";
  const Dims &parts = of(fromParts ? 0 : 1), &whole = of(fromParts ? 1 : 0);
  if (parts.size() != whole.size() + 1 || parts.front().name != "part")
    return unlike(0, 1);
  std::optional<Cut> cut = cutOf(whole, Dims(parts.begin() + 1, parts.end()));
  if (!cut || cut->axes || cut->parts != parts.front().size)
    return unlike(0, 1);
  int64_t bytes = elementsOf(whole) * widthAt(0) / std::max<int64_t>(cut->outer * cut->parts, 1);
  return fromParts ? sizes({cut->parts, cut->outer, bytes}) : sizes({cut->outer, cut->parts, bytes});
}

std::string Product::takeRow() {
  const Dims &x = of(0), &row = of(2);
  if (x.size() < 2 || row.size() != x.size() || of(1) != prefix(x, 1) || row[0] != x[0] || row[1].size != 1 ||
      Dims(row.begin() + 2, row.end()) != Dims(x.begin() + 2, x.end()))
    return unlike(0, 2);
  return sizes({x[0].size, x[1].size, elementsOf(Dims(x.begin() + 2, x.end())) * widthAt(0)});
}

/// Scores [batch, seq, experts] and places [choice, batch, seq]: tokens of whole sequences compete for all experts. Where
/// the capacity is too large for the rows, DISPATCH and COMBINE leave out what does not fit.
std::string Product::route() {
  const Dims &scores = of(0), &ids = of(1);
  if (scores.size() != 3 || ids.size() != 3 || of(2) != ids || ids[1] != scores[0] || ids[2] != scores[1] ||
      scores[1].split || scores[2].split || ids[0].split)
    return fmt::format("scores {} and places {}, {} do not belong together", textOf(scores), textOf(ids), textOf(of(2)));
  int64_t capacity = call.sizes_size() > 4 ? call.sizes(4) : 0;
  return sizes({scores[0].size, scores[1].size, scores[2].size, ids[0].size, capacity});
}

/// Rows of tokens [(choice,) batch, seq, hidden] and of all experts [expert, batch, capacity, hidden].
std::string Product::moveRows(bool isDispatch) {
  int last = call.buffers_size() - 1;
  const Dims &ids = of(0), &tokens = of(isDispatch ? 2 : last), &experts = of(isDispatch ? last : 2);
  if (ids.size() != 3 || of(1) != ids || (last == 4 && of(3) != ids) || ids[2].split)
    return unlike(0, 1);
  bool hasChoice = tokens.size() == 4;
  Dims places = hasChoice ? ids : Dims(ids.begin() + 1, ids.end());
  if (experts.size() != 4 || tokens != joined({places, {experts[3]}}) || experts[1] != ids[1] || experts[0].split ||
      experts[2].split)
    return unlike(2, last);
  return sizes({ids[0].size, ids[1].size, ids[2].size, experts[3].size, experts[0].size, experts[2].size, hasChoice});
}

std::string Product::reduceParts() {
  const Dims &parts = of(0);
  if (parts.empty() || parts.front().name != "part" || Dims(parts.begin() + 1, parts.end()) != of(1))
    return unlike(0, 1);
  return sizes({parts.front().size, elementsOf(of(1))});
}

std::string Product::updateScalars() {
  constexpr uint32_t slots[] = {LossSum, TokenCount, SquaredNorm, LossScale, GradientScale, Apply};
  for (int i = 0; i < std::min(call.buffers_size(), 6); ++i)
    if (plan.values(static_cast<int>(call.buffers(i).value())).first() != slots[i])
      return fmt::format("buffer {} holds slot {} of the scalars, it must hold {}", i,
                         plan.values(static_cast<int>(call.buffers(i).value())).first(), slots[i]);
  if (call.floats_size() != 1 || call.floats(0) != plan.settings().max_grad_norm())
    return fmt::format("clips not at a norm of {}", plan.settings().max_grad_norm());
  return "";
}

} // namespace

std::string faultOfProduct(const pb::Plan &plan, const Mesh &mesh, const pb::LibraryCall &call) {
  return Product(plan, mesh, call).fault();
}

} // namespace espalier::rt::verify
