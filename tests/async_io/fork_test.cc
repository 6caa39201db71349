// Tests engines across forks: what a child may do with its parent's engine, and that the parent's
// work is not disturbed.
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "support.h"
#include "support/sanitizer.h"

namespace async_io_test {
namespace {

using ForkTest = EachBackend;

INSTANTIATE_TEST_SUITE_P(All, ForkTest, all_backends(), backend_name);

constexpr char kRefusal[] =
    "this I/O handle was made before a fork, and its threads are in the parent; make a new handle "
    "in "
    "this process";

// Returns "" if the parent's engine refuses every use, can be destroyed without harm, and a new
// engine of the child works.
std::string use_in_child(std::unique_ptr<Engine> engine, uint64_t ticket, const Request& read,
                         [[maybe_unused]] Backend backend) {
  if (engine->report().empty()) return "no report";
  const std::function<void()> uses[] = {[&] { engine->submit(read); },
                                        [&] { engine->wait(ticket); }, [&] { engine->wait_all(); },
                                        [&] { engine->run(read); }};
  for (const std::function<void()>& use : uses) {
    const std::string text = error_of(use, Error::Kind::kUnusable);
    if (text != kRefusal) return "not refused: " + text;
  }
  engine.reset();
// ThreadSanitizer ends a forked child of a threaded program when the child starts threads
#if !defined(OPDOCK_TEST_TSAN)
  Engine own(options_of(backend, 2));
  own.run(read);
  own.submit(read);
  if (own.wait_all() != 1) return "the child's own engine does not count";
#endif
  return "";
}

TEST_P(ForkTest, AChildMakesItsOwn) {
  folder.write("file", std::string(100'000, 'x'));
  Pages pages(100'000);
  auto engine = std::make_unique<Engine>(options_of(GetParam(), 2));
  const Request read = read_of(path(), 0, pages.data(), pages.bytes());
  const uint64_t ticket = engine->submit(read);
  // release() gives the child a copy of the pointer; the parent frees the engine only in its
  // children.
  EXPECT_EQ(in_child([&] {
              return use_in_child(std::unique_ptr<Engine>(engine.release()), ticket, read,
                                  GetParam());
            }),
            "");
  engine->wait(ticket);
  EXPECT_EQ(in_child([&] {
              return in_child([&] {
                return use_in_child(std::unique_ptr<Engine>(engine.release()), ticket, read,
                                    GetParam());
              });
            }),
            "");
}

TEST_P(ForkTest, AChildClosesWhatItHasOfIt) {
  Pages pages(1 << 20);
  const size_t files = open_files();
  auto engine = std::make_unique<Engine>(options_of(GetParam(), 3));
  EXPECT_EQ(in_child([&]() -> std::string {
              engine.reset();
              // in_child's pipe accounts for two of the open files.
              return std::to_string(open_files() - files - 2);
            }),
            "0");
}

// Forks at arbitrary moments of I/O, waits and submits.
TEST_P(ForkTest, TheParentsWorkGoesOn) {
#if defined(OPDOCK_TEST_ASAN)
  GTEST_SKIP() << "AddressSanitizer's own allocator may stay locked in the child";
#endif
  const std::string file = random_bytes(2'000'000, 1);
  folder.write("file", file);
  Options options = options_of(GetParam(), 2);
  options.block_size = 4096;
  options.queue_depth = 8;
  auto engine = std::make_unique<Engine>(options);
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0}, rounds{0};
  std::vector<std::thread> users;
  for (uint32_t user = 0; user < 3; ++user) {
    users.emplace_back([&, user, engine = engine.get()] {
      Pages pages(file.size());
      const std::string own = path(("own" + std::to_string(user)).c_str());
      while (!stop || rounds < 30) {
        memset(pages.data(), 0, pages.bytes());
        const uint64_t bad = engine->submit(read_of(path("none"), 0, pages.data(), 1));
        engine->run(read_of(path(), 0, pages.data(), pages.bytes()));
        wrong += memcmp(pages.data(), file.data(), file.size()) != 0;
        engine->wait(engine->submit(write_of(own, 0, pages.data(), pages.bytes())));
        wrong += contents(own) != file;
        wrong += error_of([&] { engine->wait(bad); }, Error::Kind::kSystem) == "";
        ++rounds;
      }
    });
  }
  for (int i = 0; i < 25; ++i) {
    Pages pages(file.size());
    const Request read = read_of(path(), 0, pages.data(), pages.bytes());
    const std::string answer = in_child([&] {
      return use_in_child(std::unique_ptr<Engine>(engine.release()), 1, read, GetParam());
    });
    EXPECT_EQ(answer, "");
    if (!answer.empty()) break;
  }
  stop = true;
  for (std::thread& user : users) user.join();
  EXPECT_EQ(wrong, 0);
}

// Threads change the state under the engine's lock so often that forks hit every intermediate
// state.
TEST_P(ForkTest, TheChildFindsTheEngineWhole) {
#if defined(OPDOCK_TEST_ASAN)
  GTEST_SKIP() << "AddressSanitizer's own allocator may stay locked in the child";
#endif
  auto engine = std::make_unique<Engine>(options_of(GetParam(), 2));
  std::atomic<bool> stop{false};
  std::vector<std::thread> users;
  for (int user = 0; user < 3; ++user) {
    users.emplace_back([&, engine = engine.get()] {
      while (!stop) {
        for (int i = 0; i < 20; ++i) engine->submit(read_of(path(), 0, nullptr, 0));
        error_of([&] { engine->wait_all(); }, Error::Kind::kSystem);
      }
    });
  }
  for (int i = 0; i < 150; ++i) {
    const std::string answer = in_child([&]() -> std::string {
      if (engine->totals().direct != 0) return "wrong totals";
      engine.reset();
      return "";
    });
    EXPECT_EQ(answer, "");
    if (!answer.empty()) break;
  }
  stop = true;
  for (std::thread& user : users) user.join();
}

}  // namespace
}  // namespace async_io_test
