// The peak performance of a machine is measured once and cached.
#include "runtime/train/machine_peak.h"

#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace espalier::rt {
namespace {

namespace fs = std::filesystem;

class MachinePeak : public testing::Test {
protected:
  MachinePeak() { setenv("XDG_CACHE_HOME", folder.c_str(), 1); }
  ~MachinePeak() override {
    fs::remove_all(folder);
    unsetenv("XDG_CACHE_HOME");
  }

  static nlohmann::json kept() {
    std::ifstream stream(peakFile());
    return nlohmann::json::parse(stream);
  }

  fs::path folder = fs::temp_directory_path() / fmt::format("espalier-cache-{}", getpid());
};

TEST_F(MachinePeak, TheBestMeasurementIsKept) {
  double first = machinePeakFlops(1, pb::F32);
  EXPECT_GT(first, 1e6);
  ASSERT_EQ(kept().size(), 1u);
  EXPECT_EQ(kept().begin().value().get<double>(), first);
  EXPECT_GE(machinePeakFlops(1, pb::F32), first);
  machinePeakFlops(2, pb::F32);
  machinePeakFlops(1, pb::BF16);
  EXPECT_EQ(kept().size(), 3u); // other numbers of threads and other types have peaks of their own
}

TEST_F(MachinePeak, OnlyRises) {
  machinePeakFlops(1, pb::F32);
  std::string key = kept().begin().key();
  auto keep = [&](double flops) { std::ofstream(peakFile()) << nlohmann::json({{key, flops}}); };
  keep(1);
  EXPECT_GT(machinePeakFlops(1, pb::F32), 1e6);
  keep(1e30);
  EXPECT_EQ(machinePeakFlops(1, pb::F32), 1e30);
  correctPeak(1, pb::F32, 1);
  EXPECT_EQ(kept().begin().value().get<double>(), 1e30);
}

TEST_F(MachinePeak, ARunThatReachesMoreCorrectsIt) {
  double peak = machinePeakFlops(1, pb::F32);
  correctPeak(1, pb::F32, 1.2 * peak);
  EXPECT_GE(kept().begin().value().get<double>(), 1.2 * peak);
  correctPeak(1, pb::F32, 1e30); // a wrong number of FLOPs
  EXPECT_LT(kept().begin().value().get<double>(), 1e30);
}

TEST_F(MachinePeak, IgnoresADamagedOrUnwritableFile) {
  machinePeakFlops(1, pb::F32);
  for (const char *text : {"", "{", "[]", "{\"x\":1}"}) {
    std::ofstream(peakFile()) << text;
    EXPECT_GT(machinePeakFlops(1, pb::F32), 1e6) << text;
  }
  setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);
  EXPECT_GT(machinePeakFlops(1, pb::F32), 1e6);
}

TEST_F(MachinePeak, IsKeptInTheCacheOfTheUser) {
  EXPECT_EQ(peakFile(), folder / "espalier" / "cpu_peaks.json");
  std::string home = std::getenv("HOME") ? std::getenv("HOME") : "";
  setenv("XDG_CACHE_HOME", "relative", 1); // the XDG specification ignores relative paths
  setenv("HOME", "/home/x", 1);
  EXPECT_EQ(peakFile(), "/home/x/.cache/espalier/cpu_peaks.json");
  unsetenv("HOME");
  EXPECT_EQ(peakFile(), "");
  setenv("HOME", home.c_str(), 1);
}

} // namespace
} // namespace espalier::rt
