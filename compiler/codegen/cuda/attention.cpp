#include "compiler/codegen/cuda/attention.h"

#include "format/abi.h"

#include "mlir/Dialect/Math/IR/Math.h"

#include <limits>

using namespace mlir;

namespace espalier::codegen::cuda {

AttentionConfig AttentionConfig::of(DictionaryAttr parameters) {
  auto real = [&](StringRef name, double otherwise) {
    auto number = parameters.getAs<FloatAttr>(name);
    return number ? number.getValueAsDouble() : otherwise;
  };
  auto window = parameters.getAs<IntegerAttr>("window"), values = parameters.getAs<IntegerAttr>("value_dim");
  int64_t headDim = cast<IntegerAttr>(parameters.get("head_dim")).getInt();
  return {.element = cast<TypeAttr>(parameters.get("type")).getValue(),
          .headDim = headDim,
          .valueDim = values ? values.getInt() : headDim,
          .isCausal = parameters.contains("causal"),
          .isPart = parameters.contains("keys"),
          .scale = real("scale", 1),
          .rate = real("rate", 0),
          .window = window ? window.getInt() : 0,
          .softCap = real("soft_cap", 0),
          .hasDocuments = parameters.contains("visible_from"),
          .isZigzag = parameters.contains("zigzag")};
}

namespace {

/// Returns the tile sizes of 16 x 16 threads that use few registers and little shared memory.
TileSizes plainTiles(const AttentionConfig &config) {
  int64_t side = std::max(config.headDim, config.valueDim) <= 64 ? 64 : 32;
  return {config.element, side, side, config.headDim, config.valueDim, /*warps=*/8, /*stages=*/1};
}

} // namespace

// Tile sizes are chosen so that sums stay in registers, of which a thread has at most 255. With 32 rows per warp, each
// piece of the other operand read from shared memory is used twice. If 32 rows do not fit, 16 are used.
TileSizes attentionTiles(AttentionPass pass, const AttentionConfig &config) {
  if (config.element.isF32())
    return plainTiles(config);
  int64_t dim = std::max(config.headDim, config.valueDim);
  bool hasDropout = config.rate > 0, hidesEarly = config.window > 0 || config.hasDocuments;
  auto tiles = [&](int64_t rows, int64_t columns, int warps) {
    return TileSizes{config.element, rows, columns, config.headDim, config.valueDim, warps, /*stages=*/2};
  };
  switch (pass) {
  case AttentionPass::Forward:
    return dim > 64 ? tiles(128, 32, 8) : tiles(128, hasDropout ? 32 : 64, 4);
  case AttentionPass::KeyGradient:
    return dim > 128 ? tiles(64, 32, 4) : tiles(128, dim > 64 ? 32 : 64, 8);
  case AttentionPass::QueryGradient:
    if (dim > 128)
      return tiles(64, 32, 4);
    return dim > 64 && (hasDropout || config.hasDocuments)
               ? tiles(128, 32, 8)
               : tiles(128, dim > 64 || hasDropout || hidesEarly ? 32 : 64, 4);
  }
  llvm_unreachable("there are three passes");
}

int64_t attentionSharedBytes(AttentionPass pass, const AttentionConfig &config) {
  TileSizes tiles = attentionTiles(pass, config);
  int64_t resident = tiles.ofKeys().pitch() + (pass == AttentionPass::Forward ? 0 : tiles.ofValues().pitch());
  int64_t statistics =
      pass == AttentionPass::KeyGradient ? tiles.stages * (config.hasDocuments ? 3 : 2) * tiles.columns * 4 : 0;
  return resident * tiles.rows + tiles.stages * tiles.pairBytes() + tiles.scratchBytes() + statistics;
}

AttentionBlock::AttentionBlock(KernelFunction &f, const AttentionConfig &config, const TileSizes &sizes, bool ofKeys)
    : f(f), config(config), sizes(sizes) {
  auto size = [&](StringRef name) { return narrow(scalar(name)); };
  queryCount = size("seq");
  keyCount = size("keys");
  kvHeads = size("kv_heads");
  group = size("group");
  firstPosition = config.isPart ? narrow(atMost(atLeast(scalar("FIRST_QUERY"), 0), scalar("keys"))) : integer(0);
  if (config.isZigzag)
    secondPosition = keyCount - queryCount / 2 - firstPosition;
  // Under a causal mask, the last queries attend to the most keys, and the first keys are attended to by the most
  // queries. These blocks come first, so that short blocks balance the end.
  Expr block(f, f.blockX()), rowHeads = ofKeys ? kvHeads : heads(), pairs = size("batch") * rowHeads;
  Expr tile = block / pairs, pair = block % pairs;
  if (!ofKeys)
    tile = ceilDivide(queryCount, sizes.rows) - 1 - tile;
  first = tile * sizes.rows;
  sample = pair / rowHeads;
  head = pair % rowHeads;
  kvHead = ofKeys ? head : head / group;
  if (ofKeys)
    head = head * group;
  if (config.rate > 0)
    makeRoundKeys();
}

Grid hideScores(const Grid &scores, Expr isNeeded, const std::function<Expr(size_t, size_t)> &isSeen) {
  size_t columns = scores[0].size();
  std::vector<Variable> hidden;
  for (const std::vector<Expr> &row : scores)
    for (Expr score : row)
      hidden.emplace_back(score);
  when(isNeeded, [&] {
    for (size_t i = 0; i < hidden.size(); ++i)
      hidden[i].set(
          select(isSeen(i / columns, i % columns), hidden[i].get(), -std::numeric_limits<double>::infinity()));
  });
  Grid result(scores.size());
  for (size_t i = 0; i < hidden.size(); ++i)
    result[i / columns].push_back(hidden[i].get());
  return result;
}

int64_t AttentionBlock::depthOf(StringRef operand) const {
  bool isOfKeys = operand == "q" || operand == "k" || operand == "dq" || operand == "dk";
  return isOfKeys ? config.headDim : config.valueDim;
}

TileSource AttentionBlock::queries(StringRef operand, Expr head, Expr first) {
  int64_t depth = depthOf(operand);
  Expr row = wide(sample) * wide(queryCount) + wide(first), stride = wide(heads()) * depth;
  Expr begin = row * stride + wide(head * depth);
  return {elementAt({f, f.buffer(operand)}, begin, config.element), stride, queryCount - first};
}

TileSource AttentionBlock::keys(StringRef operand, Expr first) {
  int64_t depth = depthOf(operand);
  Expr row = wide(sample) * wide(keyCount) + wide(first), stride = wide(kvHeads) * depth;
  Expr begin = row * stride + wide(kvHead * depth);
  return {elementAt({f, f.buffer(operand)}, begin, config.element), stride, keyCount - first};
}

TileSource AttentionBlock::statistics(StringRef operand, Expr head, Expr first) {
  Expr row = wide(sample) * wide(queryCount) + wide(first), stride = wide(heads());
  return {elementAt({f, f.buffer(operand)}, row * stride + wide(head), f.b.getF32Type()), stride, queryCount - first};
}

Expr AttentionBlock::positionOf(Expr query) {
  if (!config.isZigzag)
    return firstPosition + query;
  Expr ofRun = queryCount / 2;
  return query + select(query < ofRun, firstPosition, secondPosition - ofRun);
}

Expr AttentionBlock::positionOf(Expr query, Expr inside) {
  return config.isZigzag ? positionOf(query + inside) : positionOf(query) + inside;
}

Expr AttentionBlock::queriesBefore(Expr key) {
  if (!config.isZigzag)
    return atLeast(key - firstPosition, 0);
  return atLeast(atMost(key - firstPosition, queryCount / 2), 0) + atLeast(key - secondPosition, 0);
}

Expr AttentionBlock::visibleKeys(Expr query) {
  return config.isCausal ? atMost(keyCount, positionOf(query) + 1) : keyCount;
}

Expr AttentionBlock::firstVisible(Expr query) {
  Expr begin = hasWindow() ? atLeast(positionOf(query) + (1 - config.window), 0) : integer(0);
  return hasDocuments() ? atLeast(documentOf(query), begin) : begin;
}

TileSource AttentionBlock::documents(Expr first) {
  Expr row = wide(sample) * wide(queryCount) + wide(first);
  return {elementAt({f, f.buffer("visible_from")}, row, f.b.getI32Type()), wide(integer(1)), queryCount - first};
}

Expr AttentionBlock::documentOf(Expr query) {
  Expr inside = atMost(query, queryCount - 1);
  Expr begin = loadValue(documents(inside).base, f.b.getI32Type());
  return atMost(begin, atMost(positionOf(inside), keyCount - 1));
}

void AttentionBlock::loadDocuments(const Tiles &tiles, const std::vector<Expr> &visible) {
  blockFrom = firstVisible(first);
  lastFrom = firstVisible(first + (sizes.rows - 1));
  warpFrom = firstVisible(first + tiles.firstRow);
  for (auto [row, end] : llvm::zip_equal(tiles.rows, visible)) {
    from.push_back(firstVisible(first + row));
    lastOffsets.push_back(end - 1 - from.back());
  }
}

Expr AttentionBlock::isVisible(size_t row, Expr visible, Expr key) {
  if (hasDocuments()) // an earlier key has a large unsigned distance
    return unsignedAtLeast(lastOffsets[row], key - from[row]);
  return hasWindow() ? isInWindow(visible - 1 - key) : key < visible;
}

// Each of two rounds divides the range of the border among the 32 lanes. Queries before the border attend to the keys.
Expr AttentionBlock::endOfDocuments(Expr lastKey) {
  Expr begin = integer(0), step = ceilDivide(queryCount, 32), lane(f, f.laneIndex());
  auto attending = [&] {
    Expr query = begin + lane * step, isBefore = (query < queryCount) & (documentOf(query) <= lastKey);
    return Expr(f, f.countOnes(f.ballot(isBefore.get())));
  };
  begin = atLeast(attending() - 1, 0) * step;
  step = ceilDivide(step, 32);
  return atMost(begin + attending() * step, queryCount);
}

Expr AttentionBlock::seesTile(Expr firstKey, const Tiles &tiles) {
  Expr isSeen = firstKey < visibleKeys(first + tiles.lastRow);
  if (hasDocuments())
    return isSeen & (firstKey + sizes.columns > warpFrom);
  return hasWindow() ? isSeen & (firstKey + sizes.columns > firstVisible(first + tiles.firstRow)) : isSeen;
}

void AttentionBlock::limit(Grid &scores) {
  if (config.softCap == 0)
    return;
  for (std::vector<Expr> &row : scores)
    for (Expr &score : row) {
      Expr part = score * (config.scale / config.softCap);
      score = Expr(f, f.b.create<math::TanhOp>(part.get())) * config.softCap;
    }
}

Expr AttentionBlock::slopeOf(Expr score) {
  Expr tangent = score * (1 / config.softCap);
  return tangent * tangent * -1.0 + 1.0;
}

void AttentionBlock::stream(Tiles &tiles, Expr count, const std::function<void(Expr, Expr)> &issue,
                            const std::function<void(Expr, Expr)> &use) {
  auto ready = [&] {
    tiles.waitForCopies();
    f.barrier();
  };
  if (sizes.stages == 1) {
    loop(integer(0), count, 1, [&](Expr tile) {
      f.barrier(); // all threads have finished the previous tile
      issue(tile, integer(0));
      ready();
      use(tile, integer(0));
    });
    return;
  }
  when(count > 0, [&] { issue(integer(0), integer(0)); });
  loop(integer(0), count, 1, [&](Expr tile) {
    ready(); // also: all threads have finished the previous tile, whose buffer the next load overwrites
    when(tile + 1 < count, [&] { issue(tile + 1, (tile + 1) % 2); });
    use(tile, tile % 2);
  });
}

void AttentionBlock::whenSeen(Expr isSeen, const std::function<void()> &body) {
  config.isCausal ? when(isSeen, body) : body();
}

/// The part of randomBits() in format/abi.h that does not depend on the element.
void AttentionBlock::makeRoundKeys() {
  auto word = [&](StringRef name) { return narrow(scalar(name)); };
  Expr begun = loadValue({f, f.buffer("step")}, f.b.getI32Type());
  Expr key = word("SEED") * 0x9E3779B9LL + begun * 0x85EBCA6BLL + word("STREAM") * 0xC2B2AE35LL;
  for (int round = 0; round < 7; ++round)
    roundKeys.push_back(round == 0 ? key : roundKeys.back() + 0x9E3779B9LL);
  sampleBits = (word("FIRST_SAMPLE") + sample) * 0x27D4EB2FLL;
}

Expr AttentionBlock::isKept(Expr head, Expr query, Expr key) {
  Expr sequence = scalar("WHOLE_SEQUENCE"), row = scalar("FIRST_HEAD") + wide(head);
  Expr element = (row * sequence + wide(positionOf(query))) * sequence + wide(key);
  Expr counter0 = narrow(element), counter1 = high(element) ^ sampleBits;
  for (Expr roundKey : roundKeys) {
    Expr product = wideProduct(counter0, integer(0xD256D193LL));
    counter0 = high(product) ^ roundKey ^ counter1;
    counter1 = narrow(product);
  }
  return unsignedAtLeast(counter0, integer(rt::dropoutThreshold(config.rate)));
}

} // namespace espalier::codegen::cuda
