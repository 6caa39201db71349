// Tests the choice of compiler, the images and their table, with stand-in compilers.
// SPDX-License-Identifier: Apache-2.0
#include "pack/images.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/sha256.h"
#include "facts/nvrtc_search.h"
#include "pack/emit.h"
#include "support/temporary_folder.h"

namespace opdock::pack {
namespace {

using opdock_test::TemporaryFolder;

std::vector<const Nvrtc*> both() {
  std::vector<std::string> problems;
  auto compilers = open_nvrtcs({FAKE_NVRTC_13, FAKE_NVRTC_12}, &problems);
  EXPECT_TRUE(problems.empty()) << problems[0];
  return compilers;
}

Manifest manifest() {
  Manifest out;
  out.path = "plugin.toml";
  out.device = DeviceDecl{{"device/k.cuh"}, {"k<float>"}};
  return out;
}

ImageRequest request(const Manifest& manifest, const char* archs,
                     std::vector<const Nvrtc*> compilers, const char* source = "code") {
  Reason reason{};
  ImageRequest out;
  out.manifest = &manifest;
  out.sources = {{"k.cuh", source}, {"opdock/device.cuh", "vocabulary"}};
  out.archs = parse_cuda_list(archs, "--cuda-archs", &reason)->targets;
  out.compilers = std::move(compilers);
  return out;
}

std::string spelled(const std::vector<Image>& images) {
  std::string out;
  for (const Image& image : images) {
    out += std::string(to_text(image.kind)) + " " + image.arch;
    if (!image.toolkit.empty()) out += " " + image.toolkit.text();
    out += "\n";
  }
  return out;
}

TEST(Images, ASourceThatCannotBeReadIsNamedWithItsCause) {
  TemporaryFolder folder;
  folder.write("vocabulary/opdock/device.cuh", "");
  folder.write("device/folder.cuh/file", "");
  Manifest m = manifest();
  m.path = folder.path() / "plugin.toml";
  m.device->sources = {"device/gone.cuh", "device/folder.cuh"};
  std::vector<std::filesystem::path> files;
  std::vector<std::string> errors;
  read_device_sources(m, folder.path() / "vocabulary", &files, &errors);
  const std::string top = folder.path().string();
  EXPECT_EQ(errors,
            (std::vector<std::string>{
                top + "/device/gone.cuh: found No such file or directory, wanted a device source "
                      "that can be read; check [device] sources in plugin.toml",
                top + "/device/folder.cuh: found no regular file, wanted a device source that can "
                      "be read; check [device] sources in plugin.toml"}));
}

int compiles() {
  int all = 0;
  for (const char* path : {FAKE_NVRTC_12, FAKE_NVRTC_13})
    all += *static_cast<int*>(dlsym(dlopen(path, RTLD_NOW | RTLD_NOLOAD), "fake_compiles"));
  return all;
}

TEST(Images, WhatWasCompiledBeforeIsTakenFromTheCache) {
  TemporaryFolder folder;
  const ImageCache cache((folder.path() / "images").string());
  const Manifest m = manifest();
  const auto make = [&](const char* archs, const Manifest& of, const char* source, int* compiled) {
    std::vector<std::string> errors;
    ImageRequest wanted = request(of, archs, both(), source);
    wanted.cache = &cache;
    const int before = compiles();
    const std::vector<Image> images = make_images(wanted, &errors);
    EXPECT_TRUE(errors.empty()) << errors[0];
    *compiled = compiles() - before;
    return image_table(images);
  };
  int compiled = 0;
  const std::string first = make("7.5+PTX;9.0;11.0", m, "code", &compiled);
  EXPECT_EQ(compiled, 3);
  EXPECT_EQ(make("7.5+PTX;9.0;11.0", m, "code", &compiled), first);
  EXPECT_EQ(compiled, 0);
  make("9.0;12.0", m, "code", &compiled);  // one architecture is not cached yet
  EXPECT_EQ(compiled, 1);
  make("9.0+PTX", m, "code", &compiled);  // a cubin that is cached without its PTX
  EXPECT_EQ(compiled, 1);
  EXPECT_NE(make("7.5+PTX;9.0;11.0", m, "other code", &compiled), first);
  EXPECT_EQ(compiled, 3);
  Manifest other = m;
  other.device->kernels = {"k<int>"};
  make("9.0", other, "code", &compiled);
  EXPECT_EQ(compiled, 1);
}

TEST(Images, ThoseThatAreNotOptimizedAreKeptApartInTheCache) {
  TemporaryFolder folder;
  const ImageCache cache((folder.path() / "images").string());
  const Manifest m = manifest();
  for (const bool is_optimized : {true, false, true, false}) {
    std::vector<std::string> errors;
    ImageRequest wanted = request(m, "9.0+PTX;11.0", both());
    wanted.cache = &cache;
    wanted.is_optimized = is_optimized;
    const std::vector<Image> images = make_images(wanted, &errors);
    ASSERT_TRUE(errors.empty()) << errors[0];
    ASSERT_EQ(images.size(), 5u);
    for (size_t i = 0; i < 3; ++i)
      EXPECT_EQ(images[i].bytes.find("option --Ofast-compile=max") == std::string::npos,
                is_optimized)
          << images[i].arch;
  }
}

TEST(Images, OldestCompilerThatKnowsTheArchitecture) {
  const Manifest m = manifest();
  std::vector<std::string> errors;
  const std::vector<Image> images =
      make_images(request(m, "7.0;9.0a;11.0;12.0+PTX", both()), &errors);
  ASSERT_TRUE(errors.empty()) << errors[0];
  EXPECT_EQ(spelled(images),
            "cubin sm_70 12.9\ncubin sm_90a 12.9\ncubin sm_110 13.0\ncubin sm_120 12.9\n"
            "ptx compute_120 12.9\nsource k.cuh\nsource opdock/device.cuh\n");
  EXPECT_EQ(images[1].names[0].first, "k<float>");
  EXPECT_EQ(images[1].names[0].second, "lowered_k<float>");
  EXPECT_NE(images[1].bytes.find("--gpu-architecture=sm_90a"), std::string::npos);
  EXPECT_EQ(images[5].names[0].first, "k<float>");
}

TEST(Images, PtxWhereItIsAskedFor) {
  const Manifest m = manifest();
  std::vector<std::string> errors;
  EXPECT_EQ(spelled(make_images(request(m, "9.0;8.0", both()), &errors)),
            "cubin sm_80 12.9\ncubin sm_90 12.9\nsource k.cuh\nsource opdock/device.cuh\n");
  EXPECT_EQ(spelled(make_images(request(m, "9.0;8.0+PTX", both()), &errors)),
            "cubin sm_80 12.9\ncubin sm_90 12.9\nptx compute_80 12.9\n"
            "source k.cuh\nsource opdock/device.cuh\n");
  // PTX of an `a` architecture runs nowhere else, so PTX of the plain architecture is made.
  EXPECT_EQ(spelled(make_images(request(m, "9.0a+PTX", both()), &errors)),
            "cubin sm_90a 12.9\nptx compute_90 12.9\nsource k.cuh\nsource opdock/device.cuh\n");
}

TEST(Images, OnlyCuda13) {
  const Manifest m = manifest();
  std::vector<std::string> errors, problems;
  const auto compilers = open_nvrtcs({FAKE_NVRTC_13}, &problems);
  EXPECT_EQ(spelled(make_images(request(m, "7.5+PTX;9.0", compilers), &errors)),
            "cubin sm_75 13.0\ncubin sm_90 13.0\nptx compute_75 13.0\n"
            "source k.cuh\nsource opdock/device.cuh\n");
  EXPECT_TRUE(errors.empty());
  make_images(request(m, "7.0", compilers), &errors);
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_NE(errors[0].find("sm_70"), std::string::npos);
}

TEST(Images, WithoutCompilerTheSourceAlone) {
  const Manifest m = manifest();
  std::vector<std::string> errors;
  EXPECT_EQ(spelled(make_images(request(m, "9.0", {}), &errors)),
            "source k.cuh\nsource opdock/device.cuh\n");
  EXPECT_TRUE(errors.empty());
}

TEST(Images, CompileErrorsShowTheCompilersLogAndTheLineOfTheTable) {
  Manifest m = manifest();
  m.device->line = 12;
  std::vector<std::string> errors;
  make_images(request(m, "8.0;9.0", both(), "#error"), &errors);
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_NE(errors[0].find("(3): error: #error found"), std::string::npos) << errors[0];
  EXPECT_NE(errors[0].find("plugin.toml:12: device code does not compile for sm_80:"),
            std::string::npos)
      << errors[0];
}

TEST(Images, TableLayout) {
  Image cubin;
  cubin.kind = ImageKind::kCubin;
  cubin.arch = "sm_90a";
  cubin.toolkit = Version{12, 9};
  cubin.bytes = "some machine code";
  cubin.names = {{"k<float>", "_Z1kIfEvv"}};
  Image source;
  source.arch = "k.cuh";
  source.bytes = "text";
  const std::string table = image_table({cubin, source});
  ImageTableHead head;
  ImageEntry entries[2];
  std::memcpy(&head, table.data(), sizeof head);
  std::memcpy(entries, table.data() + sizeof head, sizeof entries);
  EXPECT_EQ(std::memcmp(head.magic, kImageMagic, 8), 0);
  EXPECT_EQ(head.count, 2u);
  EXPECT_EQ(head.entry_size, sizeof(ImageEntry));
  EXPECT_STREQ(entries[0].arch, "sm_90a");
  EXPECT_EQ(entries[0].kind, 1u);
  EXPECT_EQ(entries[0].toolkit_major, 12u);
  EXPECT_EQ(entries[0].toolkit_minor, 9u);
  EXPECT_EQ(table.substr(entries[0].offset, entries[0].size), cubin.bytes);
  EXPECT_EQ(entries[0].offset % 64, 0u);  // the driver reads ELF headers in place
  EXPECT_EQ(table.substr(entries[0].names_offset, entries[0].names_size),
            std::string("k<float>\0_Z1kIfEvv\0", 19));
  EXPECT_EQ(std::memcmp(entries[0].sha256, sha256(std::string_view(cubin.bytes)).data(), 32), 0);
  EXPECT_EQ(table.substr(entries[1].offset, entries[1].size), "text");
  EXPECT_EQ(entries[1].kind, 4u);
  EXPECT_LE(entries[1].offset + entries[1].size, table.size());
}

TEST(Nvrtc, WhatIsNoCompilerIsAProblemWithItsPath) {
  TemporaryFolder folder;
  const std::string text = folder.write("libnvrtc.so.12", "no library").string();
  std::vector<std::string> problems;
  EXPECT_TRUE(open_nvrtcs({text, "libnvrtc-none.so.1"}, &problems).empty());
  ASSERT_EQ(problems.size(), 1u);  // a bare name is only a guess and gives no problem
  EXPECT_NE(problems[0].find(text), std::string::npos) << problems[0];
}

TEST(Nvrtc, SearchesFoldersAndSitePackages) {
  TemporaryFolder folder;
  folder.write("plain/libnvrtc.so.12", "");
  folder.write("plain/libnvrtc.alt.so.12", "");
  folder.write("plain/libnvrtc-builtins.so.12.9", "");
  folder.write("site/nvidia/cuda_nvrtc/lib/libnvrtc.so.12", "");
  folder.write("site/nvidia/cu13/lib/libnvrtc.so.13", "");
  std::vector<std::string> searched;
  const std::vector<std::string> found = nvrtc_candidates(
      {(folder.path() / "plain").string(), (folder.path() / "site").string()}, &searched);
  ASSERT_GE(found.size(), 3u);
  EXPECT_EQ(found[0], (folder.path() / "plain/libnvrtc.so.12").string());
  EXPECT_EQ(found[1], (folder.path() / "site/nvidia/cuda_nvrtc/lib/libnvrtc.so.12").string());
  EXPECT_EQ(found[2], (folder.path() / "site/nvidia/cu13/lib/libnvrtc.so.13").string());
}

TEST(Emit, TextsSurviveQuoting) {
  Manifest m = manifest();
  m.name = "p";
  m.version = "1.0";
  OpDecl op;
  op.name = "f";
  op.schema = "f(str s=\"a\\\"b\") -> ()";
  op.doc = "tab\t quote\" back\\ question?? \xc3\xa9\n1";
  m.ops.push_back(op);
  const std::string source = entry_source(m);
  EXPECT_NE(source.find("tab\\011 quote\\042 back\\134 question\\077\\077 \\303\\251\\0121"),
            std::string::npos)
      << source;
  EXPECT_EQ(source.find("\t"), std::string::npos);
}

}  // namespace
}  // namespace opdock::pack
