// SPDX-License-Identifier: Apache-2.0
#include "arch/choose.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "arch/choose_inputs.h"
#include "compat/image_fit.h"

namespace opdock {
namespace {

constexpr int kOldestByDefault = 75;  // what the device vocabulary is written for

std::vector<ArchSource> sources_of(const std::string& option_name, const std::string& option,
                                   const char* variable, const Environment& environment,
                                   const char* key, const std::string& config_path,
                                   const std::string& config) {
  return {{option_name, option},
          {variable, environment.variable(variable).value_or("")},
          {fmt::format("{} in {}", key, config_path), config}};
}

std::string dotted(int number) {
  return fmt::format("{}.{}", number / 10, number % 10);
}

CudaTarget plain(int number, bool ptx = false) {
  CudaTarget target;
  target.number = number;
  target.ptx = ptx;
  return target;
}

bool runs(ImageKind kind, const std::string& arch, const Gpu& gpu) {
  DeviceImage image;
  image.backend = Backend::kCuda;
  image.kind = kind;
  image.arch = arch;
  // Without a toolkit in it the architecture is all that the rule can judge.
  const std::optional<Code> problem = fit_cuda(image, gpu, MachineFacts()).problem;
  return !problem || *problem == Code::kToolkitUnknown;
}

bool covers(const CudaTarget& target, const Gpu& gpu) {
  return runs(ImageKind::kCubin, target.sm(), gpu) ||
         (target.ptx && runs(ImageKind::kPtx, target.compute(), gpu));
}

class CudaChooser {
 public:
  CudaChooser(const CudaArchInputs& inputs, Reason* reason)
      : inputs_(inputs),
        reason_(reason),
        gpus_(gpus_of(inputs.gpus, Backend::kCuda)),
        known_(numbers_of(inputs.compilers)) {}

  std::optional<CudaArchChoice> run() {
    for (const ArchSource& source : inputs_.sources) {
      if (!is_given(source)) continue;
      choice_.origin = source.name;
      if (!take(source)) return std::nullopt;
      note_uncovered();
      return choice_;
    }
    if (!gpus_.empty()) {
      choice_.origin = "the visible GPUs";
      if (!take_native("the visible GPUs", false)) return std::nullopt;
      note_uncovered();
      return choice_;
    }
    choice_.origin = default_name();
    take_default();
    return choice_;
  }

 private:
  bool take(const ArchSource& source) {
    const std::optional<CudaList> list = parse_cuda_list(source.text, source.name, reason_);
    if (!list || !check(*list, source)) return false;
    for (const CudaTarget& target : list->targets) {
      if (stands_for_gpu(target)) {
        take_gpu(target.number, target.ptx);
      } else {
        merge(target, &choice_.targets);
      }
    }
    if (choice_.targets.empty() && !too_old_.empty()) return refuse_too_old(source.name);
    if ((list->all || list->all_major) && known_.empty()) {
      *reason_ =
          make_reason(Code::kBuildArch,
                      fmt::format("{} = \"{}\", and no CUDA compiler that tells what it knows",
                                  source.name, source.text),
                      "a compiler for `all` and `all-major` to ask");
      reason_->advice = "install nvcc or NVRTC, or name the architectures";
      return false;
    }
    if (list->by_default) take_default();
    if (list->all) take_all(known_);
    if (list->all_major) take_all(first_of_majors(known_));
    return !list->native || take_native(source.name + " = \"" + source.text + "\"", true);
  }

  // All that no compiler knows, in one message.
  bool check(const CudaList& list, const ArchSource& source) {
    if (inputs_.compilers.empty()) return true;
    std::string unknown, way_out;
    for (const CudaTarget& target : list.targets) {
      if (any_knows(inputs_.compilers, target) || stands_for_gpu(target)) continue;
      unknown += (unknown.empty() ? "" : ", ") + target.text();
      const std::string advice = instead_of(target);
      if (way_out.find(advice) == std::string::npos)
        way_out += (way_out.empty() ? "" : "; ") + advice;
    }
    if (unknown.empty()) return true;
    *reason_ = make_reason(
        Code::kBuildArch, fmt::format("{} in {} = \"{}\"", unknown, source.name, source.text),
        fmt::format("what the compiler knows: {}", knowledge_of(inputs_.compilers)));
    reason_->advice = way_out;
    return false;
  }

  // What serves such a GPU best with this compiler.
  std::string instead_of(const CudaTarget& target) const {
    if (known_.empty()) return "install a CUDA compiler that knows it";
    if (target.suffix != '\0' && any_knows(inputs_.compilers, plain(target.number)))
      return fmt::format("write {} (no compiler here takes the suffix {}), or use a newer toolkit",
                         dotted(target.number), target.suffix);
    const int below = newest_up_to(target.number);
    if (below == 0)
      return fmt::format(
          "leave {} out (the oldest known is {}), or use an older toolkit that still "
          "compiles for it",
          dotted(target.number), dotted(known_.front()));
    return fmt::format(
        "write {}+PTX, which the driver compiles for {}, or use a toolkit that knows it",
        dotted(below), dotted(target.number));
  }

  // 0: none.
  int newest_up_to(int number) const {
    int found = 0;
    for (const int known : known_)
      if (known <= number) found = known;
    return found;
  }

  static std::vector<int> first_of_majors(const std::vector<int>& numbers) {
    std::vector<int> out;
    for (const int number : numbers)
      if (out.empty() || out.back() / 10 != number / 10) out.push_back(number);
    return out;
  }

  void take_all(const std::vector<int>& numbers) {
    for (const int number : numbers) merge(plain(number), &choice_.targets);
    merge(plain(first_of_majors(known_).back(), true), &choice_.targets);
  }

  // `asked`: who wants the GPUs' architectures. `with_ptx`: PTX of the newest too.
  bool take_native(const std::string& asked, bool with_ptx) {
    if (gpus_.empty()) {
      *reason_ = make_reason(Code::kBuildArch, asked + ", and no visible NVIDIA GPU",
                             "a GPU whose architecture `native` means");
      reason_->advice = "name the architectures; `opdock doctor` says why no GPU is seen";
      return false;
    }
    std::set<int> numbers;
    for (const Gpu& gpu : gpus_) numbers.insert(10 * gpu.major + gpu.minor);
    for (const int number : numbers) take_gpu(number, with_ptx && number == *numbers.rbegin());
    return !choice_.targets.empty() || refuse_too_old(asked);
  }

  bool stands_for_gpu(const CudaTarget& target) const {
    const std::vector<int>& numbers = inputs_.gpu_numbers;
    return target.suffix == '\0' &&
           std::find(numbers.begin(), numbers.end(), target.number) != numbers.end();
  }

  // A GPU's own architecture, or PTX of the newest below it that a compiler knows.
  void take_gpu(int number, bool with_ptx) {
    if (inputs_.compilers.empty() || any_knows(inputs_.compilers, plain(number))) {
      merge(plain(number, with_ptx), &choice_.targets);
      return;
    }
    const int below = newest_up_to(number);
    if (below == 0) {
      too_old_.insert(number);
      return;
    }
    merge(plain(below, true), &choice_.targets);
    Reason notice = make_reason(
        Code::kArchPtx, fmt::format("a GPU of {}, which no compiler here knows", dotted(number)),
        fmt::format("what the compiler knows: {}", knowledge_of(inputs_.compilers)));
    notice.advice = fmt::format(
        "nothing to do: {}+PTX is built, which the driver compiles; a newer toolkit makes it "
        "faster",
        dotted(below));
    choice_.notices.push_back(std::move(notice));
  }

  // Always false.
  bool refuse_too_old(const std::string& asked) {
    const CudaTarget oldest = plain(*too_old_.begin());
    *reason_ =
        make_reason(Code::kBuildArch, fmt::format("{}: a GPU of {}", asked, oldest.text()),
                    fmt::format("what the compiler knows: {}", knowledge_of(inputs_.compilers)));
    reason_->advice = fmt::format("use an older toolkit that still compiles for {}", oldest.text());
    return false;
  }

  std::string default_name() const {
    if (inputs_.compilers.empty()) return "no CUDA compiler";
    std::string names;
    for (const CompilerArchs& compiler : inputs_.compilers)
      names += (names.empty() ? "" : " and ") + compiler.name;
    return "the default of " + names;
  }

  void take_default() {
    std::vector<int> numbers;
    for (const int number : known_)
      if (number >= kOldestByDefault) numbers.push_back(number);
    if (numbers.empty()) numbers = known_;
    numbers = first_of_majors(numbers);
    for (const int number : numbers)
      merge(plain(number, number == numbers.front() || number == numbers.back()), &choice_.targets);
  }

  void note_uncovered() {
    for (const Gpu& gpu : gpus_) {
      const bool covered =
          std::any_of(choice_.targets.begin(), choice_.targets.end(),
                      [&](const CudaTarget& target) { return covers(target, gpu); });
      if (covered) continue;
      const std::string arch = dotted(10 * gpu.major + gpu.minor);
      Reason notice = make_reason(Code::kArchUncovered,
                                  fmt::format("{} from {}", choice_.text(), choice_.origin),
                                  fmt::format("{} for GPU {} ({})", arch, gpu.index, gpu.name));
      if (too_old_.contains(10 * gpu.major + gpu.minor))
        notice.advice = "use an older toolkit, which still compiles for that GPU";
      choice_.notices.push_back(std::move(notice));
    }
  }

  const CudaArchInputs& inputs_;
  Reason* reason_;
  const std::vector<Gpu> gpus_;
  const std::vector<int> known_;  // ascending
  std::set<int> too_old_;         // of visible GPUs
  CudaArchChoice choice_;
};

}  // namespace

std::vector<ArchSource> cuda_arch_sources(const std::string& option_name, const std::string& option,
                                          const Environment& environment,
                                          const std::string& config_path,
                                          const std::string& config) {
  return sources_of(option_name, option, "TORCH_CUDA_ARCH_LIST", environment, "cuda-archs",
                    config_path, config);
}

std::vector<ArchSource> rocm_arch_sources(const std::string& option_name, const std::string& option,
                                          const Environment& environment,
                                          const std::string& config_path,
                                          const std::string& config) {
  return sources_of(option_name, option, "PYTORCH_ROCM_ARCH", environment, "hip-archs", config_path,
                    config);
}

std::optional<CudaArchChoice> choose_cuda_archs(const CudaArchInputs& inputs, Reason* reason) {
  return CudaChooser(inputs, reason).run();
}

std::optional<ArchRequest> request_cuda_archs(const std::vector<ArchSource>& sources,
                                              const std::vector<Gpu>& gpus, Reason* reason) {
  CudaArchInputs inputs;
  inputs.gpus = gpus;
  std::string words;
  bool by_gpus = true;  // unless a list decides
  std::vector<CudaTarget> written;
  for (const ArchSource& source : sources) {
    if (!is_given(source)) continue;
    const std::optional<CudaList> list = parse_cuda_list(source.text, source.name, reason);
    if (!list) return std::nullopt;
    by_gpus = list->native;
    written = list->targets;
    if (list->all) words += "all;";
    if (list->all_major) words += "all-major;";
    if (list->by_default) words += "default;";
    // What is left can be chosen without a compiler.
    std::string rest = to_text(list->targets);
    if (list->native) rest += rest.empty() ? "native" : ";native";
    if (rest.empty()) return ArchRequest{words.substr(0, words.size() - 1), source.name, {}, {}};
    inputs.sources = {{source.name, rest}};
    break;
  }
  std::optional<CudaArchChoice> choice = choose_cuda_archs(inputs, reason);
  if (!choice) return std::nullopt;
  if (!words.empty()) choice->notices.clear();  // the words cover what the list does not
  std::vector<CudaTarget> of_gpus;
  for (const Gpu& gpu : by_gpus ? gpus_of(gpus, Backend::kCuda) : std::vector<Gpu>()) {
    const int number = 10 * gpu.major + gpu.minor;
    const bool is_written = std::any_of(
        written.begin(), written.end(),
        [&](const CudaTarget& target) { return target.number == number && target.suffix == '\0'; });
    if (!is_written) merge(plain(number), &of_gpus);
  }
  return ArchRequest{words + choice->text(), choice->origin, std::move(choice->notices),
                     to_text(of_gpus)};
}

std::vector<int> gpu_numbers_of(const std::string& gpu_archs) {
  Reason ignored{};
  std::vector<int> numbers;
  if (const std::optional<CudaList> list = parse_cuda_list(gpu_archs, "", &ignored)) {
    for (const CudaTarget& target : list->targets) numbers.push_back(target.number);
  }
  return numbers;
}

}  // namespace opdock
