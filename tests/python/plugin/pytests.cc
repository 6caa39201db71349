// Ops that report the arguments that reached them, for the Python tests.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <complex>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "opdock/plugin.hpp"

namespace {

// If a test sets the variable, loading this library waits until that file exists. After 20 s it
// ends the process.
[[gnu::constructor]] void wait_for_file() {
  const char* path = std::getenv("PYTESTS_LOADS_AFTER");
  for (int i = 0; path != nullptr && access(path, F_OK) != 0; ++i) {
    if (i == 2000) _exit(9);
    usleep(10'000);
  }
}

// Copies element by element, by strides, from dimension `at` on.
void copy(const opdock::Tensor& to, const opdock::Tensor& from, int32_t at, char* out,
          const char* in) {
  const size_t bytes = (from.get()->dtype.bits * from.get()->dtype.lanes + 7u) / 8u;
  if (at == from.ndim()) {
    std::memcpy(out, in, bytes);
    return;
  }
  const int64_t size = static_cast<int64_t>(bytes);
  for (int64_t i = 0; i < from.shape()[at]; ++i) {
    copy(to, from, at + 1, out + i * to.strides()[at] * size, in + i * from.strides()[at] * size);
  }
}

void copy(const opdock::Tensor& to, const opdock::Tensor& from) {
  copy(to, from, 0, static_cast<char*>(to.raw()), static_cast<const char*>(from.raw()));
}

void copy_plan(opdock::Plan& plan, opdock::Tensor x) {
  plan.output(x.like());
}
void copy_run(opdock::Call&, opdock::Results out, opdock::Tensor x) {
  copy(out[0], x);
}

void two_plan(opdock::Plan& plan, opdock::Tensor x, opdock::Tensor y) {
  plan.output(x.like());
  plan.output(y.like());
}
void two_run(opdock::Call&, opdock::Results out, opdock::Tensor x, opdock::Tensor y) {
  copy(out[0], x);
  copy(out[2], y);
  *y.data<float>() += 1;
}

void add(const opdock::Tensor& x, int32_t at, float* data, float by) {
  if (at == x.ndim()) {
    *data += by;
    return;
  }
  for (int64_t i = 0; i < x.shape()[at]; ++i) add(x, at + 1, data + i * x.strides()[at], by);
}
void add_plan(opdock::Plan&, opdock::Tensor, double) {}
void add_run(opdock::Call&, opdock::Results, opdock::Tensor x, double by) {
  add(x, 0, x.data<float>(), static_cast<float>(by));
}

void chunks_plan(opdock::Plan&, opdock::Tensor) {}
void chunks_run(opdock::Call& call, opdock::Results, opdock::Tensor x) {
  float* const data = x.data<float>();
  call.parallel_for(x.numel(), 1, [data](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) data[i] += static_cast<float>(begin + 1);
  });
}

using Tensors = opdock::List<opdock::Tensor>;
using Ints = opdock::List<int64_t>;

void show_plan(opdock::Plan& plan, opdock::Tensor, int64_t, double, bool, std::complex<double>,
               std::string_view, std::optional<opdock::Dtype>, std::optional<opdock::Device>, Ints,
               std::optional<opdock::Tensor>, Tensors, std::optional<const opdock_generator*>) {
  plan.output(opdock::Layout(opdock::dtype_of<double>(), {16}));
}
void show_run(opdock::Call&, opdock::Results out, opdock::Tensor x, int64_t i, double f, bool b,
              std::complex<double> c, std::string_view s, std::optional<opdock::Dtype> d,
              std::optional<opdock::Device> device, Ints sizes, std::optional<opdock::Tensor> y,
              Tensors xs, std::optional<const opdock_generator*> g) {
  double* to = out[0].data<double>();
  const opdock_dtype dtype = d ? static_cast<opdock_dtype>(*d) : opdock_dtype{255, 0, 0};
  const opdock_device where = device ? static_cast<opdock_device>(*device) : opdock_device{-1, -1};
  double total = 0;
  for (size_t k = 0; k < sizes.size(); ++k) total = total * 10 + static_cast<double>(sizes[k]);
  double elements = 0;
  for (size_t k = 0; k < xs.size(); ++k) elements += static_cast<double>(xs[k].numel());
  const double shown[16] = {static_cast<double>(x.numel()),
                            static_cast<double>(i),
                            f,
                            b ? 1.0 : 0.0,
                            c.real(),
                            c.imag(),
                            static_cast<double>(s.size()),
                            static_cast<double>(dtype.code),
                            static_cast<double>(dtype.bits),
                            static_cast<double>(where.type),
                            static_cast<double>(where.index),
                            total,
                            y ? static_cast<double>(y->numel()) : -1.0,
                            elements,
                            g ? static_cast<double>((*g)->seed) : -1.0,
                            g ? static_cast<double>((*g)->offset) : -1.0};
  std::memcpy(to, shown, sizeof shown);
}

void fail_plan(opdock::Plan&, opdock::Tensor, int64_t status, std::string_view text) {
  throw opdock::Error(static_cast<opdock_status>(status), std::string(text));
}
void fail_run(opdock::Call&, opdock::Results, opdock::Tensor, int64_t, std::string_view) {}

std::mutex meeting;
std::condition_variable arrival;
int present = 0;
int met = 0;

void meet_plan(opdock::Plan& plan, opdock::Tensor, int64_t) {
  plan.output(opdock::Layout(opdock::dtype_of<double>(), {1}));
}
void meet_run(opdock::Call&, opdock::Results out, opdock::Tensor, int64_t milliseconds) {
  std::unique_lock lock(meeting);
  ++present;
  if (present == 2) met = 2;
  arrival.notify_all();
  arrival.wait_for(lock, std::chrono::milliseconds(milliseconds), [] { return met > 0; });
  *out[0].data<double>() = met > 0 ? 1 : 0;
  if (met > 0) --met;
  --present;
}

struct Box {
  static constexpr char kType[] = "py_box";
  static constexpr uint32_t kVersion = 3;
  inline static std::atomic<int> alive{0};
  int64_t number;
  explicit Box(int64_t value) : number(value) { ++alive; }
  ~Box() { --alive; }
};

void kinds_plan(opdock::Plan& plan, opdock::Tensor x, Ints sizes, bool some) {
  for (size_t i = 0; i < sizes.size(); ++i) plan.output({x.dtype(), {sizes[i]}});
  if (some) plan.output(x.like());
}
void kinds_run(opdock::Call& call, opdock::Results results, opdock::Tensor x, Ints sizes,
               bool some) {
  results.set(0, static_cast<int64_t>(sizes.size()));
  for (size_t i = 0; i < results.list(1).size(); ++i) {
    const opdock::Tensor piece = results.list(1)[i];
    std::memset(piece.raw(), 0, static_cast<size_t>(piece.numel()) * sizeof(float));
  }
  results.set(2, 0.5);
  if (results.optional(3)) copy(*results.optional(3), x);
  results.set(4, some);
  results.set(5, opdock::make_object<Box>(call.device(), x.numel()));
}

void count_plan(opdock::Plan&, opdock::Tensor) {}
void count_run(opdock::Call&, opdock::Results results, opdock::Tensor x) {
  results.set(0, x.numel());
}

void boxes_plan(opdock::Plan&) {}
void boxes_run(opdock::Call&, opdock::Results results) {
  results.set(0, int64_t{Box::alive});
}

using Boxed = opdock::Object<Box>;
void look_plan(opdock::Plan&, Boxed, opdock::List<Boxed>) {}
void look_run(opdock::Call&, opdock::Results results, Boxed box, opdock::List<Boxed> more) {
  int64_t sum = box->number;
  for (size_t i = 0; i < more.size(); ++i) sum += more[i]->number;
  results.set(0, sum);
}

struct Kept {
  static constexpr char kType[] = "py_kept";
  static constexpr uint32_t kVersion = 1;
  std::vector<opdock::Retained> arguments;
  Kept() = default;
  ~Kept() {
    std::thread([this] { arguments.clear(); }).join();
  }
};

void keep_plan(opdock::Plan&, opdock::Tensor, Tensors) {}
void keep_run(opdock::Call& call, opdock::Results results, opdock::Tensor x, Tensors xs) {
  opdock::Object<Kept> kept = opdock::make_object<Kept>(call.device());
  kept->arguments.push_back(call.retain(x));
  for (size_t i = 0; i < xs.size(); ++i) kept->arguments.push_back(call.retain(xs[i]));
  results.set(0, std::move(kept));
}

using Generator = std::optional<const opdock_generator*>;
void draw(const opdock::Call& call, int64_t* to) {
  const opdock_generator& from = *call.generator();
  to[0] = static_cast<int64_t>(from.seed >> 32);
  to[1] = static_cast<int64_t>(from.seed & 0xffffffff);
  to[2] = static_cast<int64_t>(from.offset >> 32);
  to[3] = static_cast<int64_t>(from.offset & 0xffffffff);
}
void draw_plan(opdock::Plan& plan, opdock::Tensor, int64_t count, Generator) {
  plan.output({opdock::dtype_of<int64_t>(), {4}});
  plan.random_numbers(static_cast<uint64_t>(count));
}
void draw_run(opdock::Call& call, opdock::Results results, opdock::Tensor, int64_t, Generator) {
  draw(call, results[0].data<int64_t>());
}
void draw_in_place_plan(opdock::Plan& plan, opdock::Tensor, int64_t count) {
  plan.random_numbers(static_cast<uint64_t>(count));
}
void draw_in_place_run(opdock::Call& call, opdock::Results, opdock::Tensor x, int64_t) {
  draw(call, x.data<int64_t>());
}

}  // namespace

OPDOCK_OP(py_kinds, kinds_plan, nullptr, kinds_run)
OPDOCK_OP(py_count, count_plan, nullptr, count_run)
OPDOCK_OP(py_boxes, boxes_plan, nullptr, boxes_run)
OPDOCK_OP(py_look, look_plan, nullptr, look_run)
OPDOCK_OP(py_keep, keep_plan, nullptr, keep_run)
OPDOCK_OP(py_draw, draw_plan, nullptr, draw_run)
OPDOCK_OP(py_draw_, draw_in_place_plan, nullptr, draw_in_place_run)
OPDOCK_OP(py_copy, copy_plan, nullptr, copy_run)
OPDOCK_OP(py_two, two_plan, nullptr, two_run)
OPDOCK_OP(py_add_, add_plan, nullptr, add_run)
OPDOCK_OP(py_chunks_, chunks_plan, nullptr, chunks_run)
OPDOCK_OP(py_show, show_plan, nullptr, show_run)
OPDOCK_OP(py_fail, fail_plan, nullptr, fail_run)
OPDOCK_OP(py_meet, meet_plan, nullptr, meet_run)
