// Runs plugins and programs from other compilers, optimisation levels and header generations with
// this host.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "call/host.h"
#include "opdock/opdock.h"
#include "support/described_gpu.h"

namespace {

struct Variant {
  std::string kind, name, rest;
};

std::vector<Variant> variants(const std::string& kind) {
  std::vector<Variant> found;
  std::ifstream file(ABI_VARIANTS);
  Variant one;
  while (file >> one.kind >> one.name && std::getline(file >> std::ws, one.rest)) {
    if (one.kind == kind) found.push_back(one);
  }
  return found;
}

int run(const std::string& program, const std::string& plugin) {
  pid_t child = fork();
  if (child == 0) {
    execl(program.c_str(), program.c_str(), plugin.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST(Abi, EveryVariantWasBuilt) {
  for (const Variant& one : variants("skipped"))
    std::printf("skipped: %s: %s\n", one.name.c_str(), one.rest.c_str());
  EXPECT_GE(variants("plugin").size(), 8u);
  EXPECT_GE(variants("program").size(), 4u);
}

TEST(Abi, EveryProgramRunsWithEveryPlugin) {
  // The programs move arguments to this GPU, and the plugin refuses them there.
  const opdock_test::DescribedGpu gpu;
  for (const Variant& program : variants("program")) {
    for (const Variant& plugin : variants("plugin")) {
      EXPECT_EQ(run(program.rest, plugin.rest), 0) << program.name << " with " << plugin.name;
    }
  }
}

// Checks that the struct sizes really differ; otherwise the runs above would prove nothing.
TEST(Abi, HeaderGenerationsDiffer) {
  auto descriptor = [](const std::string& name) -> const opdock_plugin* {
    for (const Variant& plugin : variants("plugin")) {
      if (plugin.name != name) continue;
      void* handle = dlopen(plugin.rest.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle == nullptr) return nullptr;
      using Entry = const opdock_plugin* (*)();
      return reinterpret_cast<Entry>(dlsym(handle, OPDOCK_ENTRY_NAME))();
    }
    return nullptr;
  };
  const opdock_plugin *now = descriptor("gcc-O0"), *newer = descriptor("newer"),
                      *no_init = descriptor("no-init");
  ASSERT_TRUE(now && newer && no_init);
  EXPECT_EQ(now->struct_size, sizeof(opdock_plugin));
  EXPECT_EQ(newer->struct_size, sizeof(opdock_plugin) + 32);
  EXPECT_EQ(newer->ops[0]->struct_size, sizeof(opdock_op) + 32);
  EXPECT_EQ(no_init->struct_size, offsetof(opdock_plugin, init));
}

void* open_plugin(const std::string& name) {
  for (const Variant& plugin : variants("plugin")) {
    if (plugin.name == name) return dlopen(plugin.rest.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  return nullptr;
}
const opdock_plugin* call_entry(void* handle) {
  using Entry = const opdock_plugin* (*)();
  return reinterpret_cast<Entry>(dlsym(handle, OPDOCK_ENTRY_NAME))();
}

TEST(Abi, TheDescriptorStaysTheSame) {  // OPDOCK-P-5
  void* handle = open_plugin("gcc-O0");
  ASSERT_NE(handle, nullptr);
  const opdock_plugin* first = call_entry(handle);
  const opdock_plugin copy = *first;
  const opdock_op op = *first->ops[0];
  char error[64] = "";
  ASSERT_EQ(first->init(opdock::host_table(), error, sizeof error), OPDOCK_OK) << error;
  EXPECT_EQ(call_entry(handle), first);
  EXPECT_EQ(std::memcmp(&copy, first, sizeof copy), 0);
  EXPECT_EQ(std::memcmp(&op, first->ops[0], sizeof op), 0);
}

TEST(Abi, InitMayBeCalledAgainAndAtOnce) {  // OPDOCK-P-7
  void* handle = open_plugin("gcc-O0");
  ASSERT_NE(handle, nullptr);
  const opdock_plugin* plugin = call_entry(handle);
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      char error[64] = "";
      if (plugin->init(opdock::host_table(), error, sizeof error) != OPDOCK_OK) ++failed;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  // The plugin refuses a host of another major version and writes a message.
  opdock_host other = *opdock::host_table();
  other.abi_major = 77;
  char error[64] = "";
  EXPECT_NE(plugin->init(&other, error, sizeof error), OPDOCK_OK);
  EXPECT_STREQ(error, "host");
}

// What a function could leave behind in this process: open files, threads, mappings. The heap and
// the stack are ignored, because the test itself may grow them.
struct Traces {
  size_t files = entries("/proc/self/fd"), threads = entries("/proc/self/task");
  std::set<std::string> mappings;  // "FROM-TO MODE"

  Traces() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      if (line.ends_with("[heap]") || line.ends_with("[stack]")) continue;
      mappings.insert(line.substr(0, line.find(' ', line.find(' ') + 1)));
    }
  }
  bool operator==(const Traces&) const = default;

  static size_t entries(const char* folder) {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      count += entry.path().empty() ? 0 : 1;
    }
    return count;
  }
};
void PrintTo(const Traces& traces, std::ostream* out) {
  *out << traces.files << " files, " << traces.threads << " threads, "
       << ::testing::PrintToString(traces.mappings);
}

TEST(Abi, TheEntryHasNoSideEffect) {  // OPDOCK-P-8
  void* handle = open_plugin("g++-O0");
  ASSERT_NE(handle, nullptr);
  // The entry function opens no file, starts no thread and maps no memory.
  const Traces before, unchanged;
  ASSERT_EQ(before, unchanged);  // taking the traces changes none of them
  const opdock_plugin* plugin = call_entry(handle);
  EXPECT_EQ(call_entry(handle), plugin);
  EXPECT_EQ(Traces(), before);
}

// Checks that Traces notices new mappings, changed protections and open files.
TEST(Abi, WhatAnEntryCouldLeaveIsNoticed) {
  const Traces before;
  void* memory = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  EXPECT_NE(Traces(), before);
  mprotect(memory, 4096, PROT_READ | PROT_WRITE);
  const Traces mapped;
  mprotect(memory, 4096, PROT_READ);
  EXPECT_NE(Traces(), mapped);
  munmap(memory, 4096);
  EXPECT_EQ(Traces(), before);
  const int file = dup(1);
  EXPECT_NE(Traces(), before);
  close(file);
  EXPECT_EQ(Traces(), before);
}

// A plugin exports only its entry function, also when it is written in C++.
TEST(Abi, PluginsExportTheirEntryAlone) {
  for (const Variant& plugin : variants("plugin")) {
    void* handle = dlopen(plugin.rest.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(handle, nullptr) << plugin.name << dlerror();
    EXPECT_NE(dlsym(handle, OPDOCK_ENTRY_NAME), nullptr) << plugin.name;
    EXPECT_EQ(dlsym(handle, "opdock_abi_axpy_run"), nullptr) << plugin.name;
    EXPECT_EQ(dlsym(handle, "opdock_init"), nullptr) << plugin.name;
  }
}

}  // namespace
