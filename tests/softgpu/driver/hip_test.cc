// Tests libamdhip64: its devices, code objects, streams and failures. The parts that it shares with
// libcuda are tested with libcuda.
// SPDX-License-Identifier: Apache-2.0
#include <elf.h>

#include <cstring>
#include <thread>

#include "test_support.h"

namespace softgpu_test {
namespace {

using Handle = void*;

constexpr int kCount = 100;
constexpr size_t kBytes = kCount * sizeof(int);
constexpr int kToHost = 2;  // hipMemcpyKind

// Flags in code objects for gfx90a and gfx1030. XNACK off is what the gfx90a device has.
constexpr unsigned kGfx90a = 0x3f, kGfx1030 = 0x36, kXnackOff = 0x200, kXnackOn = 0x300;

const char kProgram[] = R"(
extern "C" OPDOCK_KERNEL(256) fill(int* out, int count, int value) {
  const int i = static_cast<int>(block_index()) * block_threads() + thread_index();
  if (i < count) out[i] = value;
}
extern "C" OPDOCK_KERNEL(256) width(int* out) {
  if (thread_index() == 0) out[0] = warp_width();
}
)";

json devices(const json& more = json::object()) {
  json config = {
      {"workers", 1},
      {"gpus",
       {{{"arch", "gfx90a"}, {"name", "Aldebaran"}, {"memory", 1 << 20}, {"multiprocessors", 8}},
        {{"arch", "gfx1030"}, {"memory", 1 << 20}},
        {{"arch", "sm_90"}}}}};
  config.update(more);
  return config;
}

void hip_child(
    const std::function<void()>& body, const json& more = json::object(),
    const std::function<void()>& after = [] {}) {
  in_child("libamdhip64.so.6", devices(more), body, after);
}

// Returns a code object with only the parts that HIP reads: the processor, and a note that
// describes `kernels`.
std::string code_object(unsigned flags, const json& kernels, uint16_t machine = 224) {
  std::vector<uint8_t> facts = json::to_msgpack({{"amdhsa.kernels", kernels}});
  Elf64_Nhdr note{};
  note.n_namesz = 7;
  note.n_descsz = static_cast<uint32_t>(facts.size());
  note.n_type = 32;
  facts.resize((facts.size() + 3) / 4 * 4);
  std::string text(reinterpret_cast<const char*>(&note), sizeof note);
  text += std::string("AMDGPU\0\0", 8) + std::string(facts.begin(), facts.end());
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_ABIVERSION] = 2;
  header.e_machine = machine;
  header.e_flags = flags;
  header.e_shoff = sizeof header + (text.size() + 7) / 8 * 8;
  header.e_shnum = 2;
  Elf64_Shdr sections[2]{};
  sections[1].sh_type = SHT_NOTE;
  sections[1].sh_offset = sizeof header;
  sections[1].sh_size = text.size();
  text.resize((text.size() + 7) / 8 * 8);
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + text +
         std::string(reinterpret_cast<const char*>(sections), sizeof sections);
}

json kernel_facts(const char* name, const std::vector<int>& sizes) {
  json arguments = json::array();
  int offset = 0;
  for (const int size : sizes) {
    offset = (offset + size - 1) / size * size;
    arguments.push_back({{".offset", offset}, {".size", size}, {".value_kind", "by_value"}});
    offset += size;
  }
  arguments.push_back({{".offset", 56}, {".size", 8}, {".value_kind", "hidden_none"}});
  return {{".name", name}, {".args", arguments}, {".max_flat_workgroup_size", 256}};
}

std::string test_object(unsigned flags) {
  return code_object(flags, {kernel_facts("fill", {8, 4, 4}), kernel_facts("width", {8})});
}

Handle load(const std::string& image, const char* arch) {
  add_code(image, "rocm", arch, kProgram, {"fill", "width"});
  Handle module = nullptr;
  EXPECT_EQ(call("hipModuleLoadData", &module, static_cast<const void*>(image.data())), 0);
  return module;
}

Handle find(Handle module, const char* name) {
  Handle function = nullptr;
  EXPECT_EQ(call("hipModuleGetFunction", &function, module, name), 0);
  return function;
}

int launch(Handle function, Handle stream, unsigned threads, std::vector<void*> arguments) {
  return call("hipModuleLaunchKernel", function, 2u, 1u, 1u, threads, 1u, 1u, 0u, stream,
              arguments.data(), static_cast<void**>(nullptr));
}

void* new_memory(size_t bytes) {
  void* memory = nullptr;
  EXPECT_EQ(call("hipMalloc", &memory, bytes), 0);
  return memory;
}

std::vector<int> ints_at(void* memory, size_t count) {
  std::vector<int> values(count);
  EXPECT_EQ(call("hipMemcpy", static_cast<void*>(values.data()), static_cast<const void*>(memory),
                 count * sizeof(int), kToHost),
            0);
  return values;
}

TEST(Hip, ShowsItsGpus) {
  hip_child([] {
    int count = 0, value = 0;
    size_t bytes = 0;
    EXPECT_EQ(call("hipGetDeviceCount", &count), 0);  // initialises HIP implicitly
    EXPECT_EQ(count, 2);
    for (const auto& [attribute, first, second] : {std::tuple{87, 64, 32},
                                                   {63, 8, 32},
                                                   {74, 65536, 65536},
                                                   {56, 1024, 1024},
                                                   {23, 9, 10},
                                                   {61, 0, 3},
                                                   {88, 1, 1}}) {
      EXPECT_EQ(call("hipDeviceGetAttribute", &value, attribute, 0), 0);
      EXPECT_EQ(value, first) << attribute;
      EXPECT_EQ(call("hipDeviceGetAttribute", &value, attribute, 1), 0);
      EXPECT_EQ(value, second) << attribute;
    }
    EXPECT_EQ(call("hipDeviceGetAttribute", &value, 87, 2), 101);
    EXPECT_STREQ(reinterpret_cast<const char* (*)(int)>(symbol("hipGetErrorName"))(101),
                 "hipErrorInvalidDevice");
    EXPECT_EQ(call("hipGetLastError"), 101);
    EXPECT_EQ(call("hipGetLastError"), 0);
    EXPECT_EQ(call("hipDeviceTotalMem", &bytes, 0), 0);
    EXPECT_EQ(bytes, 1u << 20);
  });
}

// Checks that the target ID is at its offset in both layouts of hipDeviceProp_t.
TEST(Hip, TellsPropertiesInBothLayouts) {
  hip_child([] {
    std::string properties(4096, '?');
    EXPECT_EQ(call("hipGetDevicePropertiesR0600", static_cast<void*>(properties.data()), 0), 0);
    EXPECT_STREQ(properties.c_str(), "Aldebaran");
    EXPECT_STREQ(properties.c_str() + 1160, "gfx90a:sramecc+:xnack-");
    EXPECT_EQ(properties[1472], '?');
    EXPECT_EQ(call("hipGetDeviceProperties", static_cast<void*>(properties.data()), 1), 0);
    EXPECT_STREQ(properties.c_str() + 396, "gfx1030");
  });
}

TEST(Hip, TakesTheCodeObjectsThatHipTakes) {
  hip_child([] {
    const auto result = [](const std::string& image) {
      Handle module = nullptr;
      return call("hipModuleLoadData", &module, static_cast<const void*>(image.data()));
    };
    EXPECT_EQ(result(test_object(kGfx90a)), 0);
    EXPECT_EQ(result(test_object(kGfx90a | kXnackOff)), 0);
    EXPECT_EQ(result(test_object(kGfx90a | kXnackOn)), 209);
    EXPECT_EQ(result(test_object(kGfx1030)), 209);
    EXPECT_EQ(result(code_object(kGfx90a, json::array(), 190)), 200);  // e_machine of CUDA
    EXPECT_EQ(result(code_object(kGfx90a, {{{".name", 5}}})), 200);
    EXPECT_EQ(result("__CLANG_OFFLOAD_BUNDLE__"), 200);
    EXPECT_EQ(events("load").front()["arch"], "gfx90a");
    EXPECT_EQ(call("hipSetDevice", 1), 0);
    EXPECT_EQ(result(test_object(kGfx1030)), 0);
  });
}

TEST(Hip, ExecutesInWavesOfTheDevicesWidth) {
  hip_child([] {
    const Handle modules[] = {load(test_object(kGfx90a), "gfx90a"), [] {
                                EXPECT_EQ(call("hipSetDevice", 1), 0);
                                return load(test_object(kGfx1030), "gfx1030");
                              }()};
    for (int device = 0; device < 2; ++device) {
      EXPECT_EQ(call("hipSetDevice", device), 0);
      void* memory = new_memory(kBytes);
      EXPECT_EQ(launch(find(modules[device], "width"), nullptr, 64, {&memory}), 0);
      EXPECT_EQ(ints_at(memory, 1), std::vector<int>{device == 0 ? 64 : 32});
      int count = kCount, value = 7;
      const Handle fill = find(modules[device], "fill");
      EXPECT_EQ(launch(fill, nullptr, 64, {&memory, &count, &value}), 0);
      EXPECT_EQ(ints_at(memory, kCount), std::vector<int>(kCount, 7));
      // Over its launch bound.
      EXPECT_EQ(launch(fill, nullptr, 257, {&memory, &count, &value}), 701);
      EXPECT_EQ(events("launch").back()["args"][2], "07000000");
      EXPECT_EQ(call("hipFree", memory), 0);
    }
    // A function of another device.
    EXPECT_EQ(launch(find(modules[0], "width"), nullptr, 64, {}), 400);
  });
}

TEST(Hip, TellsWhyAnImageIsNotExecuted) {
  hip_child([] {
    const std::string image = test_object(kGfx90a);
    Handle module = nullptr;
    EXPECT_EQ(call("hipModuleLoadData", &module, static_cast<const void*>(image.data())), 0);
    void* memory = new_memory(4);
    EXPECT_EQ(launch(find(module, "width"), nullptr, 64, {&memory}), 500);
    EXPECT_EQ(call("hipGetLastError"), 500);
    const auto text = reinterpret_cast<const char* (*)(int)>(symbol("hipGetErrorString"));
    const std::string told = text(500);
    EXPECT_NE(told.find("the kernel width of the image"), told.npos) << told;
    EXPECT_NE(told.find("is not executed: cannot open"), told.npos) << told;
    EXPECT_EQ(call("hipDeviceSynchronize"), 0);
    EXPECT_EQ(std::string(text(500)).find("width"), std::string::npos);
  });
}

// The code object's note states the static shared memory; static and dynamic memory together may
// take 64 KiB.
TEST(Hip, SharedMemoryIsLimited) {
  hip_child([] {
    json facts = kernel_facts("width", {8});
    facts[".group_segment_fixed_size"] = 40000;
    const std::string image = code_object(kGfx90a, json::array({facts}));
    const Handle width = find(load(image, "gfx90a"), "width");
    void* memory = new_memory(4);
    void* arguments[] = {&memory};
    const auto result = [&](unsigned dynamic) {
      return call("hipModuleLaunchKernel", width, 1u, 1u, 1u, 64u, 1u, 1u, dynamic, Handle{nullptr},
                  static_cast<void**>(arguments), static_cast<void**>(nullptr));
    };
    EXPECT_EQ(result(65536 - 40000), 0);
    EXPECT_EQ(result(65536 - 40000 + 1), 1);
    EXPECT_EQ(call("hipDeviceSynchronize"), 0);
  });
}

// HIP programs prefer to pass all arguments in one packed buffer.
TEST(Hip, TakesPackedArguments) {
  hip_child([] {
    struct {
      void* out;
      int count, value;
    } arguments{new_memory(kBytes), kCount, 3};
    size_t size = sizeof arguments;
    void* extra[] = {reinterpret_cast<void*>(1), &arguments, reinterpret_cast<void*>(2), &size,
                     reinterpret_cast<void*>(3)};
    const Handle fill = find(load(test_object(kGfx90a), "gfx90a"), "fill");
    EXPECT_EQ(call("hipModuleLaunchKernel", fill, 2u, 1u, 1u, 64u, 1u, 1u, 0u, Handle{nullptr},
                   static_cast<void**>(nullptr), static_cast<void**>(extra)),
              0);
    EXPECT_EQ(ints_at(arguments.out, kCount), std::vector<int>(kCount, 3));
  });
}

TEST(Hip, StreamsEventsAndOrderedMemory) {
  hip_child([] {
    Handle stream = nullptr, other = nullptr, event = nullptr;
    int device = -1, count = kCount, value = 5;
    void* memory = nullptr;
    std::vector<int> seen(kCount);
    Gate gate;
    const Handle fill = find(load(test_object(kGfx90a), "gfx90a"), "fill");
    EXPECT_EQ(call("hipStreamCreateWithFlags", &stream, 1u), 0);
    EXPECT_EQ(call("hipStreamCreateWithPriority", &other, 1u, -1), 0);
    EXPECT_EQ(call("hipStreamGetDevice", stream, &device), 0);
    EXPECT_EQ(device, 0);
    EXPECT_EQ(call("hipEventCreateWithFlags", &event, 2u), 0);
    EXPECT_EQ(call("hipLaunchHostFunc", stream, &Gate::wait, gate.data()), 0);
    EXPECT_EQ(call("hipMallocAsync", &memory, kBytes, stream), 0);
    EXPECT_EQ(launch(fill, stream, 64, {&memory, &count, &value}), 0);
    EXPECT_EQ(call("hipEventRecord", event, stream), 0);
    EXPECT_EQ(call("hipStreamWaitEvent", other, event, 0u), 0);
    EXPECT_EQ(call("hipStreamQuery", other), 600);
    EXPECT_EQ(call("hipGetLastError"), 0);  // "not ready" is no failure
    gate.open();
    EXPECT_EQ(call("hipMemcpyAsync", static_cast<void*>(seen.data()),
                   static_cast<const void*>(memory), kBytes, kToHost, other),
              0);
    EXPECT_EQ(seen, std::vector<int>(kCount, 5));
    EXPECT_EQ(call("hipFreeAsync", memory, other), 0);
    EXPECT_EQ(call("hipDeviceSynchronize"), 0);
    EXPECT_EQ(call("hipStreamDestroy", stream), 0);
    EXPECT_EQ(call("hipStreamSynchronize", stream), 400);
    EXPECT_TRUE(findings().empty());
  });
}

TEST(Hip, GraphsAreCaptured) {
  hip_child([] {
    Handle stream = nullptr, graph = nullptr, instance = nullptr;
    void* memory = new_memory(kBytes);
    int count = kCount, value = 5;
    const Handle fill = find(load(test_object(kGfx90a), "gfx90a"), "fill");
    EXPECT_EQ(call("hipStreamCreate", &stream), 0);
    EXPECT_EQ(call("hipStreamBeginCapture", stream, 0), 0);
    EXPECT_EQ(launch(fill, stream, 64, {&memory, &count, &value}), 0);
    EXPECT_EQ(call("hipStreamEndCapture", stream, &graph), 0);
    EXPECT_EQ(call("hipMemset", memory, 0, kBytes), 0);
    EXPECT_EQ(call("hipGraphInstantiate", &instance, graph, Handle{nullptr},
                   static_cast<char*>(nullptr), size_t{0}),
              0);
    EXPECT_EQ(call("hipGraphLaunch", instance, stream), 0);
    EXPECT_EQ(ints_at(memory, kCount), std::vector<int>(kCount, 5));
  });
}

TEST(Hip, AFindingFailsItsDevice) {
  hip_child(
      [] {
        void* memory = new_memory(kBytes);
        int count = kCount + 1, value = 5;
        const Handle fill = find(load(test_object(kGfx90a), "gfx90a"), "fill");
        EXPECT_EQ(launch(fill, nullptr, 64, {&memory, &count, &value}), 0);
        EXPECT_EQ(call("hipDeviceSynchronize"), 700);
        EXPECT_EQ(call("hipFree", memory), 700);
        EXPECT_EQ(call("hipSetDevice", 1), 0);
        call("hipFree", new_memory(8));
        new_memory(16);
      },
      {{"leaks", true}},
      [] {
        ASSERT_EQ(findings().size(), 2u);
        EXPECT_EQ(findings()[0].find("softgpu: out-of-bounds write"), 0u);
        EXPECT_EQ(findings()[1].find("leak: 16 bytes of memory of rocm:1, made by hipMalloc"), 0u);
      });
}

// HIP 5 and HIP 7 have other sonames, and HIP 5 has no hipGetDevicePropertiesR0600.
TEST(Hip, FiveAndSevenAreThereToo) {
  for (const int major : {5, 7}) {
    const std::string name = std::to_string(major);
    const json config = devices({{"hip", major * 10000000 + 221153}});
    in_child("hip" + name + "/libamdhip64.so." + name, config, [=] {
      int version = 0;
      EXPECT_EQ(call("hipRuntimeGetVersion", &version), 0);
      EXPECT_EQ(version / 10000000, major);
      if (major == 5) {
        EXPECT_THROW(symbol("hipGetDevicePropertiesR0600"), std::runtime_error);
      } else {
        EXPECT_NE(symbol("hipGetDevicePropertiesR0600"), nullptr);
      }
      EXPECT_EQ(call("hipInit", 0u), 0);
    });
  }
}

// Two drivers in one process know each other's memory and threads.
TEST(Hip, SharesItsProcessWithCuda) {
  hip_child([] {
    EXPECT_EQ(call("hipInit", 0u), 0);
    void* const cuda =
        dlopen((std::filesystem::path(BUILD_FOLDER) / "libcuda.so.1").c_str(), RTLD_NOW);
    ASSERT_NE(cuda, nullptr);
    const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(cuda, "cuInit"));
    const auto count_devices = reinterpret_cast<int (*)(int*)>(dlsym(cuda, "cuDeviceGetCount"));
    int count = 0;
    EXPECT_EQ(init(0), 0);
    EXPECT_EQ(count_devices(&count), 0);
    EXPECT_EQ(count, 1);
  });
}

}  // namespace
}  // namespace softgpu_test
