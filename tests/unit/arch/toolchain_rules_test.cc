// Tests the rules on which versions fit together, with tables of versions.
// SPDX-License-Identifier: Apache-2.0
#include "arch/toolchain_rules.h"

#include <gtest/gtest.h>

namespace opdock {
namespace {

Version version(const char* text) {
  return Version::parse(text).value_or(Version());
}

// Expects a complete reason of the build stage.
void expect_complete(const Reason& reason, const std::string& row) {
  EXPECT_FALSE(reason.found.empty() || reason.wanted.empty() || reason.advice.empty()) << row;
  EXPECT_EQ(info(reason.code).stage, "build") << row;
}

// ---- toolkit and driver

struct DriverRow {
  const char *toolkit, *driver;  // driver: the CUDA version of the driver; "" is none
  bool cubin, ptx;               // whether an image of this kind runs
};

class Driver : public testing::TestWithParam<DriverRow> {};

TEST_P(Driver, Judged) {
  const DriverRow& row = GetParam();
  CudaDriver driver;
  if (row.driver[0] != '\0') driver.cuda = version(row.driver);
  for (const ImageKind kind : {ImageKind::kCubin, ImageKind::kPtx}) {
    const auto reason = check_driver(version(row.toolkit), kind, driver);
    EXPECT_EQ(!reason, kind == ImageKind::kCubin ? row.cubin : row.ptx)
        << row.toolkit << " on " << row.driver << (reason ? ": " + to_text(*reason) : "");
    if (!reason) continue;
    EXPECT_EQ(reason->code, Code::kToolkitDriver);
    expect_complete(*reason, row.toolkit);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Rows, Driver,
    testing::Values(DriverRow{"11.0", "11.0", true, true}, DriverRow{"11.8", "11.0", true, false},
                    DriverRow{"11.8", "11.4", true, false},
                    DriverRow{"11.8.89", "11.8", true, true}, DriverRow{"11.8", "12.0", true, true},
                    DriverRow{"11.2", "13.0", true, true}, DriverRow{"11.0", "10.2", false, false},
                    DriverRow{"11.8", "10.2", false, false},
                    DriverRow{"12.0", "11.8", false, false}, DriverRow{"12.0", "12.0", true, true},
                    DriverRow{"12.1", "12.0", true, false}, DriverRow{"12.4", "12.2", true, false},
                    DriverRow{"12.4", "12.4", true, true},
                    DriverRow{"12.4.131", "12.4", true, true},
                    DriverRow{"12.6", "12.8", true, true}, DriverRow{"12.8", "12.6", true, false},
                    DriverRow{"12.9.86", "12.0", true, false},
                    DriverRow{"12.9", "11.8", false, false}, DriverRow{"12.9", "13.0", true, true},
                    DriverRow{"12.9", "13.2", true, true}, DriverRow{"13.0", "12.9", false, false},
                    DriverRow{"13.0", "12.0", false, false}, DriverRow{"13.0", "13.0", true, true},
                    DriverRow{"13.2", "13.0", true, false}, DriverRow{"13.0", "13.2", true, true},
                    DriverRow{"14.0", "13.2", false, false}, DriverRow{"13.0", "14.0", true, true},
                    DriverRow{"10.2", "10.1", false, false}, DriverRow{"10.2", "10.2", true, true},
                    DriverRow{"13.0", "", true, true}, DriverRow{"", "12.0", true, true}));

TEST(DriverAdvice, NamesTheReleaseAndTheOtherWays) {
  CudaDriver driver{version("12.2"), "535.104.05"};
  Reason reason = *check_driver(version("13.0.88"), ImageKind::kCubin, driver);
  EXPECT_EQ(reason.found, "a driver for CUDA 12.2, 535.104.05");
  EXPECT_NE(reason.advice.find("580.65.06"), std::string::npos) << reason.advice;
  EXPECT_NE(reason.advice.find("cuda-compat-13-0"), std::string::npos) << reason.advice;
  EXPECT_NE(reason.advice.find("use CUDA 12.x"), std::string::npos) << reason.advice;
  reason = *check_driver(version("12.9"), ImageKind::kPtx, driver);
  EXPECT_NE(reason.advice.find("cubins"), std::string::npos) << reason.advice;
  EXPECT_NE(reason.advice.find("CUDA 12.2 or older"), std::string::npos) << reason.advice;
}

TEST(ForwardCompatibility, IsSeenByLibcudaBeingTheNewer) {
  const std::tuple<const char*, const char*, bool> rows[] = {
      {"12.4", "470.199.02", true}, {"12.4", "535.104.05", false}, {"12.0", "525.60.13", false},
      {"12.9", "525.53", true},     {"13.0", "570.86.10", true},   {"13.0", "580.65.06", false},
      {"11.8", "450.80.02", false}, {"11.4", "440.33", true},      {"13.0", "", false},
      {"15.0", "470.1", false},
  };
  for (const auto& [cuda, release, compat] : rows)
    EXPECT_EQ(has_forward_compatibility({version(cuda), release}), compat)
        << cuda << " " << release;
  EXPECT_FALSE(has_forward_compatibility({std::nullopt, "535.104.05"}));
}

// ---- toolkit and PyTorch

struct TorchRow {
  const char *toolkit, *torch, *cuda;  // cuda: PyTorch's version of CUDA; "" is none
  Links links;
  bool fits;
};

class Torch : public testing::TestWithParam<TorchRow> {};

TEST_P(Torch, Judged) {
  const TorchRow& row = GetParam();
  TorchFacts torch{version(row.torch), std::nullopt};
  if (row.cuda[0] != '\0') torch.cuda = version(row.cuda);
  const auto reason = check_torch(version(row.toolkit), torch, row.links);
  EXPECT_EQ(!reason, row.fits) << row.toolkit << " with " << row.torch << "+" << row.cuda
                               << (reason ? ": " + to_text(*reason) : "");
  if (!reason) return;
  EXPECT_EQ(reason->code, Code::kToolkitTorch);
  expect_complete(*reason, row.toolkit);
}

INSTANTIATE_TEST_SUITE_P(Rows, Torch,
                         testing::Values(
                             // DeepSpeed#3223: DeepSpeed refuses this pair for every op, though it
                             // works.
                             TorchRow{"12.1", "2.1.0", "11.8", Links::kNothing, true},
                             TorchRow{"11.8", "2.1.0", "12.1", Links::kNothing, true},
                             TorchRow{"13.0", "2.13.0", "12.6", Links::kNothing, true},
                             TorchRow{"13.0", "2.13.0", "", Links::kNothing, true},
                             TorchRow{"12.1", "2.1.0", "11.8", Links::kCudart, false},
                             TorchRow{"12.1", "2.1.0", "11.8", Links::kTorch, false},
                             TorchRow{"11.8", "2.1.0", "12.1", Links::kCudart, false},
                             TorchRow{"13.0", "2.11.0", "12.8", Links::kTorch, false},
                             TorchRow{"13.0.88", "2.11.0", "13.0", Links::kTorch, true},
                             TorchRow{"12.9", "2.7.0", "12.6", Links::kTorch, true},
                             TorchRow{"12.1", "2.7.0", "12.8", Links::kCudart, true},
                             TorchRow{"11.0", "2.0.0", "11.8", Links::kTorch, true},
                             TorchRow{"11.8", "1.9.0", "11.1", Links::kCudart, true},
                             TorchRow{"10.2", "1.9.0", "10.1", Links::kTorch, false},
                             TorchRow{"10.2", "1.9.0", "10.2", Links::kTorch, true},
                             TorchRow{"13.0", "2.13.0", "", Links::kTorch, false},
                             TorchRow{"13.0", "2.13.0", "", Links::kCudart, true},
                             TorchRow{"13.0", "", "", Links::kTorch, true},
                             TorchRow{"", "2.13.0", "12.6", Links::kTorch, true}));

// ---- host compilers

struct HostRow {
  const char *toolkit, *name, *version;
  Code code;
  bool fits;
};

class Host : public testing::TestWithParam<HostRow> {};

TEST_P(Host, Judged) {
  const HostRow& row = GetParam();
  const Version toolkit = version(row.toolkit);
  const auto reason = check_host_compiler(toolkit, documented_host_limits(toolkit),
                                          {row.name, version(row.version)});
  EXPECT_EQ(!reason, row.fits) << row.toolkit << " with " << row.name << " " << row.version
                               << (reason ? ": " + to_text(*reason) : "");
  if (!reason) return;
  EXPECT_EQ(reason->code, row.code);
  expect_complete(*reason, row.toolkit);
}

constexpr Code kNo = Code::kBuildHostCompiler;
INSTANTIATE_TEST_SUITE_P(
    Rows, Host,
    testing::Values(
        HostRow{"11.0", "g++", "9.4.0", kNo, true}, HostRow{"11.0", "g++", "10.2", kNo, false},
        HostRow{"11.1", "g++", "10.2.1", kNo, true}, HostRow{"11.3", "g++", "11.1", kNo, false},
        HostRow{"11.4", "g++", "11.4.0", kNo, true}, HostRow{"11.8", "g++", "11", kNo, true},
        HostRow{"11.8", "g++", "12.2.0", kNo, false}, HostRow{"12.0", "g++", "12.2.0", kNo, true},
        HostRow{"12.1", "g++", "13.1", kNo, false}, HostRow{"12.4", "g++", "13.2", kNo, true},
        HostRow{"12.6", "g++", "14.1", kNo, false}, HostRow{"12.8", "g++", "14.2", kNo, true},
        HostRow{"12.9", "g++", "15.1", kNo, false}, HostRow{"13.0", "g++", "15.1.1", kNo, true},
        HostRow{"13.0", "g++", "16", kNo, false}, HostRow{"13.0", "g++", "4.8", kNo, true},
        HostRow{"11.0", "clang++", "9", kNo, true}, HostRow{"11.0", "clang++", "10.0", kNo, false},
        HostRow{"11.7", "clang++", "13.0.1", kNo, true},
        HostRow{"11.7", "clang++", "14", kNo, false},
        HostRow{"12.0", "clang++", "14.0.6", kNo, true},
        HostRow{"12.0", "clang++", "15", kNo, false}, HostRow{"12.6", "clang++", "18.1", kNo, true},
        HostRow{"12.6", "clang++", "19", kNo, false}, HostRow{"12.9", "clang++", "19", kNo, true},
        HostRow{"13.0", "clang++", "20", kNo, true}, HostRow{"13.0", "clang++", "21", kNo, false},
        HostRow{"13.0", "g++", "", Code::kToolUnknown, false},
        // For an unknown release the rules say nothing; nvcc itself will.
        HostRow{"14.0", "g++", "17", kNo, true}, HostRow{"10.2", "g++", "9", kNo, true}));

TEST(HostAdvice, NamesThePackageAndWhereTheLimitIsFrom) {
  const Reason reason = *check_host_compiler(
      version("12.4.131"), HostLimits{13, 17, "/x/host_config.h"}, {"g++", version("14.2.0")});
  EXPECT_EQ(reason.found, "g++ 14.2.0");
  EXPECT_EQ(reason.wanted, "gcc 13 or older for nvcc 12.4 (/x/host_config.h)");
  EXPECT_NE(reason.advice.find("apt install g++-13 and set CXX=g++-13"), std::string::npos)
      << reason.advice;
  EXPECT_FALSE(check_host_compiler(version("12.4"), HostLimits{0, 17, ""}, {"g++", version("99")}));
}

// ---- minimum versions

TEST(Tools, MinimumVersions) {
  constexpr Code kOld = Code::kToolTooOld, kUnknown = Code::kToolUnknown;
  const std::tuple<const char*, const char*, Code, bool> rows[] = {
      {"meson", "1.1", kOld, true},     {"meson", "1.0.1", kOld, false},
      {"meson", "0.63.0", kOld, false}, {"meson", "1.12.0", kOld, true},
      {"meson", "", kUnknown, false},   {"ninja", "1.8.2", kOld, true},
      {"ninja", "1.8.1", kOld, false},  {"ninja", "1.11.1", kOld, true},
      {"ninja", "", kUnknown, false},   {"g++", "12.2.0", kOld, true},
      {"g++", "10", kOld, true},        {"g++", "9.4.0", kOld, false},
      {"clang++", "10", kOld, true},    {"clang++", "9.0", kOld, false},
      {"nvrtc", "11.2", kOld, true},    {"nvrtc", "11.1", kOld, false},
      {"nvrtc", "12.9.86", kOld, true}, {"nvcc", "11.0", kOld, true},
      {"nvcc", "10.2", kOld, false},    {"nvcc", "13.0.88", kOld, true},
      {"hipcc", "", kOld, true},        {"torch", "0.1", kOld, true},
  };
  for (const auto& [tool, has, code, fits] : rows) {
    const auto reason = check_tool(tool, version(has));
    EXPECT_EQ(!reason, fits) << tool << " " << has;
    if (!reason) continue;
    EXPECT_EQ(reason->code, code);
    expect_complete(*reason, tool);
  }
}

TEST(Tools, StandardOfCudaFiles) {
  EXPECT_TRUE(check_cuda_standard(version("11.8"), 20));
  EXPECT_FALSE(check_cuda_standard(version("11.8"), 17));
  EXPECT_FALSE(check_cuda_standard(version("12.0"), 20));
  EXPECT_TRUE(check_cuda_standard(version("10.2"), 17));
  EXPECT_FALSE(check_cuda_standard(Version(), 20));
}

// ---- ROCm

TEST(Rocm, CompilerAgainstLibraries) {
  const std::tuple<const char*, const char*, bool> rows[] = {
      {"5.2.21153", "5.2.21153", true},
      {"5.7", "5.2", true},
      {"6.2.0", "6.4", true},
      {"6.2", "5.7", false},
      {"5.7", "6.0", false},
      {"7.0", "6.4", false},
      {"6.0", "", true},
      {"", "6.0", true},
  };
  for (const auto& [hipcc, runtime, fits] : rows) {
    const std::optional<Version> has =
        runtime[0] == '\0' ? std::nullopt : std::optional(version(runtime));
    const auto reason = check_rocm(version(hipcc), has);
    EXPECT_EQ(!reason, fits) << hipcc << " on " << runtime;
    if (reason) expect_complete(*reason, hipcc);
  }
}

}  // namespace
}  // namespace opdock
