# Precompiled headers. Most of the compile time of a source file is spent on headers of MLIR, protobuf, fmt and json.
# The sources that are built with a sanitizer or a fuzzer have none, so these builds also check that each source includes
# the headers that it uses.
option(ESPALIER_PRECOMPILE "precompile the headers of MLIR, protobuf, fmt and json" ON)
if(ESPALIER_FUZZ OR ESPALIER_SANITIZE AND ESPALIER_SANITIZE_COMPILER)
  set(ESPALIER_PRECOMPILE OFF)
endif()

# ccache reuses the object of a source with a precompiled header only if each build creates the header with the same
# bytes.
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang -fno-pch-timestamp>")
endif()

# espalier_precompile(NAME [OPTIONS ...] LIBS ... HEADERS ...) compiles HEADERS once, with the include paths of LIBS.
function(espalier_precompile name)
  if(NOT ESPALIER_PRECOMPILE)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "OPTIONS;HEADERS;LIBS" ${ARGN})
  set(source ${CMAKE_BINARY_DIR}/precompiled/${name}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "// Owns a precompiled header.\n")
  add_library(${name} OBJECT ${source})
  target_compile_options(${name} PRIVATE ${ARG_OPTIONS})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS})
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
endfunction()

# espalier_reuse(TARGET NAME) gives the precompiled header NAME to every source of TARGET.
function(espalier_reuse target name)
  if(ESPALIER_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM ${name})
  endif()
endfunction()

# Headers for the planner: the standard library and fmt.
espalier_precompile(espalier_plain_headers LIBS fmt::fmt HEADERS <algorithm> <array> <cmath> <cstdint> <fmt/format.h>
  <fmt/ranges.h> <functional> <limits> <map> <memory> <numeric> <optional> <set> <span> <string> <string_view> <tuple>
  <utility> <vector>)

# Headers for the runtime, the command and the YAML readers.
set(common_headers <algorithm> <array> <atomic> <charconv> <chrono> <cmath> <cstdint> <cstring> <deque> <filesystem>
  <fmt/format.h> <fmt/ranges.h> <fstream> <functional> <map> <memory> <mutex> <nlohmann/json.hpp> <numeric> <optional>
  <set> <span> <stdexcept> <string> <string_view> <thread> <unordered_map> <utility> <vector> <format/plan.pb.h>)
espalier_precompile(espalier_headers LIBS espalier_format HEADERS ${common_headers})

# Headers for dialects and passes.
set(ir_headers <mlir/Conversion/LLVMCommon/TypeConverter.h> <mlir/Dialect/Arith/IR/Arith.h>
  <mlir/Dialect/Func/IR/FuncOps.h> <mlir/Dialect/LLVMIR/LLVMDialect.h> <mlir/Dialect/Math/IR/Math.h>
  <mlir/Dialect/SCF/IR/SCF.h> <mlir/IR/Builders.h> <mlir/IR/DialectImplementation.h> <mlir/IR/ImplicitLocOpBuilder.h>
  <mlir/IR/PatternMatch.h> <mlir/IR/TypeUtilities.h> <mlir/Pass/Pass.h> <mlir/Pass/PassManager.h>
  <llvm/ADT/TypeSwitch.h> <dialects/dist/dialect.h> <dialects/exec/dialect.h> <dialects/model/dialect.h>)
espalier_precompile(espalier_ir_headers LIBS MLIR LLVM espalier_format
  HEADERS ${ir_headers} <algorithm> <fmt/format.h> <map> <optional> <set> <string> <vector> <format/plan.pb.h>)

# Headers for tests, which are compiled without optimization.
if(NOT ESPALIER_SANITIZE)
  espalier_precompile(espalier_test_headers OPTIONS -O0 LIBS espalier_format GTest::gmock
    HEADERS ${common_headers} <gmock/gmock.h> <gtest/gtest.h>)
  espalier_precompile(espalier_ir_test_headers OPTIONS -O0 LIBS MLIR LLVM espalier_format GTest::gmock
    HEADERS ${common_headers} <gmock/gmock.h> <gtest/gtest.h> ${ir_headers})
endif()

foreach(name espalier_ir_headers espalier_ir_test_headers)
  if(TARGET ${name})
    target_include_directories(${name} SYSTEM PRIVATE ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
    add_dependencies(${name} espalier_interfaces_tablegen espalier_model_tablegen espalier_dist_tablegen
                     espalier_exec_tablegen)
  endif()
endforeach()
