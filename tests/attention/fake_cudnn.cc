// A stand-in for cuDNN 9: it checks descriptors, and computes any graph of the operations that
// attention is described by, in double, in the memory that it is given. Numbers are typed in from
// NVIDIA's reference, not taken from the code that is tested.
//
// FAKE_CUDNN has words separated by spaces: version=N and cudart=N are what the library says of
// itself; create=N, heuristic=N, plan=N and execute=N return that status; workspace=N is what plans
// need; compute=0 leaves out the work. fake_cudnn_count(what) says how often something was done.
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "../gemm/fake_numbers.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using namespace stand_in;

enum Kind {
  kPointwise = 0,
  kConfig = 3,
  kHeuristics = 4,
  kPlan = 5,
  kPointwiseOperation = 13,
  kGraph = 15,
  kPack = 16,
  kTensor = 17,
  kMatmul = 18,
  kMatmulOperation = 19,
  kReduction = 21,
  kReductionOperation = 22,
  kReshapeOperation = 31,
  kRng = 32,
  kRngOperation = 33,
  kPagedLoad = 35,
};
constexpr int kInt64 = 10;  // cuDNN's number of the type

long setting(const char* name, long otherwise) {
  const char* const all = std::getenv("FAKE_CUDNN");
  const char* const at = all == nullptr ? nullptr : std::strstr(all, name);
  return at == nullptr ? otherwise : std::strtol(at + std::strlen(name) + 1, nullptr, 10);
}

std::map<std::string, int> counts;

struct Desc {
  int kind;
  bool is_final = false;
  bool is_first = false;  // a config: the library cannot make a plan of it
  std::map<int, std::vector<char>> values;

  template <class T>
  std::vector<T> all(int name) const {
    const auto found = values.find(name);
    if (found == values.end()) return {};
    std::vector<T> out(found->second.size() / sizeof(T));
    std::memcpy(out.data(), found->second.data(), found->second.size());
    return out;
  }
  template <class T>
  T one(int name) const {
    const std::vector<T> found = all<T>(name);
    expect(found.size() == 1, "an attribute is missing");
    return found[0];
  }
  Desc* desc(int name) const { return one<Desc*>(name); }
  Desc* may_have(int name) const { return values.count(name) != 0 ? desc(name) : nullptr; }
};

struct Handle {
  void* stream = nullptr;
};

size_t size_of_type(int type) {
  switch (type) {
    case 2:  // a boolean
      return 1;
    case 1:  // enumerators
    case 8:
    case 14:
    case 18:
    case 29:
      return 4;
    default:
      return 8;
  }
}

// The type that an attribute of a descriptor has, or -1.
int type_of_attribute(int kind, int name) {
  static const std::map<int, std::map<int, int>> types = {
      {kPointwise, {{0, 14}, {1, 1}, {9, 3}}},
      {kHeuristics, {{200, 8}, {201, 15}}},
      {kPlan, {{400, 0}, {401, 15}}},
      {kPointwiseOperation, {{750, 15}, {751, 15}, {752, 15}, {753, 15}, {758, 15}}},
      {kGraph, {{800, 0}, {801, 15}}},
      {kTensor, {{900, 3}, {901, 1}, {902, 3}, {903, 3}, {906, 3}, {907, 2}, {908, 2}, {913, 15}}},
      {kPack, {{1000, 3}, {1001, 6}, {1003, 6}}},
      {kMatmul, {{1500, 1}}},
      {kMatmulOperation,
       {{1520, 15}, {1521, 15}, {1522, 15}, {1523, 15}, {1525, 15}, {1526, 15}, {1527, 15}}},
      {kReduction, {{1600, 18}, {1601, 1}}},
      {kReductionOperation, {{1610, 15}, {1611, 15}, {1612, 15}}},
      {kReshapeOperation, {{2200, 15}, {2201, 15}}},
      {kRng, {{2300, 29}, {2305, 5}}},
      {kRngOperation, {{2310, 15}, {2311, 15}, {2312, 15}, {2313, 15}}},
      {kPagedLoad, {{1950, 15}, {1951, 15}, {1952, 15}, {1953, 15}}},
  };
  const auto of_kind = types.find(kind);
  if (of_kind == types.end()) return -1;
  const auto found = of_kind->second.find(name);
  return found == of_kind->second.end() ? -1 : found->second;
}

// CUDA's number of an element type for cuDNN's; booleans are kept as numbers.
int element_of(int type) {
  return type == 0 ? kF32 : type == 2 ? kF16 : type == 4 ? kI32 : type == 9 ? kBf16 : -1;
}

using Dims = std::array<int64_t, 4>;
Dims dims_of(const Desc* x, int name = 902) {
  const std::vector<int64_t> all = x->all<int64_t>(name);
  expect(all.size() == 4, "a tensor without four dimensions");
  return {all[0], all[1], all[2], all[3]};
}

template <class F>
void each_place(const Dims& dims, const F& visit) {
  Dims i;
  for (i[0] = 0; i[0] < dims[0]; ++i[0])
    for (i[1] = 0; i[1] < dims[1]; ++i[1])
      for (i[2] = 0; i[2] < dims[2]; ++i[2])
        for (i[3] = 0; i[3] < dims[3]; ++i[3]) visit(i);
}

// Whether dropout keeps a weight: any function that depends on all of the numbers.
bool keeps(int64_t seed, int64_t offset, int64_t index, double probability) {
  auto x = static_cast<uint64_t>(seed) * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(offset) +
           static_cast<uint64_t>(index) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return static_cast<double>(x >> 11) < probability * 0x1p53;
}

class Run {
 public:
  explicit Run(const Desc* pack) {
    const auto uids = pack->all<int64_t>(1000);
    const auto addresses = pack->all<void*>(1001);
    expect(uids.size() == addresses.size(), "as many addresses as tensors");
    for (size_t i = 0; i < uids.size(); ++i)
      expect(memory_.emplace(uids[i], addresses[i]).second, "a tensor is passed twice");
  }

  void operation(const Desc* x) {
    if (x->kind == kPointwiseOperation) return pointwise(x);
    if (x->kind == kMatmulOperation) return multiply(x);
    if (x->kind == kReductionOperation) return reduce(x);
    if (x->kind == kRngOperation) return draw(x);
    if (x->kind == kPagedLoad) return load(x);
    expect(x->kind == kReshapeOperation, "an operation");
    const Desc *const from = x->desc(2200), *const to = x->desc(2201);
    // The result sees the same memory with other strides.
    const bool is_memory = from->values.count(907) == 0;
    const auto& values = is_memory ? std::vector<double>() : between_.at(uid(from));
    expect((from->may_have(913) != nullptr) == (to->may_have(913) != nullptr), "both are ragged");
    each_place(dims_of(to), [&](const Dims& i) {
      if (is_outside(to, i)) return;
      const int64_t at = place(to, i);
      put(to, i, is_memory ? get_memory(from, at) : values[static_cast<size_t>(at)]);
    });
  }

 private:
  static int64_t uid(const Desc* x) { return x->one<int64_t>(906); }
  int64_t place(const Desc* x, const Dims& i) {
    const Dims dims = dims_of(x), strides = dims_of(x, 903);
    const bool is_ragged = x->may_have(913) != nullptr;
    int64_t at = is_ragged ? offset(x, i[0]) : 0;
    for (size_t d = is_ragged ? 1 : 0; d < 4; ++d) {
      expect(i[d] < dims[d] || dims[d] == 1, "a place outside of a tensor");
      if (dims[d] != 1) at += i[d] * strides[d];
    }
    return at;
  }
  // Where a row of a ragged tensor begins.
  int64_t offset(const Desc* x, int64_t row) {
    const Desc* const offsets = x->desc(913);
    expect(dims_of(offsets)[0] == dims_of(x)[0] + 1, "an offset for each row, and the end");
    return integer(offsets, row);
  }
  // Whether a place lies behind the last token of a ragged row.
  bool is_outside(const Desc* x, const Dims& i) {
    if (x->may_have(913) == nullptr) return false;
    const Dims dims = dims_of(x), strides = dims_of(x, 903);
    const size_t token = dims[3] > 1 && strides[3] > strides[2] ? 3 : 2;
    return i[token] * strides[token] >= offset(x, i[0] + 1) - offset(x, i[0]);
  }
  int64_t integer(const Desc* x, int64_t at) {
    expect(x->one<int>(901) == kInt64, "a tensor of int64");
    const auto found = memory_.find(uid(x));
    expect(found != memory_.end() && found->second != nullptr, "a tensor is not passed");
    return static_cast<const int64_t*>(found->second)[at];
  }
  double get_memory(const Desc* x, int64_t at) {
    const auto found = memory_.find(uid(x));
    expect(found != memory_.end() && found->second != nullptr, "a tensor is not passed");
    return stand_in::get(found->second, element_of(x->one<int>(901)), at);
  }
  double get(const Desc* x, const Dims& i) {
    if (is_outside(x, i)) return 0;
    const int64_t at = place(x, i);
    if (x->values.count(907) == 0) return get_memory(x, at);
    return between_.at(uid(x))[static_cast<size_t>(at)];
  }
  void put(const Desc* x, const Dims& i, double value) {
    if (is_outside(x, i)) return;
    const int64_t at = place(x, i);
    if (x->values.count(907) != 0) {
      std::vector<double>& values = between_[uid(x)];
      if (values.size() <= static_cast<size_t>(at)) values.resize(static_cast<size_t>(at) + 1);
      values[static_cast<size_t>(at)] = value;
      return;
    }
    expect(x->values.count(908) == 0, "a number that is passed by value is written");
    const auto found = memory_.find(uid(x));
    expect(found != memory_.end() && found->second != nullptr, "a result is not passed");
    stand_in::put(found->second, element_of(x->one<int>(901)), at, value);
  }

  void pointwise(const Desc* x) {
    const Desc* const how = x->desc(750);
    const int mode = how->one<int>(0);
    const Desc *const a = x->desc(751), *const b = x->may_have(752), *const y = x->desc(753);
    const Desc* const chosen = x->may_have(758);
    expect((mode == 601) == (chosen != nullptr), "a condition for a selection");
    each_place(dims_of(y), [&](const Dims& i) {
      if (mode == 501) return put(y, i, static_cast<double>(i[how->one<int64_t>(9) == 2 ? 2 : 3]));
      const double left = get(a, i), right = b != nullptr ? get(b, i) : 0;
      put(y, i,
          chosen != nullptr ? (get(chosen, i) != 0 ? left : right) : apply(mode, left, right));
    });
  }
  static double apply(int mode, double a, double b) {
    switch (mode) {
      case 0:
        return a + b;
      case 1:
        return a * b;
      case 6:
        return a / b;
      case 9:
        return a - b;
      case 13:
        return std::exp(a);
      case 15:
        return std::log(a);
      case 21:
        return a;
      case 302:
        return a > b;
      case 303:
        return a >= b;
      case 304:
        return a < b;
      case 400:
        return a != 0 && b != 0;
      default:
        broken("a function of numbers");
    }
  }
  void draw(const Desc* x) {
    const Desc *const how = x->desc(2312), *const y = x->desc(2310);
    expect(how->one<int>(2300) == 0, "Bernoulli's distribution");
    const double probability = how->one<double>(2305);
    expect(probability > 0 && probability < 1, "a probability");
    const int64_t seed = integer(x->desc(2311), 0), at = integer(x->desc(2313), 0);
    int64_t index = 0;
    each_place(dims_of(y),
               [&](const Dims& i) { put(y, i, keeps(seed, at, index++, probability) ? 1 : 0); });
  }
  void load(const Desc* x) {
    const Desc *const blocks = x->desc(1950), *const table = x->desc(1953),
                      *const y = x->desc(1951);
    const Dims all = dims_of(blocks), dims = dims_of(y), strides = dims_of(y, 903);
    const size_t token = strides[2] == 1 ? 3 : 2;
    const int64_t each = all[2];
    expect(dims_of(table)[2] == (dims[token] + each - 1) / each, "as many blocks as keys have");
    expect(all[1] == dims[1] && all[3] == dims[5 - token], "heads and sizes that fit");
    each_place(dims, [&](const Dims& i) {
      const bool is_read = i[token] < get(x->desc(1952), {i[0], 0, 0, 0});
      const Dims from = {
          is_read ? static_cast<int64_t>(get(table, {i[0], 0, i[token] / each, 0})) : 0, i[1],
          i[token] % each, i[5 - token]};
      put(y, i, is_read ? get(blocks, from) : 0);
    });
  }
  void multiply(const Desc* x) {
    const Desc *const a = x->desc(1520), *const b = x->desc(1521), *const c = x->desc(1522);
    const Dims of_a = dims_of(a), of_b = dims_of(b), dims = dims_of(c);
    expect(of_a[3] == of_b[2] && dims[2] == of_a[2] && dims[3] == of_b[3], "sizes that fit");
    expect(of_a[1] % of_b[1] == 0 && dims[1] == of_a[1], "heads that fit");
    const auto most = [&](int name, int64_t row, int64_t size) {
      const Desc* const lengths = x->may_have(name);
      return lengths == nullptr ? size : static_cast<int64_t>(get(lengths, {row, 0, 0, 0}));
    };
    each_place(dims, [&](const Dims& i) {
      double sum = 0;
      const bool is_inside = i[2] < most(1525, i[0], dims[2]) && i[3] < most(1526, i[0], dims[3]);
      const int64_t end = is_inside ? most(1527, i[0], of_a[3]) : 0;
      for (int64_t k = 0; k < end; ++k) {
        sum += get(a, {i[0], i[1], i[2], k}) * get(b, {i[0], i[1] / (of_a[1] / of_b[1]), k, i[3]});
      }
      put(c, i, sum);
    });
  }
  void reduce(const Desc* x) {
    const bool adds = x->desc(1612)->one<int>(1600) == 0;
    const Desc *const from = x->desc(1610), *const to = x->desc(1611);
    const Dims all = dims_of(from), left = dims_of(to);
    each_place(left, [&](const Dims& i) {
      Dims each;
      for (size_t d = 0; d < 4; ++d) each[d] = all[d] / left[d];
      double result = adds ? 0 : -INFINITY;
      each_place(each, [&](const Dims& j) {
        Dims at;
        for (size_t d = 0; d < 4; ++d) at[d] = i[d] * each[d] + j[d];
        const double value = get(from, at);
        result = adds ? result + value : std::fmax(result, value);
      });
      put(to, i, result);
    });
  }

  std::map<int64_t, void*> memory_;
  std::map<int64_t, std::vector<double>> between_;
};

}  // namespace

EXPORT int fake_cudnn_count(const char* what) {
  return counts[what];
}
EXPORT int fake_cudnn_keeps(int64_t seed, int64_t offset, int64_t index, double probability) {
  return keeps(seed, offset, index, probability) ? 1 : 0;
}
EXPORT size_t cudnnGetVersion() {
  return static_cast<size_t>(setting("version", 91900));
}
EXPORT size_t cudnnGetCudartVersion() {
  return static_cast<size_t>(setting("cudart", 13000));
}
EXPORT const char* cudnnGetErrorString(int status) {
  return status == 3000 ? "CUDNN_STATUS_NOT_SUPPORTED" : "CUDNN_STATUS_EXECUTION_FAILED";
}
EXPORT void cudnnGetLastErrorString(char* message, size_t size) {
  std::snprintf(message, size, "{\"engineId\":0}\nWarning: X; Reason: no such kernel\nmore\n");
}
EXPORT int cudnnCreate(Handle** out) {
  ++counts["create"];
  *out = new Handle;
  return static_cast<int>(setting("create", 0));
}
EXPORT int cudnnSetStream(Handle* handle, void* stream) {
  ++counts["stream"];
  handle->stream = stream;
  return 0;
}
EXPORT int cudnnBackendCreateDescriptor(int kind, Desc** out) {
  ++counts["descriptor"];
  *out = new Desc{kind, false, false, {}};
  return 0;
}
EXPORT int cudnnBackendDestroyDescriptor(Desc* desc) {
  --counts["descriptor"];
  delete desc;
  return 0;
}
EXPORT int cudnnBackendSetAttribute(Desc* desc, int name, int type, int64_t count,
                                    const void* from) {
  expect(!desc->is_final && count >= 1, "a descriptor that may be changed");
  expect(type == type_of_attribute(desc->kind, name), "an attribute of this descriptor");
  std::vector<char>& to = desc->values[name];
  to.resize(static_cast<size_t>(count) * size_of_type(type));
  std::memcpy(to.data(), from, to.size());
  if (type == 15) {
    for (const Desc* each : desc->all<Desc*>(name))
      expect(each->is_final || each->kind == kConfig, "a descriptor that is finalized");
  }
  return 0;
}
EXPORT int cudnnBackendFinalize(Desc* desc) {
  expect(!desc->is_final, "a descriptor that is not finalized");
  if (desc->kind == kTensor) {
    dims_of(desc);
    dims_of(desc, 903);
    expect(desc->one<int64_t>(900) == 16, "an alignment");
    const int type = desc->one<int>(901);
    expect(type == 11 || type == kInt64 || element_of(type) >= 0, "an element type");
  }
  if (desc->kind == kGraph) ++counts["graph"];
  if (desc->kind == kHeuristics) {
    expect(desc->one<int>(200) == 3, "the heuristics' mode A");
    if (const long status = setting("heuristic", 0)) return static_cast<int>(status);
  }
  if (desc->kind == kPlan) {
    if (desc->desc(401)->is_first) return 3000;
    if (const long status = setting("plan", 0)) return static_cast<int>(status);
  }
  desc->is_final = true;
  return 0;
}
EXPORT int cudnnBackendGetAttribute(Desc* desc, int name, int type, int64_t room, int64_t* count,
                                    void* to) {
  expect(desc->is_final, "a finalized descriptor");
  if (desc->kind == kPlan) {
    expect(name == 402 && type == 3 && room == 1, "the size of a workspace");
    const int64_t bytes = setting("workspace", 0);
    std::memcpy(to, &bytes, sizeof bytes);
    return 0;
  }
  expect(desc->kind == kHeuristics && name == 202 && type == 15, "the heuristics' results");
  *count = 2;
  if (room == 0) return 0;
  expect(room == 2, "as many configs as there are");
  for (int64_t i = 0; i < 2; ++i) {
    Desc* const config = static_cast<Desc**>(to)[i];
    expect(config->kind == kConfig, "a config");
    config->is_first = i == 0;
    config->values[201] = desc->values[201];
  }
  return 0;
}
EXPORT int cudnnBackendExecute(Handle* handle, Desc* plan, Desc* pack) {
  ++counts["execute"];
  if (const long status = setting("execute", 0)) return static_cast<int>(status);
  if (setting("compute", 1) == 0) return 0;
  expect(plan->one<Handle*>(400) == handle, "the plan's handle");
  const auto workspace = reinterpret_cast<uintptr_t>(pack->one<void*>(1003));
  expect(workspace % 256 == 0, "an aligned workspace");
  const Desc* const graph = plan->desc(401)->desc(201);
  Run run(pack);
  for (const Desc* operation : graph->all<Desc*>(801)) {
    // The library's part of the workspace; nobody else may have anything there.
    std::memset(pack->one<void*>(1003), 0xff, static_cast<size_t>(setting("workspace", 0)));
    run.operation(operation);
  }
  return 0;
}
