// Tests retries: a load that failed because something is missing is tried again once it may be
// there; a plugin whose code has run and failed is not. Also tests files that are overwritten while
// they are loaded.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <link.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "folder.h"
#include "load/open.h"

namespace opdock::testing {
namespace {

namespace fs = std::filesystem;
using CandidatePtr = std::shared_ptr<const Candidate>;

// Returns how many objects were ever added to this process, including those that were refused.
uint64_t objects_added() {
  uint64_t added = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        *static_cast<uint64_t*>(out) = info->dlpi_adds;
        return 1;
      },
      &added);
  return added;
}

Code code_of(const CandidatePtr& candidate) {
  std::vector<Reason> reasons;
  EXPECT_EQ(load(candidate, counting_host(), &reasons), nullptr);
  EXPECT_EQ(reasons.size(), 1u);
  return reasons.empty() ? Code::kPathMissing : reasons.front().code;
}

bool loads(const CandidatePtr& candidate) {
  std::vector<Reason> reasons;
  const bool is_loaded = load(candidate, counting_host(), &reasons) != nullptr;
  EXPECT_TRUE(is_loaded) << (reasons.empty() ? "" : to_text(reasons.front()));
  return is_loaded;
}

TEST(Retry, OfASymbolIsAskedAgainWhenALibraryHasCome) {
  const Folder folder;
  const std::string path = folder.add("missing_at_first");
  const CandidatePtr candidate = at(*find(explicit_place(path)), path);
  EXPECT_EQ(code_of(candidate), Code::kLoadFailed);
  // Nothing has changed, so the loader is not asked again.
  const uint64_t added = objects_added();
  EXPECT_EQ(code_of(candidate), Code::kLoadFailed);
  EXPECT_EQ(objects_added(), added);
  // The library is loaded now, but its symbols are not visible to others.
  ASSERT_NE(dlopen(CASE_SYMBOL, RTLD_NOW | RTLD_LOCAL), nullptr) << dlerror();
  EXPECT_EQ(code_of(candidate), Code::kLoadFailed);
  EXPECT_EQ(code_of(candidate), Code::kLoadFailed);
  // No further object is loaded, but the library's symbols are global now.
  ASSERT_NE(dlopen(CASE_SYMBOL, RTLD_NOW | RTLD_GLOBAL), nullptr) << dlerror();
  EXPECT_TRUE(loads(candidate));
}

TEST(Retry, OfALibraryIsAskedAgain) {
  const Folder folder;
  const std::string path = folder.add("needs_library");
  const std::string library = folder.path("libcase_at_first_absent.so");
  fs::copy_file(CASE_LIBRARY, library);
  const CandidatePtr candidate = at(*find(explicit_place(path)), path);
  ASSERT_EQ(candidate->verdict.state, State::kUsable) << describe(*candidate);
  fs::rename(library, library + ".away");
  EXPECT_EQ(code_of(candidate), Code::kLoadFailed);
  fs::rename(library + ".away", library);
  EXPECT_TRUE(loads(candidate));
}

// A failed init has already run; what the process loads later is no reason to run it again.
TEST(Retry, IsNotWhatAFailedInitHas) {
  const Folder folder;
  const std::string path = folder.add("init_status_3"), other = folder.add("larger_plugin");
  const std::shared_ptr<const Catalog> catalog = find(explicit_place(folder.path()));
  const int before = count_of("init_status_3");
  EXPECT_EQ(code_of(at(*catalog, path)), Code::kInitFailed);
  EXPECT_TRUE(loads(at(*catalog, other)));
  EXPECT_EQ(code_of(at(*catalog, path)), Code::kInitFailed);
  EXPECT_EQ(count_of("init_status_3"), before + 1);
}

TEST(Overwritten, IsToldForAFileThatIsLoaded) {
  const Folder folder;
  const std::string path = folder.add("good_b"), other = folder.add("null_init");
  const std::shared_ptr<const Catalog> catalog = find(explicit_place(folder.path()));
  ASSERT_TRUE(loads(at(*catalog, path)));
  ASSERT_TRUE(loads(at(*catalog, other)));
  const auto told = [&](const std::string& file) {
    for (const Reason& reason : overwritten_files()) {
      if (reason.code == Code::kFileChanged && reason.found.starts_with(file)) return true;
    }
    return false;
  };
  EXPECT_FALSE(told(path));
  // Overwrites in place without truncating first, so that this process survives.
  const auto before = fs::last_write_time(path);
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).put('\x7f');
  fs::last_write_time(path, before + std::chrono::seconds(1));
  EXPECT_TRUE(told(path));
  folder.replace("null_init", "null_init.so");  // by rename: nothing to report
  EXPECT_FALSE(told(other));
}

}  // namespace
}  // namespace opdock::testing
