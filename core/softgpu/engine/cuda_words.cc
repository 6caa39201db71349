// SPDX-License-Identifier: Apache-2.0
#include "cuda_words.h"

#include <cctype>
#include <map>
#include <set>
#include <string_view>

namespace softgpu {
namespace {

// CUDA's names and the vocabulary's replacements; docs/reference/vocabulary.md lists them.
const std::map<std::string_view, const char*> kWords = {
    {"__global__", "OPDOCK_KERNEL(max_threads) instead of \"__global__ void\""},
    {"__launch_bounds__", "OPDOCK_KERNEL(max_threads)"},
    {"__device__", "OPDOCK_DEVICE"},
    {"__forceinline__", "OPDOCK_DEVICE"},
    {"__host__", "OPDOCK_HOST_DEVICE"},
    {"__shared__", "OPDOCK_SHARED(type, name, count), or dynamic_shared<T>()"},
    {"__constant__", "a parameter of the kernel"},
    {"threadIdx", "thread_index(), thread_index_y(), thread_index_z()"},
    {"blockIdx", "block_index(), block_index_y(), block_index_z()"},
    {"blockDim", "block_threads(), block_threads_y(), block_threads_z()"},
    {"gridDim", "grid_blocks(), grid_blocks_y(), grid_blocks_z()"},
    {"warpSize", "warp_width()"},
    {"__syncthreads", "block_barrier()"},
    {"__syncwarp", "warp_barrier()"},
    {"__threadfence", "device_fence()"},
    {"__shfl_sync", "shuffle(value, lane)"},
    {"__shfl_xor_sync", "shuffle_xor(value, mask)"},
    {"__shfl_up_sync", "shuffle_up(value, by)"},
    {"__shfl_down_sync", "shuffle_down(value, by)"},
    {"__ballot_sync", "vote_ballot(yes)"},
    {"__any_sync", "vote_any(yes)"},
    {"__all_sync", "vote_all(yes)"},
    {"atomicAdd", "atomic_add(at, value)"},
    {"atomicMax", "atomic_max(at, value)"},
    {"atomicMin", "atomic_min(at, value)"},
    {"atomicExch", "atomic_exchange(at, value)"},
    {"atomicCAS", "atomic_compare_and_swap(at, expected, desired)"},
    {"cuda_fp16", "opdock::half, which opdock/device.cuh has"},
    {"cuda_bf16", "opdock::bfloat16, which opdock/device.cuh has"},
    {"__half", "opdock::half"},
    {"__nv_bfloat16", "opdock::bfloat16"},
    {"__half2float", "to_float(value)"},
    {"__bfloat162float", "to_float(value)"},
    {"__float2half", "from_float<half>(value)"},
    {"__float2bfloat16", "from_float<bfloat16>(value)"},
    {"float4", "Vector<float>, load_vector() and store_vector()"},
    {"__ldg", "a load as any other"},
    {"__expf", "exp(x)"},
    {"__logf", "log(x)"},
    {"__fdividef", "a / b"},
    {"expf", "exp(x)"},
    {"exp2f", "exp2(x)"},
    {"expm1f", "expm1(x)"},
    {"logf", "log(x)"},
    {"sqrtf", "sqrt(x)"},
    {"rsqrtf", "rsqrt(x)"},
    {"tanhf", "tanh(x)"},
    {"erff", "erf(x)"},
    {"fmaxf", "max(a, b)"},
    {"fminf", "min(a, b)"},
    {"fabsf", "abs(x)"},
    {"fmaf", "fma(a, b, c)"},
    {"asm", "words of the vocabulary, or cuda_sources that nvcc compiles"},
};

bool is_letter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// Returns the end of the comment or literal that begins at `at`, or `at` if none begins there. `at`
// must be less than the size of the text.
size_t skip(std::string_view text, size_t at) {
  const auto behind = [&](std::string_view end, size_t from) {
    const size_t found = text.find(end, from);
    return found == text.npos ? text.size() : found + end.size();
  };
  if (text.substr(at, 2) == "//") return behind("\n", at) - (behind("\n", at) < text.size());
  if (text.substr(at, 2) == "/*") return behind("*/", at + 2);
  if (text[at] != '"' && text[at] != '\'') return at;
  for (size_t i = at + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == text[at]) {
      return i + 1;
    }
  }
  return text.size();
}

// Returns whether only CUDA uses this name. Such names are reported even if the compiler stopped
// before it reached them.
bool is_only_cudas(std::string_view word) {
  return word.starts_with("__") || word.starts_with("atomic") || word.ends_with("Idx") ||
         word.ends_with("Dim");
}

struct Search {
  const std::string& output;
  std::set<std::string_view> told{};
  bool is_complained_of = false;  // the compiler's output contains one of the names
  std::string lines{};

  void look(const std::string& name, std::string_view text) {
    size_t line = 1;
    for (size_t at = 0; at < text.size();) {
      const size_t next = skip(text, at);
      size_t end = next;
      if (next == at && is_letter(text[at])) {
        while (end < text.size() && is_letter(text[end])) ++end;
        tell(name, line, text.substr(at, end - at));
      } else if (next == at) {
        ++end;
      }
      for (; at < end; ++at) line += text[at] == '\n';
    }
  }

  void tell(const std::string& name, size_t line, std::string_view word) {
    const auto known = kWords.find(word);
    if (known == kWords.end()) return;
    const bool is_in_output = output.find(word) != output.npos;
    is_complained_of = is_complained_of || is_in_output;
    if (!is_in_output && !is_only_cudas(word)) return;
    if (!told.insert(known->first).second) return;
    lines += name + ":" + std::to_string(line) + ": " + std::string(word) + " is CUDA's; write " +
             known->second + "\n";
  }
};

}  // namespace

std::string explain_cuda_words(const KernelSource& source, const std::string& output) {
  Search search{output};
  search.look(source.program_name, source.program);
  for (const auto& [name, text] : source.headers) {
    if (!name.starts_with("opdock/")) search.look(name, text);
  }
  return search.is_complained_of ? search.lines : "";
}

}  // namespace softgpu
