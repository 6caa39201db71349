// SPDX-License-Identifier: Apache-2.0
#include "call/parallel.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "call/host.h"
#include "support.h"
#include "support/sanitizer.h"

namespace opdock {
namespace {

struct Marks {
  explicit Marks(size_t count) : seen(count) {}
  std::vector<std::atomic<int>> seen;
  std::atomic<uint64_t> smallest{UINT64_MAX};
  std::atomic<int> calls{0};
};

void mark(void* context, uint64_t begin, uint64_t end) {
  Marks& marks = *static_cast<Marks*>(context);
  ++marks.calls;
  for (uint64_t i = begin; i < end; ++i) ++marks.seen[i];
  if (end != marks.seen.size()) {
    uint64_t known = marks.smallest;
    while (end - begin < known && !marks.smallest.compare_exchange_weak(known, end - begin)) {
    }
  }
}

TEST(Parallel, VisitsEveryItemOnceInPiecesOfTheGrain) {
  for (uint64_t count : {0u, 1u, 2u, 7u, 100u, 1000u, 12345u}) {
    for (uint64_t grain : {0u, 1u, 3u, 64u, 5000u, 1000000u}) {
      Marks marks(count);
      parallel_for(4, count, grain, mark, &marks);
      for (const std::atomic<int>& seen : marks.seen) ASSERT_EQ(seen, 1) << count << " " << grain;
      EXPECT_GE(marks.smallest, grain) << count;
    }
  }
}

TEST(Parallel, UsesSeveralThreads) {
  struct Context {
    std::mutex mutex;
    std::vector<std::thread::id> ids;
    std::atomic<int> arrived{0};
  } context;
  // Ends only if two threads are inside at once.
  parallel_for(
      4, 2, 1,
      [](void* data, uint64_t, uint64_t) {
        Context& shared = *static_cast<Context*>(data);
        {
          std::lock_guard lock(shared.mutex);
          shared.ids.push_back(std::this_thread::get_id());
        }
        ++shared.arrived;
        while (shared.arrived < 2) std::this_thread::yield();
      },
      &context);
  ASSERT_EQ(context.ids.size(), 2u);
  EXPECT_NE(context.ids[0], context.ids[1]);
}

TEST(Parallel, UsesNoMoreThreadsThanItIsGiven) {
  struct Context {
    std::atomic<int> inside{0}, most{0};
  };
  const auto most_of = [](uint32_t threads) {
    Context context;
    parallel_for(
        threads, 64, 1,
        [](void* data, uint64_t, uint64_t) {
          Context& shared = *static_cast<Context*>(data);
          const int now = ++shared.inside;
          int known = shared.most;
          while (now > known && !shared.most.compare_exchange_weak(known, now)) {
          }
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          --shared.inside;
        },
        &context);
    return context.most.load();
  };
  EXPECT_LE(most_of(16), 16);  // leaves fifteen workers waiting
  for (int i = 0; i < 10; ++i) EXPECT_LE(most_of(2), 2);
  EXPECT_LE(most_of(3), 3);
}

TEST(Parallel, RunsNestedCallsAlone) {
  std::atomic<int> wrong{0};
  parallel_for(
      4, 16, 1,
      [](void* data, uint64_t, uint64_t) {
        struct Inner {
          std::thread::id id;
          std::atomic<int>* wrong;
        } inner{std::this_thread::get_id(), static_cast<std::atomic<int>*>(data)};
        parallel_for(
            4, 100, 1,
            [](void* inner_data, uint64_t, uint64_t) {
              Inner& known = *static_cast<Inner*>(inner_data);
              if (std::this_thread::get_id() != known.id) ++*known.wrong;
            },
            &inner);
      },
      &wrong);
  EXPECT_EQ(wrong, 0);
}

TEST(Parallel, ServesManyCallersAtOnce) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < 8; ++t) {
    callers.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        Marks marks(500);
        parallel_for(3, 500, 10, mark, &marks);
        for (const std::atomic<int>& seen : marks.seen) {
          if (seen != 1) ++wrong;
        }
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Parallel, WorksInAForkedChild) {
#ifdef OPDOCK_TEST_TSAN
  GTEST_SKIP() << "ThreadSanitizer ends a child that starts threads after a fork";
#endif
  Marks before(1000);
  parallel_for(4, 1000, 1, mark, &before);
  pid_t child = fork();
  if (child == 0) {
    Marks marks(1000);
    parallel_for(4, 1000, 1, mark, &marks);
    for (const std::atomic<int>& seen : marks.seen) {
      if (seen != 1) _exit(1);
    }
    // The child needs its own threads, because its parent's do not exist there: two must meet.
    alarm(20);
    std::atomic<int> arrived{0};
    parallel_for(
        4, 2, 1,
        [](void* data, uint64_t, uint64_t) {
          std::atomic<int>& here = *static_cast<std::atomic<int>*>(data);
          ++here;
          while (here < 2) std::this_thread::yield();
        },
        &arrived);
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  Marks after(1000);
  parallel_for(4, 1000, 1, mark, &after);
  EXPECT_EQ(after.seen[999], 1);
}

TEST(Parallel, TakesCountsNearTheLimit) {
  std::atomic<int> calls{0};
  parallel_for(
      2, UINT64_MAX, UINT64_MAX / 2,
      [](void* data, uint64_t begin, uint64_t end) {
        if (begin < end) ++*static_cast<std::atomic<int>*>(data);
      },
      &calls);
  EXPECT_EQ(calls, 1);
}

opdock_status run_parallel(const opdock_call* call, const opdock_value* args, uint32_t,
                           opdock_value*, uint32_t) {
  const auto* found =
      static_cast<const opdock_parallel*>(call->host->get_extension("opdock.parallel/2"));
  if (found == nullptr || !OPDOCK_HAS(found, opdock_parallel, parallel_for)) return OPDOCK_INTERNAL;
  found->parallel_for(call, 100, 7, mark, reinterpret_cast<void*>(args[0].as.i64));
  return OPDOCK_OK;
}

TEST(Parallel, ExtensionIsFoundById) {
  static const opdock_op op =
      testing_support::make_op("p(int marks) -> ()", testing_support::plan_nothing, run_parallel);
  testing_support::TestFunction f(&op);
  Marks marks(100);
  const int64_t address = reinterpret_cast<int64_t>(&marks);
  EXPECT_EQ(f.invoke({testing_support::Arguments::integer(address)}), OPDOCK_OK) << f.error;
  for (const std::atomic<int>& seen : marks.seen) EXPECT_EQ(seen, 1);
  for (const char* id : {"opdock.parallel/1", "opdock.parallel/", "opdock.parallel", ""}) {
    EXPECT_EQ(host_table()->get_extension(id), nullptr) << id;
  }
}

}  // namespace
}  // namespace opdock
