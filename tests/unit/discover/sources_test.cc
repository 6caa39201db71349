// Tests source plugins in the search places: they are found, read and checked, and nothing is
// started.
// SPDX-License-Identifier: Apache-2.0
#include "discover/sources.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "folder.h"

namespace opdock::testing {
namespace {

namespace fs = std::filesystem;
using SourcePtr = std::shared_ptr<const SourcePlugin>;

std::string manifest(const std::string& name, const std::string& version = "1.0",
                     const std::string& extra = "") {
  return "name = \"" + name + "\"\nversion = \"" + version +
         "\"\nlicense = \"Apache-2.0\"\nsources = [\"code.c\"]\n" + extra + "[[op]]\nschema = \"" +
         name +
         "(Tensor x) -> Tensor\"\ndoc = \"Nothing.\"\nshape = [\"like x\"]\n"
         "devices = [\"cpu\"]\ndtypes = [\"float32\"]\n";
}

// Adds a source plugin in folder/<as>.
std::string add_source(const Folder& folder, const std::string& as, const std::string& text) {
  fs::create_directories(folder.path(as));
  folder.write(as + "/code.c", "int code;\n");
  folder.write(as + "/plugin.toml", text);
  return folder.path(as);
}

SourcePtr source_at(const Catalog& catalog, const std::string& path) {
  for (const SourcePtr& source : catalog.sources()) {
    if (source->folder == path) return source;
  }
  ADD_FAILURE() << "no source plugin " << path;
  return nullptr;
}

std::string texts(const SourcePlugin& source) {
  std::string text;
  for (const Reason& reason : source.reasons) text += to_text(reason) + "\n";
  return text;
}

TEST(Sources, AFolderWithAManifestIsFoundBesideFiles) {
  const Folder folder;
  folder.add("good");
  const std::string path = add_source(folder, "axpy", manifest("axpy", "1.2"));
  fs::create_directory(folder.path("other"));
  folder.write("other/readme", "no plugin\n");
  const auto catalog = find(explicit_place(folder.path()));
  ASSERT_EQ(catalog->sources().size(), 1u);
  EXPECT_EQ(catalog->candidates().size(), 1u);
  const SourcePtr source = source_at(*catalog, path);
  EXPECT_EQ(source->state, State::kUsable) << texts(*source);
  ASSERT_TRUE(source->manifest);
  EXPECT_EQ(source->manifest->version, "1.2");
  EXPECT_EQ(source->manifest->ops[0].name, "axpy");
  ASSERT_EQ(source->devices.size(), 1u);
  EXPECT_EQ(source->devices[0].state, State::kUsable);
  EXPECT_EQ(catalog->source_providers("axpy").size(), 1u);
  EXPECT_EQ(catalog->source_providers("axpy/axpy").size(), 1u);
  EXPECT_TRUE(catalog->source_providers("other/axpy").empty());
  EXPECT_TRUE(catalog->providers("axpy").empty());
}

TEST(Sources, AGpuBelowTheLeastArchitectureSpeaksAgainstTheDevice) {
  const Folder folder;
  std::string text = manifest("axpy");
  text.replace(text.find("[\"cpu\"]"), 7, "[\"cpu\", \"cuda\"]");
  const std::string path =
      add_source(folder, "axpy", text + "[build]\nleast-cuda-arch = \"8.0\"\n");
  MachineFacts machine;
  machine.cuda_driver = Version{12, 9};
  machine.gpus.clear();
  for (const int number : {75, 80}) {
    Gpu gpu{};
    gpu.backend = Backend::kCuda;
    gpu.index = number == 80;
    gpu.major = number / 10;
    gpu.minor = number % 10;
    gpu.arch = "sm_" + std::to_string(number);
    machine.gpus.push_back(gpu);
  }
  const SourcePlugin source = look_at_source(path, "", nullptr, machine);
  ASSERT_EQ(source.devices.size(), 3u) << texts(source);
  EXPECT_EQ(source.devices[1].state, State::kRejected);
  ASSERT_EQ(source.devices[1].reasons.size(), 1u);
  EXPECT_EQ(source.devices[1].reasons[0].code, Code::kArchBelowLeast);
  EXPECT_EQ(source.devices[2].state, State::kUsable);
}

TEST(Sources, ThePlaceItselfMayBeOneAndSoMayTheFile) {
  const Folder folder;
  const std::string path = add_source(folder, "axpy", manifest("axpy"));
  for (const std::string& place : {path, path + "/", path + "/plugin.toml"}) {
    const auto catalog = find(explicit_place(place));
    ASSERT_EQ(catalog->sources().size(), 1u) << place;
    EXPECT_EQ(catalog->sources()[0]->folder, path);
    EXPECT_EQ(catalog->sources()[0]->state, State::kUsable);
  }
}

TEST(Sources, APluginsOwnFolderMayHoldBinariesToo) {
  const Folder folder;
  const std::string path = add_source(folder, "axpy", manifest("axpy"));
  folder.add("good", "axpy/good.so");
  const auto catalog = find(explicit_place(path));
  EXPECT_EQ(catalog->sources().size(), 1u);
  EXPECT_EQ(catalog->candidates().size(), 1u);
}

TEST(Sources, AreLookedForOneLevelDeepAndNotInHiddenFolders) {
  const Folder folder;
  add_source(folder, "a/deep", manifest("deep"));
  add_source(folder, ".hidden", manifest("hidden"));
  EXPECT_TRUE(find(explicit_place(folder.path()))->sources().empty());
}

TEST(Sources, FoundTwiceByALinkCountOnce) {
  const Folder folder;
  const std::string path = add_source(folder, "axpy", manifest("axpy"));
  fs::create_directory_symlink("axpy", folder.path("zz"));
  const auto catalog = find(explicit_place(folder.path() + ":" + path));
  ASSERT_EQ(catalog->sources().size(), 1u);
  EXPECT_EQ(catalog->sources()[0]->folder, path);
}

TEST(Sources, TheNewerVersionComesFirstThenTheEarlierFolder) {
  const Folder folder;
  const std::string old = add_source(folder, "a", manifest("axpy", "1.9"));
  const std::string fresh = add_source(folder, "b", manifest("axpy", "1.10"));
  const std::string same = add_source(folder, "c", manifest("axpy", "1.10"));
  const auto catalog = find(explicit_place(folder.path()));
  const auto found = catalog->source_providers("axpy");
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0]->folder, fresh);
  EXPECT_EQ(found[1]->folder, same);
  EXPECT_EQ(found[2]->folder, old);
  EXPECT_TRUE(has_code(found[1]->reasons, Code::kDuplicatePlugin));
  EXPECT_EQ(found[1]->state, State::kUsable);
}

TEST(Sources, CanBeDeselected) {
  const Folder folder;
  add_source(folder, "a", manifest("axpy"));
  SearchOptions options = explicit_place(folder.path());
  options.environment.disable = "ax*";
  const auto catalog = find(options);
  EXPECT_EQ(catalog->sources()[0]->state, State::kRejected);
  EXPECT_TRUE(has_code(catalog->sources()[0]->reasons, Code::kDeselected));
}

// ---- plugin.toml that cannot be used

struct BadToml {
  const char* name;
  std::string text;
  const char* told;  // a text that a reason must contain
};

void PrintTo(const BadToml& row, std::ostream* out) {
  *out << row.name;
}

class Bad : public ::testing::TestWithParam<BadToml> {};

TEST_P(Bad, IsListedWithItsLineAndTheOthersWork) {
  const Folder folder;
  const std::string bad = add_source(folder, "bad", GetParam().text);
  const std::string good = add_source(folder, "good", manifest("fine"));
  folder.add("good", "good.so");
  const SearchOptions options = explicit_place(folder.path());
  const auto catalog = find(options);
  const SourcePtr source = source_at(*catalog, bad);
  ASSERT_NE(source, nullptr);
  EXPECT_EQ(source->state, State::kRejected);
  ASSERT_FALSE(source->reasons.empty());
  EXPECT_EQ(source->reasons[0].code, Code::kManifestInvalid);
  EXPECT_NE(texts(*source).find(GetParam().told), std::string::npos) << texts(*source);
  EXPECT_EQ(source_at(*catalog, good)->state, State::kUsable);
  expect_good_still_loads(options);
}

const BadToml kBad[] = {
    {"empty", "", "plugin.toml:1:1: no \"name\""},
    {"not_toml", "name = \n", "plugin.toml:1"},
    {"not_utf8", "name = \"\xff\xfe\"\n", "plugin.toml:1"},
    {"unknown_key", manifest("bad", "1.0", "licence = \"MIT\"\n"), "plugin.toml:5"},
    {"missing_source",
     "name = \"bad\"\nversion = \"1\"\nlicense = \"A\"\nsources = [\"no.c\"]\n"
     "[[op]]\nschema = \"bad(Tensor x) -> ()\"\ndoc = \"x\"\ndevices = [\"cpu\"]\n"
     "dtypes = [\"float32\"]\n",
     "no.c"},
    {"source_outside",
     "name = \"bad\"\nversion = \"1\"\nlicense = \"A\"\n"
     "sources = [\"../good/code.c\"]\n[[op]]\nschema = \"bad(Tensor x) -> ()\"\ndoc = \"x\"\n"
     "devices = [\"cpu\"]\ndtypes = [\"float32\"]\n",
     "inside the plugin's folder"},
    {"bad_schema",
     "name = \"bad\"\nversion = \"1\"\nlicense = \"A\"\nsources = [\"code.c\"]\n"
     "[[op]]\nschema = \"bad(Tensor\"\ndoc = \"x\"\ndevices = [\"cpu\"]\n"
     "dtypes = [\"float32\"]\n",
     "plugin.toml:6"},
    {"deeply_nested", "a = " + std::string(100000, '[') + "\n", "plugin.toml"},
    {"two_megabytes", std::string(2 << 20, '#'), "bytes"},
};

INSTANTIATE_TEST_SUITE_P(Row, Bad, ::testing::ValuesIn(kBad),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(BadFile, ManifestThatIsAFolderOrAFifoOrABrokenLinkNeitherBlocksNorCrashes) {
  const Folder folder;
  fs::create_directories(folder.path("a/plugin.toml"));
  fs::create_directories(folder.path("b"));
  ASSERT_EQ(mkfifo(folder.path("b/plugin.toml").c_str(), 0600), 0);
  fs::create_directories(folder.path("c"));
  fs::create_symlink("nowhere", folder.path("c/plugin.toml"));
  const auto catalog = find(explicit_place(folder.path()));
  ASSERT_EQ(catalog->sources().size(), 3u);
  for (const SourcePtr& source : catalog->sources()) {
    EXPECT_EQ(source->state, State::kRejected) << source->folder;
    EXPECT_TRUE(has_code(source->reasons, Code::kManifestInvalid)) << source->folder;
  }
}

// ---- who may have written the folder

struct TrustRow {
  const char* name;
  Code code;
  bool needs_root;
  void (*break_it)(const Folder& folder);  // changes a/axpy or a folder above it
};

void PrintTo(const TrustRow& row, std::ostream* out) {
  *out << row.name;
}

class Untrusted : public ::testing::TestWithParam<TrustRow> {};

TEST_P(Untrusted, IsListedAndMayNotBeBuilt) {
  if (std::optional<Reason> reason = Trust(SearchEnvironment{}).check_path(CASE_PLUGINS).reason) {
    GTEST_SKIP() << "the build folder is not trusted: " << to_text(*reason);
  }
  if (GetParam().needs_root && geteuid() != 0) GTEST_SKIP() << "giving a file away needs root";
  const Folder folder;
  const std::string path = add_source(folder, "a/axpy", manifest("axpy"));
  fs::create_directory(folder.path("a/axpy/device"));
  folder.write("a/axpy/device/k.cuh", "//\n");
  ASSERT_EQ(source_at(*find(package_place(folder.path("a"))), path)->state, State::kUsable);
  GetParam().break_it(folder);
  const SourcePtr source = source_at(*find(package_place(folder.path("a"))), path);
  EXPECT_EQ(source->state, State::kRejected);
  EXPECT_TRUE(has_code(source->reasons, GetParam().code)) << texts(*source);
  EXPECT_TRUE(source->manifest);  // it is still listed by its name
  // An explicit path is consent.
  EXPECT_EQ(source_at(*find(explicit_place(folder.path("a"))), path)->state, State::kUsable);
}

constexpr uid_t kStranger = 65534;
const TrustRow kTrustRows[] = {
    {"folder_written_by_all", Code::kUntrustedWritable, false,
     [](const Folder& f) { chmod(f.path("a/axpy").c_str(), 0777); }},
    {"folder_above_written_by_all", Code::kUntrustedWritable, false,
     [](const Folder& f) { chmod(f.path("a").c_str(), 0777); }},
    {"a_strangers_folder_in_a_sticky_one", Code::kUntrustedOwner, true,
     [](const Folder& f) {
       chmod(f.path("a").c_str(), 01777);
       ASSERT_EQ(lchown(f.path("a/axpy").c_str(), kStranger, 0), 0);
     }},
    {"sticky_subfolder_written_by_all", Code::kUntrustedWritable, false,
     [](const Folder& f) { chmod(f.path("a/axpy/device").c_str(), 01777); }},
    {"manifest_written_by_all", Code::kUntrustedWritable, false,
     [](const Folder& f) { chmod(f.path("a/axpy/plugin.toml").c_str(), 0666); }},
    {"source_written_by_all", Code::kUntrustedWritable, false,
     [](const Folder& f) { chmod(f.path("a/axpy/code.c").c_str(), 0666); }},
    {"file_in_a_subfolder_written_by_all", Code::kUntrustedWritable, false,
     [](const Folder& f) { chmod(f.path("a/axpy/device/k.cuh").c_str(), 0602); }},
    {"subfolder_written_by_all", Code::kUntrustedWritable, false,
     [](const Folder& f) { chmod(f.path("a/axpy/device").c_str(), 0777); }},
    {"link_into_a_folder_written_by_all", Code::kUntrustedWritable, false,
     [](const Folder& f) {
       fs::create_directory(f.path("other"));
       f.write("other/more.h", "//\n");
       chmod(f.path("other").c_str(), 0777);
       fs::create_symlink(f.path("other/more.h"), f.path("a/axpy/more.h"));
     }},
    {"a_strangers_source", Code::kUntrustedOwner, true,
     [](const Folder& f) { ASSERT_EQ(lchown(f.path("a/axpy/code.c").c_str(), kStranger, 0), 0); }},
    {"a_strangers_folder", Code::kUntrustedOwner, true,
     [](const Folder& f) { ASSERT_EQ(lchown(f.path("a/axpy").c_str(), kStranger, 0), 0); }},
};

INSTANTIATE_TEST_SUITE_P(Row, Untrusted, ::testing::ValuesIn(kTrustRows),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Trusted, SourcesBelowAStickyFolderMayBeBuilt) {
  if (const auto reason = Trust(SearchEnvironment{}).check_path(CASE_PLUGINS).reason)
    GTEST_SKIP() << "the build folder is not trusted: " << to_text(*reason);
  const Folder folder;
  const std::string path = add_source(folder, "a/b/axpy", manifest("axpy"));
  chmod(folder.path("a").c_str(), 01777);
  const SourcePtr source = source_at(*find(package_place(folder.path("a/b"))), path);
  EXPECT_EQ(source->state, State::kUsable) << texts(*source);
}

TEST(Secure, ProgramsWithRaisedPrivilegesBuildNothing) {
  const Folder folder;
  add_source(folder, "axpy", manifest("axpy"));
  SearchOptions options = explicit_place(folder.path());
  options.environment.secure = true;
  const auto catalog = find(options);
  EXPECT_EQ(catalog->sources()[0]->state, State::kRejected);
  EXPECT_TRUE(has_code(catalog->sources()[0]->reasons, Code::kBuildPrivileged));
}

}  // namespace
}  // namespace opdock::testing
