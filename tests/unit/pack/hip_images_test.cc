// Tests code objects in plugins, made by this machine's hipRTC; skipped if there is none.
// References are the code objects' own ELF headers, and the verdicts about the file as a plugin.
// SPDX-License-Identifier: Apache-2.0
#include "pack/hip_images.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "compat/verdict.h"
#include "facts/environment.h"
#include "note/file_facts.h"
#include "support/temporary_folder.h"
#include "support/tree_plugins.h"

namespace opdock::pack {
namespace {

namespace fs = std::filesystem;
using opdock_test::TemporaryFolder;

class HipImages : public testing::Test {
 protected:
  HipImages() {
    manifest_.path = "p/plugin.toml";
    manifest_.name = "p";
    manifest_.device = DeviceDecl{{"device/k.cuh"}, {"k<float>", "k<int>"}};
    manifest_.ops.resize(1);
    manifest_.ops[0].devices = {"cpu", "rocm"};
  }
  void SetUp() override {
    std::vector<std::string> searched;
    hiprtcs_ = find_hiprtc_files(current_environment(), &searched);
    if (hiprtcs_.empty()) GTEST_SKIP() << "no hipRTC is installed";
  }
  // One source file includes the other.
  std::vector<Image> make(std::vector<std::string> archs, const std::string& more = "") {
    ImageRequest request;
    request.manifest = &manifest_;
    request.sources = {
        {"k.cuh",
         "#include \"opdock/width.cuh\"\n"
         "template <class T> __global__ void k(T* x) { x[threadIdx.x] = T(kWidth); }\n" +
             more},
        {"opdock/width.cuh", "constexpr int kWidth = __AMDGCN_WAVEFRONT_SIZE;\n"}};
    request.hip_archs = std::move(archs);
    request.hiprtcs = hiprtcs_;
    request.worker = worker_;
    request.is_optimized = is_optimized_;
    errors_.clear();
    return make_images(request, &errors_);
  }
  std::string problem() const { return errors_.size() == 1 ? errors_[0] : "not one error"; }

  Manifest manifest_;
  std::vector<HiprtcFile> hiprtcs_;
  std::string worker_ = OPDOCK_COMPILE;
  bool is_optimized_ = true;
  std::vector<std::string> errors_;
};

// Returns EF_AMDGPU_MACH and the feature bits of code object version 4, as LLVM's documentation
// defines them.
uint32_t elf_flags(const std::string& image) {
  uint32_t flags = 0;
  if (image.size() > 52 && image.substr(0, 4) == "\177ELF") std::memcpy(&flags, &image[48], 4);
  return flags;
}

TEST_F(HipImages, OneForEachTargetThenTheSource) {
  const std::vector<Image> images = make({"gfx1030", "gfx908", "gfx90a:xnack+", "gfx90a:xnack-"});
  ASSERT_TRUE(errors_.empty()) << errors_[0];
  ASSERT_EQ(images.size(), 6u);
  const struct {
    const char* arch;
    uint32_t mach, xnack;  // xnack: 1 any, 2 off, 3 on
  } wanted[] = {{"gfx1030", 0x36, 0},
                {"gfx908", 0x30, 1},
                {"gfx90a:xnack+", 0x3f, 3},
                {"gfx90a:xnack-", 0x3f, 2}};
  for (size_t i = 0; i < 4; ++i) {
    const Image& image = images[i];
    EXPECT_EQ(image.backend, Backend::kRocm);
    EXPECT_EQ(image.kind, ImageKind::kCodeObject);
    EXPECT_EQ(image.arch, wanted[i].arch);
    EXPECT_EQ(image.toolkit, hiprtcs_.front().version);
    EXPECT_EQ(elf_flags(image.bytes) & 0xff, wanted[i].mach) << image.arch;
    EXPECT_EQ(elf_flags(image.bytes) >> 8 & 3, wanted[i].xnack) << image.arch;
    ASSERT_EQ(image.names.size(), 2u);
    EXPECT_EQ(image.names[0].first, "k<float>");
    EXPECT_EQ(image.names[0].second, "_Z1kIfEvPT_");
    EXPECT_NE(image.bytes.find("_Z1kIfEvPT_"), std::string::npos);
  }
  EXPECT_EQ(images[4].kind, ImageKind::kSource);
  EXPECT_EQ(images[4].backend, Backend::kRocm);  // no op is for CUDA
  EXPECT_EQ(images[4].arch, "k.cuh");
  EXPECT_EQ(images[4].names.size(), 2u);
}

TEST_F(HipImages, AreOptimizedUnlessToldOtherwise) {
  const std::string refuses = "#ifdef __OPTIMIZE__\n#error \"optimizes\"\n#endif\n";
  make({"gfx90a"}, refuses);
  EXPECT_NE(problem().find("optimizes"), std::string::npos) << problem();
  is_optimized_ = false;
  make({"gfx90a"}, refuses);
  EXPECT_TRUE(errors_.empty()) << errors_[0];
}

TEST_F(HipImages, UnknownArchitecturesAreRefusedByName) {
  make({"gfx90a", "gfx9999"});
  EXPECT_NE(
      problem().find("opdock-pack: error: p: found no image for gfx9999: jit-arch: found hipRTC"),
      std::string::npos)
      << problem();
  EXPECT_NE(problem().find(" gfx90a "), std::string::npos) << problem();
  make({"gfx1030:xnack+"});
  EXPECT_NE(problem().find("wanted one that knows gfx1030:xnack+"), std::string::npos) << problem();
}

TEST_F(HipImages, ErrorsShowTheCompilersMessages) {
  manifest_.device->line = 7;
  make({"gfx90a"}, "int wrong = no_such_thing;\n");
  EXPECT_NE(problem().find("p/plugin.toml:7: device code does not compile for gfx90a: jit-source"),
            std::string::npos)
      << problem();
  EXPECT_NE(problem().find("k.cuh:3:"), std::string::npos) << problem();
  manifest_.device->kernels.push_back("missing");
  make({"gfx90a"});
  EXPECT_NE(problem().find("jit-kernel"), std::string::npos) << problem();
}

TEST_F(HipImages, WithoutTheProgramThatCompiles) {
  worker_ = "/nonexistent/opdock-compile";
  make({"gfx90a"});
  EXPECT_NE(problem().find("jit-worker"), std::string::npos) << problem();
}

TEST_F(HipImages, WithoutHiprtcTheSourceAlone) {
  hiprtcs_.clear();
  EXPECT_EQ(make({"gfx90a"}).size(), 2u);
  EXPECT_TRUE(errors_.empty());
}

// ---- which compilers are looked for

class HipCompilers : public HipImages {
 protected:
  bool find(const char* archs, bool none = false) {
    request_ = {};
    request_.manifest = &manifest_;
    errors_.clear();
    depends_.clear();
    return find_hip_compilers({archs, none, true, worker_}, &request_, &depends_, &errors_);
  }
  ImageRequest request_;
  std::vector<fs::path> depends_;
};

TEST_F(HipCompilers, AreThoseOfThisMachine) {
  ASSERT_TRUE(find("gfx90a gfx1030"));
  EXPECT_EQ(request_.hip_archs, (std::vector<std::string>{"gfx1030", "gfx90a"}));
  ASSERT_FALSE(request_.hiprtcs.empty());
  EXPECT_EQ(depends_.front(), request_.hiprtcs.front().path);
}

TEST_F(HipCompilers, AreNotLookedForInVain) {
  ASSERT_TRUE(find(""));
  EXPECT_TRUE(request_.hiprtcs.empty());
  ASSERT_TRUE(find("gfx90a", true));
  EXPECT_TRUE(request_.hiprtcs.empty());
  manifest_.ops[0].devices = {"cpu", "cuda"};
  ASSERT_TRUE(find("gfx90a"));
  EXPECT_TRUE(request_.hiprtcs.empty());
  EXPECT_FALSE(find("90a"));
  EXPECT_NE(problem().find("arch-list-invalid"), std::string::npos) << problem();
}

// ---- plugins of this tree as they were packed

FileFacts facts_of(const std::string& name) {
  const std::string path = PLUGINS_FOLDER "/" + name + ".so";
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  EXPECT_GE(file, 0) << path;
  FileFacts facts = read_file_facts(file, fs::file_size(path), path, Depth::kInspect);
  close(file);
  return facts;
}

// Returns the image that serves such a GPU, or the codes of the reasons why none does.
std::string serving(const FileFacts& facts, const char* arch) {
  MachineFacts machine;
  Gpu gpu{};
  gpu.backend = Backend::kRocm;
  gpu.arch = arch;
  machine.gpus = {gpu};
  std::vector<Reason> reasons;
  const int best = best_image(facts.images, gpu, machine, &reasons);
  if (best >= 0) return facts.images[static_cast<size_t>(best)].arch;
  std::string codes;
  for (const Reason& reason : reasons) codes += std::string(info(reason.code).name) + " ";
  return codes;
}

TEST(PackedForRocm, ImagesServeTheirGpus) {
  for (const opdock_test::TreePlugin& plugin : opdock_test::plugins_with_kernels("rocm")) {
    const std::string& name = plugin.name;
    const FileFacts facts = facts_of(name);
    ASSERT_TRUE(facts.note) << name;
    for (const Reason& reason : facts.reasons) ADD_FAILURE() << name << ": " << to_text(reason);
    std::vector<Backend> declared;
    for (const Backend backend : {Backend::kCpu, Backend::kCuda, Backend::kRocm})
      if (plugin.is_for(std::string(to_text(backend)))) declared.push_back(backend);
    EXPECT_EQ(facts.note->devices, declared) << name;
    const auto is_packed = [&](const std::string& arch) {
      return std::any_of(facts.images.begin(), facts.images.end(), [&](const DeviceImage& image) {
        return image.kind == ImageKind::kCodeObject && image.arch.starts_with(arch);
      });
    };
    if (!is_packed("gfx")) {
      EXPECT_EQ(serving(facts, "gfx90a:sramecc+:xnack-"), "source-only ");
      continue;
    }
    EXPECT_EQ(serving(facts, "gfx90a:sramecc+:xnack-"), "gfx90a");
    EXPECT_EQ(serving(facts, "gfx90a:sramecc-:xnack+"), "gfx90a");
    // Images for gfx1030 are packed only for ./dev test --nightly.
    EXPECT_EQ(serving(facts, "gfx1030"),
              is_packed("gfx1030") ? "gfx1030" : "arch-mismatch source-only ");
    EXPECT_EQ(serving(facts, "gfx942:sramecc+:xnack-"), "arch-mismatch source-only ");
  }
}

}  // namespace
}  // namespace opdock::pack
