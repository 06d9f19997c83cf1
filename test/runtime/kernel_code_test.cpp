// Machine code of a plan: what the system's loader would act on is refused.
#include "runtime/verify/kernel_code.h"

#include "test/runtime/sample_plan.h"

#include <cstring>
#include <elf.h>
#include <fstream>
#include <gmock/gmock.h>
#include <iterator>

namespace espalier::rt::verify {
namespace {

using testing::HasSubstr;

class KernelCodeTest : public testing::Test {
protected:
  KernelCodeTest() : plan(samplePlan({})), code(plan.objects(0).code()) {
    for (const pb::Kernel &kernel : plan.kernels())
      kernels.insert(kernel.symbol());
  }

  std::string fault() const { return codeFault(code, kernels); }

  template <typename T> T &at(uint64_t offset) { return *reinterpret_cast<T *>(code.data() + offset); }
  Elf64_Ehdr &header() { return at<Elf64_Ehdr>(0); }
  /// Returns the first segment of a type.
  Elf64_Phdr &segment(Elf64_Word type) {
    uint64_t place = header().e_phoff;
    while (at<Elf64_Phdr>(place).p_type != type)
      place += sizeof(Elf64_Phdr);
    return at<Elf64_Phdr>(place);
  }
  Elf64_Dyn &entry(Elf64_Sxword tag) {
    uint64_t place = segment(PT_DYNAMIC).p_offset;
    while (at<Elf64_Dyn>(place).d_tag != tag)
      place += sizeof(Elf64_Dyn);
    return at<Elf64_Dyn>(place);
  }

  pb::Plan plan;
  std::string code;
  std::set<std::string_view> kernels;
};

TEST_F(KernelCodeTest, OurCodeIsAccepted) { EXPECT_EQ(fault(), ""); }

TEST_F(KernelCodeTest, WhatTheLoaderRunsIsRefused) {
  for (Elf64_Sxword tag :
       {DT_INIT, DT_INIT_ARRAY, DT_FINI_ARRAY, DT_NEEDED, DT_RELA, DT_JMPREL, DT_TEXTREL, DT_AUDIT}) {
    code = plan.objects(0).code();
    entry(DT_GNU_HASH).d_tag = tag;
    EXPECT_THAT(fault(), HasSubstr("constructors, relocations or libraries")) << tag;
  }
}

TEST_F(KernelCodeTest, ForeignSymbolsAreRefused) {
  kernels.erase(kernels.begin());
  EXPECT_THAT(fault(), HasSubstr("which is no kernel of the plan"));
}

TEST_F(KernelCodeTest, FunctionsThatTheLoaderCallsOrSeeksAreRefused) {
  uint64_t symbol = entry(DT_SYMTAB).d_un.d_ptr + sizeof(Elf64_Sym); // in the first segment, at its own offset
  at<Elf64_Sym>(symbol).st_info = ELF64_ST_INFO(STB_GLOBAL, STT_GNU_IFUNC);
  EXPECT_THAT(fault(), HasSubstr("which is no function in it"));
  code = plan.objects(0).code();
  at<Elf64_Sym>(symbol).st_shndx = SHN_UNDEF;
  EXPECT_THAT(fault(), HasSubstr("which is no function in it"));
}

TEST_F(KernelCodeTest, OtherSegmentsAreRefused) {
  segment(PT_LOAD).p_flags = PF_R | PF_W | PF_X;
  EXPECT_THAT(fault(), HasSubstr("both written and executed"));
  code = plan.objects(0).code();
  segment(PT_GNU_STACK).p_type = PT_INTERP;
  EXPECT_THAT(fault(), HasSubstr("a segment of type"));
  code = plan.objects(0).code();
  segment(PT_DYNAMIC).p_type = PT_NOTE;
  EXPECT_THAT(fault(), HasSubstr("no dynamic section"));
}

TEST_F(KernelCodeTest, ALibraryIsRefused) {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  code.assign(std::istreambuf_iterator<char>(file), {});
  EXPECT_NE(fault(), "");
}

/// No damage reads outside of the code.
TEST_F(KernelCodeTest, DamageIsBounded) {
  const std::string whole = code;
  for (size_t size = 0; size < whole.size(); size += 7) {
    code = std::string(whole.data(), size);
    codeFault(code, kernels);
  }
  for (size_t byte = 0; byte < whole.size(); ++byte)
    for (int value : {0, 0x7f, 0xff}) {
      code = whole;
      code[byte] = static_cast<char>(value);
      codeFault(code, kernels);
    }
}

} // namespace
} // namespace espalier::rt::verify
