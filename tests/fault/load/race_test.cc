// Tests loading from several threads, in many cycles, and across forks.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "folder.h"
#include "support/sanitizer.h"

namespace opdock::testing {
namespace {

// Sanitizers keep freed memory in quarantine and are ten times slower.
#if defined(OPDOCK_TEST_ASAN) || defined(OPDOCK_TEST_TSAN)
constexpr bool kHasSanitizer = true;
#else
constexpr bool kHasSanitizer = false;
#endif
constexpr int kCycles = kHasSanitizer ? 1000 : 10000;

size_t open_files() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    count += !entry.path().empty();
  }
  return count;
}

size_t resident_pages() {
  size_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident;
}

TEST(Threads, LoadAPluginOnce) {
  const Folder folder;
  const std::string path = folder.add("good_b");
  const std::shared_ptr<const Candidate> candidate = at(*find(explicit_place(path)), path);
  const int before = count_of("good_b");
  std::vector<std::thread> threads;
  std::vector<const LoadedPlugin*> loaded(16);
  for (size_t i = 0; i < loaded.size(); ++i) {
    threads.emplace_back([&, i] {
      std::vector<Reason> reasons;
      loaded[i] = load(candidate, counting_host(), &reasons);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_NE(loaded[0], nullptr);
  EXPECT_EQ(std::set<const LoadedPlugin*>(loaded.begin(), loaded.end()).size(), 1u);
  EXPECT_EQ(count_of("good_b"), before + 1);
}

TEST(Threads, DiscoverAndLoadAtOnce) {
  const Folder folder;
  for (const char* name : {"good", "good_v2", "null_init", "larger_op", "null_entry"}) {
    folder.add(name);
  }
  folder.write("text.so", "not a plugin");
  const SearchOptions options = explicit_place(folder.path());
  std::atomic<int> loaded{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 4; ++round) {
        const std::shared_ptr<const Catalog> catalog = find(options);
        for (const std::shared_ptr<const Candidate>& candidate : catalog->candidates()) {
          std::vector<Reason> reasons;
          loaded += load(candidate, counting_host(), &reasons) != nullptr;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(loaded, 16 * 4 * 4);
}

TEST(Cycles, LeaveNoFileOpenAndNoMemory) {
  const Folder folder;
  folder.add("good");
  folder.add("null_entry");
  const SearchOptions options = explicit_place(folder.path());
  const auto cycle = [&] {
    const std::shared_ptr<const Catalog> catalog = find(options);
    for (const std::shared_ptr<const Candidate>& candidate : catalog->candidates()) {
      std::vector<Reason> reasons;
      load(candidate, counting_host(), &reasons);
    }
  };
  for (int i = 0; i < 200; ++i) cycle();
  const size_t files = open_files();
  const size_t pages = resident_pages();
  for (int i = 0; i < kCycles; ++i) cycle();
  EXPECT_EQ(open_files(), files);
  if (!kHasSanitizer) {
    EXPECT_LT(resident_pages(), pages + 256);
  }
}

TEST(Fork, AfterLoadingTheChildUsesAndLoadsPlugins) {
  const Folder folder;
  folder.add("good");
  folder.add("null_init");
  const SearchOptions options = explicit_place(folder.path());
  std::vector<Reason> reasons;
  const LoadedPlugin* good =
      load(at(*find(options), folder.path("good.so")), counting_host(), &reasons);
  ASSERT_NE(good, nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const std::shared_ptr<const Catalog> catalog = find(options);
    const bool is_same =
        load(at(*catalog, folder.path("good.so")), counting_host(), &reasons) == good;
    const bool is_loaded =
        load(at(*catalog, folder.path("null_init.so")), counting_host(), &reasons) != nullptr;
    _exit(is_same && is_loaded ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace opdock::testing
