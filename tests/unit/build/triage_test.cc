// Tests how logs of compilers, linkers, ninja and Meson are interpreted. The logs are real output
// of g++ 12, clang 14, nvcc 13.0, hipcc 5.2, ld 2.40, Meson 1.12 and ninja 1.11.
// SPDX-License-Identifier: Apache-2.0
#include "build/triage.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace opdock {
namespace {

FailedStep failed(std::string_view log, FailedStep::Phase phase = FailedStep::kCompile) {
  FailedStep step;
  step.phase = phase;
  step.end = {ProcessEnd::kExit, 1};
  step.log = log;
  step.plugin_folder = "/home/me/axpy";
  step.copied_folder = "/cache/work1/project/plugins/plugin";
  step.archs = "9.0a";
  step.newest_arch = "12.1";
  step.ops = {"axpy", "shift"};
  return step;
}

struct LogCase {
  const char* name;
  const char* log;
  Code code;
  const char* found;   // how the reason's found begins
  const char* advice;  // part of the reason's wanted and advice
};

const LogCase kCases[] = {
    {"GccError",
     "ninja: Entering directory `/cache/work1/build'\n"
     "[1/5] Compiling C object plugins/axpy.so.p/axpy.entry.c.o\n"
     "[2/5] Compiling C++ object plugins/axpy.so.p/plugin_axpy.cc.o\n"
     "FAILED: plugins/axpy.so.p/plugin_axpy.cc.o \n"
     "c++ -Iplugins/axpy.so.p -c ../project/plugins/plugin/axpy.cc\n"
     "../project/plugins/plugin/axpy.cc: In function 'int f()':\n"
     "../project/plugins/plugin/axpy.cc:1:17: error: 'y' was not declared in this scope\n"
     "    1 | int f() { return y; }\n"
     "      |                  ^\n"
     "../project/plugins/plugin/axpy.cc:2:1: error: another\n"
     "ninja: build stopped: subcommand failed.\n",
     Code::kBuildFailed,
     "/home/me/axpy/axpy.cc: In function 'int f()':\n"
     "/home/me/axpy/axpy.cc:1:17: error: 'y' was not declared in this scope\n"
     "    1 | int f() { return y; }\n"
     "      |                  ^",
     "correct the source"},
    {"PackNotice",
     "opdock-pack: notice: axpy: found no NVRTC, wanted one to pack images\n"
     "../project/plugins/plugin/axpy.cc:1:1: error: 'this' does not name a type\n",
     Code::kBuildFailed, "/home/me/axpy/axpy.cc:1:1: error:", "correct the source"},
    {"GccHeader",
     "FAILED: x.o \nc++ -c x\n"
     "../project/plugins/plugin/axpy.cc:2:10: fatal error: hwy/highway.h: No such file or "
     "directory\n"
     "    2 | #include <hwy/highway.h>\n      |          ^~~~\ncompilation terminated.\n",
     Code::kBuildHeaderMissing, "/home/me/axpy/axpy.cc:2:10: fatal error: hwy/highway.h",
     "libhwy-dev"},
    {"ClangHeader", "axpy.cc:1:10: fatal error: 'Python.h' file not found\n#include <Python.h>\n",
     Code::kBuildHeaderMissing, "axpy.cc:1:10: fatal error: 'Python.h'", "python3-dev"},
    {"EdgHeader", "axpy.cu(3): fatal error: cannot open source file \"cublas_v2.h\"\n",
     Code::kBuildHeaderMissing, "axpy.cu(3)", "nvidia-cuda-toolkit"},
    {"UnknownHeader", "a.cc:1:10: fatal error: acme/rocket.h: No such file or directory\n",
     Code::kBuildHeaderMissing, "a.cc:1:10", "install what has acme/rocket.h"},
    {"StandardHeader", "a.cc:1:10: fatal error: cstdint: No such file or directory\n",
     Code::kBuildHeaderMissing, "a.cc:1:10", "standard library"},
    {"TorchHeader", "a.cc:1:10: fatal error: torch/extension.h: No such file or directory\n",
     Code::kBuildHeaderMissing, "a.cc:1:10", "PyTorch"},
    {"HipHeader", "a.cc:1:10: fatal error: 'hip/hip_runtime.h' file not found\n",
     Code::kBuildHeaderMissing, "a.cc:1:10", "libamdhip64-dev"},
    {"Undefined",
     "FAILED: plugins/axpy.so \nc++ -o plugins/axpy.so\n"
     "/usr/bin/ld: plugins/axpy.so.p/axpy.cc.o: in function `run':\n"
     "axpy.cc:(.text+0x5): undefined reference to `helper()'\n"
     "collect2: error: ld returned 1 exit status\n",
     Code::kBuildFailed, "/usr/bin/ld: plugins/axpy.so.p/axpy.cc.o: in function `run':\n",
     "compiles and links"},
    {"OpParametersGcc",
     "FAILED: x.o \nc++ -c x\n"
     "In file included from ../include/opdock/plugin.hpp:473,\n"
     "                 from ../project/plugins/plugin/axpy.cc:1:\n"
     "plugins/axpy.ops.h: In instantiation of 'constexpr bool opdock::ops_in_plugin_toml::op_axpy("
     "PlanFound*, RunFound*) [with PlanFound = void(opdock::Plan&, opdock::Tensor, long int)]':\n"
     "../project/plugins/plugin/axpy.cc:26:1:   required from here\n"
     "plugins/axpy.ops.h:4:25: error: static assertion failed: op \"axpy\": the parameters of plan "
     "are not those that ../project/plugins/plugin/plugin.toml:7 declares, axpy(Tensor x, float a) "
     "-> Tensor: wanted void plan(Plan&, Tensor x, double a)\n"
     "    4 |   static_assert(detail::takes<PlanFound, void(Plan&, Tensor, double)>,\n",
     Code::kBuildOp,
     "In file included from ../include/opdock/plugin.hpp:473,\n"
     "                 from /home/me/axpy/axpy.cc:1:\n"
     "plugins/axpy.ops.h: In instantiation of 'constexpr bool opdock::ops_in_plugin_toml::op_axpy("
     "PlanFound*, RunFound*) [with PlanFound = void(opdock::Plan&, opdock::Tensor, long int)]':\n"
     "/home/me/axpy/axpy.cc:26:1:   required from here\n"
     "plugins/axpy.ops.h:4:25: error: static assertion failed: op \"axpy\": the parameters of plan "
     "are not those that /home/me/axpy/plugin.toml:7 declares",
     "void plan(Plan&, Tensor x, double a)"},
    {"OpParametersClang",
     "../plugins/axpy.ops.h:7:3: error: static_assert failed due to requirement "
     "'detail::takes<void (opdock::Call &, opdock::Results, opdock::Tensor), void (opdock::Call &, "
     "opdock::Results, opdock::Tensor, double)>' \"op \"axpy\": the parameters of run are not "
     "those "
     "that ../project/plugins/plugin/plugin.toml:7 declares, axpy(Tensor x, float a) -> Tensor: "
     "wanted void run(Call&, Results, Tensor x, double a)\"\n",
     Code::kBuildOp, "../plugins/axpy.ops.h:7:3: error: static_assert failed",
     "void run(Call&, Results, Tensor x, double a)"},
    {"OpNameGcc",
     "../include/opdock/plugin.hpp:485:19: error: 'op_apxy' is not a member of "
     "'opdock::ops_in_plugin_toml'; did you mean 'op_axpy'?\n",
     Code::kBuildOp, "../include/opdock/plugin.hpp:485:19: error: 'op_apxy'",
     "an op that plugin.toml declares: axpy, shift"},
    {"OpNameClang",
     "../project/plugins/plugin/axpy.cc:26:1: error: no member named 'op_apxy' in namespace "
     "'opdock::ops_in_plugin_toml'; did you mean 'op_axpy'?\n",
     Code::kBuildOp, "/home/me/axpy/axpy.cc:26:1: error: no member named 'op_apxy'",
     "an op that plugin.toml declares: axpy, shift"},
    {"OpMissing",
     "FAILED: plugins/axpy.so \nc++ -o plugins/axpy.so\n"
     "/usr/bin/ld: plugins/axpy.so.p/axpy.entry.c.o:(.data.rel.ro+0x48): undefined reference to "
     "`opdock_shift_plan'\n"
     "collect2: error: ld returned 1 exit status\n",
     Code::kBuildOp,
     "no code of the op \"shift\", which plugin.toml declares\n/usr/bin/ld: plugins",
     "OPDOCK_OP(shift, …)"},
    {"OpMissingLld",
     "ld.lld: error: undefined symbol: opdock_axpy_run\n>>> referenced by axpy.entry.c\n",
     Code::kBuildOp, "no code of the op \"axpy\"", "OPDOCK_OP(axpy, …)"},
    {"OpOfAnotherName",
     "/usr/bin/ld: axpy.cc:(.text+0x5): undefined reference to `opdock_shifted_plan'\n",
     Code::kBuildFailed, "/usr/bin/ld: axpy.cc", "compiles and links"},
    {"LibraryMissing", "/usr/bin/ld: cannot find -lfoo: No such file or directory\n",
     Code::kBuildFailed, "/usr/bin/ld: cannot find -lfoo", "compiles and links"},
    {"CompilerKilled",
     "c++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.\n",
     Code::kBuildMemory, "c++: fatal error: Killed", "--jobs 1"},
    {"CompilerOutOfMemory", "cc1plus: out of memory allocating 65536 bytes after a total of 9\n",
     Code::kBuildMemory, "ninja ended with status 1", "--jobs 1"},
    {"GccCrash",
     "axpy.cc:3:1: internal compiler error: Segmentation fault\n"
     "Please submit a full bug report, with preprocessed source.\n",
     Code::kBuildCompilerCrash, "axpy.cc:3:1: internal compiler error", "another one"},
    {"ClangCrash",
     "PLEASE submit a bug report to https://github.com/llvm/llvm-project/issues/\nStack dump:\n",
     Code::kBuildCompilerCrash, "PLEASE submit", "another one"},
    {"DiskFull", "axpy.cc:9:1: fatal error: error writing to /tmp/x.s: No space left on device\n",
     Code::kBuildDiskFull, "axpy.cc:9:1", "free space"},
    {"MesonsDiskFull",
     "Traceback (most recent call last):\n  File \"meson.py\", line 1, in dump\n"
     "OSError: [Errno 28] No space left on device\n\n"
     "ERROR: Unhandled python OSError. This is probably not a Meson bug.\n",
     Code::kBuildDiskFull, "OSError: [Errno 28] No space left on device", "free space"},
    {"LinkersDiskFull",
     "FAILED: x.so \nc++ -o x.so\n/usr/bin/ld: final link failed: No space left on device\n"
     "collect2: error: ld returned 1 exit status\n",
     Code::kBuildDiskFull, "/usr/bin/ld: final link failed: No space left on device", "free space"},
    {"FileLimit",
     "g++: internal compiler error: File size limit exceeded signal terminated program cc1plus\n",
     Code::kBuildLimit, "g++: internal compiler error: File size", "ulimit -f"},
    {"MesonsFileLimit",
     "OSError: [Errno 27] File too large\n\nERROR: Unhandled python OSError. This is probably\n",
     Code::kBuildLimit, "OSError: [Errno 27] File too large", "ulimit -f"},
    {"OpenFiles", "c++: fatal error: pipe: Too many open files\n", Code::kBuildLimit,
     "c++: fatal error: pipe", "ulimit -n"},
    {"Processes", "ninja: fatal: posix_spawn: Resource temporarily unavailable\n",
     Code::kBuildLimit, "ninja: fatal: posix_spawn", "--jobs 1"},
    {"Quota", "/usr/bin/ld: final link failed: Disk quota exceeded\n", Code::kBuildDiskFull,
     "/usr/bin/ld: final link failed: Disk quota exceeded", "free space"},
    {"NvccHostCompiler",
     "In file included from /usr/local/cuda/include/cuda_runtime.h:82,\n"
     "                 from <command-line>:\n"
     "/usr/local/cuda/include/crt/host_config.h:138:2: error: #error -- unsupported GNU version! "
     "gcc versions later than 15 are not supported!\n",
     Code::kBuildHostCompiler, "In file included from", "later than 15 are not supported"},
    {"NvccArch", "nvcc fatal   : Unsupported gpu architecture 'compute_190'\n", Code::kBuildArch,
     "nvcc fatal", "12.1+PTX"},
    {"PackersOwnReason",
     "FAILED: plugins/axpy.ops.h plugins/axpy.nvcc.args \nopdock-pack --prepare --nvcc nvcc\n"
     "opdock-pack: error: build-arch: found 19.0 in --cuda-archs = \"19.0\", wanted what the "
     "compiler knows: nvcc knows 7.5, 12.1; write 12.1+PTX\n",
     Code::kBuildArch, "19.0 in --cuda-archs = \"19.0\"", "nvcc knows 7.5, 12.1write 12.1+PTX"},
    {"HipArch", "clang: error: unsupported HIP gpu architecture: gfx1400\n", Code::kBuildArch,
     "clang: error", "ask for architectures that the toolkit knows"},
    {"Manifest",
     "FAILED: plugins/axpy.entry.c plugins/axpy.note.S \nopdock-pack --toml plugin.toml\n"
     "../project/plugins/plugin/plugin.toml:7: [[op]] 1: found no \"doc\", wanted a text\n"
     "ninja: build stopped: subcommand failed.\n",
     Code::kBuildFailed, "/home/me/axpy/plugin.toml:7: [[op]] 1: found no \"doc\"",
     "compiles and links"},
    {"NoBuildFile", "ninja: error: loading 'build.ninja': No such file or directory\n",
     Code::kBuildFailed, "ninja: error: loading", "compiles and links"},
    {"Nothing", "", Code::kBuildFailed, "ninja ended with status 1", "compiles and links"},
};

class Logs : public ::testing::TestWithParam<LogCase> {};

TEST_P(Logs, AreUnderstood) {
  const LogCase& row = GetParam();
  ASSERT_STRNE(row.found, "");   // every text begins with "",
  ASSERT_STRNE(row.advice, "");  // and contains ""
  const Reason reason = triage(failed(row.log));
  EXPECT_EQ(info(reason.code).name, info(row.code).name);
  EXPECT_TRUE(reason.found.starts_with(row.found)) << reason.found;
  EXPECT_NE((reason.wanted + reason.advice).find(row.advice), std::string::npos) << to_text(reason);
  EXPECT_EQ(reason.found.find("ninja: build stopped"), std::string::npos) << reason.found;
  EXPECT_EQ(reason.found.find("another"), std::string::npos) << reason.found;
}

INSTANTIATE_TEST_SUITE_P(All, Logs, ::testing::ValuesIn(kCases),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(Triage, NamesTheErrorInMesonBuild) {
  const Reason reason = triage(
      failed("The Meson build system\nVersion: 1.12.1\n"
             "../project/plugins/plugin/meson.build:2:0: ERROR: Unknown variable \"nothing\".\n"
             "A full log can be found at /cache/work1/build/meson-logs/meson-log.txt\n",
             FailedStep::kSetup));
  EXPECT_EQ(reason.code, Code::kBuildFailed);
  EXPECT_EQ(reason.found, "/home/me/axpy/meson.build:2:0: ERROR: Unknown variable \"nothing\".");
}

TEST(Triage, KeepsAtMostTwentyShortLines) {
  std::string log = "a.cc:1:1: error: no matching function\n";
  for (int i = 0; i < 1000; ++i)
    log += "a.cc:1:1: note: candidate " + std::string(1000, 'x') + "\n";
  const Reason reason = triage(failed(log));
  EXPECT_LE(std::count(reason.found.begin(), reason.found.end(), '\n'), 19);
  EXPECT_LT(reason.found.size(), 20u * 402);
}

TEST(Triage, TellsEndsWithoutALog) {
  FailedStep step = failed("");
  step.end = {ProcessEnd::kSignal, SIGKILL};
  EXPECT_EQ(triage(step).code, Code::kBuildMemory);
  step.end = {ProcessEnd::kSignal, SIGSEGV};
  EXPECT_EQ(triage(step).code, Code::kBuildNoNinja);
  step.end = {ProcessEnd::kTimeout, 0};
  EXPECT_EQ(triage(step).code, Code::kBuildTimeout);
  step.end = {ProcessEnd::kCancelled, 0};
  EXPECT_EQ(triage(step).code, Code::kCancelled);
  step.end = {ProcessEnd::kNotStarted, 2};
  EXPECT_EQ(triage(step).code, Code::kBuildNoNinja);
}

TEST(Triage, BlamesASmallStackForACrash) {
  FailedStep step = failed("a.cc:1:1: internal compiler error: Segmentation fault\n");
  EXPECT_EQ(triage(step).code, Code::kBuildCompilerCrash);
  step.limits.stack_bytes = 8 << 20;
  EXPECT_EQ(triage(step).code, Code::kBuildCompilerCrash);
  step.limits.stack_bytes = 256 << 10;
  EXPECT_EQ(triage(step).code, Code::kBuildLimit);
  EXPECT_NE(to_text(triage(step)).find("this process's limit is 256 KiB"), std::string::npos);
  step = failed("");
  step.end = {ProcessEnd::kSignal, SIGSEGV};
  step.limits.stack_bytes = 256 << 10;
  EXPECT_EQ(triage(step).code, Code::kBuildLimit);
  step.end.number = SIGKILL;
  EXPECT_EQ(triage(step).code, Code::kBuildMemory);
  step.end.number = SIGXFSZ;
  EXPECT_EQ(triage(step).code, Code::kBuildLimit);
}

TEST(Triage, KeepsNoNul) {
  const std::string log("a.cc:1:1: error: one\0two\nthree\n", 31);
  EXPECT_EQ(triage(failed(log)).found, "a.cc:1:1: error: one\uFFFDtwo\nthree");
}

TEST(Triage, HoldsAMissingHeaderAgainstTheSourceUntilItIsThere) {
  Reason reason = make_reason(Code::kBuildHeaderMissing, "x", "the header acme/rocket.h");
  EXPECT_FALSE(is_passing(reason));
  reason.wanted = "the header stdio.h";
  EXPECT_TRUE(is_passing(reason));
  EXPECT_FALSE(is_passing(make_reason(Code::kBuildFailed, "x", "y")));
  EXPECT_TRUE(is_passing(make_reason(Code::kBuildTimeout, "x", "y")));
}

}  // namespace
}  // namespace opdock
