#include "runtime/verify/kernel_code.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <elf.h>
#include <fmt/format.h>
#include <optional>
#include <vector>

namespace espalier::rt::verify {
namespace {

constexpr size_t mostSegments = 16, mostEntries = 32, mostSymbols = 1 << 16;

/// The tags of the dynamic section that only tell where the symbols are.
constexpr std::array<Elf64_Sxword, 7> knownTags = {DT_NULL,  DT_SYMTAB,   DT_SYMENT, DT_STRTAB,
                                                   DT_STRSZ, DT_GNU_HASH, DT_HASH};
/// Segments that the loader maps or protects, and those that it ignores.
constexpr std::array<Elf64_Word, 7> knownSegments = {PT_PHDR,      PT_LOAD,         PT_DYNAMIC, PT_GNU_RELRO,
                                                     PT_GNU_STACK, PT_GNU_EH_FRAME, PT_NOTE};

class KernelCode {
public:
  KernelCode(std::string_view bytes, const std::set<std::string_view> &kernels) : bytes(bytes), kernels(kernels) {}

  std::string fault() {
    std::optional<Elf64_Ehdr> header = at<Elf64_Ehdr>(0);
    if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64 ||
        header->e_type != ET_DYN || header->e_machine != EM_X86_64)
      return "is no x86-64 shared object";
    if (header->e_phnum > mostSegments || header->e_phentsize != sizeof(Elf64_Phdr))
      return fmt::format("has {} segments", header->e_phnum);
    for (size_t i = 0; i < header->e_phnum; ++i)
      if (std::string fault = readSegment(at<Elf64_Phdr>(header->e_phoff + i * sizeof(Elf64_Phdr))); !fault.empty())
        return fault;
    return dynamic.p_type == PT_DYNAMIC ? readDynamic() : "has no dynamic section";
  }

private:
  template <typename T> std::optional<T> at(uint64_t offset) const {
    T value;
    if (offset > bytes.size() || bytes.size() - offset < sizeof value)
      return std::nullopt;
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
  }

  /// Returns the value at an address of the mapped object.
  template <typename T> std::optional<T> mapped(uint64_t address) const {
    for (const Elf64_Phdr &load : loads)
      if (address >= load.p_vaddr && address - load.p_vaddr < load.p_filesz)
        return at<T>(address - load.p_vaddr + load.p_offset);
    return std::nullopt;
  }

  std::string readSegment(const std::optional<Elf64_Phdr> &segment) {
    if (!segment || std::ranges::find(knownSegments, segment->p_type) == knownSegments.end())
      return fmt::format("has a segment of type {:#x}", segment ? segment->p_type : 0);
    if ((segment->p_flags & PF_W) && (segment->p_flags & PF_X))
      return "has memory that is both written and executed";
    if (segment->p_type == PT_DYNAMIC)
      dynamic = *segment;
    if (segment->p_type != PT_LOAD)
      return "";
    if (!loads.empty() && segment->p_vaddr < loads.back().p_vaddr + loads.back().p_memsz)
      return "has segments that overlap";
    loads.push_back(*segment);
    return "";
  }

  std::string readDynamic() {
    uint64_t symbols = 0, names = 0, hashes = 0;
    for (size_t i = 0; i < mostEntries; ++i) {
      std::optional<Elf64_Dyn> entry = mapped<Elf64_Dyn>(dynamic.p_vaddr + i * sizeof(Elf64_Dyn));
      if (!entry || std::ranges::find(knownTags, entry->d_tag) == knownTags.end())
        return fmt::format("asks the loader for more than symbols: constructors, relocations or libraries (tag {:#x})",
                           entry ? entry->d_tag : 0);
      if (entry->d_tag == DT_NULL)
        return readSymbols(symbols, names, hashes);
      if (entry->d_tag == DT_SYMTAB)
        symbols = entry->d_un.d_ptr;
      if (entry->d_tag == DT_STRTAB)
        names = entry->d_un.d_ptr;
      if (entry->d_tag == DT_HASH)
        hashes = entry->d_un.d_ptr;
    }
    return "has a dynamic section without end";
  }

  std::string readSymbols(uint64_t symbols, uint64_t names, uint64_t hashes) const {
    uint32_t count = mapped<uint32_t>(hashes + sizeof(uint32_t)).value_or(0); // the length of the chains
    if (count == 0 || count > mostSymbols)
      return fmt::format("has {} symbols", count);
    for (uint32_t i = 1; i < count; ++i) {
      std::optional<Elf64_Sym> symbol = mapped<Elf64_Sym>(symbols + i * sizeof(Elf64_Sym));
      std::string name = symbol ? nameAt(names + symbol->st_name) : "";
      if (!kernels.contains(name))
        return fmt::format("has the symbol '{}', which is no kernel of the plan", name);
      if (symbol->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || !isCode(symbol->st_value))
        return fmt::format("has the symbol '{}', which is no function in it", name);
    }
    return "";
  }

  std::string nameAt(uint64_t address) const {
    constexpr size_t most = 256;
    std::string name;
    for (char letter; name.size() < most && (letter = mapped<char>(address + name.size()).value_or(0)) != 0;)
      name += letter;
    return name;
  }

  bool isCode(uint64_t address) const {
    return std::ranges::any_of(loads, [&](const Elf64_Phdr &load) {
      return (load.p_flags & PF_X) && address >= load.p_vaddr && address - load.p_vaddr < load.p_filesz;
    });
  }

  std::string_view bytes;
  const std::set<std::string_view> &kernels;
  std::vector<Elf64_Phdr> loads; ///< ascending
  Elf64_Phdr dynamic{};
};

} // namespace

std::string codeFault(std::string_view object, const std::set<std::string_view> &kernels) {
  return KernelCode(object, kernels).fault();
}

} // namespace espalier::rt::verify
