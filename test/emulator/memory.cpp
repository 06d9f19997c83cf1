#include "test/emulator/memory.h"

#include <algorithm>

namespace espalier::emulator {

Range firstCommon(const Ranges &a, const Ranges &b) {
  for (auto x = a.begin(), y = b.begin(); x != a.end() && y != b.end();) {
    Range common{std::max(x->begin, y->begin), std::min(x->end, y->end)};
    if (common.begin < common.end)
      return common;
    if (x->end <= y->end)
      ++x;
    else
      ++y;
  }
  return {0, 0};
}

uint64_t Memory::add(void *host, uint64_t bytes, std::string name) {
  uint64_t address = next;
  allocations[address] = {bytes, static_cast<std::byte *>(host), std::move(name)};
  // The gap after an allocation keeps an overrun from reaching the next allocation.
  next = (address + bytes + 4096 + 255) / 256 * 256;
  return address;
}

bool Memory::remove(uint64_t address) {
  lastBegin = lastEnd = 0;
  return allocations.erase(address) > 0;
}

std::byte *Memory::find(uint64_t address, uint64_t bytes) const {
  if (address >= lastBegin && address < lastEnd && bytes <= lastEnd - address)
    return lastHost + (address - lastBegin);
  auto after = allocations.upper_bound(address);
  if (after == allocations.begin())
    return nullptr;
  const auto &[begin, allocation] = *std::prev(after);
  if (address - begin > allocation.bytes || bytes > allocation.bytes - (address - begin))
    return nullptr;
  lastBegin = begin;
  lastEnd = begin + allocation.bytes;
  lastHost = allocation.host;
  return lastHost + (address - begin);
}

std::string Memory::describe(uint64_t address) const {
  auto after = allocations.upper_bound(address);
  if (after == allocations.begin())
    return "before all allocations";
  const auto &[begin, allocation] = *std::prev(after);
  std::string name = allocation.name.empty() ? "an allocation" : allocation.name;
  uint64_t offset = address - begin;
  std::string size = " (" + std::to_string(allocation.bytes) + " bytes)";
  if (offset < allocation.bytes)
    return "byte " + std::to_string(offset) + " of " + name + size;
  return std::to_string(offset - allocation.bytes) + " bytes behind " + name + size;
}

void ByteSet::mark(uint64_t begin, uint64_t end) {
  while (begin < end) {
    uint64_t number = begin / pageBytes;
    if (number != lastNumber) {
      std::unique_ptr<Page> &page = pages[number];
      if (!page)
        page = std::make_unique<Page>();
      last = page.get();
      lastNumber = number;
    }
    uint64_t offset = begin % 64;
    uint64_t count = std::min(end - begin, 64 - offset);
    uint64_t bits = count == 64 ? ~uint64_t(0) : ((uint64_t(1) << count) - 1) << offset;
    (*last)[begin % pageBytes / 64] |= bits;
    begin += count;
  }
}

bool ByteSet::contains(uint64_t address) const {
  auto page = pages.find(address / pageBytes);
  return page != pages.end() && (*page->second)[address % pageBytes / 64] >> (address % 64) & 1;
}

Ranges ByteSet::ranges() const {
  std::vector<uint64_t> numbers;
  for (const auto &[number, page] : pages)
    numbers.push_back(number);
  std::sort(numbers.begin(), numbers.end());
  Ranges result;
  auto append = [&](uint64_t begin, uint64_t end) {
    if (!result.empty() && result.back().end == begin)
      result.back().end = end;
    else
      result.push_back({begin, end});
  };
  for (uint64_t number : numbers)
    for (uint64_t word = 0; word < pageBytes / 64; ++word) {
      uint64_t bits = (*pages.at(number))[word], base = number * pageBytes + word * 64;
      while (bits) {
        int first = __builtin_ctzll(bits);
        uint64_t from = bits >> first;
        int count = ~from ? __builtin_ctzll(~from) : 64;
        append(base + first, base + first + count);
        bits = first + count == 64 ? 0 : bits >> (first + count) << (first + count);
      }
    }
  return result;
}

} // namespace espalier::emulator
