// SPDX-License-Identifier: Apache-2.0
#include "harness.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>
#include <thread>

#include "gemm.h"
#include "opdock/parallel.h"
#include "opdock/retain.h"
#include "opdock/tuning.h"
#include "opdock/types.hpp"
#include "recorded_attention.h"

namespace opdock_test {

namespace {

struct Format {  // a binary floating-point type
  int digits;    // digits of the significand, including the leading 1
  int least;     // exponent of the smallest normal number
  int most;      // exponent of the largest number
  int bytes;
};

Format format_of(Type type) {
  switch (type) {
    case Type::kFloat16:
      return {11, -14, 15, 2};
    case Type::kBFloat16:
      return {8, -126, 127, 2};
    case Type::kFloat64:
    case Type::kInt64:  // whose larger numbers no test needs
      return {53, -1022, 1023, 8};
    case Type::kBool:
    case Type::kInt8:
    case Type::kUint8:
      return {1, 0, 0, 1};
    default:
      return {24, -126, 127, 4};
  }
}

uint16_t encode(Type type, double value) {
  const Format format = format_of(type);
  const int fraction_bits = format.digits - 1;
  const int exponent_bits = 15 - fraction_bits;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const unsigned top = (1u << exponent_bits) - 1;
  if (std::isnan(value)) return static_cast<uint16_t>((top << fraction_bits) | 1u);
  value = std::fabs(round_to(type, value));
  if (std::isinf(value)) return static_cast<uint16_t>(sign | (top << fraction_bits));
  if (value == 0) return sign;
  const int exponent = std::max(std::ilogb(value), format.least);
  const auto significand = static_cast<unsigned>(std::ldexp(value, fraction_bits - exponent));
  // A normal number's leading 1 carries into the exponent field.
  const unsigned biased = static_cast<unsigned>(exponent - format.least);
  return static_cast<uint16_t>(sign | ((biased << fraction_bits) + significand));
}

double decode(Type type, uint16_t bits) {
  const Format format = format_of(type);
  const int fraction_bits = format.digits - 1;
  const unsigned top = (1u << (15 - fraction_bits)) - 1;
  const unsigned exponent = (bits & 0x7fffu) >> fraction_bits;
  const unsigned fraction = bits & ((1u << fraction_bits) - 1);
  double value;
  if (exponent == top)
    value = fraction ? NAN : INFINITY;
  else if (exponent == 0)
    value = std::ldexp(fraction, format.least - fraction_bits);
  else
    value = std::ldexp(fraction + (1u << fraction_bits),
                       static_cast<int>(exponent) - 1 + format.least - fraction_bits);
  return bits & 0x8000 ? -value : value;
}

void log(const opdock_call*, int32_t, const char* text) {
  std::fprintf(stderr, "%s\n", text);
}
opdock_status set_error(const opdock_call* call, opdock_status status, const char* text) {
  std::snprintf(call->error, call->error_size, "%s", text);
  return status;
}
// Collects the names of host functions that plan calls; set only while plan runs.
Reach* reached = nullptr;

// The plugin whose op is being called.
const opdock_plugin* of_calls = nullptr;

// A kernel's handle is its name; launches are appended to the vector in call->host_data.
opdock_status kernel(const opdock_call*, uint32_t index, opdock_kernel** out) {
  if (reached != nullptr) reached->push_back("kernel");
  if (index >= of_calls->num_kernels) return OPDOCK_NOT_FOUND;
  *out = reinterpret_cast<opdock_kernel*>(const_cast<char*>(of_calls->kernels[index]));
  return OPDOCK_OK;
}
opdock_status launch(const opdock_call* call, opdock_kernel* kernel, const opdock_launch* how) {
  if (reached != nullptr) reached->push_back("launch");
  if (call->host_data == nullptr) return OPDOCK_INTERNAL;
  static_cast<std::vector<Launch>*>(call->host_data)
      ->push_back({reinterpret_cast<const char*>(kernel), *how, call->stream});
  return OPDOCK_OK;
}
// Runs two threads, each on every other block of `grain` items.
void parallel_for(const opdock_call*, uint64_t count, uint64_t grain,
                  void (*body)(void*, uint64_t, uint64_t), void* context) {
  auto work = [=](uint64_t first) {
    for (uint64_t begin = first * grain; begin < count; begin += 2 * grain)
      body(context, begin, std::min(begin + grain, count));
  };
  std::thread other(work, 1);
  work(0);
  other.join();
}
// Does nothing, because a test's arguments outlive the call.
opdock_status retain(const opdock_call*, const opdock_tensor*, opdock_retained** out) {
  *out = reinterpret_cast<opdock_retained*>(out);
  return OPDOCK_OK;
}
void release(opdock_retained*) {}
// The only live Answer, or NULL.
Answer* answer = nullptr;

int32_t choice(const opdock_call*, uint64_t question, uint32_t count) {
  if (answer == nullptr) return -1;
  answer->asked.emplace_back(question, count);
  return answer->way;
}
const void* get_extension(const char* id) {
  static const opdock_parallel parallel = {sizeof(opdock_parallel), 0, parallel_for};
  static const opdock_retain retains = {sizeof(opdock_retain), 0, retain, release};
  static const opdock_tuning tuning = {sizeof(opdock_tuning), 0, choice};
  if (std::strcmp(id, OPDOCK_RETAIN_1) == 0) return &retains;
  if (std::strcmp(id, OPDOCK_TUNING_1) == 0) return &tuning;
  if (std::strcmp(id, OPDOCK_GEMM_1) == 0) return plain_gemm();
  if (std::strcmp(id, OPDOCK_ATTENTION_1) == 0) return recorded_attention();
  return std::strcmp(id, OPDOCK_PARALLEL_2) == 0 ? &parallel : nullptr;
}

const opdock_host kHost = {
    sizeof(opdock_host), OPDOCK_ABI_MAJOR, OPDOCK_ABI_MINOR, 0,       "0.1.0", log,
    set_error,           kernel,           launch,           nullptr, nullptr, get_extension};

opdock_call make_call(char* error, uint32_t size, int32_t device) {
  static const opdock_device_facts facts = [] {
    opdock_device_facts cpu = {};
    cpu.struct_size = sizeof(cpu);
    cpu.type = OPDOCK_CPU;
    cpu.warp_size = 1;
    cpu.multiprocessors = 2;
    return cpu;
  }();
  opdock_call call = {};
  call.struct_size = sizeof(call);
  call.host = &kHost;
  call.device = {device, 0};
  call.facts = &facts;
  call.error = error;
  call.error_size = size;
  return call;
}

}  // namespace

Answer::Answer(int32_t way) : way(way) {
  answer = this;
}
Answer::~Answer() {
  answer = nullptr;
}

opdock_dtype dtype_of(Type type) {
  switch (type) {
    case Type::kFloat16:
      return {OPDOCK_DTYPE_FLOAT, 16, 1};
    case Type::kBFloat16:
      return {OPDOCK_DTYPE_BFLOAT, 16, 1};
    case Type::kFloat64:
      return {OPDOCK_DTYPE_FLOAT, 64, 1};
    case Type::kInt32:
      return {OPDOCK_DTYPE_INT, 32, 1};
    case Type::kBool:
      return {OPDOCK_DTYPE_BOOL, 8, 1};
    case Type::kInt8:
      return {OPDOCK_DTYPE_INT, 8, 1};
    case Type::kUint8:
      return {OPDOCK_DTYPE_UINT, 8, 1};
    case Type::kInt64:
      return {OPDOCK_DTYPE_INT, 64, 1};
    default:
      return {OPDOCK_DTYPE_FLOAT, 32, 1};
  }
}

std::string name_of(Type type) {
  const char* names[] = {"float32", "float16", "bfloat16", "float64", "int32",
                         "bool",    "int8",    "uint8",    "int64"};
  return names[static_cast<int>(type)];
}

double half_ulp(Type type) {
  if (format_of(type).bytes == 1) return 0;
  return std::ldexp(1.0, -format_of(type).digits);
}

double half_smallest(Type type) {
  const Format format = format_of(type);
  return std::ldexp(1.0, format.least - format.digits);
}

double round_to(Type type, double value) {
  const Format format = format_of(type);
  if (value == 0 || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value), format.least);
  const int last = exponent - format.digits + 1;  // exponent of the last place
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -last)), last);
  return std::fabs(rounded) >= std::ldexp(2.0, format.most) ? std::copysign(INFINITY, value)
                                                            : rounded;
}

double read_number(Type type, const void* from) {
  if (type == Type::kFloat32) {
    float value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  if (type == Type::kFloat64) {
    double value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  if (type == Type::kInt32) {
    int32_t value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  if (type == Type::kInt64) {
    int64_t value;
    std::memcpy(&value, from, sizeof value);
    return static_cast<double>(value);
  }
  if (type == Type::kBool || type == Type::kUint8) return *static_cast<const unsigned char*>(from);
  if (type == Type::kInt8) return *static_cast<const signed char*>(from);
  uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return decode(type, bits);
}

void write_number(Type type, double value, void* to) {
  const float single = static_cast<float>(value);
  const uint16_t bits = format_of(type).bytes == 2 ? encode(type, value) : uint16_t{0};
  const int32_t whole = type == Type::kInt32 ? static_cast<int32_t>(value) : 0;
  const int64_t wide = type == Type::kInt64 ? static_cast<int64_t>(value) : 0;
  if (type == Type::kInt32)
    std::memcpy(to, &whole, sizeof whole);
  else if (type == Type::kInt64)
    std::memcpy(to, &wide, sizeof wide);
  else if (type == Type::kFloat32)
    std::memcpy(to, &single, sizeof single);
  else if (type == Type::kFloat64)
    std::memcpy(to, &value, sizeof value);
  else if (type == Type::kBool)
    *static_cast<unsigned char*>(to) = value > 0;
  else if (type == Type::kInt8)
    *static_cast<signed char*>(to) = static_cast<signed char>(value);
  else if (type == Type::kUint8)
    *static_cast<unsigned char*>(to) = static_cast<unsigned char>(static_cast<int>(value) & 0xff);
  else
    std::memcpy(to, &bits, sizeof bits);
}

Array::Array(Type type, std::vector<int64_t> shape, std::vector<int64_t> strides, int64_t offset)
    : type_(type), shape_(std::move(shape)), strides_(std::move(strides)), offset_(offset) {
  if (strides_.empty()) {
    strides_.resize(shape_.size());
    int64_t stride = 1;
    for (size_t i = shape_.size(); i-- > 0; stride *= std::max<int64_t>(shape_[i], 1))
      strides_[i] = stride;
  }
  int64_t last = offset_;
  for (size_t i = 0; i < shape_.size(); ++i)
    if (shape_[i] > 0 && strides_[i] > 0) last += (shape_[i] - 1) * strides_[i];
  const int64_t bytes = format_of(type_).bytes;
  memory_.assign(static_cast<size_t>((last + 1) * bytes + 16), 0xa5);
  tensor_ = {};
  tensor_.data = numel() == 0 ? nullptr : memory_.data();
  tensor_.device = {OPDOCK_CPU, 0};
  tensor_.ndim = static_cast<int32_t>(shape_.size());
  tensor_.dtype = dtype_of(type_);
  tensor_.shape = shape_.data();
  tensor_.strides = strides_.data();
  tensor_.byte_offset = static_cast<uint64_t>(offset_ * bytes);
}

int64_t Array::numel() const {
  int64_t count = 1;
  for (int64_t size : shape_) count *= size;
  return count;
}

int64_t Array::position(int64_t index) const {
  int64_t at = offset_;
  for (size_t i = shape_.size(); i-- > 0; index /= shape_[i]) at += index % shape_[i] * strides_[i];
  return at * format_of(type_).bytes;
}

double Array::get(int64_t index) const {
  return read_number(type_, memory_.data() + position(index));
}

void Array::set(int64_t index, double value) {
  write_number(type_, value, memory_.data() + position(index));
}

void Array::fill(uint64_t seed, double deviation, double mean) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < numel(); ++i) set(i, mean + deviation * normal(random));
}

int64_t Array::gaps_changed() const {
  std::vector<bool> used(memory_.size());
  for (int64_t i = 0; i < numel(); ++i)
    for (int64_t byte = 0; byte < format_of(type_).bytes; ++byte)
      used[static_cast<size_t>(position(i) + byte)] = true;
  int64_t changed = 0;
  for (size_t i = 0; i < memory_.size(); ++i) changed += !used[i] && memory_[i] != 0xa5;
  return changed;
}

int64_t Array::unwritten() const {
  int64_t count = 0;
  for (int64_t i = 0; i < numel(); ++i) {
    const unsigned char* const from = memory_.data() + position(i);
    count += std::count(from, from + format_of(type_).bytes, 0xa5) == format_of(type_).bytes;
  }
  return count;
}

opdock_value Array::value(uint32_t flags) const {
  opdock_value value = {};
  value.tag = OPDOCK_TAG_TENSOR;
  value.flags = flags;
  value.as.tensor = &tensor_;
  return value;
}

opdock_value none() {
  return {};
}
opdock_value number(double value) {
  opdock_value out = {};
  out.tag = OPDOCK_TAG_FLOAT;
  out.as.f64 = value;
  return out;
}
opdock_value boolean(bool value) {
  opdock_value out = {};
  out.tag = OPDOCK_TAG_BOOL;
  out.as.i64 = value;
  return out;
}
opdock_value integer(int64_t value) {
  opdock_value out = {};
  out.tag = OPDOCK_TAG_INT;
  out.as.i64 = value;
  return out;
}
opdock_value text_value(const opdock_string* text) {
  opdock_value out = {};
  out.tag = OPDOCK_TAG_STRING;
  out.as.str = text;
  return out;
}
opdock_value list_value(const opdock_list* list) {
  opdock_value out = {};
  out.tag = OPDOCK_TAG_LIST;
  out.as.list = list;
  return out;
}

Op::Op(const std::string& plugin, const std::string& name) {
  const std::string path = std::string(OPDOCK_TEST_PLUGINS) + "/" + plugin + ".so";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::abort();
  }
  using Entry = const opdock_plugin* (*)();
  plugin_ = reinterpret_cast<Entry>(dlsym(library, OPDOCK_ENTRY_NAME))();
  for (uint32_t i = 0; i < plugin_->num_ops; ++i)
    if (std::string(plugin_->ops[i]->schema).starts_with(name + "(")) op_ = plugin_->ops[i];
  if (!op_) std::abort();
  host_ = host_of(op_);
}

bool Op::returns_list() const {
  return std::string_view(op_->schema).ends_with("-> Tensor[]");
}

bool Op::returns_value() const {
  const std::string_view schema = op_->schema;
  return schema.ends_with("-> int") || schema.find("-> Object(") != schema.npos;
}

Result Op::plan(const std::vector<opdock_value>& args, int32_t device, Reach* reach, size_t outputs,
                const opdock_device_facts* facts) const {
  char error[1024] = "";
  opdock_call call = make_call(error, sizeof error, device);
  if (facts) call.facts = facts;
  Result result;
  result.planned.resize(returns_list() ? outputs : op_->num_shape_rules);
  opdock_plan plan = {};
  plan.struct_size = sizeof plan;
  plan.num_outputs = static_cast<uint32_t>(result.planned.size());
  plan.outputs = result.planned.data();
  of_calls = plugin_;
  check_arguments(args, &result);
  if (result.status != OPDOCK_OK) return result;
  reached = reach;
  result.status = op_->plan(&call, args.data(), static_cast<uint32_t>(args.size()), &plan);
  reached = nullptr;
  result.text = error;
  result.random_numbers = plan.random_numbers;
  result.workspace_bytes = plan.workspace_bytes;
  std::memcpy(result.state, plan.state, sizeof result.state);
  return result;
}

template <class Change>
void Op::run(const std::vector<opdock_value>& args, const std::vector<Array*>& outputs,
             int32_t device, const Change& change, Result* result) const {
  check_outputs(args, outputs, result);
  if (result->status != OPDOCK_OK) return;
  char error[1024] = "";
  const opdock_generator generator = {sizeof generator, 0, 1, 3, nullptr};
  opdock_call call = make_call(error, sizeof error, device);
  call.generator = result->random_numbers != 0 ? &generator : nullptr;
  // Filled with a pattern instead of zeros, which a plugin might rely on.
  std::vector<unsigned char> workspace(static_cast<size_t>(result->workspace_bytes) + 256, 0xa5);
  const uintptr_t memory = reinterpret_cast<uintptr_t>(workspace.data());
  if (result->workspace_bytes != 0) {
    call.workspace = reinterpret_cast<void*>((memory + 255) & ~uintptr_t{255});
    call.workspace_bytes = result->workspace_bytes;
  }
  alignas(8) unsigned char state[sizeof result->state];
  std::memcpy(state, result->state, sizeof state);
  call.state = state;
  change(&call);
  std::vector<opdock_value> results;
  for (Array* output : outputs) results.push_back(output->value());
  const std::vector<opdock_value> pieces = results;
  const opdock_list list = {pieces.data(), pieces.size()};
  if (returns_list()) results = {list_value(&list)};
  if (returns_value()) results.resize(1);
  of_calls = plugin_;
  result->status = op_->run(&call, args.data(), static_cast<uint32_t>(args.size()), results.data(),
                            static_cast<uint32_t>(results.size()));
  result->text = error;
  if (returns_value()) result->value = results[0];
}

Result Op::call(const std::vector<opdock_value>& args, const std::vector<Array*>& outputs) const {
  Result result = plan(args, OPDOCK_CPU, nullptr, outputs.size());
  if (result.status == OPDOCK_OK) run(args, outputs, OPDOCK_CPU, [](opdock_call*) {}, &result);
  return result;
}

Result Op::record(const std::vector<opdock_value>& args, const std::vector<Array*>& outputs,
                  const RecordedGpu& gpu, std::vector<Launch>* launches, void* stream) const {
  opdock_device_facts facts = {};
  facts.struct_size = sizeof facts;
  facts.type = gpu.type;
  facts.arch_major = gpu.arch_major;
  facts.warp_size = gpu.warp_size;
  facts.multiprocessors = gpu.multiprocessors;
  facts.memory_bytes = gpu.memory_bytes;
  facts.max_shared_bytes = gpu.max_shared_bytes;
  Result result = plan(args, gpu.type, nullptr, outputs.size(), &facts);
  auto on_gpu = [&](opdock_call* call) {
    call->facts = &facts;
    call->host_data = launches;
    call->stream = stream;
  };
  if (result.status == OPDOCK_OK) run(args, outputs, gpu.type, on_gpu, &result);
  return result;
}

}  // namespace opdock_test
