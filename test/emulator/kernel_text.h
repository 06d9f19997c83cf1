// Short PTX texts for the interpreter tests.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "test/emulator/emulator.h"

namespace espalier::emulator {

/// Returns a kernel `k` with `pointers` pointer parameters a, b, ... The thread index is in %r1, the pointers are in
/// %rd1, %rd2, ...; registers %p, %h (b16), %r, %rd, %f and %d are declared.
inline std::string kernelText(const std::string &body, int pointers = 2, const std::string &bounds = "") {
  std::string text = ".version 8.0\n.target sm_80\n.address_size 64\n"
                     ".extern .shared .align 16 .b8 dynamic[];\n.visible .entry k(";
  for (int i = 0; i < pointers; ++i)
    text += std::string(i ? ", " : "") + ".param .u64 k_param_" + std::to_string(i);
  text += ") " + bounds +
          " {\n.reg .pred %p<20>;\n.reg .b16 %h<50>;\n.reg .b32 %r<99>;\n.reg .b64 %rd<50>;\n.reg .f32 %f<50>;\n"
          ".reg .f64 %d<20>;\nmov.u32 %r1, %tid.x;\n";
  for (int i = 0; i < pointers; ++i)
    text += "ld.param.u64 %rd" + std::to_string(i + 1) + ", [k_param_" + std::to_string(i) + "];\n";
  return text + "// BODY\n" + body + "\nret;\n}\n";
}

/// Returns the first line of the text that contains `what`.
inline uint32_t lineOf(const std::string &text, const std::string &what) {
  size_t at = text.find(what);
  return at == std::string::npos ? 0 : 1 + std::count(text.begin(), text.begin() + at, '\n');
}

/// Runs one thread per element. The body finds the element of `in` in the register named `x`, of 4 or 8 bytes, and
/// leaves its result in the register named `y`.
template <class Out, class In>
std::vector<Out> mapped(const std::string &body, const std::vector<In> &in, const std::string &x,
                        const std::string &y) {
  auto bits = [](size_t bytes) { return ".b" + std::to_string(bytes * 8); };
  std::string text =
      kernelText("mad.wide.u32 %rd3, %r1, " + std::to_string(sizeof(In)) + ", %rd1;\n" + "mad.wide.u32 %rd4, %r1, " +
                 std::to_string(sizeof(Out)) + ", %rd2;\n" + "ld.global" + bits(sizeof(In)) + " " + x + ", [%rd3];\n" +
                 body + "\nst.global" + bits(sizeof(Out)) + " [%rd4], " + y + ";");
  std::vector<In> from = in;
  std::vector<Out> to(in.size());
  Memory memory;
  uint64_t a = memory.add(from.data(), from.size() * sizeof(In), "in");
  uint64_t b = memory.add(to.data(), to.size() * sizeof(Out), "out");
  Module::parse(text).launch(
      {.entry = "k", .grid = {}, .block = {static_cast<uint32_t>(in.size())}, .arguments = {a, b}}, memory);
  return to;
}

/// Returns the fault of a piece of code; its message is empty if there is none.
template <class F> Fault faultOf(F run) {
  try {
    run();
  } catch (const Fault &fault) {
    return fault;
  }
  ADD_FAILURE() << "no fault";
  return Fault(Fault::Check::other, "", 0, "");
}

} // namespace espalier::emulator
