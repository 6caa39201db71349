// Tests a package's verdict from those of its files, and which of the files its import loads.
// SPDX-License-Identifier: Apache-2.0
#include "inspect/conclude.h"

#include <gtest/gtest.h>

#include "support/temporary_folder.h"

namespace opdock {
namespace {

using NameSet = std::set<std::string>;

// ---- which files the import loads

struct Package {
  opdock_test::TemporaryFolder folder;
  PackageTarget target;

  // {path below site-packages: text}; a name that ends in .py is a source, any other file is
  // native.
  explicit Package(const std::map<std::string, std::string>& files) {
    target.site = folder.path().string();
    target.files = std::make_shared<Files>();
    for (const auto& [name, text] : files) {
      const PackageFile file{folder.write(name, text).string(), name};
      (name.ends_with(".py") ? target.sources : target.members).push_back(file);
    }
  }
  NameSet reached(bool* is_exact = nullptr) const {
    const Reach reach = find_reach(target);
    if (is_exact != nullptr) *is_exact = reach.is_exact;
    NameSet names;
    for (const std::string& path : reach.files) {
      names.insert(path.substr(target.site.size() + 1));
    }
    return names;
  }
};

constexpr const char* kModule = ".cpython-311-x86_64-linux-gnu.so";

TEST(Reach, WhatTheTopLevelImportsInItsTurn) {
  const Package package({{"foo/__init__.py", "from . import a\nimport foo.c.d\nimport os\n"},
                         {"foo/a.py", "from ._x import y\n"},
                         {"foo/b.py", "from ._unused import y\n"},
                         {"foo/c/__init__.py", ""},
                         {"foo/c/d.py", "from .. import _z\nimport _top\n"},
                         {std::string("foo/_x") + kModule, ""},
                         {std::string("foo/_unused") + kModule, ""},
                         {"foo/_z.abi3.so", ""},
                         {"_top.so", ""},
                         {"foo/libother.so", ""},
                         {"foo/bin/tool", ""}});
  bool is_exact = false;
  EXPECT_EQ(package.reached(&is_exact),
            (NameSet{std::string("foo/_x") + kModule, "foo/_z.abi3.so", "_top.so"}));
  EXPECT_TRUE(is_exact);
}

TEST(Reach, WhatASourceOnTheWayNames) {
  const Package package({{"foo/__init__.py", "from .lib import load\n"},
                         {"foo/lib.py",
                          "def load():\n  CDLL(os.path.join(here, 'lib/libfoo.so'))\n"
                          "  find_spec('_C')\n  find_spec('.sub._D')\n  run('tool')\n"},
                         {"foo/bin/tool", ""},
                         {"foo/lib/libfoo.so", ""},
                         {"foo/_C.so", ""},
                         {"foo/sub/_C.so", ""},
                         {"foo/lib/libunnamed.so", ""}});
  EXPECT_EQ(package.reached(), (NameSet{"foo/lib/libfoo.so", "foo/_C.so"}));
  EXPECT_TRUE(find_reach(package.target).loads_libraries);
}

TEST(Reach, AModuleMayBeCalledAsALibrary) {
  const Package package({{"foo/__init__.py", "from ._C import libfoo\n"},
                         {"foo/_C/libfoo.so", ""},
                         {"foo/_C/libother.so", ""}});
  EXPECT_EQ(package.reached(), NameSet{"foo/_C/libfoo.so"});
}

TEST(Reach, NamespacesHaveNoTop) {
  const Package package({{"space/foo/__init__.py", "from . import _x\n"},
                         {"space/bar/__init__.py", ""},
                         {"space/foo/_x.so", ""},
                         {"space/bar/_y.so", ""}});
  EXPECT_EQ(package.reached(), NameSet{"space/foo/_x.so"});
}

// "import foo" loads "foo/__init__.cpython-311-x86_64-linux-gnu.so".
TEST(Reach, APackageMayBeAnExtensionModule) {
  const Package package(
      {{std::string("foo/__init__") + kModule, ""}, {"foo/shell.py", ""}, {"foo/more.so", ""}});
  EXPECT_EQ(package.reached(), NameSet{std::string("foo/__init__") + kModule});
}

TEST(Reach, ImportsInFunctionsCountWhereThereIsNothingElse) {
  const std::map<std::string, std::string> files = {
      {"foo/__init__.py", "def speed():\n  from . import _fast\n"},
      {"foo/_fast.so", ""},
      {"foo/_other.so", ""}};
  EXPECT_EQ(Package(files).reached(), NameSet{"foo/_fast.so"});
  std::map<std::string, std::string> more = files;
  more["foo/__init__.py"] += "import foo._other\n";
  EXPECT_EQ(Package(more).reached(), NameSet{"foo/_other.so"});
}

TEST(Reach, WithoutAnyAllModulesButTests) {
  const Package lazy(
      {{"foo/__init__.py", "def __getattr__(name): return import_module('foo.' + name)\n"},
       {"foo/core.so", ""},
       {"foo/_test_core.so", ""},
       {"foo/tests/_x.so", ""},
       {"foo/libplugin.so", ""},
       {"cargo/_ssl.so", ""},
       {"foo/tool", ""}});
  bool is_exact = true;
  EXPECT_EQ(lazy.reached(&is_exact), NameSet{"foo/core.so"});
  EXPECT_FALSE(is_exact);
}

TEST(Reach, WithoutModulesOrSourcesEverything) {
  const Package libraries({{"foo/lib/libx.so.1", ""}, {"foo/bin/tool", ""}});
  EXPECT_EQ(libraries.reached(), (NameSet{"foo/lib/libx.so.1", "foo/bin/tool"}));
  const Package tool({{"tool/__init__.py", ""}, {"tool/bin/tool", ""}});
  EXPECT_EQ(tool.reached(), NameSet{"tool/bin/tool"});
  const Package modules({{"a.so", ""}, {"b/c.so", ""}});
  EXPECT_EQ(modules.reached(), (NameSet{"a.so"})) << "what is at the top is imported by its name";
}

// ---- libraries that required packages bring

TEST(Brings, WhatARequirementIsNamedFor) {
  EXPECT_TRUE(provides_library({"numpy", "torch"}, "libc10_cuda.so"));
  EXPECT_TRUE(provides_library({"torch"}, "libtorch_python.so"));
  EXPECT_TRUE(provides_library({"torch"}, "libcublasLt.so.12"));
  EXPECT_TRUE(provides_library({"nvidia-cublas-cu12"}, "libcublas.so.12"));
  EXPECT_TRUE(provides_library({"nvidia-cuda-runtime-cu12"}, "libcudart.so.12"));
  EXPECT_TRUE(provides_library({"nvidia-cuda-nvrtc"}, "libnvrtc.so.13"));
  EXPECT_TRUE(provides_library({"shiboken6"}, "libshiboken6.abi3.so.6.7"));
  EXPECT_FALSE(provides_library({"torch"}, "libOpenCL.so.1"));
  EXPECT_FALSE(provides_library({"torch"}, "libcuda.so.1")) << "the driver's";
  EXPECT_FALSE(provides_library({"numpy"}, "libtorch.so"));
  EXPECT_FALSE(provides_library({}, "libcublas.so.12"));
  EXPECT_FALSE(provides_library({"torch"}, "ld-linux.so.2"));
}

TEST(Alternatives, HaveOneKey) {
  const std::string key = alternative_key("b/libb_cuda128.so");
  EXPECT_EQ(key, "b/libb_*.so");
  for (const char* name : {"b/libb_cuda118.so", "b/libb_cpu.so", "b/libb_rocm62.so",
                           "b/libb_xpu.so", "b/libb_cu12.so", "b/libb_cuda_12.so"}) {
    EXPECT_EQ(alternative_key(name), key) << name;
  }
  EXPECT_EQ(alternative_key("k/sm90/ops.abi3.so"), alternative_key("k/sm100a/ops.abi3.so"));
  for (const char* name :
       {"b/libcublas.so.12", "b/_C.so", "b/cudart.so", "b/small.so", "b/cu.so", "b/libpart1.so"}) {
    EXPECT_EQ(alternative_key(name), "") << name;
  }
}

// ---- the verdict

SurveyedFile file_of(const std::string& name, State state, std::vector<GpuCell> gpus = {}) {
  SurveyedFile file;
  file.path = "/p/" + name;
  file.name = name;
  file.state = file.load_state = state;
  if (state == State::kRejected) {
    file.reasons.push_back(make_reason(Code::kLibraryMissing, "a", "b"));
  } else if (state == State::kUndecided) {
    file.reasons.push_back(make_reason(Code::kLibraryElsewhere, "a", "b"));
  }
  file.report = {{"cuda_archs", Report::array()}, {"hip_archs", Report::array()}};
  for (const GpuCell& cell : gpus) {
    if (cell.state == GpuState::kNoCode) continue;
    file.report["cuda_archs"] = {"sm_90"};
    if (cell.state == GpuState::kNone) file.gpu_state = State::kRejected;
  }
  file.state = std::max(file.load_state, file.gpu_state);
  file.gpus = std::move(gpus);
  return file;
}

struct Concluded {
  SurveyedPackage package;
  Concluded(std::vector<SurveyedFile> files, PackageContext context, size_t gpus = 0) {
    package.files = std::move(files);
    for (SurveyedFile& file : package.files) file.gpus.resize(gpus);
    context.described = true;
    std::vector<Gpu> machine(gpus);
    for (Gpu& gpu : machine) gpu.arch = "sm_90";
    conclude(machine, context, &package);
  }
  NameSet counting() const {
    NameSet names;
    for (const SurveyedFile& file : package.files) {
      if (file.counts) names.insert(file.name);
    }
    return names;
  }
};

PackageContext reaching(std::set<std::string> names, bool is_exact = true) {
  PackageContext context;
  context.reach.emplace();
  for (const std::string& name : names) context.reach->files.insert("/p/" + name);
  context.reach->is_exact = is_exact;
  return context;
}

TEST(Conclude, WhatTheImportDoesNotLoadIsListedOnly) {
  const std::vector<SurveyedFile> files = {file_of("a.so", State::kUsable),
                                           file_of("b.so", State::kRejected),
                                           file_of("c.so", State::kUndecided)};
  const Concluded one(files, reaching({"a.so"}));
  EXPECT_EQ(one.package.state, State::kUsable);
  EXPECT_EQ(one.counting(), NameSet{"a.so"});
  EXPECT_EQ(one.package.files.size(), 3u);
  EXPECT_EQ(Concluded(files, reaching({"a.so", "c.so"})).package.state, State::kUndecided);
  EXPECT_EQ(Concluded(files, PackageContext()).package.state, State::kRejected);
}

TEST(Conclude, GpuCodeCountsWhereItIsLoaded) {
  SurveyedFile module = file_of("m.so", State::kUsable, {{}});
  module.loads = {"/p/libgpu.so"};
  const SurveyedFile loaded = file_of("libgpu.so", State::kUndecided, {{GpuState::kNone, ""}});
  const SurveyedFile other =
      file_of("libmore.so", State::kRejected, {{GpuState::kNative, "sm_90"}});
  const Concluded with({module, loaded, other}, reaching({"m.so"}), 1);
  EXPECT_EQ(with.package.state, State::kRejected);
  EXPECT_EQ(with.package.gpus[0].state, GpuState::kNone);
  EXPECT_EQ(with.counting(), (NameSet{"m.so", "libgpu.so"}));
  // If no GPU code is reached, the GPU code of all files counts, but not how those libraries load.
  const Concluded alone({module, other}, reaching({"m.so"}), 1);
  EXPECT_EQ(alone.package.state, State::kUsable);
  EXPECT_EQ(alone.package.gpus[0].state, GpuState::kNative);
}

TEST(Conclude, OfAlternativesTheBestCounts) {
  const std::vector<SurveyedFile> files = {
      file_of("l_cuda118.so", State::kUsable, {{GpuState::kNone, ""}}),
      file_of("l_cuda124.so", State::kUsable, {{GpuState::kPtx, "compute_90"}}),
      file_of("l_cuda128.so", State::kUsable, {{GpuState::kNative, "sm_90"}}),
      file_of("l_cuda130.so", State::kRejected, {{GpuState::kNative, "sm_90"}}),
      file_of("l_cpu.so", State::kUsable, {{}}),
      file_of("l_xpu.so", State::kRejected, {{}})};
  std::set<std::string> names;
  for (const SurveyedFile& file : files) names.insert(file.name);
  const Concluded guessed(files, reaching(names, false), 1);
  EXPECT_EQ(guessed.package.state, State::kUsable);
  EXPECT_EQ(guessed.package.gpus[0].image, "sm_90");
  EXPECT_EQ(guessed.counting(), NameSet{"l_cuda128.so"});
  const Concluded without(files, reaching(names, false));
  EXPECT_EQ(without.package.state, State::kUsable) << "there is one that needs no GPU";
  // If the import names them, all of them are loaded.
  EXPECT_EQ(Concluded(files, reaching(names), 1).package.state, State::kRejected);
}

TEST(Conclude, EachGpuHasItsOwnAlternative) {
  const std::vector<SurveyedFile> files = {
      file_of("sm90/x.so", State::kUsable, {{GpuState::kNative, "sm_90"}, {GpuState::kNone, ""}}),
      file_of("sm100/x.so", State::kUsable,
              {{GpuState::kNone, ""}, {GpuState::kNative, "sm_100"}})};
  const Concluded both(files, reaching({"sm90/x.so", "sm100/x.so"}, false), 2);
  EXPECT_EQ(both.package.state, State::kUsable);
  EXPECT_EQ(both.package.gpus[0].image + both.package.gpus[1].image, "sm_90sm_100");
}

TEST(Conclude, WhatIsLoadedBeforeIsNoReason) {
  SurveyedFile file = file_of("a.so", State::kUndecided);
  file.elsewhere = {"/q/libx.so.1"};
  PackageContext context = reaching({"a.so"});
  EXPECT_EQ(Concluded({file}, context).package.state, State::kUndecided);
  context.is_loaded_before = [](const std::string& path) { return path == "/q/libx.so.1"; };
  const Concluded one({file}, context);
  EXPECT_EQ(one.package.state, State::kUsable);
  ASSERT_EQ(one.package.files[0].reasons.size(), 1u);
  EXPECT_EQ(one.package.files[0].reasons[0].code, Code::kLibraryAssumed);
  EXPECT_NE(one.package.files[0].reasons[0].found.find("/q/libx.so.1"), std::string::npos);
  EXPECT_EQ(one.package.files[0].report.at("verdict"), "usable");
  file.elsewhere.push_back("/r/liby.so");
  EXPECT_EQ(Concluded({file}, context).package.state, State::kUndecided) << "not all of them";
}

// A package's own library that its sources load beforehand, and one that nothing loads.
TEST(Conclude, OwnLibrariesThatSourcesLoad) {
  SurveyedFile file = file_of("a.so", State::kUndecided);
  file.elsewhere = {"/p/lib/libx.so"};
  const SurveyedFile library = file_of("lib/libx.so", State::kUsable);
  PackageContext context = reaching({"a.so"});
  EXPECT_EQ(Concluded({file, library}, context).package.state, State::kUndecided);
  context.reach->loads_libraries = true;
  EXPECT_EQ(Concluded({file, library}, context).package.state, State::kUsable);
  EXPECT_EQ(Concluded({file, library}, reaching({"a.so", "lib/libx.so"})).package.state,
            State::kUsable);
}

}  // namespace
}  // namespace opdock
