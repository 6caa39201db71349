// SPDX-License-Identifier: Apache-2.0
#include "arch/choose.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "arch/choose_inputs.h"
#include "compat/image_fit.h"

namespace opdock {
namespace {

constexpr int kOldestByDefault = 75;  // the device vocabulary is written for 7.5 and later

std::string dotted(int number) {
  return fmt::format("{}.{}", number / 10, number % 10);
}

bool runs(ImageKind kind, const std::string& arch, const Gpu& gpu) {
  DeviceImage image;
  image.backend = Backend::kCuda;
  image.kind = kind;
  image.arch = arch;
  // Without a toolkit in the image, the rule can check only the architecture.
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
        known_(numbers_of(inputs.compilers)) {
    std::erase_if(gpus_, [&](const Gpu& gpu) { return number_of(gpu) < inputs.least; });
    std::erase_if(known_, [&](int number) { return number < inputs.least; });
  }

  std::optional<CudaArchChoice> run() {
    if (inputs_.least > 0 && !inputs_.compilers.empty() && known_.empty())
      return refuse_compilers();
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
    std::optional<CudaList> list = parse_cuda_list(source.text, source.name, reason_);
    if (!list) return false;
    const bool is_below = std::erase_if(list->targets, [&](const CudaTarget& target) {
                            return target.number < inputs_.least;
                          }) > 0;
    const bool has_word =
        list->native || list->automatic || list->all || list->all_major || list->by_default;
    if (is_below && list->targets.empty() && !has_word)
      return refuse_below(fmt::format("{} = \"{}\"", source.name, source.text));
    if (!check(*list, source)) return false;
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
                      fmt::format("{} = \"{}\", and no CUDA compiler that lists what it knows",
                                  source.name, source.text),
                      "a compiler for `all` and `all-major` to ask");
      reason_->advice = "install nvcc or NVRTC, or name the architectures";
      return false;
    }
    if (list->by_default) take_default();
    if (list->all) take_all(known_);
    if (list->all_major) take_all(first_of_majors(known_));
    if (list->automatic) {
      for (const Gpu& gpu : gpus_) take_gpu(number_of(gpu), false);
      choice_.nothing = choice_.targets.empty() && !list->native;
    }
    return !list->native || take_native(source.name + " = \"" + source.text + "\"", true);
  }

  // Refuses all architectures that no compiler knows, in one message.
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

  // Returns advice on what serves such a GPU best with this compiler.
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

  // Returns the newest known architecture up to `number`; 0 if there is none.
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

  // asked: what asks for the GPUs' architectures, for messages. with_ptx: PTX of the newest too.
  bool take_native(const std::string& asked, bool with_ptx) {
    const std::vector<Gpu> visible = gpus_of(inputs_.gpus, Backend::kCuda);
    if (gpus_.empty() && !visible.empty())
      return refuse_below(fmt::format("{}: a GPU of {}", asked, dotted(number_of(visible[0]))));
    if (gpus_.empty()) {
      *reason_ = make_reason(Code::kBuildArch, asked + ", and no visible NVIDIA GPU",
                             "a GPU whose architecture `native` means");
      reason_->advice = "name the architectures; `opdock doctor` says why no GPU is seen";
      return false;
    }
    std::set<int> numbers;
    for (const Gpu& gpu : gpus_) numbers.insert(number_of(gpu));
    for (const int number : numbers) take_gpu(number, with_ptx && number == *numbers.rbegin());
    return !choice_.targets.empty() || refuse_too_old(asked);
  }

  bool stands_for_gpu(const CudaTarget& target) const {
    const std::vector<int>& numbers = inputs_.gpu_numbers;
    return target.suffix == '\0' &&
           std::find(numbers.begin(), numbers.end(), target.number) != numbers.end();
  }

  // Takes a GPU's own architecture, or PTX of the newest one below it that a compiler knows.
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

  // Always returns false.
  bool refuse_too_old(const std::string& asked) {
    const CudaTarget oldest = plain(*too_old_.begin());
    *reason_ =
        make_reason(Code::kBuildArch, fmt::format("{}: a GPU of {}", asked, oldest.text()),
                    fmt::format("what the compiler knows: {}", knowledge_of(inputs_.compilers)));
    reason_->advice = fmt::format("use an older toolkit that still compiles for {}", oldest.text());
    return false;
  }

  std::string least_text() const {
    return fmt::format("{} or later, which plugin.toml's least-cuda-arch asks for",
                       dotted(inputs_.least));
  }

  // Always returns false.
  bool refuse_below(std::string found) {
    *reason_ = make_reason(Code::kArchBelowLeast, std::move(found), least_text());
    reason_->advice = fmt::format("ask for {} or a later architecture", dotted(inputs_.least));
    return false;
  }

  std::nullopt_t refuse_compilers() {
    *reason_ = make_reason(Code::kBuildArch, knowledge_of(inputs_.compilers), least_text());
    reason_->advice = fmt::format("use a toolkit that knows {}", dotted(inputs_.least));
    return std::nullopt;
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
      const std::string arch = dotted(number_of(gpu));
      Reason notice = make_reason(Code::kArchUncovered,
                                  fmt::format("{} from {}", choice_.text(), choice_.origin),
                                  fmt::format("{} for GPU {} ({})", arch, gpu.index, gpu.name));
      if (too_old_.contains(number_of(gpu)))
        notice.advice = "use an older toolkit, which still compiles for that GPU";
      choice_.notices.push_back(std::move(notice));
    }
  }

  const CudaArchInputs& inputs_;
  Reason* reason_;
  std::vector<Gpu> gpus_;   // without those below the least architecture
  std::vector<int> known_;  // ascending; without those below the least architecture
  std::set<int> too_old_;   // visible GPUs that are older than all known_
  CudaArchChoice choice_;
};

}  // namespace

std::optional<CudaArchChoice> choose_cuda_archs(const CudaArchInputs& inputs, Reason* reason) {
  return CudaChooser(inputs, reason).run();
}

}  // namespace opdock
