// opdock/stream_context.hpp: for plugins that launch kernels with <<<…>>> instead of Call::launch.
// C++17, header-only; needs no CUDA header.
// SPDX-License-Identifier: Apache-2.0
#ifndef OPDOCK_STREAM_CONTEXT_HPP_
#define OPDOCK_STREAM_CONTEXT_HPP_

#include "opdock/plugin.hpp"

namespace opdock {

// Makes the context of the call's stream current during its lifetime. <<<…>>> launches into the
// current context, and by OPDOCK-H-3 that may be the device's primary context although the stream
// belongs to another one. Does nothing where the two are the same, on the default stream, on ROCm
// (whose streams belong to a device), and without a driver. Two quick driver calls; does not wait,
// does not allocate, and is allowed while capturing. Must not outlive the call.
class StreamContext {
 public:
  explicit StreamContext(const Call& call) {
    if (!call.is_cuda() || call.stream() == nullptr) return;
    const Functions& driver = functions(call);
    void *wanted = nullptr, *current = nullptr;
    if (driver.pop == nullptr || driver.of_stream(call.stream(), &wanted) != 0 ||
        driver.current(&current) != 0 || wanted == current || driver.push(wanted) != 0) {
      return;
    }
    pop_ = driver.pop;
  }
  ~StreamContext() {
    void* popped = nullptr;
    if (pop_ != nullptr) pop_(&popped);
  }
  StreamContext(const StreamContext&) = delete;
  StreamContext& operator=(const StreamContext&) = delete;

 private:
  struct Functions {  // all are set, or none
    int (*of_stream)(void* stream, void** context) = nullptr;
    int (*current)(void** context) = nullptr;
    int (*push)(void* context) = nullptr;
    int (*pop)(void** context) = nullptr;
  };
  // The driver stays loaded until the process ends, so its functions are looked up once.
  static const Functions& functions(const Call& call) {
    static const Functions found = [&] {
      Functions all;
      all.of_stream = call.driver_symbol<decltype(all.of_stream)>("cuStreamGetCtx");
      all.current = call.driver_symbol<decltype(all.current)>("cuCtxGetCurrent");
      all.push = call.driver_symbol<decltype(all.push)>("cuCtxPushCurrent");
      all.pop = call.driver_symbol<decltype(all.pop)>("cuCtxPopCurrent");
      const bool complete = all.of_stream && all.current && all.push && all.pop;
      return complete ? all : Functions{};
    }();
    return found;
  }

  int (*pop_)(void** context) = nullptr;
};

}  // namespace opdock
#endif  // OPDOCK_STREAM_CONTEXT_HPP_
