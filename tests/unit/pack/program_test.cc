// Tests the program opdock-pack: what it writes, reports and returns.
// SPDX-License-Identifier: Apache-2.0
#include "program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "jit/nvrtc.h"

namespace opdock::pack {
namespace {

std::string arguments(const TemporaryFolder& folder, const std::string& out) {
  const std::string base = folder.path().string();
  return "--toml " + base + "/p/plugin.toml --out-dir " + base + "/" + out + " --depfile " + base +
         "/" + out + ".d --include " + base + "/vocabulary --cuda-archs '8.0;9.0a'";
}

TEST(OpdockPack, SameInputsSameBytes) {
  TemporaryFolder folder, other;
  write_plugin(folder);
  write_plugin(other);
  const std::string search = " --nvrtc-search " + folder.path().string() + "/nvrtc";
  const std::string other_search = " --nvrtc-search " + other.path().string() + "/nvrtc";
  ASSERT_EQ(pack(folder, arguments(folder, "a") + search).status, 0);
  const Outcome second = pack(other, arguments(other, "b") + other_search);
  ASSERT_EQ(second.status, 0) << second.text;
  for (const char* name : {"entry.c", "note.S", "images.bin"}) {
    const std::string bytes = contents(folder.path() / "a" / name);
    EXPECT_FALSE(bytes.empty()) << name;
    EXPECT_EQ(bytes, contents(other.path() / "b" / name)) << name;
  }
  // Each input changes the build hash, which is in note.S.
  const std::string before = contents(folder.path() / "a/note.S");
  for (const char* file : {"p/plugin.toml", "p/p.cc", "p/p.cuh", "vocabulary/opdock/device.cuh"}) {
    const std::string text = contents(folder.path() / file);
    folder.write(file, text + "\n");
    ASSERT_EQ(pack(folder, arguments(folder, "a") + search).status, 0);
    EXPECT_NE(contents(folder.path() / "a/note.S"), before) << file;
    folder.write(file, text);
  }
  ASSERT_EQ(pack(folder, arguments(folder, "a") + search + " --toolchain other").status, 0);
  EXPECT_NE(contents(folder.path() / "a/note.S"), before) << "toolchain";
}

// The builder parses this line as a reason: a full disk must not be mistaken for a mistake in the
// plugin.
TEST(OpdockPack, SaysWhyAFileCannotBeWritten) {
  TemporaryFolder folder;
  write_plugin(folder);
  const std::string base = folder.path().string();
  const std::string toml = "--toml " + base + "/p/plugin.toml --ops-header ";
  const Outcome full = pack(folder, toml + "/dev/full");
  EXPECT_EQ(full.status, 1);
  EXPECT_EQ(full.text.find("opdock-pack: error: build-disk-full: found /dev/full: No space left on "
                           "device, wanted a file that can be written; free space"),
            0u)
      << full.text;
  const Outcome folder_there = pack(folder, toml + base + "/p");
  EXPECT_EQ(folder_there.status, 1);
  EXPECT_NE(folder_there.text.find("found " + base + "/p: Is a directory, wanted"),
            std::string::npos)
      << folder_there.text;
  const Outcome below_file = pack(folder, toml + base + "/p/p.cc/new/ops.h");
  EXPECT_NE(below_file.text.find("Not a directory"), std::string::npos) << below_file.text;
}

TEST(OpdockPack, KeepsTheSourceOfEachImageWhereAsked) {
  TemporaryFolder folder;
  write_plugin(folder);
  const std::string search = " --nvrtc-search " + folder.path().string() + "/nvrtc";
  const std::string kept = folder.path().string() + "/kept";
  const Outcome done = pack(folder, arguments(folder, "a") + search, "OPDOCK_JIT_KEEP=" + kept);
  ASSERT_EQ(done.status, 0) << done.text;
  // the note's JSON is split over several .ascii lines
  std::string note = contents(folder.path() / "a/note.S");
  for (size_t at; (at = note.find("\"\n  .ascii \"")) != note.npos;) note.erase(at, 12);
  size_t images = 0, sources = 0;
  for (const auto& file : std::filesystem::directory_iterator(kept)) {
    const std::string name = file.path().filename().string();
    const bool source = name.starts_with("source-");
    ++(source ? sources : images);
    if (source) continue;
    // The note contains the digest that is in the file's name.
    EXPECT_NE(note.find(name.substr(0, 64)), std::string::npos);
    EXPECT_NE(contents(file.path()).find("\"arch\": \"sm_"), std::string::npos);
  }
  EXPECT_EQ(images, 2u);
  EXPECT_EQ(sources, 1u);

  folder.write("taken", "");
  const Outcome notice =
      pack(folder, arguments(folder, "b") + search, "OPDOCK_JIT_KEEP=" + kept + "/../taken");
  EXPECT_EQ(notice.status, 0);
  EXPECT_NE(notice.text.find("opdock-pack: notice: jit-keep"), std::string::npos) << notice.text;
}

TEST(OpdockPack, DepfileNamesEveryInput) {
  TemporaryFolder folder;
  write_plugin(folder);
  const std::string search = " --nvrtc-search " + folder.path().string() + "/nvrtc";
  ASSERT_EQ(pack(folder, arguments(folder, "a") + search).status, 0);
  const std::string depfile = contents(folder.path() / "a.d");
  for (const char* name :
       {"p/plugin.toml", "p/p.cc", "p/p.cuh", "opdock/device.cuh", "libnvrtc.so.12"})
    EXPECT_NE(depfile.find(name), std::string::npos) << depfile;
}

TEST(OpdockPack, TellsWhatTheCompilersHereKnow) {
  TemporaryFolder folder;
  write_plugin(folder);
  std::filesystem::copy_file(FAKE_NVRTC_13, folder.path() / "nvrtc/libnvrtc.so.13");
  const std::string search = " --nvrtc-search " + folder.path().string() + "/nvrtc";
  const Outcome outcome = pack(folder, "--known-archs" + search);
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  const size_t old_at = outcome.text.find("NVRTC 12.9 50 "),
               new_at = outcome.text.find("NVRTC 13.0 75 ");
  ASSERT_NE(old_at, std::string::npos) << outcome.text;
  EXPECT_LT(old_at, new_at) << outcome.text;
  EXPECT_NE(outcome.text.find(" 120"), std::string::npos) << outcome.text;
  EXPECT_NE(pack(folder, "--known-archs --toml x").status, 0);
}

TEST(OpdockPack, WhatStandsForAGpuThatNoCompilerKnowsGetsPtx) {
  TemporaryFolder folder;
  write_plugin(folder);
  const std::string base = folder.path().string();
  const std::string both = "--toml " + base + "/p/plugin.toml --out-dir " + base + "/a --include " +
                           base + "/vocabulary --nvrtc-search " + base +
                           "/nvrtc --cuda-archs '8.0;99.0'";
  Outcome outcome = pack(folder, both);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.text.find("99.0 in --cuda-archs"), std::string::npos) << outcome.text;
  outcome = pack(folder, both + " --gpu-archs 99.0");
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  const std::string images = contents(folder.path() / "a/images.bin");
  // The newest architecture that the compilers here know is the last word of the last line.
  const std::string known = pack(folder, "--known-archs --nvrtc-search " + base + "/nvrtc").text;
  const size_t end = known.find_last_not_of('\n'), space = known.rfind(' ', end);
  const std::string newest = known.substr(space + 1, end - space);
  ASSERT_GE(std::stoi(newest), 120) << known;
  for (const std::string& arch : {std::string("sm_80"), "sm_" + newest, "compute_" + newest})
    EXPECT_NE(images.find(arch), std::string::npos) << arch;
  EXPECT_EQ(images.find("sm_99"), std::string::npos);
}

// Returns whether this machine has an NVRTC that no environment variable hides: in /usr/local/cuda
// or on the loader's path.
bool has_nvrtc_of_the_system() {
  std::vector<std::string> problems;
  return !open_nvrtcs(
              {"/usr/local/cuda/lib64/libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so.13",
               "/usr/local/cuda/lib64/libnvrtc.so", "libnvrtc.so.12", "libnvrtc.so.13"},
              &problems)
              .empty();
}

TEST(OpdockPack, WithoutCompilerANoticeOrAnError) {
  if (has_nvrtc_of_the_system()) GTEST_SKIP() << "an NVRTC is installed where it is always found";
  TemporaryFolder folder;
  write_plugin(folder);
  Outcome outcome = pack(folder, arguments(folder, "a"));
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_NE(outcome.text.find("opdock-pack: notice: p: found no NVRTC"), std::string::npos)
      << outcome.text;
  EXPECT_NE(outcome.text.find("nvidia-cuda-nvrtc-cu12"), std::string::npos) << outcome.text;
  EXPECT_NE(contents(folder.path() / "a/images.bin").find("OPDOCK_KERNEL(32) f()"),
            std::string::npos);
  outcome = pack(folder, arguments(folder, "b") + " --require-device");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.text.find("opdock-pack: error: p: found no NVRTC"), std::string::npos)
      << outcome.text;
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "b/note.S"));
}

TEST(OpdockPack, NoDeviceIsQuiet) {
  TemporaryFolder folder;
  write_plugin(folder);
  const Outcome outcome = pack(folder, arguments(folder, "a") + " --no-device");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.text, "");
}

TEST(OpdockPack, ArchitecturesThatNoCompilerKnows) {
  TemporaryFolder folder;
  write_plugin(folder);
  const std::string search =
      " --cuda-archs 9.9 --nvrtc-search " + folder.path().string() + "/nvrtc";
  std::string base = arguments(folder, "a");
  base.resize(base.find(" --cuda-archs"));
  const Outcome outcome = pack(folder, base + search);
  EXPECT_EQ(outcome.status, 1) << outcome.text;
  EXPECT_NE(outcome.text.find("build-arch: found 9.9 in --cuda-archs"), std::string::npos)
      << outcome.text;
  EXPECT_NE(outcome.text.find("Write 9.0+PTX"), std::string::npos) << outcome.text;
}

TEST(OpdockPack, AMisspeltListIsAnErrorWithoutAnyCompiler) {
  TemporaryFolder folder;
  write_plugin(folder);
  std::string base = arguments(folder, "a");
  base.resize(base.find(" --cuda-archs"));
  for (const char* list : {" --cuda-archs 80", " --hip-archs 90a"}) {
    const Outcome outcome = pack(folder, base + " --no-device" + list);
    EXPECT_EQ(outcome.status, 1);
    EXPECT_NE(outcome.text.find("arch-list-invalid"), std::string::npos) << outcome.text;
  }
}

TEST(OpdockPack, OnlyForRocmNoNvrtcIsAskedFor) {
  TemporaryFolder folder;
  write_plugin(folder);
  std::string toml = contents(folder.path() / "p/plugin.toml");
  toml.replace(toml.find("\"cuda\""), 6, "\"rocm\"");
  folder.write("p/plugin.toml", toml);
  const Outcome outcome = pack(folder, arguments(folder, "a") + " --require-cuda --no-hip");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_EQ(outcome.text, "");
  EXPECT_EQ(pack(folder, arguments(folder, "a") + " --require-hip --no-hip").status, 2);
}

TEST(OpdockPack, ChecksAndWritesTheOpsHeaderAlone) {
  TemporaryFolder folder;
  write_plugin(folder);
  const std::string header = folder.path().string() + "/made/here/ops.h";
  const std::string asked =
      "--toml " + folder.path().string() + "/p/plugin.toml --ops-header " + header;
  ASSERT_EQ(pack(folder, asked).status, 0);
  EXPECT_NE(contents(header).find("op_f("), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists("entry.c"));
  // The header is left alone while its text stays the same, so that nothing that includes it is
  // compiled again.
  using std::filesystem::last_write_time;
  const auto old = last_write_time(header) - std::chrono::hours(1);
  last_write_time(header, old);
  folder.write("p/plugin.toml", contents(folder.path() / "p/plugin.toml") + "# more\n");
  ASSERT_EQ(pack(folder, asked).status, 0);
  EXPECT_EQ(last_write_time(header), old);
}

TEST(OpdockPack, AnOpThatIsAFormulaHasNoFunctions) {
  TemporaryFolder folder;
  folder.write("p/plugin.toml", R"(name = "p"
version = "1.2"
license = "MIT"
[[op]]
schema = 'f(Tensor x, str mode="a") -> Tensor'
formula = """
y = x + 1 if mode == "a" else x
return y
"""
)");
  const std::string base = folder.path().string();
  const std::string header = base + "/ops.h", toml = "--toml " + base + "/p/plugin.toml";
  const Outcome outcome = pack(folder, toml + " --out-dir " + base + "/a");
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_EQ(outcome.text, "");
  const std::string entry = contents(folder.path() / "a/entry.c");
  EXPECT_NE(entry.find("    .formula = \"y = x + 1 if mode == \\042a\\042 else x\\012return "
                       "y\\012\",\n"),
            std::string::npos)
      << entry;
  // The formula's gradient is an op of its own.
  EXPECT_NE(entry.find("    .gradients_of = \"x\",\n    .num_grads = 1u,\n};"), std::string::npos)
      << entry;
  // A plan is optional.
  EXPECT_NE(entry.find("__attribute__((weak)) opdock_status opdock_f_plan("), std::string::npos);
  EXPECT_NE(entry.find("    .plan = opdock_f_plan,\n"), std::string::npos);
  for (const char* function : {"opdock_f_prepare", "opdock_f_run", ".run"})
    EXPECT_EQ(entry.find(function), std::string::npos) << function;
  ASSERT_EQ(pack(folder, toml + " --ops-header " + header).status, 0);
  EXPECT_NE(contents(header).find("constexpr bool op_f(PlanFound*) {"), std::string::npos);
  EXPECT_EQ(contents(header).find("RunFound"), std::string::npos) << contents(header);
}

// Returns the note's JSON, which is split over several .ascii lines.
std::string note_of(const TemporaryFolder& folder, const std::string& out) {
  std::string note = contents(folder.path() / out / "note.S");
  for (size_t at; (at = note.find("\"\n  .ascii \"")) != note.npos;) note.erase(at, 12);
  return note;
}

TEST(OpdockPack, KernelsOfFormulasAreBuiltWhereAnArchitectureIsAskedFor) {
  if (has_nvrtc_of_the_system())
    GTEST_SKIP() << "the system's NVRTC would want the headers that the stand-in does not read";
  TemporaryFolder folder;
  write_plugin(folder);
  const std::string base = folder.path().string();
  const auto declare = [&](const std::string& formula) {
    folder.write("p/plugin.toml",
                 "name = \"p\"\nversion = \"1.2\"\nlicense = \"MIT\"\n[[op]]\n"
                 "schema = \"f(Tensor x) -> Tensor\"\nformula = \"" +
                     formula + "\"\ndtypes = [\"float32\", \"int8\"]\n");
  };
  const auto run = [&](const std::string& out, const std::string& more) {
    const Outcome outcome = pack(
        folder, "--toml " + base + "/p/plugin.toml --out-dir " + base + "/" + out + " --include " +
                    base + "/vocabulary --nvrtc-search " + base + "/nvrtc" + more);
    EXPECT_EQ(outcome.status, 0) << outcome.text;
    EXPECT_EQ(outcome.text, "");
    return contents(folder.path() / out / "images.bin");
  };
  declare("x + 1");
  for (const char* none :
       {"", " --cuda-archs 9.0 --no-cuda", " --cuda-archs 9.0 --no-formula-kernels"})
    EXPECT_EQ(run("none", none), "") << none;
  EXPECT_EQ(note_of(folder, "none").find("formulas.cuh"), std::string::npos);

  const std::string images = run("a", " --cuda-archs 9.0");
  EXPECT_NE(images.find("sm_90"), std::string::npos);
  EXPECT_NE(images.find("int8_t* const from0"), std::string::npos) << "the source";
  EXPECT_NE(note_of(folder, "a").find("formulas.cuh"), std::string::npos);
  const std::string name = "opdock::formula::f_";
  const size_t at = images.find(name);
  ASSERT_NE(at, std::string::npos);
  const std::string kernel = images.substr(at, images.find('>', at) + 1 - at);
  EXPECT_NE(images.find("lowered_" + kernel), std::string::npos) << kernel;
  // The plugin's own code does not ask for them by number.
  EXPECT_EQ(contents(folder.path() / "a/entry.c").find(name), std::string::npos);

  EXPECT_NE(run("b", " --cuda-archs default").find("sm_80"), std::string::npos);
  EXPECT_EQ(images.find("--Ofast-compile"), std::string::npos);
  EXPECT_NE(run("b", " --cuda-archs 9.0 --no-optimization").find("--Ofast-compile"),
            std::string::npos);

  declare("x + 2");
  EXPECT_EQ(run("b", " --cuda-archs 9.0").find(kernel), std::string::npos);
}

TEST(OpdockPack, FormulasAreCompiledWithThePluginsOwnKernels) {
  TemporaryFolder folder;
  write_plugin(folder);
  folder.write("p/plugin.toml", contents(folder.path() / "p/plugin.toml") +
                                    "[[op]]\nschema = \"g(Tensor x) -> Tensor\"\n"
                                    "formula = \"x + 1\"\n");
  const std::string search = " --nvrtc-search " + folder.path().string() + "/nvrtc";
  Outcome outcome = pack(folder, arguments(folder, "a") + search);
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  const std::string images = contents(folder.path() / "a/images.bin");
  EXPECT_NE(images.find("OPDOCK_KERNEL(32) f()"), std::string::npos);
  EXPECT_NE(images.find("lowered_opdock::formula::g_"), std::string::npos);
  EXPECT_NE(contents(folder.path() / "a/entry.c").find(".num_kernels = 1u"), std::string::npos);

  std::string toml = contents(folder.path() / "p/plugin.toml");
  toml.replace(toml.find("p.cuh"), 5, "formulas.cuh");
  folder.write("p/plugin.toml", toml);
  folder.write("p/formulas.cuh", contents(folder.path() / "p/p.cuh"));
  outcome = pack(folder, arguments(folder, "b") + search);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.text.find("found a device source called \"formulas.cuh\", wanted another"),
            std::string::npos)
      << outcome.text;
}

TEST(OpdockPack, TooManyKernelsOfFormulasGiveANotice) {
  TemporaryFolder folder;
  write_plugin(folder);
  folder.write("p/plugin.toml", R"(name = "p"
version = "1.2"
license = "MIT"
[[op]]
schema = "f(Tensor x, bool a, bool b, bool c, bool d, bool e, bool f) -> Tensor"
formula = """
x = x * 2 if f else x
p = x + 1 if a else x
q = p * 3 if b else p
r = q - 5 if c else q
s = exp(r) if d else r
return s - mean(s) if e else s
"""
)");
  const Outcome outcome =
      pack(folder, arguments(folder, "a") + " --nvrtc-search " + folder.path().string() + "/nvrtc");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.text.find("notice: p: op \"f\": found more combinations of choices and "
                              "optional arguments, wanted at most 24 for each dtype; "),
            std::string::npos)
      << outcome.text;
}

TEST(OpdockPack, EachMistakeIsALineForEditors) {
  TemporaryFolder folder;
  write_plugin(folder);
  const std::string toml = folder.path().string() + "/p/plugin.toml";
  std::string text = contents(toml);
  text.replace(text.find("\"MIT\""), 5, "7");
  text.replace(text.find("Tensor x"), 6, "Tensr");
  folder.write("p/plugin.toml", text);
  for (const std::string& asked :
       {"--toml " + toml + " --ops-header " + toml + ".h", arguments(folder, "a")}) {
    const Outcome outcome = pack(folder, asked);
    EXPECT_EQ(outcome.status, 1);
    EXPECT_EQ(outcome.text.find(toml + ":3:11: error: \"license\": integer, wanted a text"), 0u)
        << outcome.text;
    EXPECT_NE(outcome.text.find("\n" + toml + ":6:13: error: op \"f\": "), std::string::npos)
        << outcome.text;
    EXPECT_EQ(std::count(outcome.text.begin(), outcome.text.end(), '\n'), 2) << outcome.text;
  }
  EXPECT_FALSE(std::filesystem::exists(toml + ".h"));
}

TEST(OpdockPack, ExitStatus) {
  TemporaryFolder folder;
  write_plugin(folder);
  EXPECT_EQ(pack(folder, "--help").status, 0);
  EXPECT_EQ(pack(folder, "--unknown").status, 2);
  EXPECT_EQ(pack(folder, "").status, 2);
  EXPECT_EQ(pack(folder, "--toml /nonexistent").status, 1);
  const Outcome bad = pack(folder, arguments(folder, "a") + " --cpu-level 9");
  EXPECT_EQ(bad.status, 2) << bad.text;
}

}  // namespace
}  // namespace opdock::pack
