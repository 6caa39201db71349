// opdock-probe initialises the CUDA driver in a process of its own and prints what it finds as one
// JSON object: {"cuda": 13000, "devices": [{"name", "uuid", "major", "minor", "memory"}],
// "problem"}. The only argument is the driver library to open.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <signal.h>
#include <sys/prctl.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

namespace {

using nlohmann::json;

struct Uuid {
  unsigned char bytes[16];
};

// The driver's C interface as in its reference manual; the header is not needed.
struct Cuda {
  int (*init)(unsigned) = nullptr;
  int (*driver_version)(int*) = nullptr;
  int (*error_name)(int, const char**) = nullptr;
  int (*count)(int*) = nullptr;
  int (*device)(int*, int) = nullptr;
  int (*name)(char*, int, int) = nullptr;
  int (*uuid)(Uuid*, int) = nullptr;
  int (*attribute)(int*, int, int) = nullptr;
  int (*memory)(size_t*, int) = nullptr;
};
constexpr int kComputeCapabilityMajor = 75;
constexpr int kComputeCapabilityMinor = 76;

template <typename F>
bool find(void* library, const char* name, F** out) {
  *out = reinterpret_cast<F*>(dlsym(library, name));
  return *out != nullptr;
}

bool bind(void* library, Cuda* cuda) {
  return find(library, "cuInit", &cuda->init) &&
         find(library, "cuDriverGetVersion", &cuda->driver_version) &&
         find(library, "cuGetErrorName", &cuda->error_name) &&
         find(library, "cuDeviceGetCount", &cuda->count) &&
         find(library, "cuDeviceGet", &cuda->device) &&
         find(library, "cuDeviceGetName", &cuda->name) &&
         (find(library, "cuDeviceGetUuid_v2", &cuda->uuid) ||
          find(library, "cuDeviceGetUuid", &cuda->uuid)) &&
         find(library, "cuDeviceGetAttribute", &cuda->attribute) &&
         find(library, "cuDeviceTotalMem_v2", &cuda->memory);
}

std::string text_of(const Uuid& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char hex[3];
    std::snprintf(hex, sizeof hex, "%02x", uuid.bytes[i]);
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += hex;
  }
  return text;
}

std::string error_text(const Cuda& cuda, const char* call, int status) {
  const char* name = nullptr;
  if (cuda.error_name(status, &name) != 0 || !name) name = "unknown error";
  return std::string(call) + ": " + name;
}

json describe(const Cuda& cuda, int ordinal) {
  int device = 0, major = 0, minor = 0;
  char name[256] = {};
  Uuid uuid{};
  size_t memory = 0;
  cuda.device(&device, ordinal);
  cuda.name(name, sizeof name, device);
  cuda.uuid(&uuid, device);
  cuda.attribute(&major, kComputeCapabilityMajor, device);
  cuda.attribute(&minor, kComputeCapabilityMinor, device);
  cuda.memory(&memory, device);
  return {{"name", name},
          {"uuid", text_of(uuid)},
          {"major", major},
          {"minor", minor},
          {"memory", memory}};
}

json ask(const char* library) {
  json answer = {{"devices", json::array()}};
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  Cuda cuda;
  if (!handle || !bind(handle, &cuda)) {
    answer["problem"] = std::string(library) + (handle ? " lacks functions" : " cannot be opened");
    return answer;
  }
  int version = 0;
  if (cuda.driver_version(&version) == 0 && version > 0) answer["cuda"] = version;
  if (const int status = cuda.init(0); status != 0) {
    answer["problem"] = error_text(cuda, "cuInit", status);
    return answer;
  }
  int count = 0;
  if (const int status = cuda.count(&count); status != 0) {
    answer["problem"] = error_text(cuda, "cuDeviceGetCount", status);
  }
  for (int i = 0; i < count; ++i) answer["devices"].push_back(describe(cuda, i));
  return answer;
}

}  // namespace

int main(int argc, char** argv) {
  // This process must die with its parent even if the driver hangs: a Ctrl-C in the terminal does
  // not reach it.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const json answer = ask(argc > 1 ? argv[1] : "libcuda.so.1");
  const std::string text =
      answer.dump(-1, ' ', false, json::error_handler_t::replace);  // a name may not be valid UTF-8
  std::fwrite(text.data(), 1, text.size(), stdout);
  return std::fflush(stdout) == 0 ? 0 : 1;
}
