// Tests tickets, callbacks, threads, and the destruction of an engine.
// SPDX-License-Identifier: Apache-2.0
#include <semaphore.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "support.h"

namespace async_io_test {
namespace {

using LifeTest = EachBackend;

INSTANTIATE_TEST_SUITE_P(All, LifeTest, all_backends(), backend_name);

void count(void* counter) {
  ++*static_cast<std::atomic<int>*>(counter);
}

size_t mapped_rings() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string word; maps >> word;)
    count += word == "/[aio]" || word.find("[io_uring]") != std::string::npos;
  return count;
}

// Waits up to 5 s, because a thread that was told to end may take a moment.
bool comes_down_to(size_t wanted, size_t (*number)()) {
  for (int i = 0; i < 5000 && number() > wanted; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return number() == wanted;
}

TEST_P(LifeTest, ManyThreadsSubmitAndWaitAtOnce) {
  constexpr int kThreads = 6, kRounds = 25;
  const std::string file = random_bytes(1'000'000, 1);
  folder.write("file", file);
  Options options = options_of(GetParam(), 3);
  options.block_size = 16'384;
  options.queue_depth = 4;
  Engine engine(options);
  std::atomic<int> called{0}, wrong{0};
  std::vector<std::thread> users;
  for (uint32_t user = 0; user < kThreads; ++user) {
    users.emplace_back([&, user] {
      std::mt19937 random(user);
      for (int round = 0; round < kRounds; ++round) {
        const std::string own = path(("own" + std::to_string(user)).c_str());
        const size_t bytes = 1 + random() % 200'000, offset = random() % 800'000;
        Pages read_pages(bytes), write_pages(bytes);
        memcpy(write_pages.data(), file.data() + offset, bytes);
        Request read = read_of(path(), offset, read_pages.data(), bytes);
        Request write = write_of(own, 0, write_pages.data(), bytes);
        read.done = write.done = count;
        read.context = write.context = &called;
        write.file_size = static_cast<int64_t>(bytes);
        const uint64_t ticket = engine.submit(read);
        if (round % 2 == 0)
          engine.run(write);
        else
          engine.wait(engine.submit(write));
        engine.wait(ticket);
        wrong += memcmp(read_pages.data(), file.data() + offset, bytes) != 0;
        wrong += contents(own) != file.substr(offset, bytes);
      }
    });
  }
  for (std::thread& user : users) user.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(called, 2 * kThreads * kRounds);
}

TEST_P(LifeTest, WaitingForAllCountsWhatWasSubmitted) {
  folder.write("file", "12345678");
  char memory[8];
  Engine engine(options_of(GetParam()));
  EXPECT_EQ(engine.wait_all(), 0u);
  for (int i = 0; i < 3; ++i) engine.submit(read_of(path(), 0, memory, 8));
  engine.run(read_of(path(), 0, memory, 8));
  const uint64_t ticket = engine.submit(read_of(path(), 0, memory, 8));
  engine.wait(ticket);
  EXPECT_EQ(engine.wait_all(), 3u);
  EXPECT_EQ(engine.wait_all(), 0u);
}

// A run blocked in its callback does not delay wait_all.
TEST_P(LifeTest, WaitingForAllLeavesRunsAlone) {
  Engine engine(options_of(GetParam(), 2));
  std::atomic<int> state{0};
  Request held = write_of(path(), 0, nullptr, 0);
  held.context = &state;
  held.done = [](void* context) {
    std::atomic<int>& self = *static_cast<std::atomic<int>*>(context);
    self = 1;
    while (self == 1) std::this_thread::yield();
  };
  std::thread user([&] { engine.run(held); });
  while (state == 0) std::this_thread::yield();
  engine.submit(write_of(path("other"), 0, nullptr, 0));
  EXPECT_EQ(engine.wait_all(), 1u);
  state = 2;
  user.join();
}

TEST_P(LifeTest, OneTicketMayBeWaitedForByManyAtOnce) {
  Engine engine(options_of(GetParam()));
  std::atomic<bool> go{false};
  Request request = read_of(path("none"), 0, nullptr, 0);
  request.context = &go;
  request.done = [](void* context) {
    while (!*static_cast<std::atomic<bool>*>(context)) std::this_thread::yield();
  };
  const uint64_t ticket = engine.submit(request);
  std::atomic<int> begun{0}, told{0};
  std::vector<std::thread> users;
  for (int i = 0; i < 4; ++i) {
    users.emplace_back([&] {
      ++begun;
      const std::string text = error_of([&] { engine.wait(ticket); }, Error::Kind::kSystem);
      told += text.starts_with("cannot open");
    });
  }
  while (begun < 4) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  go = true;
  for (std::thread& user : users) user.join();
  EXPECT_EQ(told, 4);
}

TEST_P(LifeTest, TheCallbackComesOnceAndBeforeTheWaitReturns) {
  folder.write("file", "12345678");
  char memory[8];
  Engine engine(options_of(GetParam()));
  for (const char* name : {"file", "none"}) {
    for (int i = 0; i < 50; ++i) {
      std::atomic<int> called{0};
      Request request = read_of(path(name), 0, memory, 8);
      request.done = count;
      request.context = &called;
      EXPECT_EQ(error_of([&] { engine.run(request); }, Error::Kind::kSystem) == "",
                name == std::string("file"));
      ASSERT_EQ(called, 1);
    }
  }
}

struct Chain {
  Engine* engine;
  Request request;
  std::atomic<int> left{5};
  std::string refusals;
};

TEST_P(LifeTest, ACallbackMaySubmitButNotWait) {
  folder.write("file", "12345678");
  char memory[8];
  Engine engine(options_of(GetParam()));
  Chain chain;
  chain.engine = &engine;
  chain.request = read_of(path(), 0, memory, 8);
  chain.request.context = &chain;
  chain.request.done = [](void* context) {
    Chain* self = static_cast<Chain*>(context);
    if (--self->left == 0) return;
    const uint64_t ticket = self->engine->submit(self->request);
    const auto refusal = [](const std::function<void()>& work) {
      return error_of(work, Error::Kind::kUnusable) ==
                     "a callback of an I/O handle cannot wait for that handle, whose threads run "
                     "it; wait in another thread"
                 ? "yes "
                 : "no ";
    };
    self->refusals += refusal([&] { self->engine->wait(ticket); });
    self->refusals += refusal([&] { self->engine->wait_all(); });
    self->refusals += refusal([&] { self->engine->run(self->request); });
  };
  engine.submit(chain.request);
  while (chain.left > 0) engine.wait_all();
  EXPECT_EQ(chain.refusals, "yes yes yes yes yes yes yes yes yes yes yes yes ");
}

// A request ends when its callback has returned; until then a wait blocks.
TEST_P(LifeTest, WaitingStopsOnRequestAndTheIoGoesOn) {
  folder.write("file", "12345678");
  char memory[8] = {};
  sem_t may_end;
  sem_init(&may_end, 0, 0);
  Engine engine(options_of(GetParam()));
  Request read = read_of(path(), 0, memory, 8);
  read.context = &may_end;
  read.done = [](void* context) { sem_wait(static_cast<sem_t*>(context)); };
  const uint64_t ticket = engine.submit(read), other = engine.submit(read);
  int asked = 0;
  const auto stop = [&] { return ++asked == 2; };
  const std::string told = "waiting was stopped on request; the I/O goes on";
  EXPECT_EQ(error_of([&] { engine.wait(ticket, stop); }, Error::Kind::kStopped), told);
  EXPECT_EQ(asked, 2);
  asked = 0;
  EXPECT_EQ(error_of([&] { engine.wait_all(stop); }, Error::Kind::kStopped), told);
  EXPECT_EQ(asked, 2);
  sem_post(&may_end);
  sem_post(&may_end);
  engine.wait(ticket, [] { return false; });
  EXPECT_EQ(std::string(memory, 8), "12345678");
  EXPECT_EQ(engine.wait_all([] { return false; }), 1u);
  EXPECT_NE(error_of([&] { engine.wait(other); }, Error::Kind::kArgument), "");
  sem_destroy(&may_end);
}

// Each request ends long before the 50 ms after which stop() is asked.
TEST_P(LifeTest, WaitingForManyShortRequestsStopsToo) {
  folder.write("file", "12345678");
  std::atomic<bool> was_stopped{false};
  char memory[8] = {};
  Engine engine(options_of(GetParam()));
  Request read = read_of(path(), 0, memory, 8);
  read.context = &was_stopped;
  read.done = [](void* context) {
    if (!*static_cast<std::atomic<bool>*>(context))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  for (int i = 0; i < 3000; ++i) engine.submit(read);
  EXPECT_NE(error_of([&] { engine.wait_all([] { return true; }); }, Error::Kind::kStopped), "");
  was_stopped = true;
  EXPECT_EQ(engine.wait_all(), 3000u);
}

TEST_P(LifeTest, DestructionWaitsForWhatWasSubmitted) {
  const size_t files = open_files(), running = threads(), rings = mapped_rings();
  const std::string bytes = random_bytes(300'000, 2);
  Pages pages(bytes.size());
  memcpy(pages.data(), bytes.data(), bytes.size());
  std::atomic<int> called{0};
  {
    Engine engine(options_of(GetParam(), 2));
    EXPECT_EQ(threads(), running + 2);
    for (int i = 0; i < 40; ++i) {
      Request write = write_of(path(std::to_string(i).c_str()), 0, pages.data(), bytes.size());
      write.done = count;
      write.context = &called;
      engine.submit(write);
    }
  }
  EXPECT_EQ(called, 40);
  EXPECT_EQ(open_files(), files);
  EXPECT_EQ(mapped_rings(), rings);
  EXPECT_TRUE(comes_down_to(running, threads));
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(contents(path(std::to_string(i).c_str())) == bytes) << i;
}

struct Owner {
  std::unique_ptr<Engine> engine;
  std::atomic<bool> may_end{false};
  std::atomic<int> called{0};
};

TEST_P(LifeTest, DestructionInACallbackDoesNotWaitForItself) {
  const size_t files = open_files(), running = threads();
  const std::string bytes = random_bytes(100'000, 3);
  Pages pages(bytes.size());
  memcpy(pages.data(), bytes.data(), bytes.size());
  for (const uint32_t number : {1, 3}) {
    Owner owner;
    owner.engine = std::make_unique<Engine>(options_of(GetParam(), number));
    for (int i = 0; i < 20; ++i) {
      Request write = write_of(path(std::to_string(i).c_str()), 0, pages.data(), bytes.size());
      write.context = &owner;
      write.done = [](void* context) { ++static_cast<Owner*>(context)->called; };
      if (i == 3)
        write.done = [](void* context) {
          Owner* self = static_cast<Owner*>(context);
          while (!self->may_end) std::this_thread::yield();
          self->engine.reset();
          ++self->called;
        };
      owner.engine->submit(write);
    }
    owner.may_end = true;
    EXPECT_TRUE(comes_down_to(running, threads));
    EXPECT_EQ(owner.called, 20);
    EXPECT_EQ(open_files(), files);
    for (int i = 0; i < 20; ++i) {
      EXPECT_TRUE(contents(path(std::to_string(i).c_str())) == bytes) << i;
      std::filesystem::remove(path(std::to_string(i).c_str()));
    }
  }
}

TEST_P(LifeTest, TheReportSaysWhatIsInUse) {
  const Engine engine(options_of(GetParam(), 2));
  EXPECT_EQ(engine.report(), std::string(name(GetParam())) + ", 2 threads");
  EXPECT_EQ(engine.options().backend, GetParam());
  EXPECT_EQ(Engine(options_of(GetParam())).report(), std::string(name(GetParam())) + ", 1 thread");
  EXPECT_EQ(engine.options().block_size % page_size(), 0u);
  Options one;
  one.block_size = 1;
  EXPECT_EQ(Engine(one).options().block_size, page_size());
}

}  // namespace
}  // namespace async_io_test
