// Implements copy_to_device and copy_to_host: checks their arguments, then copies and converts
// between host memory and a GPU, or within host memory.
// SPDX-License-Identifier: Apache-2.0
#include <deque>
#include <opdock/kernel_names.hpp>

#include "convert_cpu.h"
#include "elements.h"
#include "staging.h"

namespace convert_copy {
namespace {

using opdock::Call;
using opdock::check;
using opdock::Dtype;
using opdock::dtype_of;
using opdock::Plan;
using opdock::Results;
using opdock::Tensor;

using Types = opdock::KernelTypes<bool, uint8_t, int32_t, int64_t, opdock::half, opdock::bfloat16,
                                  float, double>;
constexpr auto kConvert = OPDOCK_KERNEL_FAMILY("convert_copy::convert", Types, Types);
constexpr int64_t kThreads = 256;

// kBlock elements fit into the caches of a CPU thread; kGrain elements are worth waking a thread
// for.
constexpr int64_t kBlock = 1024;
constexpr int64_t kGrain = 32 * kBlock;

// Types lists the types in Element's order.
Element element_of(Dtype dtype) {
  return static_cast<Element>(Types::find(dtype));
}

// ----------------------------------------------------------------------------------- the plan

void check_element(Tensor tensor, const char* name) {
  check(tensor, name)
      .dtype(dtype_of<float>(), dtype_of<opdock::half>(), dtype_of<opdock::bfloat16>(),
             dtype_of<double>(), dtype_of<int32_t>(), dtype_of<int64_t>(), dtype_of<uint8_t>(),
             dtype_of<bool>())
      .aligned();
}

// The smaller of the two dtypes goes over the bus.
bool converts_on_gpu(Tensor on_gpu, Tensor on_host) {
  return on_host.dtype().bytes() < on_gpu.dtype().bytes();
}

void check_copy(Tensor dst, Tensor src) {
  check_element(dst, "dst");
  check_element(src, "src");
  check(dst, "dst").same_shape_as(src, "src");
}

// Plans room on the GPU for the elements that are sent at once, where the GPU converts them.
void plan_workspace(Plan& plan, Tensor on_gpu, Tensor on_host) {
  if (on_gpu.is_empty() || !converts_on_gpu(on_gpu, on_host)) return;
  const int64_t bytes = on_host.dtype().bytes();
  plan.workspace(static_cast<uint64_t>(std::min(on_gpu.numel(), kBufferBytes / bytes) * bytes));
}

void plan_to_device(Plan& plan, Tensor dst, Tensor src) {
  check_copy(dst, src);
  if (plan.is_cpu()) return;
  check(dst, "dst").contiguous();
  plan_workspace(plan, dst, src);
}
void plan_to_host(Plan& plan, Tensor dst, Tensor src) {
  check_copy(dst, src);
  if (plan.is_cpu()) return;
  check(src, "src").contiguous();
  plan_workspace(plan, src, dst);
}

// ----------------------------------------------------------------------------- in host memory

using Kernel = void (*)(Element, const void*, Element, void*, int64_t);

// A range of elements to read or write, in host memory.
struct Part {
  const Elements& elements;
  Dtype dtype;
  int64_t begin;  // index of the first element
};

void convert_part(Kernel kernel, const Part& from, const Part& to, int64_t begin, int64_t end) {
  alignas(64) char gathered[kBlock * 8], scattered[kBlock * 8];
  const Element from_type = element_of(from.dtype), to_type = element_of(to.dtype);
  Cursor source(from.elements, from.begin + begin), target(to.elements, to.begin + begin);
  for (int64_t i = begin; i < end; i += kBlock) {
    const int64_t count = std::min(kBlock, end - i);
    const void* in = source.direct(count);
    if (in == nullptr) {
      source.gather(count, gathered);
      in = gathered;
    }
    void* const direct = target.direct(count);
    void* const out = direct == nullptr ? scattered : direct;
    if (from_type == to_type) {
      std::memcpy(out, in, static_cast<size_t>(count * from.elements.bytes()));
    } else {
      kernel(from_type, in, to_type, out, count);
    }
    if (direct == nullptr) target.scatter(count, scattered);
  }
}

// Copies and converts `count` elements on the host's threads.
void convert_on_host(Call& call, const Part& from, const Part& to, int64_t count) {
  static const Kernel kernel = OPDOCK_SIMD_CHOOSE(convert);
  call.parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
    convert_part(kernel, from, to, begin, end);
  });
}

void copy_on_cpu(Call& call, Tensor dst, Tensor src) {
  const Elements from(src), to(dst);
  convert_on_host(call, {from, src.dtype(), 0}, {to, dst.dtype(), 0}, src.numel());
}

// -------------------------------------------------------------------------------- with a GPU

// A copy between a tensor on the GPU and one in host memory, in stretches that fit into a buffer.
class Transfer {
 public:
  Transfer(Call& call, Tensor on_gpu, Tensor on_host)
      : call_(call),
        on_gpu_(on_gpu),
        on_host_(on_host),
        elements_(on_host),
        converts_on_gpu_(convert_copy::converts_on_gpu(on_gpu, on_host)),
        sent_(converts_on_gpu_ ? on_host.dtype() : on_gpu.dtype()),
        stretch_(kBufferBytes / sent_.bytes()),
        staging_(call) {}

  // The host's tensor has been read completely when this returns.
  void to_device() {
    for (int64_t begin = 0; begin < on_gpu_.numel(); begin += stretch_) {
      const int64_t count = count_from(begin);
      Buffer buffer = staging_.take();
      const Elements staged(buffer.memory(), count, sent_.bytes());
      convert_on_host(call_, {elements_, on_host_.dtype(), begin}, {staged, sent_, 0}, count);
      buffer.to_device(sent_at(begin), count * sent_.bytes());
      if (converts_on_gpu_) launch(on_host_, sent_at(begin), on_gpu_, gpu_at(begin), count);
    }
  }

  // Fetches one stretch while the host converts the previous one. Waits for all of them.
  void to_host() {
    struct Flight {
      Buffer buffer;
      int64_t begin;
    };
    std::deque<Flight> flights;
    for (int64_t next = 0; next < on_gpu_.numel() || !flights.empty();) {
      if (next < on_gpu_.numel() && flights.size() < 2) {
        std::optional<Buffer> buffer = take_for(flights.empty());
        if (buffer) {
          const int64_t count = count_from(next);
          if (converts_on_gpu_) launch(on_gpu_, gpu_at(next), on_host_, sent_at(next), count);
          buffer->from_device(sent_at(next), count * sent_.bytes());
          flights.push_back({std::move(*buffer), next});
          next += count;
          continue;
        }
      }
      Flight& first = flights.front();
      first.buffer.wait();
      const int64_t count = count_from(first.begin);
      const Elements staged(first.buffer.memory(), count, sent_.bytes());
      convert_on_host(call_, {staged, sent_, 0}, {elements_, on_host_.dtype(), first.begin}, count);
      flights.pop_front();
    }
  }

 private:
  // Waits for a buffer only when this transfer holds none: two transfers that each hold a buffer
  // and wait for another could deadlock.
  std::optional<Buffer> take_for(bool may_wait) {
    if (may_wait) return staging_.take();
    return staging_.try_take();
  }
  int64_t count_from(int64_t begin) const { return std::min(stretch_, on_gpu_.numel() - begin); }
  void* gpu_at(int64_t begin) const {
    return static_cast<char*>(on_gpu_.raw()) + begin * on_gpu_.dtype().bytes();
  }
  // Address on the GPU of the data as sent. The workspace has room for one stretch only, because
  // the stream handles one after the other.
  void* sent_at(int64_t begin) const {
    return converts_on_gpu_ ? call_.workspace() : gpu_at(begin);
  }
  void launch(Tensor from, const void* in, Tensor to, void* out, int64_t count) {
    const int64_t most = int64_t{call_.facts().multiprocessors} * 16;
    const int64_t blocks = std::min((count + kThreads - 1) / kThreads, std::max<int64_t>(most, 1));
    call_.launch(kConvert(from.dtype(), to.dtype()), {blocks, kThreads}, in, out, count);
  }

  Call& call_;
  const Tensor on_gpu_, on_host_;
  const Elements elements_;  // the host tensor's elements
  const bool converts_on_gpu_;
  const Dtype sent_;       // dtype that goes over the bus
  const int64_t stretch_;  // number of elements of sent_ that a buffer holds
  Staging staging_;
};

void run_to_device(Call& call, Results, Tensor dst, Tensor src) {
  if (src.is_empty()) return;
  if (call.is_cpu()) return copy_on_cpu(call, dst, src);
  Transfer(call, dst, src).to_device();
}

void run_to_host(Call& call, Results, Tensor dst, Tensor src) {
  if (src.is_empty()) return;
  if (call.is_cpu()) return copy_on_cpu(call, dst, src);
  Transfer(call, src, dst).to_host();
}

}  // namespace
}  // namespace convert_copy

OPDOCK_OP(copy_to_device, convert_copy::plan_to_device, nullptr, convert_copy::run_to_device)
OPDOCK_OP(copy_to_host, convert_copy::plan_to_host, nullptr, convert_copy::run_to_host)
