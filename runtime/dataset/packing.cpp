// Within a window, a piece goes to the row with the least work that has room, the longest pieces first. Rows are then
// sorted by work, so that the rows of a step are neighbours in this order. The order of the steps is shuffled.
#include "runtime/dataset/packing.h"

#include "format/zigzag.h"
#include "runtime/dataset/numpy_random.h"

#include <algorithm>
#include <array>
#include <set>
#include <tuple>

namespace espalier::rt {

namespace {

using Row = std::vector<PackedPiece>;

constexpr int64_t windowSteps = 64;
constexpr double fill = 0.97; // of the rows by tokens; fuller rows leave no room to balance
constexpr size_t bands = 4;   // of context ranks; the work of 2 and of 4 ranks is balanced
constexpr int trials = 40;    // of other arrangements of a row

int64_t pairsOf(int64_t length) { return length * (length + 1) / 2; }

int64_t tokensOf(std::span<const PackedPiece> pieces) {
  int64_t tokens = 0;
  for (const PackedPiece &piece : pieces)
    tokens += piece.length;
  return tokens;
}

/// Distributes the pieces, which are sorted by length. Returns the pieces for which no row has room.
std::vector<PackedPiece> fillRows(std::span<const PackedPiece> pieces, int64_t room, std::vector<Row> &rows) {
  struct State {
    int64_t work = 0, room;
  };
  std::vector<State> states(rows.size(), State{0, room});
  std::set<std::pair<int64_t, size_t>> byWork;
  for (size_t row = 0; row < rows.size(); ++row)
    byWork.insert({0, row});
  std::vector<PackedPiece> left;
  for (const PackedPiece &piece : pieces) {
    auto found = std::ranges::find_if(byWork, [&](auto &entry) { return states[entry.second].room >= piece.length; });
    if (found == byWork.end()) {
      left.push_back(piece);
      continue;
    }
    size_t row = found->second;
    byWork.erase(found);
    rows[row].push_back(piece);
    states[row] = {states[row].work + pairsOf(piece.length), states[row].room - piece.length};
    if (states[row].room >= pieces.back().length)
      byWork.insert({states[row].work, row});
  }
  return left;
}

/// The differences between the work of context ranks in zigzag order and their mean: of the first of two ranks, and of
/// four ranks.
using Differences = std::array<double, 1 + bands>;

Differences differencesOf(std::span<const PackedPiece> row, int64_t seqLength) {
  std::array<int64_t, 2 * bands> chunks{};
  addWork(row, seqLength, chunks);
  Differences result{};
  double mean = 0;
  for (size_t band = 0; band < bands; ++band)
    mean += static_cast<double>(chunks[band] + chunks[2 * bands - 1 - band]) / bands;
  for (size_t band = 0; band < bands; ++band)
    result[1 + band] = static_cast<double>(chunks[band] + chunks[2 * bands - 1 - band]) - mean;
  result[0] = result[1] + result[2];
  return result;
}

/// Arranges the rows of a step one after the other. A row may compensate the differences of the rows before it that
/// belong to the same replica of 1, 2, 4 or 8.
class StepArranger {
public:
  StepArranger(int64_t seqLength, LegacyRandom &random) : seqLength(seqLength), random(random) {}

  void arrange(Row &row) {
    if (int64_t padding = seqLength - tokensOf(row); padding > 0)
      row.push_back({-1, 0, static_cast<int32_t>(padding)});
    Row mirrored; // every second piece in ascending order, then the others in descending order
    for (size_t i = 0; i < row.size(); ++i)
      mirrored.insert(i % 2 == 0 ? mirrored.begin() : mirrored.end(), row[i]);
    Row best = row;
    Differences differences = differencesOf(row, seqLength);
    double least = costOf(differences);
    auto attempt = [&](Row candidate) {
      Differences own = differencesOf(candidate, seqLength);
      if (double cost = costOf(own); cost < least)
        std::tie(best, differences, least) = std::tuple(std::move(candidate), own, cost);
    };
    attempt(Row(row.rbegin(), row.rend()));
    attempt(Row(mirrored.rbegin(), mirrored.rend()));
    attempt(std::move(mirrored));
    for (int i = 0; i < trials && row.size() > 2; ++i) {
      Row moved = best;
      auto from = moved.begin() + static_cast<int64_t>(random.next() % moved.size());
      PackedPiece piece = *from;
      moved.erase(from);
      moved.insert(moved.begin() + static_cast<int64_t>(random.next() % (moved.size() + 1)), piece);
      attempt(std::move(moved));
    }
    row = std::move(best);
    for (int64_t replicas : {1, 2, 4, 8})
      for (size_t i = 0; i < differences.size(); ++i)
        sumOf(replicas)[i] += differences[i];
    ++place;
  }

private:
  static double sizeOf(const Differences &differences) {
    double size = differences[0] * differences[0];
    for (size_t band = 0; band < bands; ++band)
      size += 0.1 * differences[1 + band] * differences[1 + band];
    return size;
  }

  /// Returns the sum of the replica that the next row belongs to.
  Differences &sumOf(int64_t replicas) { return sums[replicas - 1 + place % replicas]; }

  double costOf(const Differences &own) {
    double cost = 0.3 * sizeOf(own);
    for (int64_t replicas : {1, 2, 4, 8}) {
      Differences sum = sumOf(replicas);
      for (size_t i = 0; i < own.size(); ++i)
        sum[i] += own[i];
      cost += sizeOf(sum);
    }
    return cost;
  }

  const int64_t seqLength;
  LegacyRandom &random;
  int64_t place = 0;                  ///< of the next row in the step
  std::array<Differences, 15> sums{}; ///< of 1, 2, 4 and 8 replicas
};

/// Sorts the rows of a window by work, arranges them, and appends their steps in shuffled order.
void appendWindow(std::vector<Row> &rows, int64_t batch, LegacyRandom random, PackedRows &result) {
  std::vector<std::pair<int64_t, size_t>> byWork;
  for (size_t row = 0; row < rows.size(); ++row) {
    byWork.emplace_back(0, row);
    addWork(rows[row], result.seqLength, std::span(&byWork.back().first, 1));
  }
  std::ranges::sort(byWork);
  std::vector<uint32_t> steps(rows.size() / batch);
  for (size_t step = 0; step < steps.size(); ++step)
    steps[step] = static_cast<uint32_t>(step);
  random.shuffle(std::span(steps));
  for (uint32_t step : steps) {
    StepArranger arranger(result.seqLength, random);
    for (int64_t i = 0; i < batch; ++i) {
      Row &row = rows[byWork[step * batch + i].second];
      arranger.arrange(row);
      result.pieces.insert(result.pieces.end(), row.begin(), row.end());
      result.starts.push_back(std::ssize(result.pieces));
    }
  }
}

double imbalanceOf(std::span<const int64_t> works) {
  auto [least, most] = std::ranges::minmax(works);
  return most == 0 ? 0 : static_cast<double>(most - least) / static_cast<double>(most);
}

} // namespace

void cutSequence(int32_t sequence, int64_t length, int64_t seqLength, std::vector<PackedPiece> &pieces) {
  for (int64_t offset = 0; length - offset > 1; offset += seqLength)
    pieces.push_back({sequence, static_cast<int32_t>(offset),
                      static_cast<int32_t>(std::min<int64_t>(length - offset, seqLength + 1))});
}

PackedRows packBalanced(std::vector<PackedPiece> pieces, int64_t seqLength, int64_t batch, uint32_t seed) {
  PackedRows result;
  result.seqLength = seqLength;
  const int64_t room = seqLength + 1, windowRows = windowSteps * batch;
  const double filled = fill * static_cast<double>(room);
  int64_t tokens = tokensOf(pieces);
  auto next = pieces.begin();
  std::vector<PackedPiece> waiting; // pieces of the windows before for which there was no room
  for (uint32_t window = 0; tokens > 0; ++window) {
    int64_t count = (static_cast<int64_t>(static_cast<double>(tokens) / filled) / batch + 1) * batch;
    bool isLast = count < 2 * windowRows; // so that no window has only a few rows
    if (!isLast)
      count = windowRows;
    int64_t taken = tokensOf(waiting);
    while (next != pieces.end() && (isLast || static_cast<double>(taken) < filled * static_cast<double>(count))) {
      taken += next->length;
      waiting.push_back(*next++);
    }
    std::ranges::sort(waiting, std::greater(), [](const PackedPiece &piece) {
      return std::tuple(piece.length, piece.sequence, piece.offset); // a total order
    });
    std::vector<Row> rows(count);
    std::vector<PackedPiece> left = fillRows(waiting, room, rows);
    while (isLast && !left.empty()) {
      rows.assign(rows.size() + batch, {});
      left = fillRows(waiting, room, rows);
    }
    waiting = std::move(left);
    tokens -= taken - tokensOf(waiting);
    appendWindow(rows, batch, LegacyRandom(seed + window), result);
  }
  return result;
}

void addWork(std::span<const PackedPiece> row, int64_t seqLength, std::span<int64_t> chunks) {
  const int64_t count = std::ssize(chunks);
  int64_t start = 0, chunk = 0; // of the piece; of its next position
  for (const PackedPiece &piece : row) {
    int64_t end = std::min<int64_t>(start + piece.length, seqLength);
    for (int64_t at = start; at < end;) {
      while (at >= (chunk + 1) * seqLength / count)
        ++chunk;
      int64_t stop = std::min(end, (chunk + 1) * seqLength / count);
      chunks[chunk] += piece.sequence < 0 ? stop - at : pairsOf(stop - start) - pairsOf(at - start);
      at = stop;
    }
    start = end;
  }
}

PackedStep describeStep(const PackedRows &rows, int64_t consumed, int64_t batch, const StepSplit &split) {
  PackedStep step;
  const int64_t chunkCount = split.contextRanks * (split.isZigzag ? 2 : 1);
  std::vector<std::vector<int64_t>> works(split.replicas, std::vector<int64_t>(split.contextRanks));
  for (int64_t p = 0; p < batch; ++p) {
    std::span<const PackedPiece> row = rows.row((consumed + p) % rows.count());
    for (const PackedPiece &piece : row) {
      if (piece.sequence < 0)
        continue;
      ++step.documents;
      step.tokens += piece.length;
      step.longest = std::max<int64_t>(step.longest, piece.length);
    }
    std::vector<int64_t> chunks(chunkCount);
    addWork(row, rows.seqLength, chunks);
    for (int64_t rank = 0; rank < split.contextRanks; ++rank) {
      int64_t &work = works[p / split.microBatch % split.replicas][rank];
      if (!split.isZigzag)
        work += chunks[rank];
      for (int64_t half : {0, 1})
        work += split.isZigzag ? chunks[zigzagChunk(rank, half, split.contextRanks)] : 0;
    }
  }
  std::vector<int64_t> sums;
  for (const std::vector<int64_t> &replica : works) {
    sums.push_back(0);
    for (int64_t work : replica)
      sums.back() += work;
    step.contextImbalance = std::max(step.contextImbalance, imbalanceOf(replica));
  }
  step.replicaImbalance = imbalanceOf(sums);
  return step;
}

} // namespace espalier::rt
