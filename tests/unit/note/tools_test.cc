// Compares what the reader finds in objects from nvcc and hipcc, and in this program's own
// libraries, with the output of readelf and cuobjdump.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <regex>
#include <set>
#include <sstream>

#include "compat/verdict.h"
#include "note/device_bundles.h"
#include "note/file_facts.h"
#include "support/temporary_folder.h"

namespace opdock {
namespace {

using Texts = std::vector<std::string>;

constexpr const char* kNoNvcc =
    "no nvcc that compiles for sm_103a was found when this build was set up"
    " (pip: nvidia-cuda-nvcc, nvidia-cuda-crt, nvidia-nvvm, nvidia-cuda-runtime)";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Texts words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

std::string run(const std::string& command) {
  FILE* pipe = popen(("LC_ALL=C " + command + " 2>/dev/null").c_str(), "r");
  std::string output;
  char piece[4096];
  for (size_t got = 0; (got = fread(piece, 1, sizeof piece, pipe)) > 0;) output.append(piece, got);
  pclose(pipe);
  return output;
}

// Returns the first group of every match, in order.
Texts matches(const std::string& text, const std::string& pattern) {
  Texts found;
  const std::regex regex(pattern);
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at) {
    found.push_back((*at)[1]);
  }
  return found;
}

FileFacts read_facts(const std::string& path, Depth depth) {
  const int fd = open(path.c_str(), O_RDONLY);
  struct stat status{};
  EXPECT_EQ(fstat(fd, &status), 0) << path;
  FileFacts facts = read_file_facts(fd, static_cast<uint64_t>(status.st_size), path, depth);
  close(fd);
  return facts;
}

FileFacts inspect(const std::string& path) {
  return read_facts(path, Depth::kInspect);
}

std::multiset<std::string> sorted(const Texts& texts) {
  return {texts.begin(), texts.end()};
}

Texts objects() {
  Texts all = words(variable("OPDOCK_TEST_NVCC_OBJECTS"));
  const Texts system = words(variable("OPDOCK_TEST_LIBRARIES"));
  all.insert(all.end(), system.begin(), system.end());
  return all;
}

TEST(Readelf, FindsTheSame) {
  if (run("readelf --version").empty()) GTEST_SKIP() << "readelf (binutils) is not installed";
  ASSERT_FALSE(objects().empty());
  for (const std::string& path : objects()) {
    SCOPED_TRACE(path);
    const FileFacts facts = inspect(path);
    const std::string dynamic = run("readelf -dW " + path);
    EXPECT_EQ(facts.needed, matches(dynamic, R"(\(NEEDED\)\s+Shared library: \[(.*)\])"));
    const Texts soname = matches(dynamic, R"(\(SONAME\)\s+Library soname: \[(.*)\])");
    EXPECT_EQ(facts.soname, soname.empty() ? "" : soname[0]);
    EXPECT_EQ(facts.static_tls, dynamic.find("STATIC_TLS") != std::string::npos);

    const std::string needs = run("readelf -VW " + path);
    const size_t at = needs.find("Version needs section");
    Texts versions;
    for (const SymbolVersion& version : facts.versions) versions.push_back(version.version);
    EXPECT_EQ(versions, at == std::string::npos
                            ? Texts()
                            : matches(needs.substr(at), R"(Name: (\S+)\s+Flags)"));

    const std::string symbols = run("readelf --dyn-syms -W " + path);
    EXPECT_EQ(sorted(facts.undefined),
              sorted(matches(symbols, R"((?:GLOBAL|WEAK)\s+\w+\s+UND ([^@\s]+))")));
    EXPECT_EQ(facts.unique_symbols, symbols.find("UNIQUE") != std::string::npos);
    const Texts stack = matches(run("readelf -lW " + path), R"(GNU_STACK.* (RWE?) )");
    EXPECT_EQ(facts.executable_stack, stack.empty() || stack[0] == "RWE");
  }
}

TEST(Cuobjdump, FindsTheSame) {
  const Texts objects = words(variable("OPDOCK_TEST_NVCC_OBJECTS"));
  if (objects.empty()) GTEST_SKIP() << kNoNvcc;
  const std::string tool = variable("OPDOCK_TEST_CUOBJDUMP");
  if (run(tool + " --version").empty()) {
    GTEST_SKIP() << "cuobjdump is not installed (pip: nvidia-cuda-cuobjdump)";
  }
  for (const std::string& path : objects) {
    SCOPED_TRACE(path);
    // The output has blocks of "Fatbin elf code:" or "Fatbin ptx code:", each with its arch and
    // perhaps "compressed".
    Texts wanted, found;
    const std::regex block(R"(Fatbin (elf|ptx) code:\n=*\n?arch = (\w+)\n((?:.+\n)*))");
    const std::string output = run(tool + " " + path);
    for (std::sregex_iterator at(output.begin(), output.end(), block), end; at != end; ++at) {
      std::string arch = (*at)[2];
      if ((*at)[1] == "ptx") arch = "compute_" + arch.substr(3);
      wanted.push_back(arch + (at->str(3).find("compressed") == std::string::npos ? "" : "*"));
    }
    for (const DeviceImage& image : inspect(path).images) {
      found.push_back(image.arch + (image.compressed ? "*" : ""));
    }
    EXPECT_FALSE(wanted.empty()) << output;
    EXPECT_EQ(found, wanted);
  }
}

// The architectures requested from nvcc are found, with or without cuobjdump.
TEST(Nvcc, ArchitecturesAreFound) {
  const Texts objects = words(variable("OPDOCK_TEST_NVCC_OBJECTS"));
  if (objects.empty()) GTEST_SKIP() << kNoNvcc;
  const Texts archs = words(variable("OPDOCK_TEST_NVCC_ARCHS"));
  for (const std::string& path : objects) {
    Texts found;
    for (const DeviceImage& image : inspect(path).images) found.push_back(image.arch);
    EXPECT_EQ(found, archs) << path;
  }
}

TEST(Hipcc, ArchitecturesAreFound) {
  const Texts objects = words(variable("OPDOCK_TEST_HIP_OBJECTS"));
  if (objects.empty()) {
    GTEST_SKIP() << "no hipcc that compiles for " << variable("OPDOCK_TEST_HIP_ARCHS")
                 << " was found when this build was set up";
  }
  const Texts archs = words(variable("OPDOCK_TEST_HIP_ARCHS"));
  for (const std::string& path : objects) {
    Texts found;
    for (const DeviceImage& image : inspect(path).images) {
      EXPECT_EQ(image.backend, Backend::kRocm);
      EXPECT_EQ(image.kind, ImageKind::kCodeObject);
      EXPECT_EQ(image.claimed_arch, "");
      found.push_back(image.arch);
    }
    EXPECT_EQ(sorted(found), sorted(archs)) << path;
  }
}

// Uses clang's own bundle program, if there is one that compresses (LLVM 18).
TEST(OffloadBundler, CompressedBundlesNameTheTargetsThatItWasGiven) {
  const std::string bundler = variable("OPDOCK_TEST_BUNDLER");
  if (bundler.empty() || run(bundler + " --help").find("--compress ") == std::string::npos) {
    GTEST_SKIP() << "no clang-offload-bundler that compresses was found when this build was set up";
  }
  const opdock_test::TemporaryFolder folder;
  const std::string object = folder.write("object", std::string(10000, 'x'));
  const std::string bundle = folder.path() / "bundle";
  ASSERT_EQ(std::system((bundler +
                         " -type=o -bundle-align=4096 -compress -input=/dev/null -input=" + object +
                         " -input=" + object + " -output=" + bundle +
                         " -targets=host-x86_64-unknown-linux-gnu,hipv4-amdgcn-amd-amdhsa--gfx90a:"
                         "xnack-,hipv4-amdgcn-amd-amdhsa--gfx1030")
                            .c_str()),
            0);
  const int fd = open(bundle.c_str(), O_RDONLY);
  struct stat status{};
  ASSERT_EQ(fstat(fd, &status), 0);
  const auto size = static_cast<uint64_t>(status.st_size);
  FileReader reader(fd, size);
  std::vector<DeviceImage> images;
  uint64_t end = 0, budget = kDecompressionBudget;
  EXPECT_TRUE(read_hip_bundle(&reader, 0, size, &budget, &images, &end));
  close(fd);
  EXPECT_EQ(end, size);
  ASSERT_EQ(images.size(), 2u);
  EXPECT_TRUE(images[0].compressed);
  EXPECT_EQ(images[0].arch, "gfx90a:xnack-");
  EXPECT_EQ(images[1].arch, "gfx1030");
}

// A note that lists "cuda" is not enough: nvcc's images decide, also for the verdict.
TEST(Nvcc, PluginsAreCheckedByTheirFatBinaries) {
  const std::string folder = variable("OPDOCK_TEST_NVCC_PLUGINS");
  if (folder.empty()) GTEST_SKIP() << kNoNvcc;
  MachineFacts machine;
  machine.cuda_driver = Version{13, 0};
  Gpu gpu{};
  gpu.backend = Backend::kCuda;
  gpu.arch = "sm_90";
  gpu.major = 9;
  machine.gpus.push_back(gpu);
  const std::tuple<const char*, State, const char*> rows[] = {
      {"cubin_80", State::kRejected, "arch-mismatch"},
      {"cubin_90", State::kUsable, ""},
      {"cubin_80_ptx_80", State::kUsable, "ptx-only"},
      {"ptx_100", State::kRejected, "arch-mismatch"}};
  for (const auto& [name, state, code] : rows) {
    for (const Depth depth : {Depth::kJudge, Depth::kInspect}) {
      const Verdict verdict = judge(read_facts(folder + "/" + name + ".so", depth), machine);
      // the other one is the CPU, which this op has too
      ASSERT_EQ(verdict.devices.size(), 2u) << name;
      EXPECT_EQ(verdict.devices[1].state, state) << name;
      const std::vector<Reason>& reasons = verdict.devices[1].reasons;
      EXPECT_EQ(reasons.empty() ? "" : info(reasons[0].code).name, code) << name;
    }
  }
}

}  // namespace
}  // namespace opdock
